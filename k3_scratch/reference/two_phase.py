"""Attention over depth in two phases: the bank once for all queries of a block, the growing sum one by one.

All mixes inside a block share the same bank and differ only in the last source, h. Phase one reads the bank once and
keeps, for each query, the mean over the bank and the log of the bank's total weight; phase two sets h against it.
Exact, not an approximation: a softmax over (bank, h) is a sigmoid between the bank's own softmax and h.
Source: AttnRes (arXiv 2603.15031), two-phase evaluation; online softmax: Milakov and Gimelshein, arXiv 1805.02867.
"""

import numpy as np

from k3_scratch.reference.attention_residuals import depth_scores
from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.shapes import ShapeError, check_shapes


def bank_phase(bank, queries, norm_weights, eps=1e-5):
    """[N, ..., D], [Q, D], [Q, D] -> log_total [Q, ...], mean [Q, ..., D]

    bank                   [N, ..., D]  banked vectors, the oldest first; N may be 0
    queries, norm_weights  [Q, D]       of the Q mixes that share this bank
    For each query: log(sum of e^score), and the mean of the raw vectors weighted with e^score. Raises ShapeError.
    """
    bank, queries, norm_weights = (np.asarray(a, dtype=np.float64) for a in (bank, queries, norm_weights))
    if bank.ndim < 2:
        raise ShapeError(f"bank_phase: bank must have shape [N, ..., D], but {list(bank.shape)} came")
    check_shapes("bank_phase", bank=(bank, "... D"), queries=(queries, "Q D"), norm_weights=(norm_weights, "Q D"))
    if not len(bank):                                                            # nothing is banked: no weight at all
        shape = (len(queries), *bank.shape[1:])
        return np.full(shape[:-1], -np.inf), np.zeros(shape)
    mean_square = np.mean(bank * bank, axis=-1)                                  # [N, ..., D] -> [N, ...], once for all
    scores = np.einsum("n...d,qd->qn...", bank, queries * norm_weights)          # [Q, N, ...]
    scores = scores / np.sqrt(mean_square + eps)                                 # [Q, N, ...]
    maximum = scores.max(axis=1, keepdims=True)                                  # [Q, 1, ...]
    shares = np.exp(scores - maximum)                                            # [Q, N, ...], the largest is 1
    total = shares.sum(axis=1)                                                   # [Q, ...]
    weighted = np.einsum("qn...,n...d->q...d", shares, bank)                     # [Q, ..., D]
    return maximum[:, 0] + np.log(total), weighted / total[..., None]


def merge_phase(log_total, mean, h, query, norm_weight, eps=1e-5):
    """mean + sigmoid(score of h - log_total) (h - mean).   [...], [..., D], [..., D], [D], [D] -> mixed [..., D]

    log_total, mean   this query's rows of `bank_phase`
    h [..., D] running sum of the block; query, norm_weight [D].  Equal to `depth_mix([*bank, h], ...)`.
    Raises ShapeError.
    """
    log_total, mean, h, query, norm_weight = (np.asarray(a, dtype=np.float64)
                                              for a in (log_total, mean, h, query, norm_weight))
    check_shapes("merge_phase", h=(h, "... D"), log_total=(log_total, "..."), mean=(mean, "... D"),
                 query=(query, "D"), norm_weight=(norm_weight, "D"))
    score = depth_scores(h[None], query, norm_weight, eps)[0]                    # [1, ..., D] -> [...]
    return mean + sigmoid(score - log_total)[..., None] * (h - mean)             # [..., D]
