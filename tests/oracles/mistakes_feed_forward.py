"""Mistakes in Stable LatentMoE, its router and SiTU; how they are planted is in mistake.py."""

import torch
import torch.nn.functional as F
from mistake import mistake

from k3_scratch.layers import router, situ
from k3_scratch.layers.experts import expert_mixture
from k3_scratch.layers.latent_moe import LatentMoE
from k3_scratch.layers.router import route

# ---- LatentMoE

def with_moe(score=lambda moe, x, z: moe.gate(x), enter=lambda moe, x: moe.routed_expert_down_proj(x),
             leave=lambda moe, u: moe.routed_expert_norm(u)):
    """The layer with another router input, another input of the experts, or another step before W_up."""
    def forward(self, x, mask=None):
        z = enter(self, x)
        experts, weights, scores = score(self, x, z)
        if self.training:
            self.observe(experts, scores, mask)
        u = expert_mixture(z.flatten(0, -2), experts.flatten(0, -2), weights.flatten(0, -2), self.experts.w1,
                           self.experts.w3, self.experts.w2, self.act).view_as(z)
        y = self.routed_expert_up_proj(leave(self, u))
        return y + self.shared_experts(x) if self.has_shared else y
    return [(LatentMoE, "forward", forward)]


@mistake("layers/latent_moe.py", "the latent norm stands after W_down in place of before W_up")
def norm_after_w_down():
    return with_moe(enter=lambda moe, x: moe.routed_expert_norm(moe.routed_expert_down_proj(x)),
                    leave=lambda moe, u: u)


@mistake("layers/latent_moe.py", "the norm on the summed experts is missing")
def no_latent_norm():
    return with_moe(leave=lambda moe, u: u)


@mistake("layers/latent_moe.py", "the experts read the first L channels of the full-width input, not the latent")
def experts_fed_the_full_width():
    return with_moe(enter=lambda moe, x: x[..., :moe.experts.w1.shape[-1]])


@mistake("layers/latent_moe.py", "the router reads the latent in place of the full-width input")
def router_on_the_latent():
    return with_moe(score=lambda moe, x, z: route(z, moe.gate.weight[:, :z.shape[-1]].contiguous(),
                                                  moe.gate.e_score_correction_bias, moe.gate.k, moe.gate.scale))


@mistake("layers/router.py", "the selection bias stays in the mixing weights")
def bias_inside_the_weights():
    def leaking(x, w_router, bias, k, scale=1.0):
        scores = torch.sigmoid(F.linear(x, w_router)) + bias
        chosen, experts = scores.topk(k, -1)
        return experts, scale * chosen / (chosen.sum(-1, keepdim=True) + 1e-20), scores
    return [(router, "route", leaking)]


# ---- SiTU

def with_situ(wrong):
    """wrong(gate, up, beta, linear_beta) in every feed-forward part."""
    return [(situ, "situ_glu", lambda gate, up, beta=4.0, linear_beta=25.0: wrong(gate, up, beta, linear_beta))]


@mistake("layers/situ.py", "beta is taken for the slope of the sigmoid")
def beta_as_slope():
    return with_situ(lambda gate, up, b, c: b * torch.tanh(gate / b) * torch.sigmoid(b * gate) * c * torch.tanh(up / c))


@mistake("layers/situ.py", "the sigmoid takes the gate after its cap")
def sigmoid_of_the_capped_gate():
    def wrong(gate, up, b, c):
        capped = b * torch.tanh(gate / b)
        return capped * torch.sigmoid(capped) * c * torch.tanh(up / c)
    return with_situ(wrong)


@mistake("layers/situ.py", "the bounds of the two branches are swapped")
def bounds_swapped():
    return with_situ(lambda gate, up, b, c: c * torch.tanh(gate / c) * torch.sigmoid(gate) * b * torch.tanh(up / b))
