"""Stable LatentMoE: routed experts in a narrow latent space, a shared expert at full width.

K3 report, Stable LatentMoE; LatentMoE, arXiv 2601.18089. Without a latent (Kimi Linear) the experts read x itself.
"""

from contextvars import ContextVar

import torch
from torch import nn

from k3_scratch.layers.experts import expert_mixture
from k3_scratch.layers.feed_forward import FeedForward
from k3_scratch.layers.quantile_balancing import quantile_bias
from k3_scratch.layers.rms_norm import RMSNorm
from k3_scratch.layers.router import Router
from k3_scratch.layers.situ import activation

PART = ContextVar("PART", default=0)             # which part of a batch this thread works on, see training/shards.py


class Experts(nn.Module):
    """The weights of all routed experts, one matrix an expert: w1 (gate), w3 (up) [E, F, L], w2 [E, L, F]."""

    def __init__(self, config):
        super().__init__()
        E, F, L = config.num_experts, config.moe_intermediate_size, config.expert_size
        self.w1 = nn.Parameter(torch.empty(E, F, L))
        self.w3 = nn.Parameter(torch.empty(E, F, L))
        self.w2 = nn.Parameter(torch.empty(E, L, F))


class LatentMoE(nn.Module):
    """x [B, T, D] -> [B, T, D]; x is the normed input of the sublayer.

    While training it keeps what the balancing needs of the last batch: `observed_scores` [m, E], `expert_counts` [E].
    A forward pass overwrites what was observed of the same part before, so one that is repeated by recomputation counts
    once; the parts of one batch (`PART`) are put together.
    """

    def __init__(self, config):
        super().__init__()
        D, L = config.hidden_size, config.moe_latent_size
        self.act = activation(config)
        self.gate = Router(config)
        if L is not None:
            self.routed_expert_down_proj = nn.Linear(D, L, bias=False)
            self.routed_expert_up_proj = nn.Linear(L, D, bias=False)
        if config.moe_latent_norm:
            self.routed_expert_norm = RMSNorm(config.expert_size, config.rms_norm_eps)
        self.experts = Experts(config)
        if config.num_shared_experts:
            self.shared_experts = FeedForward(config, config.num_shared_experts * config.moe_intermediate_size)
        self.has_latent, self.has_norm = L is not None, config.moe_latent_norm
        self.has_shared = config.num_shared_experts > 0
        self.observed = {}                                               # part -> (scores [m, E], counts [E])

    def forward(self, x, mask=None):
        """mask [B, T] False at pads, which are not counted."""
        experts, weights, scores = self.gate(x)                          # from the full-width x
        if self.training:
            self.observe(experts, scores, mask)
        z = self.routed_expert_down_proj(x) if self.has_latent else x    # [B, T, L]
        w = self.experts
        u = expert_mixture(z.flatten(0, -2), experts.flatten(0, -2), weights.flatten(0, -2), w.w1, w.w3, w.w2,
                           self.act).view_as(z)
        if self.has_norm:
            u = self.routed_expert_norm(u)                               # on the sum, before W_up
        y = self.routed_expert_up_proj(u) if self.has_latent else u
        return y + self.shared_experts(x) if self.has_shared else y

    @torch.no_grad()
    def observe(self, experts, scores, mask):
        """Keep scores and counts of this thread's part of a training batch, without its pads, for `balance`."""
        real = slice(None) if mask is None else mask
        counts = torch.bincount(experts[real].flatten(), minlength=scores.shape[-1])
        self.observed[PART.get()] = scores.detach()[real].flatten(0, -2), counts

    def forget_observed(self):
        """Begin a new training batch."""
        self.observed = {}

    @property
    def observed_scores(self):
        """The router's scores of the last training batch, [m, E]; None before the first."""
        return torch.cat([self.observed[part][0] for part in sorted(self.observed)]) if self.observed else None

    @property
    def expert_counts(self):
        """Tokens per expert in the last training batch, [E]; None before the first."""
        return sum(counts for _, counts in self.observed.values()) if self.observed else None

    @torch.no_grad()
    def balance(self):
        """Set the selection bias for the next batch from the last one by Quantile Balancing."""
        if self.observed:
            bias = self.gate.e_score_correction_bias
            bias.copy_(quantile_bias(self.observed_scores, bias, self.gate.k))
