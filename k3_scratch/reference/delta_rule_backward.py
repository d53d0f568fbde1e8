"""The delta rule's gradient by hand: the recurrence walked backwards.

Forward, for one token (S is the state before it, S' the state after it):

    e  = v - S^T k              what the memory gets wrong
    S' = S + beta k e^T         write
    o  = scale S'^T q           read

Write dX for the gradient of the loss in X. Reading the three lines from the last to the first, with the rule that
Y = A^T x has dA = x dY^T and dx = A dY, gives the loop below. S' is used twice, by `o` and by the next token, so its
gradient is the sum of both.
"""

import numpy as np

from k3_scratch.reference.delta_rule import delta_step
from k3_scratch.reference.memory import as_float64, query_scale, start_state
from k3_scratch.shapes import check_shapes


def delta_recurrent_backward(q, k, v, beta, state, do, dstate, *, scale=None):
    """Gradients of `delta_recurrent`.

    -> dq [..., T, H, K], dk [..., T, H, K], dv [..., T, H, V], dbeta [..., T, H], dstate0 [..., H, K, V]

    q, k [..., T, H, K], v [..., T, H, V], beta [..., T, H], state [..., H, K, V] or None: the forward inputs
    do      [..., T, H, V]  gradient of the loss in each output
    dstate  [..., H, K, V]  gradient of the loss in the final state; None: the loss does not use it
    scale   as in the forward pass.  Raises ShapeError.
    """
    q, k, v, beta, do = as_float64(q, k, v, beta, do)
    sizes = check_shapes("delta_recurrent_backward", q=(q, "... T H K"), k=(k, "... T H K"), v=(v, "... T H V"),
                         beta=(beta, "... T H"), do=(do, "... T H V"))
    T, scale = sizes["T"], query_scale(scale, sizes["K"])
    states = [start_state("delta_recurrent_backward", state, k, v)]              # states[t] is S before token t
    for t in range(T):                                                           # forward once more, keeping each S
        states.append(delta_step(states[t], k[..., t, :, :], v[..., t, :, :], beta[..., t, :]))

    dS = start_state("delta_recurrent_backward", dstate, k, v, name="dstate")    # [..., H, K, V]
    dq, dk, dv, dbeta = (np.zeros(a.shape) for a in (q, k, v, beta))
    for t in reversed(range(T)):
        q_t, k_t, do_t = q[..., t, :, :], k[..., t, :, :], do[..., t, :, :]      # [..., H, K] x 2, [..., H, V]
        before, after, beta_t = states[t], states[t + 1], beta[..., t, :, None]  # [..., H, K, V] x 2, [..., H, 1]
        error = v[..., t, :, :] - _read(before, k_t)                             # e, as in the forward pass

        # o = scale S'^T q: the query's gradient, and one more way in which the loss depends on S'.
        dq[..., t, :, :] = scale * _combine(after, do_t)                         # scale S' do
        dS = dS + scale * q_t[..., :, None] * do_t[..., None, :]                 # + scale q do^T

        # S' = S + beta k e^T: seen along k, dS is the gradient of the written value beta e.
        dwrite = _read(dS, k_t)                                                  # dS^T k           [..., H, V]
        dbeta[..., t, :] = np.einsum("...hv,...hv->...h", dwrite, error)         # (dS^T k) . e     [..., H]
        derror = beta_t * dwrite                                                 # beta dS^T k      [..., H, V]
        dk_write = beta_t * _combine(dS, error)                                  # beta dS e        [..., H, K]

        # e = v - S^T k: v enters with +1; k and S enter once more, with a minus.
        dv[..., t, :, :] = derror
        dk[..., t, :, :] = dk_write - _combine(before, derror)                   # beta dS e - S de [..., H, K]
        dS = dS - k_t[..., :, None] * derror[..., None, :]                       # dS - k de^T: the same erase, reversed
    return dq, dk, dv, dbeta, dS


def _read(S, k):
    """S^T k.          [..., H, K, V], [..., H, K] -> [..., H, V]"""
    return np.einsum("...hkv,...hk->...hv", S, k)


def _combine(S, v):
    """S v.          [..., H, K, V], [..., H, V] -> [..., H, K]"""
    return np.einsum("...hkv,...hv->...hk", S, v)
