"""The delta rule: a memory that corrects itself instead of only adding.

One write is one step of gradient descent on how well the memory recalls the new pair: with the loss
1/2 |S^T k - v|^2 the gradient in S is k (S^T k - v)^T, and beta is the learning rate.
Source: Schlag et al., arXiv 2102.11174; K3 report, Eq. 1 with alpha = 1.
"""

import numpy as np

from k3_scratch.reference.memory import as_float64, query_scale, start_state
from k3_scratch.shapes import check_shapes


def delta_step(state, k, v, beta):
    """One write: S <- S + beta k (v - S^T k)^T.          [..., K, V], [..., K], [..., V], [...] -> [..., K, V]

    The memory first says what it holds for `k`; only the error is written back. With unit length of k and beta = 1 the
    key returns exactly v afterwards, with beta = 0 nothing happens, with beta = 2 the error changes its sign.
    state [..., K, V], k [..., K] of unit length, v [..., V], beta [...] in [0, 1]; `...` may hold batch and heads.
    Returns a new state.  Raises ShapeError.
    """
    state, k, v, beta = as_float64(state, k, v, beta)
    check_shapes("delta_step", state=(state, "... K V"), k=(k, "... K"), v=(v, "... V"), beta=(beta, "..."))
    recalled = np.einsum("...k,...kv->...v", k, state)                           # [..., K] @ [..., K, V] -> [..., V]
    write = beta[..., None] * (v - recalled)                                     # [..., V]
    return state + k[..., :, None] * write[..., None, :]                         # [..., K, V]


def delta_recurrent(q, k, v, beta, state=None, *, scale=None):
    """Write, then read, one token after the other: S_t = delta_step(S_{t-1}), o_t = S_t^T (scale q_t).

    [..., T, H, K] x 2, [..., T, H, V], [..., T, H], [..., H, K, V] -> o [..., T, H, V], state [..., H, K, V]

    q, k   [..., T, H, K]  queries and keys, already of unit length
    v      [..., T, H, V]  values
    beta   [..., T, H]     writing strength in [0, 1], one a head
    state  [..., H, K, V]  memory before the first token; None: zeros
    scale  None = K^(-1/2), on q alone: the state does not depend on it
    Raises ShapeError.
    """
    q, k, v, beta = as_float64(q, k, v, beta)
    sizes = check_shapes("delta_recurrent", q=(q, "... T H K"), k=(k, "... T H K"), v=(v, "... T H V"),
                         beta=(beta, "... T H"))
    S, scale = start_state("delta_recurrent", state, k, v), query_scale(scale, sizes["K"])
    o = np.empty(v.shape)                                                        # [..., T, H, V]
    for t in range(sizes["T"]):
        S = delta_step(S, k[..., t, :, :], v[..., t, :, :], beta[..., t, :])     # [..., H, K, V]
        o[..., t, :, :] = np.einsum("...hk,...hkv->...hv", scale * q[..., t, :, :], S)
    return o, S
