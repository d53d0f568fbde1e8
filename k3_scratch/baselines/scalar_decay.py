"""Scalar decay: a memory that fades as a whole, one decay per head and token.

Used by: Mamba-2 (decay from the token), RetNet (decay fixed per head); Lightning attention of MiniMax.
Differs from KDA by: S_t = e^(g_t) S_{t-1} + k_t v_t^T with one g_t a head, no erasing.  arXiv 2405.21060, 2307.08621
"""

import torch
import torch.nn.functional as F

from k3_scratch.baselines.recurrent_mixer import RecurrentMixer
from k3_scratch.baselines.token_loop import operator_inputs, token_loop


def scalar_decay_recurrent(q, k, v, g, state=None, *, scale=None, documents=None):
    """S_t = e^(g_t) S_{t-1} + k_t v_t^T,  o_t = S_t^T (scale q_t), one token after the other.

    q, k       [B, T, H, K]     v [B, T, H, V]     g [B, T, H], log of the decay, at most 0
    state      [B, H, K, V]     what was remembered before; None: nothing
    scale      None: K^-0.5
    documents  [B, T]           the state is cleared where the number changes; None: one document
    returns    o [B, T, H, V] in v's dtype and the state after the last token.  Raises ShapeError.
    """
    def write(S, k_t, v_t, g_t):
        return g_t.exp()[..., None, None] * S + k_t.unsqueeze(-1) * v_t.unsqueeze(-2)

    dtype = v.dtype
    q, k, v, state, g = operator_inputs("scalar_decay_recurrent", q, k, v, state, documents, scale, g=g)
    o, state = token_loop(write, q, (k, v, g), state, documents)
    return o.to(dtype), state


def scalar_decay_chunk(q, k, v, g, state=None, *, scale=None, chunk=None, documents=None):
    """The same numbers in chunks of C tokens; arguments as the recurrent form, chunk None: 32.

    Nothing is erased, so there is nothing to solve. With s_ij = g_(j+1) + ... + g_i inside a chunk, S the state before:
        O = (Q K^T * e^s, lower triangle) V + e^(s_i) Q S          S <- e^(s_C) S + (e^(s_Cj) K)^T V
    Every s is summed on its own, never a difference of two sums: so any g <= 0 is exact, also -inf, and a new document
    is simply a token with g = -inf.
    """
    dtype = v.dtype
    q, k, v, state, g = operator_inputs("scalar_decay_chunk", q, k, v, state, documents, scale, g=g)
    T = q.shape[1]
    if T == 0:
        return v.to(dtype), state
    if documents is not None:
        begins = F.pad(documents[:, 1:] != documents[:, :-1], (1, 0))    # the first token goes on from `state`
        g = g.masked_fill(begins.unsqueeze(-1), -torch.inf)
    C = min(chunk or 32, T)
    q, k, v, g = (_cut(x, C) for x in (q, k, v, g.unsqueeze(-1)))        # [B, H, N, C, .]; filled up with empty tokens
    s = g.expand(*g.shape[:-1], C).tril(-1).cumsum(-2)                   # s_ij for j <= i   [B, H, N, C, C]
    since_start, until_end = g.cumsum(-2).exp(), s[..., -1, :].exp().unsqueeze(-1)           # [B, H, N, C, 1]
    added = (k * until_end).mT @ v                                       # what each chunk writes  [B, H, N, K, V]
    states = []
    for new, through in zip(added.unbind(2), since_start[..., -1:, :].unbind(2), strict=True):
        states.append(state)
        state = through * state + new
    o = (q * since_start) @ torch.stack(states, 2) + (q @ k.mT * s.exp()).tril() @ v
    return o.flatten(2, 3)[:, :, :T].transpose(1, 2).to(dtype), state


def _cut(x, C):
    """Pad T with zeros to a multiple of C and cut it.                          [B, T, H, X] -> [B, H, N, C, X]"""
    x = F.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % C))
    return x.unflatten(1, (-1, C)).permute(0, 3, 1, 2, 4)


class ScalarDecay(RecurrentMixer):
    """Scalar decay in KDA's block, with KDA's law for g (the config's bound, or softplus), unit keys, and a writing
    strength beta on v in place of Mamba-2's step size: so it differs from "gated_delta_net" in the erasing alone."""

    state_flops, decays = 5, True                                        # decay 1, write 2, read 2
    recurrent, chunk = staticmethod(scalar_decay_recurrent), staticmethod(scalar_decay_chunk)

    def operands(self, v, g, beta):
        return beta.unsqueeze(-1) * v, g.squeeze(-1)
