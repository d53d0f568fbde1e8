"""Kimi Delta Attention, token by token: the definition every faster form is compared with.

K3 report, Eq. 1 (Kimi Linear, Eq. 1), one head, S [K, V]:

    S_t = (I - beta_t k_t k_t^T) diag(alpha_t) S_{t-1} + beta_t k_t v_t^T        o_t = S_t^T q_t

Conventions: q and k have unit length already; g = log(alpha) <= 0, one per key channel; scale (None: K^-0.5) acts on q
and nowhere else; the read comes after the write. Inputs below float32 are raised, the state is at least float32.
"""

import torch

from k3_scratch.layers.kda_chunk import kda_chunk
from k3_scratch.layers.kda_inputs import kda_inputs
from k3_scratch.shapes import check_shapes

__all__ = ["kda_chunk", "kda_recurrent", "kda_step"]


def kda_step(state, q, k, v, g, beta, *, scale=None):
    """One token: decay, then erase and write, then read.

    state [B, H, K, V]; q, k, g [B, H, K]; v [B, H, V]; beta [B, H]  ->  o [B, H, V], state [B, H, K, V]
    """
    check_shapes("kda_step", state=(state, "B H K V"), q=(q, "B H K"), k=(k, "B H K"), v=(v, "B H V"), g=(g, "B H K"),
                 beta=(beta, "B H"))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    state = g.exp().unsqueeze(-1) * state                                # decay            [B, H, K, V]
    error = v - (k.unsqueeze(-2) @ state).squeeze(-2)                    # what v is not yet     [B, H, V]
    state = state + (beta.unsqueeze(-1) * k).unsqueeze(-1) * error.unsqueeze(-2)
    return (scale * q.unsqueeze(-2) @ state).squeeze(-2), state


def kda_recurrent(q, k, v, g, beta, state=None, *, scale=None, documents=None):
    """The whole sequence, one `kda_step` after the other.

    q, k, g    [B, T, H, K]     v [B, T, H, V]     beta [B, T, H]
    state      [B, H, K, V]     what was remembered before; None: nothing
    documents  [B, T]           the state is cleared where the number changes; None: one document
    returns    o [B, T, H, V] in v's dtype and the state after the last token.
    """
    dtype = v.dtype
    q, k, v, g, beta, state = kda_inputs("kda_recurrent", q, k, v, g, beta, state, documents)
    outputs = []
    # unbind once: indexing x[:, t] in the loop would make its backward quadratic in T
    for t, token in enumerate(zip(*(x.unbind(1) for x in (q, k, v, g, beta)), strict=True)):
        if documents is not None and t > 0:
            kept = documents[:, t] == documents[:, t - 1]
            state = torch.where(kept[:, None, None, None], state, 0.0)
        o, state = kda_step(state, *token, scale=scale)
        outputs.append(o)
    o = torch.stack(outputs, 1) if outputs else v
    return o.to(dtype), state
