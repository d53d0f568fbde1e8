"""Kimi Delta Attention as a recurrence: forget per channel, correct, read. The truth for every faster form.

Order inside one token, each step using the result of the one before:

    S <- diag(alpha) S              forget: key channel c keeps the share alpha_c = e^{g_c}
    S <- S + beta k (v - S^T k)^T   erase what the *decayed* memory holds for k, and write v there
    o  = S^T (scale q)              read, after the write

As one line: S_t = (I - beta k k^T) diag(alpha) S_{t-1} + beta k v^T.  K3 report, Eq. 1; Kimi Linear, Eq. 1.
"""

import numpy as np

from k3_scratch.reference.kda_chunk import kda_chunk
from k3_scratch.reference.memory import as_float64, query_scale, start_state
from k3_scratch.shapes import check_shapes

__all__ = ["kda_chunk", "kda_recurrent", "kda_step"]


def kda_step(state, q, k, v, g, beta, *, scale=None):
    """One token.   [..., H, K, V], [..., H, K] x 2, [..., H, V], [..., H, K], [..., H] -> o [..., H, V], state

    state [..., H, K, V]; q, k [..., H, K] of unit length; v [..., H, V]; g [..., H, K] log-decay <= 0 in nats a token;
    beta [..., H] in [0, 1]; scale None = K^(-1/2), on q alone.  Returns o and a new state.  Raises ShapeError.
    """
    state, q, k, v, g, beta = as_float64(state, q, k, v, g, beta)
    sizes = check_shapes("kda_step", state=(state, "... H K V"), q=(q, "... H K"), k=(k, "... H K"), v=(v, "... H V"),
                         g=(g, "... H K"), beta=(beta, "... H"))
    S = np.exp(g)[..., None] * state                                             # [..., H, K, 1] * [..., H, K, V]
    error = v - np.einsum("...hk,...hkv->...hv", k, S)                           # [..., H, V]
    S = S + (beta[..., None] * k)[..., :, None] * error[..., None, :]            # [..., H, K, V]
    o = np.einsum("...hk,...hkv->...hv", query_scale(scale, sizes["K"]) * q, S)  # [..., H, V]
    return o, S


def kda_recurrent(q, k, v, g, beta, state=None, *, scale=None, documents=None):
    """`kda_step` for one token after the other.

    [..., T, H, K] x 2, [..., T, H, V], [..., T, H, K], [..., T, H], [..., H, K, V]
    -> o [..., T, H, V], state [..., H, K, V]

    q, k       [..., T, H, K]  queries and keys, already of unit length
    v          [..., T, H, V]  values
    g          [..., T, H, K]  log-decay in nats a token, <= 0, one a channel (g = log alpha, not alpha)
    beta       [..., T, H]     writing strength in [0, 1], one a head
    state      [..., H, K, V]  memory before the first token; None: zeros
    scale      None = K^(-1/2), on q alone: the state does not depend on it
    documents  [..., T] whole numbers: the memory is emptied where the number differs from the token before *in this
               call*. The first token goes on from `state`. None: one document.
    Raises ShapeError.
    """
    q, k, v, g, beta = as_float64(q, k, v, g, beta)
    sizes = check_shapes("kda_recurrent", q=(q, "... T H K"), k=(k, "... T H K"), v=(v, "... T H V"),
                         g=(g, "... T H K"), beta=(beta, "... T H"))
    S = start_state("kda_recurrent", state, k, v)                                # [..., H, K, V]
    if documents is not None:
        documents = np.asarray(documents)
        check_shapes("kda_recurrent", q=(q, "... T H K"), documents=(documents, "... T"))
    o = np.empty(v.shape)                                                        # [..., T, H, V]
    for t in range(sizes["T"]):
        if documents is not None and t > 0:
            changed = documents[..., t] != documents[..., t - 1]                 # [...], one answer a sequence
            S = np.where(changed[..., None, None, None], 0.0, S)                 # [..., 1, 1, 1], [..., H, K, V]
        o[..., t, :, :], S = kda_step(S, q[..., t, :, :], k[..., t, :, :], v[..., t, :, :], g[..., t, :, :],
                                      beta[..., t, :], scale=scale)
    return o, S
