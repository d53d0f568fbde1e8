"""The gated MLA layer without positions.  K3 report, Gated MLA."""

import torch
from torch import nn

from k3_scratch.layers.mla import mla_absorbed, mla_naive
from k3_scratch.layers.rms_norm import RMSNorm


class MLACache:
    """Per token the normed latent and the shared key, R + r values; room grows by doubling.

    rows   [B, capacity, R + r]   rows beyond `length` are never read
    real   [B, capacity]          False at pads
    """

    def __init__(self, config, batch_size, dtype, device):
        self.rank, self.length = config.kv_lora_rank, 0
        self.rows = torch.empty(batch_size, 0, self.rank + config.qk_rope_head_dim, dtype=dtype, device=device)
        self.real = torch.empty(batch_size, 0, dtype=torch.bool, device=device)

    def append(self, rows, mask):
        """Add [B, T, R + r] and return all latents [B, S, R], shared keys [B, S, r] and `real` [B, S]."""
        start, self.length = self.length, self.length + rows.shape[1]
        if self.length > self.rows.shape[1]:
            room = max(64, 2 * self.rows.shape[1], self.length) - self.rows.shape[1]
            self.rows = torch.cat([self.rows, self.rows.new_empty(rows.shape[0], room, rows.shape[2])], 1)
            self.real = torch.cat([self.real, self.real.new_ones(rows.shape[0], room)], 1)
        self.rows[:, start:self.length] = rows.detach()
        self.real[:, start:self.length] = True if mask is None else mask
        rows = self.rows[:, :self.length]
        return rows[..., :self.rank], rows[..., self.rank:], self.real[:, :self.length]

    def reset(self):
        """Forget everything, keep the room."""
        self.length = 0

    def clone(self):
        """An independent copy."""
        other = object.__new__(MLACache)
        other.rank, other.length = self.rank, self.length
        other.rows, other.real = self.rows.clone(), self.real.clone()
        return other

    def nbytes(self):
        """Bytes of the rows in use."""
        return self.rows[:, :self.length].nbytes


class GatedMLA(nn.Module):
    """x [B, T, D] -> [B, T, D]; x is the normed input of the sublayer."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        D, H, Q = config.hidden_size, config.num_heads, config.qk_head_dim
        if config.q_lora_rank is None:
            self.q_proj = nn.Linear(D, H * Q, bias=False)
        else:
            self.q_a_proj = nn.Linear(D, config.q_lora_rank, bias=False)
            self.q_a_layernorm = RMSNorm(config.q_lora_rank, config.latent_norm_eps)
            self.q_b_proj = nn.Linear(config.q_lora_rank, H * Q, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(D, config.kv_lora_rank + config.qk_rope_head_dim, bias=False)
        self.kv_a_layernorm = RMSNorm(config.kv_lora_rank, config.latent_norm_eps)
        self.kv_b_proj = nn.Linear(config.kv_lora_rank, H * (config.qk_nope_head_dim + config.v_head_dim), bias=False)
        if config.mla_output_gate:
            self.g_proj = nn.Linear(D, H * config.v_head_dim, bias=False)
        self.o_proj = nn.Linear(H * config.v_head_dim, D, bias=False)

    def forward(self, x, cache=None, *, mask=None, documents=None):
        """mask [B, T] False at pads, which no other token sees; documents [B, T] keeps packed documents apart."""
        q = self.queries(x)                                              # [B, T, H, Q]
        latent, shared_key = self.latents(x)                             # [B, T, R], [B, T, r]
        real, first = mask, True                                         # first: nothing was cached before
        if cache is not None:
            first = cache.length == 0
            latent, shared_key, real = cache.append(torch.cat([latent, shared_key], -1), mask)
            real = None if real.all() else real
        seen = seen_pairs(x.shape[1], real, documents)                   # [B, T, S]
        w_kvb = self.kv_b_proj.weight.unflatten(0, (self.config.num_heads, -1))      # [H, n + v, R]
        attend = mla_naive if first else mla_absorbed
        o = attend(q, latent, shared_key, w_kvb, mask=seen).flatten(2)   # [B, T, H v]
        if self.config.mla_output_gate:
            o = torch.sigmoid(self.g_proj(x)) * o
        return self.o_proj(o)

    def queries(self, x):
        """[B, T, D] -> [B, T, H, n + r], through a normed latent of rank q_lora_rank where the config has one."""
        if self.config.q_lora_rank is None:
            q = self.q_proj(x)
        else:
            q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        return q.unflatten(-1, (self.config.num_heads, self.config.qk_head_dim))

    def latents(self, x):
        """What is cached: the normed latent and the un-normed shared key.       [B, T, D] -> [B, T, R], [B, T, r]"""
        latent, shared_key = self.kv_a_proj_with_mqa(x).split(
            [self.config.kv_lora_rank, self.config.qk_rope_head_dim], -1)
        return self.kv_a_layernorm(latent), shared_key


def seen_pairs(T, real, documents):
    """Where each of T queries may look, beside causality.                             -> [B, T, S], or None: everywhere

    real       [B, S] False at pads; None: there are none
    documents  [B, T] whose numbers keep packed documents apart, with S = T; None: there is one
    """
    seen = None
    if real is not None:
        seen = real.unsqueeze(1).expand(-1, T, -1)                       # [B, T, S]
    if documents is not None:
        together = documents.unsqueeze(-1) == documents.unsqueeze(1)
        seen = together if seen is None else seen & together
    return seen
