"""Gated DeltaNet: the delta rule with one decay a head. KDA is this with one decay a *channel*.

Source: Yang et al., arXiv 2412.06464.
"""

import numpy as np

from k3_scratch.reference.delta_rule import delta_step
from k3_scratch.reference.memory import as_float64, query_scale, start_state
from k3_scratch.shapes import check_shapes


def gated_delta_recurrent(q, k, v, g, beta, state=None, *, scale=None):
    """S_t = (I - beta k k^T) e^g S_{t-1} + beta k v^T,  o_t = S_t^T (scale q_t): decay, then write, then read.

    [..., T, H, K] x 2, [..., T, H, V], [..., T, H] x 2, [..., H, K, V] -> o [..., T, H, V], state [..., H, K, V]

    q, k   [..., T, H, K]  queries and keys, already of unit length
    v      [..., T, H, V]  values
    g      [..., T, H]     log-decay in nats a token, <= 0, one a head (g = log alpha, not alpha)
    beta   [..., T, H]     writing strength in [0, 1]
    state  [..., H, K, V]  memory before the first token; None: zeros
    scale  None = K^(-1/2), on q alone
    Raises ShapeError.
    """
    q, k, v, g, beta = as_float64(q, k, v, g, beta)
    sizes = check_shapes("gated_delta_recurrent", q=(q, "... T H K"), k=(k, "... T H K"), v=(v, "... T H V"),
                         g=(g, "... T H"), beta=(beta, "... T H"))
    S, scale = start_state("gated_delta_recurrent", state, k, v), query_scale(scale, sizes["K"])
    o = np.empty(v.shape)                                                        # [..., T, H, V]
    for t in range(sizes["T"]):
        S = np.exp(g[..., t, :])[..., None, None] * S                            # [..., H, 1, 1] * [..., H, K, V]
        S = delta_step(S, k[..., t, :, :], v[..., t, :, :], beta[..., t, :])     # the error is of the *decayed* memory
        o[..., t, :, :] = np.einsum("...hk,...hkv->...hv", scale * q[..., t, :, :], S)
    return o, S
