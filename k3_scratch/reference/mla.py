"""Multi-head latent attention without positions: many heads, one small cached vector a token.

Keys and values of all heads are linear in one latent c of R numbers, so only c is cached, and with it one further key
slice of r numbers that all heads share. Nothing is rotated and nothing is added: to a query the earlier tokens are a
set. The two functions are the textbook form and the form for decoding; they give the same numbers.
Source: DeepSeek-V2, arXiv 2405.04434 (MLA and absorption); Kimi Linear and K3 report (no positions).
"""

import numpy as np

from k3_scratch.reference.softmax import softmax
from k3_scratch.shapes import ShapeError, check_shapes


def mla_naive(q, latent, shared_key, w_kvb, *, mask=None):
    """Expand every cached latent into a key and a value per head, then attend.

    [..., T, H, Q], [..., S, R], [..., S, r], [H, n+v, R] -> [..., T, H, v]

    q           [..., T, H, Q]  queries, Q = n + r; they are the *last* T of the S positions
    latent      [..., S, R]     latents of all positions, already normed
    shared_key  [..., S, r]     the key slice shared by all heads: not normed, never rotated, last in each head's key
    w_kvb       [H, n+v, R]     per head: n rows that make keys, then v rows that make values
    mask        [..., T, S] bool, True = visible, on top of causality; a query always sees its own position. None: all
    Scores are scaled by Q^(-1/2).  Raises ShapeError; TypeError when mask is not boolean.
    """
    q, latent, shared_key, w_kvb, visible, n = _prepare("mla_naive", q, latent, shared_key, w_kvb, mask)
    expanded = np.einsum("...sr,hmr->...shm", latent, w_kvb)                     # [..., S, H, n+v]
    H = q.shape[-2]
    shared = np.repeat(shared_key[..., :, None, :], H, axis=-2)                  # [..., S, r] -> [..., S, H, r]
    keys = np.concatenate([expanded[..., :n], shared], axis=-1)                  # [..., S, H, Q]
    values = expanded[..., n:]                                                   # [..., S, H, v]
    scores = np.einsum("...thq,...shq->...hts", q, keys) * q.shape[-1] ** -0.5   # [..., H, T, S]
    weights = softmax(np.where(visible, scores, -np.inf))                        # [..., H, T, S]
    return np.einsum("...hts,...shv->...thv", weights, values)                   # [..., T, H, v]


def mla_absorbed(q, latent, shared_key, w_kvb, *, mask=None):
    """The same without ever expanding the cache: attention among vectors of R + r numbers, one key for all heads.

    q . (W_k c) = (W_k^T q) . c, so W_k moves into the query; sum_s p_s W_v c_s = W_v sum_s p_s c_s, so W_v moves behind
    the sum. Arguments, shapes and errors as `mla_naive`.
    """
    q, latent, shared_key, w_kvb, visible, n = _prepare("mla_absorbed", q, latent, shared_key, w_kvb, mask)
    w_k, w_v = w_kvb[:, :n], w_kvb[:, n:]                                        # [H, n, R], [H, v, R]
    q_latent = np.einsum("...thn,hnr->...thr", q[..., :n], w_k)                  # [..., T, H, R]
    scores = np.einsum("...thr,...sr->...hts", q_latent, latent)                 # [..., H, T, S]
    scores = scores + np.einsum("...thr,...sr->...hts", q[..., n:], shared_key)  # here r is the shared slice
    scores = scores * q.shape[-1] ** -0.5                                        # of Q, not of R + r
    weights = softmax(np.where(visible, scores, -np.inf))                        # [..., H, T, S]
    mixed = np.einsum("...hts,...sr->...thr", weights, latent)                   # [..., T, H, R]
    return np.einsum("...thr,hvr->...thv", mixed, w_v)                           # [..., T, H, v]


def visible_pairs(T, S, mask=None):
    """Which of S positions each of the last T may see.   -> bool [T, S], or [..., T, S] with a mask

    Query t sits at position S - T + t: a causal mask that forgets the cached S - T positions would hide them.
    """
    position = np.arange(S - T, S)[:, None]                                      # [T, 1]
    causal = np.arange(S) <= position                                            # [T, S]
    if mask is None:
        return causal
    return (causal & mask) | (np.arange(S) == position)                          # own position always: no empty row


def _prepare(function, q, latent, shared_key, w_kvb, mask):
    """Checked float64 arrays, the visible pairs as [..., 1, T, S] (1 for the heads) and n."""
    q, latent, shared_key, w_kvb = (np.asarray(a, dtype=np.float64) for a in (q, latent, shared_key, w_kvb))
    sizes = check_shapes(function, q=(q, "... T H Q"), latent=(latent, "... S R"), shared_key=(shared_key, "... S r"),
                         w_kvb=(w_kvb, "H n+v R"))
    T, S, n = sizes["T"], sizes["S"], sizes["Q"] - sizes["r"]
    if T > S:
        raise ShapeError(f"{function}: latent must have shape [..., S, R] with S at least T = {T} (the queries are "
                         f"the last T positions), but {list(latent.shape)} came")
    if not 0 <= n < sizes["n+v"]:
        raise ShapeError(f"{function}: w_kvb must have shape [H, n+v, R] with n = Q - r = {n} from 0 to below n+v, "
                         f"but {list(w_kvb.shape)} came")
    if mask is not None:
        mask = np.asarray(mask)
        check_shapes(function, q=(q, "... T H Q"), latent=(latent, "... S R"), mask=(mask, "... T S"))
        if mask.dtype != bool:
            raise TypeError(f"{function}: mask must be boolean with True = visible, but {mask.dtype} came")
    return q, latent, shared_key, w_kvb, visible_pairs(T, S, mask)[..., None, :, :], n
