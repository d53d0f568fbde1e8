"""Softmax top-k MoE with an auxiliary loss: experts at full width, shared experts beside them, no selection bias.

Used by: DeepSeekMoE, DeepSeek-V2; without shared experts Mixtral and Qwen3 (which renormalise the k weights).
Differs from K3's LatentMoE by: p = softmax(W_r x), the k largest are the weights; the loss has a E/(k m) sum_e n_e P_e.
"""

import torch
import torch.nn.functional as F
from torch import nn

from k3_scratch.layers.latent_moe import PART, LatentMoE
from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def softmax_route(x, w_router, k, scale=1.0):
    """The k most probable experts, with their probabilities as weights: not renormalised, so they sum to < scale.

    x [..., D], w_router [E, D]  ->  experts [..., k], weights [..., k], scores [..., E] (sum 1); at least float32.
    """
    sizes = check_shapes("softmax_route", x=(x, "... D"), w_router=(w_router, "E D"))
    if not 1 <= k <= sizes["E"]:
        raise ValueError(f"softmax_route: k must be from 1 to E = {sizes['E']}, but {k} came")
    wide = raised(x)
    scores = F.linear(wide, w_router.to(wide.dtype)).softmax(-1)
    chosen, experts = scores.topk(k, -1)
    return experts, scale * chosen, scores


def load_balance_loss(scores, counts, k):
    """E / (k m) * sum_e n_e P_e: 1 at perfect balance, E/k at most.                          [m, E], [E] -> scalar

    scores [m, E] probabilities of the router, P_e their mean over the m tokens; counts [E] tokens n_e that chose e, k
    each. Only P has a gradient: it pushes down the probability of experts that are chosen often. m = 0 gives 0.
    Switch Transformer, arXiv 2101.03961; DeepSeekMoE, arXiv 2401.06066.
    """
    sizes = check_shapes("load_balance_loss", scores=(scores, "m E"), counts=(counts, "E"))
    m = max(sizes["m"], 1)
    return sizes["E"] / (k * m) * (counts.to(scores.dtype) * scores.sum(0) / m).sum()


class SoftmaxRouter(nn.Module):
    """`softmax_route` with its weight [E, D]."""

    def __init__(self, config):
        super().__init__()
        self.k, self.scale = config.num_experts_per_token, config.routed_scaling_factor
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))

    def forward(self, x):
        return softmax_route(x, self.weight, self.k, self.scale)


class SoftmaxMoE(LatentMoE):
    """The experts and the counting of `LatentMoE` behind a softmax router.

    The config's latent and norm are taken as they are: FFNS["softmax_moe"] switches them off.
    aux_weight   factor a with which the training loss should add `aux_loss`
    """

    def __init__(self, config, aux_weight=0.01):
        super().__init__(config)
        self.gate = SoftmaxRouter(config)
        self.aux_weight, self.losses = aux_weight, {}                    # part of a batch -> its loss

    def observe(self, experts, scores, mask):
        """As every MoE, and the load-balance loss of this part of the batch."""
        super().observe(experts, scores, mask)
        real = slice(None) if mask is None else mask
        counts = self.observed[PART.get()][1]
        self.losses[PART.get()] = load_balance_loss(scores[real].flatten(0, -2), counts, self.gate.k)

    def forget_observed(self):
        """Begin a new training batch."""
        super().forget_observed()
        self.losses = {}

    @property
    def aux_loss(self):
        """The loss of the last training forward of this thread's part of the batch, with gradient; None otherwise."""
        return self.losses.get(PART.get()) if self.training else None

    def balance(self):
        """Nothing to set: the gradient of `aux_loss` does the balancing."""

    def __getstate__(self):
        """Without the losses: a tensor inside a graph can be neither copied nor saved."""
        return {**super().__getstate__(), "losses": {}}
