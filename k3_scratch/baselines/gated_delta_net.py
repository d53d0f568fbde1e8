"""Gated DeltaNet: the delta rule in a memory that fades as a whole.

Used by: Qwen3-Next (three layers of four).
Differs from KDA by: S_t = (I - beta_t k_t k_t^T) e^(g_t) S_{t-1} + beta_t k_t v_t^T, one g_t per head, not per channel.
"""

from k3_scratch.baselines.delta_net import delta_step
from k3_scratch.baselines.recurrent_mixer import RecurrentMixer
from k3_scratch.baselines.token_loop import operator_inputs, token_loop
from k3_scratch.layers.kda_chunk import kda_chunk


def gated_delta_recurrent(q, k, v, g, beta, state=None, *, scale=None, documents=None):
    """Decay, then `delta_step`, then read o_t = S_t^T (scale q_t), one token after the other.  arXiv 2412.06464

    q, k       [B, T, H, K]     of unit length       v [B, T, H, V]
    g          [B, T, H]        log of the decay, at most 0, one a head       beta [B, T, H] in [0, 1]
    state      [B, H, K, V]     what was remembered before; None: nothing
    scale      None: K^-0.5
    documents  [B, T]           the state is cleared where the number changes; None: one document
    returns    o [B, T, H, V] in v's dtype and the state after the last token.  Raises ShapeError.
    """
    def write(S, k_t, v_t, g_t, beta_t):
        return delta_step(g_t.exp()[..., None, None] * S, k_t, v_t, beta_t)

    dtype = v.dtype
    q, k, v, state, g, beta = operator_inputs("gated_delta_recurrent", q, k, v, state, documents, scale, g=g, beta=beta)
    o, state = token_loop(write, q, (k, v, g, beta), state, documents)
    return o.to(dtype), state


def gated_delta_chunk(q, k, v, g, beta, state=None, *, scale=None, chunk=None, documents=None):
    """The same numbers in chunks of `chunk` tokens: `kda_chunk` with the head's g [B, T, H] in every channel.

    Arguments and results as `gated_delta_recurrent`.
    """
    wide_q, wide_k, _, state, g, beta = operator_inputs("gated_delta_chunk", q, k, v, state, documents, scale, g=g,
                                                        beta=beta)
    return kda_chunk(wide_q, wide_k, v, g.unsqueeze(-1).expand_as(k), beta, state, scale=1.0, chunk=chunk,
                     documents=documents)


class GatedDeltaNet(RecurrentMixer):
    """The gated delta rule in KDA's block, with KDA's law for g: the config's bound, or with gate_lower_bound=None the
    softplus of Qwen3-Next, whose output gate is a SiLU in place of KDA's sigmoid."""

    state_flops, decays = 7, True                                        # decay 1, recall 2, write 2, read 2
    recurrent, chunk = staticmethod(gated_delta_recurrent), staticmethod(gated_delta_chunk)

    def operands(self, v, g, beta):
        return v, g.squeeze(-1), beta
