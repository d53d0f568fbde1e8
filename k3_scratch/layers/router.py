"""The router: which experts a token visits, and with which weights.  K3 report, Stable LatentMoE; DeepSeek-V3."""

import torch
import torch.nn.functional as F
from torch import nn

from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def route(x, w_router, bias, k, scale=1.0):
    """Choose by score + bias, mix by score alone.

    x [..., D] (full width, also in a LatentMoE), w_router [E, D], bias [E]
    returns experts [..., k], weights [..., k] that sum to `scale`, scores [..., E]; all in at least float32.
    """
    sizes = check_shapes("route", x=(x, "... D"), w_router=(w_router, "E D"), bias=(bias, "E"))
    if not 1 <= k <= sizes["E"]:
        raise ValueError(f"route: k must be from 1 to E = {sizes['E']}, but {k} came")
    wide = raised(x)
    scores = torch.sigmoid(F.linear(wide, w_router.to(wide.dtype)))
    experts = (scores.detach() + bias).topk(k, -1).indices               # the bias is added out of place ...
    chosen = scores.gather(-1, experts)                                  # ... and never enters the weights
    weights = chosen / (chosen.sum(-1, keepdim=True) + 1e-20)
    return experts, weights if scale == 1.0 else scale * weights, scores


class Router(nn.Module):
    """`route` with its weight [E, D] and the selection bias [E], a buffer that no gradient reaches."""

    def __init__(self, config):
        super().__init__()
        self.k, self.scale = config.num_experts_per_token, config.routed_scaling_factor
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(config.num_experts))

    def forward(self, x):
        return route(x, self.weight, self.e_score_correction_bias, self.k, self.scale)
