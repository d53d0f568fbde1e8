"""KDA's block around another recurrence: same projections, convolutions, unit keys, output gate, head norm and output.

A mixer names its two forms and what they are given; it then differs from KDA, and from its sisters, in that alone.
"""

import torch
from torch import nn

from k3_scratch.layers.kda_attention import KDACache, KimiDeltaAttention
from k3_scratch.layers.precision import raised


class RecurrentMixer(KimiDeltaAttention):
    """x [B, T, D] -> [B, T, D], arguments and cache as `KimiDeltaAttention`.

    A subclass sets
        recurrent, chunk   static functions (q, k, *operands, state, documents=None) -> (o, state)
        operands           method (v [B, T, H, V], g [B, T, H, 1], beta [B, T, H]) -> what lies between k and state
        decays             True: one decay per head from the token (f_proj, A_log, dt_bias); False: none, g is 0
        state_flops        FLOPs for each number of the state and token, read by accounting/built.py
    """

    recurrent = chunk = None
    decays = False

    def __init__(self, config):
        super().__init__(config)
        H = config.num_heads
        del self.f_a_proj, self.f_b_proj                                 # KDA's decay per channel
        if self.decays:
            self.f_proj = nn.Linear(config.hidden_size, H, bias=False)
            self.dt_bias = nn.Parameter(torch.empty(H))
            self.reset_decay()
        else:
            del self.A_log, self.dt_bias

    def new_cache(self, batch_size, dtype, device):
        """An empty `KDACache`: the state [B, H, K, V] and the tails of the convolutions."""
        return KDACache(self.config, batch_size, dtype, device)

    def decay_logits(self, x):
        """One logit per head.                                                           [B, T, D] -> [B, T, H, 1]"""
        return (raised(self.f_proj(x)) + self.dt_bias).unsqueeze(-1)

    def decay(self, x):
        """g = log(alpha) <= 0, one per head.                                            [B, T, D] -> [B, T, H, 1]"""
        if self.decays:
            return super().decay(x)
        return raised(x).new_zeros(*x.shape[:2], self.config.num_heads, 1)

    def recur(self, q, k, v, g, beta, state=None, documents=None):
        """The operator: token by token for one token after others, else in chunks.     -> o [B, T, H, V], state"""
        form = self.recurrent if q.shape[1] == 1 and state is not None else self.chunk
        return form(q, k, *self.operands(v, g, beta), state, documents=documents)
