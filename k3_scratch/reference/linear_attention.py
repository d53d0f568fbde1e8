"""Linear attention: softmax attention without the softmax is a matrix that remembers.

Leaving out the softmax, o_t = sum_{s <= t} (q_t . k_s) v_s = S_t^T q_t with S_t = sum_{s <= t} k_s v_s^T. The left side
reads all earlier tokens again for each new one; the right side keeps one K x V matrix. The two functions here are
these two sides and give the same numbers.  Source: Katharopoulos et al., arXiv 2006.16236 (here without a feature map
and without a normaliser).
"""

import numpy as np

from k3_scratch.reference.memory import as_float64, query_scale, start_state
from k3_scratch.shapes import check_shapes


def linear_attention_recurrent(q, k, v, state=None, *, scale=None):
    """S_t = S_{t-1} + k_t v_t^T,  o_t = S_t^T (scale q_t), one token after the other.

    [..., T, H, K], [..., T, H, K], [..., T, H, V], [..., H, K, V] -> o [..., T, H, V], state [..., H, K, V]

    Only adds: writing twice under one key returns the sum of both values, and nothing is ever forgotten.
    q, k [..., T, H, K], v [..., T, H, V], state as above or None (zeros), scale None = K^(-1/2).  Raises ShapeError.
    """
    q, k, v, S, scale = _prepare("linear_attention_recurrent", q, k, v, state, scale)
    o = np.empty(v.shape)                                                        # [..., T, H, V]
    for t in range(v.shape[-3]):
        k_t, v_t = k[..., t, :, :], v[..., t, :, :]                              # [..., H, K], [..., H, V]
        S = S + k_t[..., :, None] * v_t[..., None, :]                            # [..., H, K, V]
        o[..., t, :, :] = np.einsum("...hk,...hkv->...hv", scale * q[..., t, :, :], S)
    return o, S


def linear_attention_parallel(q, k, v, state=None, *, scale=None):
    """o = (scale Q K^T, lower triangle) V + scale Q S_0: all tokens at once. Shapes and errors as the recurrent form.

    The diagonal is kept: a token reads after it has written.
    """
    q, k, v, S, scale = _prepare("linear_attention_parallel", q, k, v, state, scale)
    T = v.shape[-3]
    scores = scale * np.einsum("...thk,...shk->...hts", q, k)                    # [..., H, T, T]
    scores = np.where(np.tril(np.ones((T, T), dtype=bool)), scores, 0.0)         # a token sees no later one
    within = np.einsum("...hts,...shv->...thv", scores, v)                       # [..., T, H, V]
    before = scale * np.einsum("...thk,...hkv->...thv", q, S)                    # [..., T, H, V]
    return within + before, S + np.einsum("...thk,...thv->...hkv", k, v)


def _prepare(function, q, k, v, state, scale):
    q, k, v = as_float64(q, k, v)
    sizes = check_shapes(function, q=(q, "... T H K"), k=(k, "... T H K"), v=(v, "... T H V"))
    return q, k, v, start_state(function, state, k, v), query_scale(scale, sizes["K"])
