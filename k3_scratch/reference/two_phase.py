"""Attention over depth in two phases: the bank once for all queries of a block, the growing sum one by one.

All mixes inside a block share the same bank and differ only in the last source, h. Phase one reads the bank once and
keeps, for each query, three running numbers of an online softmax; phase two merges h into them. Exact, not an
approximation: e^{s - m} of different parts may be added after each is moved to the common maximum.
Source: AttnRes (arXiv 2603.15031), two-phase evaluation; online softmax: Milakov and Gimelshein, arXiv 1805.02867.
"""

import numpy as np

from k3_scratch.reference.attention_residuals import depth_scores
from k3_scratch.shapes import ShapeError, check_shapes


def bank_phase(bank, queries, norm_weights, eps=1e-5):
    """[N, ..., D], [Q, D], [Q, D] -> maximum [Q, ...], total [Q, ...], weighted [Q, ..., D]

    bank                   [N, ..., D]  banked vectors, the oldest first; N may be 0
    queries, norm_weights  [Q, D]       of the Q mixes that share this bank
    For each query: the largest score m, the sum of e^{score - m}, and the sum of e^{score - m} times the raw vectors.
    Raises ShapeError.
    """
    bank, queries, norm_weights = (np.asarray(a, dtype=np.float64) for a in (bank, queries, norm_weights))
    if bank.ndim < 2:
        raise ShapeError(f"bank_phase: bank must have shape [N, ..., D], but {list(bank.shape)} came")
    check_shapes("bank_phase", bank=(bank, "... D"), queries=(queries, "Q D"), norm_weights=(norm_weights, "Q D"))
    mean_square = np.mean(bank * bank, axis=-1)                                  # [N, ..., D] -> [N, ...], once for all
    scores = np.einsum("n...d,qd->qn...", bank, queries * norm_weights)          # [Q, N, ...]
    scores = scores / np.sqrt(mean_square + eps)                                 # [Q, N, ...]
    maximum = scores.max(axis=1, initial=-np.inf)                                # [Q, N, ...] -> [Q, ...]
    shares = np.exp(scores - maximum[:, None])                                   # [Q, N, ...], the largest is 1
    weighted = np.einsum("qn...,n...d->q...d", shares, bank)                     # [Q, ..., D]
    return maximum, shares.sum(axis=1), weighted


def merge_phase(maximum, total, weighted, h, query, norm_weight, eps=1e-5):
    """Add the last source h for one query, and divide.

    [...], [...], [..., D], [..., D], [D], [D] -> mixed [..., D]

    maximum, total, weighted   this query's rows of `bank_phase`
    h [..., D] running sum of the block; query, norm_weight [D].  Equal to `depth_mix([*bank, h], ...)`.
    Raises ShapeError.
    """
    maximum, total, weighted, h, query, norm_weight = (
        np.asarray(a, dtype=np.float64) for a in (maximum, total, weighted, h, query, norm_weight))
    check_shapes("merge_phase", h=(h, "... D"), maximum=(maximum, "..."), total=(total, "..."),
                 weighted=(weighted, "... D"), query=(query, "D"), norm_weight=(norm_weight, "D"))
    score = depth_scores(h[None], query, norm_weight, eps)[0]                    # [1, ..., D] -> [...]
    common = np.maximum(maximum, score)                                          # [...]
    old, new = np.exp(maximum - common), np.exp(score - common)                  # [...], one of them is 1
    total = old * total + new                                                    # [...]
    weighted = old[..., None] * weighted + new[..., None] * h                    # [..., D]
    return weighted / total[..., None]                                           # [..., D]
