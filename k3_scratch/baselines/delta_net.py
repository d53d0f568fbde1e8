"""DeltaNet: a memory that corrects itself, and forgets nothing that is not overwritten.

Used by: DeltaNet (Schlag et al.; Yang et al.), the rule inside Gated DeltaNet and KDA.
Differs from KDA by: S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T, alpha = 1.  arXiv 2102.11174, 2406.06484
"""

import torch

from k3_scratch.baselines.recurrent_mixer import RecurrentMixer
from k3_scratch.baselines.token_loop import operator_inputs, token_loop
from k3_scratch.layers.kda_chunk import kda_chunk
from k3_scratch.shapes import check_shapes


def delta_step(state, k, v, beta):
    """One write: S <- S + beta k (v - S^T k)^T.          [..., K, V], [..., K], [..., V], [...] -> [..., K, V]"""
    check_shapes("delta_step", state=(state, "... K V"), k=(k, "... K"), v=(v, "... V"), beta=(beta, "..."))
    error = v - (k.unsqueeze(-2) @ state).squeeze(-2)                    # what v is not yet
    return state + (beta.unsqueeze(-1) * k).unsqueeze(-1) * error.unsqueeze(-2)


def delta_recurrent(q, k, v, beta, state=None, *, scale=None, documents=None):
    """Write by `delta_step`, then read o_t = S_t^T (scale q_t), one token after the other.

    q, k       [B, T, H, K]     of unit length       v [B, T, H, V]     beta [B, T, H] in [0, 1]
    state      [B, H, K, V]     what was remembered before; None: nothing
    scale      None: K^-0.5
    documents  [B, T]           the state is cleared where the number changes; None: one document
    returns    o [B, T, H, V] in v's dtype and the state after the last token.  Raises ShapeError.
    """
    dtype = v.dtype
    q, k, v, state, beta = operator_inputs("delta_recurrent", q, k, v, state, documents, scale, beta=beta)
    o, state = token_loop(delta_step, q, (k, v, beta), state, documents)
    return o.to(dtype), state


def delta_chunk(q, k, v, beta, state=None, *, scale=None, chunk=None, documents=None):
    """The same numbers in chunks of `chunk` tokens: `kda_chunk` with g = 0.

    Arguments and results as `delta_recurrent`.
    """
    wide_q, wide_k, _, state, beta = operator_inputs("delta_chunk", q, k, v, state, documents, scale, beta=beta)
    return kda_chunk(wide_q, wide_k, v, torch.zeros_like(wide_k), beta, state, scale=1.0, chunk=chunk,
                     documents=documents)


class DeltaNet(RecurrentMixer):
    """The delta rule in KDA's block, without a decay."""

    state_flops = 6                                                      # recall 2, write 2, read 2
    recurrent, chunk = staticmethod(delta_recurrent), staticmethod(delta_chunk)

    def operands(self, v, g, beta):
        return v, beta
