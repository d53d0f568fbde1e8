"""KDA's gradient by hand: the delta rule's reverse loop with one more line, for the decay.

Forward, for one token (S the state before it, P after the decay, S' after the write):

    P  = diag(e^g) S
    e  = v - P^T k
    S' = P + beta k e^T
    o  = scale S'^T q

Backward, from the last line to the first. The new line is the first: P_cv = e^{g_c} S_cv, so dS = diag(e^g) dP and
dg_c = sum_v dP_cv e^{g_c} S_cv = sum_v dP_cv P_cv, without a division. A channel that forgets everything passes no
gradient on.
"""

import numpy as np

from k3_scratch.reference.kda import kda_step
from k3_scratch.reference.memory import as_float64, query_scale, start_state
from k3_scratch.shapes import check_shapes


def kda_recurrent_backward(q, k, v, g, beta, state, do, dstate, *, scale=None):
    """Gradients of `kda_recurrent` (one document).

    -> dq, dk [..., T, H, K], dv [..., T, H, V], dg [..., T, H, K], dbeta [..., T, H], dstate0 [..., H, K, V]

    q, k, g [..., T, H, K], v [..., T, H, V], beta [..., T, H], state [..., H, K, V] or None: the forward inputs
    do      [..., T, H, V]  gradient of the loss in each output
    dstate  [..., H, K, V]  gradient of the loss in the final state; None: the loss does not use it
    scale   as in the forward pass.  Raises ShapeError.
    """
    q, k, v, g, beta, do = as_float64(q, k, v, g, beta, do)
    sizes = check_shapes("kda_recurrent_backward", q=(q, "... T H K"), k=(k, "... T H K"), v=(v, "... T H V"),
                         g=(g, "... T H K"), beta=(beta, "... T H"), do=(do, "... T H V"))
    T, scale = sizes["T"], query_scale(scale, sizes["K"])
    states = [start_state("kda_recurrent_backward", state, k, v)]                # states[t] is S before token t
    for t in range(T):
        _, after = kda_step(states[t], q[..., t, :, :], k[..., t, :, :], v[..., t, :, :], g[..., t, :, :],
                            beta[..., t, :])
        states.append(after)

    dS = start_state("kda_recurrent_backward", dstate, k, v, name="dstate")      # [..., H, K, V]
    dq, dk, dv, dg, dbeta = (np.zeros(a.shape) for a in (q, k, v, g, beta))
    for t in reversed(range(T)):
        q_t, k_t, do_t = q[..., t, :, :], k[..., t, :, :], do[..., t, :, :]      # [..., H, K] x 2, [..., H, V]
        alpha = np.exp(g[..., t, :, :])[..., None]                               # [..., H, K, 1]
        decayed, after = alpha * states[t], states[t + 1]                        # P and S': [..., H, K, V]
        beta_t = beta[..., t, :, None]                                           # [..., H, 1]
        error = v[..., t, :, :] - _read(decayed, k_t)                            # e: [..., H, V]

        dq[..., t, :, :] = scale * _combine(after, do_t)                         # o = scale S'^T q
        dS = dS + scale * q_t[..., :, None] * do_t[..., None, :]                 # S' feeds o and the next token

        dwrite = _read(dS, k_t)                                                  # gradient of beta e: [..., H, V]
        dbeta[..., t, :] = np.einsum("...hv,...hv->...h", dwrite, error)         # [..., H]
        derror = beta_t * dwrite                                                 # [..., H, V]
        dv[..., t, :, :] = derror                                                # e = v - P^T k
        dk[..., t, :, :] = beta_t * _combine(dS, error) - _combine(decayed, derror)  # from the write, from e

        dP = dS - k_t[..., :, None] * derror[..., None, :]                       # P feeds S' and e: [..., H, K, V]
        dg[..., t, :, :] = np.einsum("...hkv,...hkv->...hk", dP, decayed)        # sum over values: one g a key channel
        dS = alpha * dP                                                          # through the decay, one token back
    return dq, dk, dv, dg, dbeta, dS


def _read(S, k):
    """S^T k.          [..., H, K, V], [..., H, K] -> [..., H, V]"""
    return np.einsum("...hkv,...hk->...hv", S, k)


def _combine(S, v):
    """S v.          [..., H, K, V], [..., H, V] -> [..., H, K]"""
    return np.einsum("...hkv,...hv->...hk", S, v)
