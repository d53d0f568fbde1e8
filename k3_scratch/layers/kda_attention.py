"""The KDA layer: projections, short convolutions, gates, the recurrence, head norm, output gate.  K3 report, KDA."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from k3_scratch.layers.decay_gates import bounded_decay, softplus_decay
from k3_scratch.layers.kda import kda_chunk, kda_step
from k3_scratch.layers.precision import raised
from k3_scratch.layers.rms_norm import RMSNorm
from k3_scratch.layers.short_convolution import ShortConvolution, short_convolution
from k3_scratch.layers.unit_keys import l2_norm


class KDACache:
    """What a KDA layer remembers of all earlier tokens, whatever their number.

    state  [B, H, K, V]              at least float32
    tail   [B, taps - 1, 2HK + HV]   the last inputs of the q, k and v convolutions, before the activation
    """

    def __init__(self, config, batch_size, dtype, device):
        H, K, V = config.num_heads, config.kda_key_dim, config.kda_value_dim
        wide = torch.promote_types(dtype, torch.float32)
        self.state = torch.zeros(batch_size, H, K, V, dtype=wide, device=device)
        self.tail = torch.zeros(batch_size, config.conv_size - 1, 2 * H * K + H * V, dtype=dtype, device=device)

    def reset(self):
        """Forget everything."""
        self.state, self.tail = torch.zeros_like(self.state), torch.zeros_like(self.tail)

    def clone(self):
        """An independent copy."""
        other = object.__new__(KDACache)
        other.state, other.tail = self.state.clone(), self.tail.clone()
        return other

    def nbytes(self):
        """Bytes of state and tail: they never grow."""
        return self.state.nbytes + self.tail.nbytes


class KimiDeltaAttention(nn.Module):
    """x [B, T, D] -> [B, T, D]; x is the normed input of the sublayer."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        D, H, K, V = config.hidden_size, config.num_heads, config.kda_key_dim, config.kda_value_dim
        self.q_proj = nn.Linear(D, H * K, bias=False)
        self.k_proj = nn.Linear(D, H * K, bias=False)
        self.v_proj = nn.Linear(D, H * V, bias=False)
        self.q_conv1d = ShortConvolution(H * K, config.conv_size)
        self.k_conv1d = ShortConvolution(H * K, config.conv_size)
        self.v_conv1d = ShortConvolution(H * V, config.conv_size)
        self.f_a_proj = nn.Linear(D, K, bias=False)
        self.f_b_proj = nn.Linear(K, H * K, bias=False)
        self.A_log = nn.Parameter(torch.zeros(H))
        self.dt_bias = nn.Parameter(torch.empty(H * K))
        self.b_proj = nn.Linear(D, H, bias=False)
        if config.use_full_rank_gate:
            self.g_proj = nn.Linear(D, H * V, bias=False)
        else:
            self.g_a_proj = nn.Linear(D, K, bias=False)
            self.g_b_proj = nn.Linear(K, H * V, bias=False)
        self.o_norm = RMSNorm(V, config.rms_norm_eps)
        self.o_proj = nn.Linear(H * V, D, bias=False)
        self.reset_decay()

    @torch.no_grad()
    def reset_decay(self):
        """A_log = 0 and dt_bias = inverse softplus of dt, dt log-uniform from dt_min to dt_max."""
        low, high = math.log(self.config.dt_min), math.log(self.config.dt_max)
        dt = torch.exp(torch.rand_like(self.dt_bias) * (high - low) + low)
        self.dt_bias.copy_(dt + torch.log(-torch.expm1(-dt)))
        self.A_log.zero_()

    def forward(self, x, cache=None, *, mask=None, documents=None):
        """mask [B, T] False at pads: they neither write nor decay nor enter the convolution."""
        q, k, v = self.queries_keys_values(x, cache, mask, documents)
        g, beta = self.decay(x), torch.sigmoid(raised(self.b_proj(x)))   # [B, T, H, K], [B, T, H]
        if mask is not None:
            g, beta = g * mask[..., None, None], beta * mask.unsqueeze(-1)
        o, state = self.recur(q, k, v, g, beta, None if cache is None else cache.state, documents)
        if cache is not None:
            cache.state = state.detach()
        gated = self.o_norm(o.to(x.dtype)) * torch.sigmoid(self.output_gate(x)).view_as(o)
        return self.o_proj(gated.flatten(2))                             # [B, T, H V] -> [B, T, D]

    def recur(self, q, k, v, g, beta, state=None, documents=None):
        """The recurrence: one step for one token, chunks for more. What `baselines/` puts another operator in for."""
        if q.shape[1] == 1 and state is not None:
            o, state = kda_step(state, *(part.squeeze(1) for part in (q, k, raised(v), g, beta)))
            return o.unsqueeze(1), state
        return kda_chunk(q, k, v, g, beta, state, documents=documents)

    def queries_keys_values(self, x, cache=None, mask=None, documents=None):
        """Project, convolve, SiLU; q and k to unit length.       [B, T, D] -> [B, T, H, K] twice, [B, T, H, V]"""
        H, K, V = self.config.num_heads, self.config.kda_key_dim, self.config.kda_value_dim
        weight = torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight])
        taps = torch.cat([self.q_conv1d.weight, self.k_conv1d.weight, self.v_conv1d.weight])
        projected = F.linear(x, weight)                                  # the three at once  [B, T, 2HK + HV]
        if mask is not None:
            projected = projected * mask.unsqueeze(-1)
        mixed, tail = short_convolution(projected, taps, None if cache is None else cache.tail, documents=documents)
        if cache is not None:
            cache.tail = tail.detach().clone()
        q, k, v = F.silu(mixed).split([H * K, H * K, H * V], -1)
        eps = self.config.l2_norm_eps
        return (l2_norm(q.unflatten(-1, (H, K)), eps), l2_norm(k.unflatten(-1, (H, K)), eps), v.unflatten(-1, (H, V)))

    def decay(self, x):
        """g = log(alpha) <= 0, one per head and key channel.                            [B, T, D] -> [B, T, H, K]"""
        z = self.decay_logits(x)
        if self.config.gate_lower_bound is None:
            return softplus_decay(z, self.A_log)
        return bounded_decay(z, self.A_log, self.config.gate_lower_bound)

    def decay_logits(self, x):
        """What `decay` bends into g, dt_bias added.                                     [B, T, D] -> [B, T, H, K]"""
        z = raised(self.f_b_proj(self.f_a_proj(x))) + self.dt_bias
        return z.unflatten(-1, (self.config.num_heads, self.config.kda_key_dim))

    def output_gate(self, x):
        """Logits of the output gate, full rank or through K channels.                   [B, T, D] -> [B, T, H V]"""
        return self.g_proj(x) if self.config.use_full_rank_gate else self.g_b_proj(self.g_a_proj(x))
