"""Linear attention: a memory that only adds.

Used by: linear transformers (Katharopoulos et al., with a feature map and a normaliser); the start of all others.
Differs from KDA by: S_t = S_{t-1} + k_t v_t^T, no decay and no erasing.  arXiv 2006.16236
"""

from k3_scratch.baselines.recurrent_mixer import RecurrentMixer
from k3_scratch.baselines.scalar_decay import scalar_decay_chunk
from k3_scratch.baselines.token_loop import operator_inputs, token_loop


def linear_attention_recurrent(q, k, v, state=None, *, scale=None, documents=None):
    """S_t = S_{t-1} + k_t v_t^T,  o_t = S_t^T (scale q_t), one token after the other.

    q, k       [B, T, H, K]     v [B, T, H, V]
    state      [B, H, K, V]     what was remembered before; None: nothing
    scale      None: K^-0.5
    documents  [B, T]           the state is cleared where the number changes; None: one document
    returns    o [B, T, H, V] in v's dtype and the state after the last token.  Raises ShapeError.
    """
    dtype = v.dtype
    q, k, v, state = operator_inputs("linear_attention_recurrent", q, k, v, state, documents, scale)
    o, state = token_loop(lambda S, k_t, v_t: S + k_t.unsqueeze(-1) * v_t.unsqueeze(-2), q, (k, v), state, documents)
    return o.to(dtype), state


def linear_attention_chunk(q, k, v, state=None, *, scale=None, chunk=None, documents=None):
    """The same numbers in chunks of `chunk` tokens: `scalar_decay_chunk` with g = 0, a few matrix products.

    Arguments and results as `linear_attention_recurrent`.
    """
    q, k, v_wide, state = operator_inputs("linear_attention_chunk", q, k, v, state, documents, scale)
    o, state = scalar_decay_chunk(q, k, v_wide, v_wide.new_zeros(v.shape[:3]), state, scale=1.0, chunk=chunk,
                                  documents=documents)
    return o.to(v.dtype), state


class LinearAttention(RecurrentMixer):
    """Linear attention in KDA's block. Like KDA it has unit keys and a writing strength beta (on v), unlike the paper:
    so it differs from "delta_net" in the erasing alone."""

    state_flops = 4                                                      # write 2, read 2
    recurrent, chunk = staticmethod(linear_attention_recurrent), staticmethod(linear_attention_chunk)

    def operands(self, v, g, beta):
        return (beta.unsqueeze(-1) * v,)
