"""Faults in the experts, their router, its balancing and the activation."""

import torch

from k3_scratch.course.faults.alive import layer, normal, small
from k3_scratch.course.faults.fault import Table

FFN = Table()
MOE, ROUTER, EXPERTS = "layers/latent_moe.py", "layers/router.py", "layers/experts.py"
SITU, BALANCING = "layers/situ.py", "layers/quantile_balancing.py"

_DOWN = "        z = self.routed_expert_down_proj(x) if self.has_latent else x    # [B, T, L]\n"
_NORM = ("        if self.has_norm:\n"
         "            u = self.routed_expert_norm(u)                               # on the sum, before W_up\n")


@FFN.fault(
    id="norm_after_w_down", level=2, part="moe", technique="invariance", file=MOE,
    what="the latent norm stands after W_down; it belongs on the sum of the experts, before W_up",
    changes=((_DOWN, _DOWN + "        if self.has_norm:\n            z = self.routed_expert_norm(z)\n"), (_NORM, "")))
def _norm_after_w_down(kit):
    return layer(kit, "moe")(normal(1, 2, 5, 24))


@FFN.fault(
    id="balanced_before_it_is_routed", level=3, part="balancing", technique="invariance", file=MOE,
    what="a training batch is routed by the bias that it made itself: the new bias is for the next batch",
    changes=(("        experts, weights, scores = self.gate(x)                          # from the full-width x\n"
              "        if self.training:\n"
              "            self.observe(experts, scores, mask)\n",
              "        experts, weights, scores = self.gate(x)                          # from the full-width x\n"
              "        if self.training:\n"
              "            self.observe(experts, scores, mask)\n"
              "            self.balance()\n"
              "            experts, weights, scores = self.gate(x)\n"),))
def _balanced_before_it_is_routed(kit):
    part = layer(kit, "moe").train()
    part(normal(1, 2, 5, 24))
    return part.gate.e_score_correction_bias


@FFN.fault(
    id="counts_add_up", level=4, part="balancing", technique="counts", file=MOE,
    what="what a batch showed is added to what was seen before: a pass repeated for its gradient counts twice",
    changes=(("        self.observed[PART.get()] = scores.detach()[real].flatten(0, -2), counts\n",
              "        scores, earlier = scores.detach()[real].flatten(0, -2), self.observed.get(PART.get())\n"
              "        self.observed[PART.get()] = scores, counts if earlier is None else counts + earlier[1]\n"),
             ("    A forward pass overwrites what was observed of the same part before, so one that is repeated by "
              "recomputation counts\n    once; the parts", "    The parts")))
def _counts_add_up(kit):
    part = layer(kit, "moe").train()
    for _ in range(2):
        part(normal(1, 2, 5, 24))
    return part.expert_counts.sum()


@FFN.fault(
    id="bias_inside_the_weights", level=4, part="moe", technique="invariance", file=ROUTER,
    what="the selection bias stays in the mixing weights: it may only decide who is chosen",
    changes=(("    experts = (scores.detach() + bias).topk(k, -1).indices               # the bias is added out of "
              "place ...\n"
              "    chosen = scores.gather(-1, experts)                                  # ... and never enters the "
              "weights\n",
              "    scores = scores + bias\n"
              "    chosen, experts = scores.topk(k, -1)\n"),
             ('    """Choose by score + bias, mix by score alone.\n', '    """Choose by score and bias.\n')))
def _bias_inside_the_weights(kit):
    experts, weights, _ = kit.layers.router.route(normal(1, 5, 7), normal(2, 6, 7), 0.1 * normal(3, 6), 2)
    return experts, weights / weights.sum(-1, keepdim=True)


@FFN.fault(
    id="not_renormalised", level=5, part="moe", technique="limits", file=ROUTER,
    what="mixing weights are not divided by their sum; the norm on the sum of the experts hides it almost",
    changes=(("    weights = chosen / (chosen.sum(-1, keepdim=True) + 1e-20)\n", "    weights = chosen\n"),
             ("weights [..., k] that sum to `scale`, scores", "weights [..., k], scores")))
def _not_renormalised(kit):
    route = kit.layers.router.route
    return route(normal(1, 5, 7), normal(2, 6, 7), torch.zeros(6, dtype=torch.float64), 2, 2.5)[1]


@FFN.fault(
    id="router_rounds", level=5, part="moe", technique="regimes", file=ROUTER,
    what="the router multiplies in the model's own precision: in bfloat16 close scores round to the same number",
    changes=(("    wide = raised(x)\n"
              "    scores = torch.sigmoid(F.linear(wide, w_router.to(wide.dtype)))\n",
              "    scores = torch.sigmoid(raised(F.linear(x, w_router.to(x.dtype))))\n"),))
def _router_rounds(kit):
    x, w = normal(1, 5, 64).bfloat16(), (0.1 * normal(2, 6, 64)).bfloat16()
    return kit.layers.router.route(x, w, torch.zeros(6), 2)[2]


@FFN.fault(
    id="weights_of_other_visits", level=3, part="moe", technique="two_forms", file=EXPERTS,
    what="visits are sorted by expert and their weights are not: with several tokens, experts get others' weights",
    changes=(("    out = out * weights.flatten()[order].unsqueeze(-1).to(z.dtype)\n",
              "    out = out * weights.flatten().unsqueeze(-1).to(z.dtype)\n"),))
def _weights_of_other_visits(kit):
    experts = torch.tensor([[2, 0], [1, 2], [0, 1], [3, 1], [2, 3]])
    mixing = torch.softmax(normal(6, 5, 2), -1)
    return kit.layers.experts.expert_mixture(normal(1, 5, 7), experts, mixing, normal(2, 4, 3, 7), normal(3, 4, 3, 7),
                                             normal(4, 4, 7, 3), lambda gate, up: gate + up)


@FFN.fault(
    id="branches_swapped", level=3, part="moe", technique="two_forms", file=EXPERTS,
    what="with several tokens, w1 and w3 change places: the gate branch of an expert becomes its up branch",
    changes=(("act(product(visits, w1, ends), product(visits, w3, ends))",
              "act(product(visits, w3, ends), product(visits, w1, ends))"),))
def _branches_swapped(kit):
    experts = torch.tensor([[2], [1], [0], [3], [2]])
    return kit.layers.experts.expert_mixture(
        normal(1, 5, 7), experts, torch.ones(5, 1, dtype=torch.float64), normal(2, 4, 3, 7), normal(3, 4, 3, 7),
        normal(4, 4, 7, 3), lambda gate, up: gate.tanh() * up)


@FFN.fault(
    id="bounds_swapped", level=2, part="situ", technique="paper", file=SITU,
    what="the bounds of the two branches are swapped: 25 on the gate and 4 on the up branch",
    changes=(("situ_glu(gate, up, config.situ_beta, config.situ_linear_beta)",
              "situ_glu(gate, up, config.situ_linear_beta, config.situ_beta)"),))
def _bounds_swapped(kit):
    gate, up = 5 * normal(1, 9), 30 * normal(2, 9)
    return kit.layers.situ.activation(small(kit))(gate, up) / kit.layers.situ.situ_glu(gate, up, 4.0, 25.0)


@FFN.fault(
    id="sigmoid_of_the_capped_gate", level=3, part="situ", technique="limits", file=SITU,
    what="the sigmoid takes the gate after its cap; it should take the gate itself",
    changes=(("        t, s, u = (gate / beta).tanh_(), gate.sigmoid(), (up / linear_beta).tanh_()\n",
              "        t, u = (gate / beta).tanh_(), (up / linear_beta).tanh_()\n"
              "        s = (beta * t).sigmoid()\n"),
             (".addcmul_(t, t, value=-1).add_(1)      # 1 - t^2 + bt(1 - s)", ".add_(1).mul_(1 - t * t)"),
             ("<= beta * linear_beta. The sigmoid takes the uncapped gate.  K3", "<= beta * linear_beta.  K3"),
             ('"""With t = tanh(gate/beta), s = sigmoid(gate), u = tanh(up/linear_beta): beta t s linear_beta u, and '
              'by hand\n\n    d gate = linear_beta u (s (1 - t^2) + beta t s (1 - s))          '
              'd up = beta t s (1 - u^2)\n    """',
              '"""beta t s linear_beta u with t, s and u as below, and its gradients by hand."""')))
def _sigmoid_of_the_capped_gate(kit):
    return kit.layers.situ.situ_glu(5 * normal(1, 9), 30 * normal(2, 9), 4.0, 25.0)


_TWICE = torch.tensor([[0.94, 0.55, 0.07, 0.35], [0.60, 0.42, 0.51, 0.02]] * 2)      # every margin occurs twice


@FFN.fault(
    id="balance_with_the_wrong_sign", level=3, part="balancing", technique="limits", file=BALANCING,
    what="the new selection bias has the wrong sign: the crowded experts are made more attractive",
    changes=(("    new = -margin.topk(rank, dim=0).values[-1]\n", "    new = margin.topk(rank, dim=0).values[-1]\n"),))
def _balance_with_the_wrong_sign(kit):
    return kit.layers.quantile_balancing.quantile_bias(_TWICE, torch.zeros(4), 1)


@FFN.fault(
    id="one_rank_off", level=5, part="balancing", technique="paper", file=BALANCING,
    what="the bias is read at the q-th largest margin; the (q+1)-th is the first that must not be chosen",
    changes=(("    rank = min(m * k // n + 1, m)                                        # the (floor(q) + 1)-th "
              "largest margin\n",
              "    rank = max(m * k // n, 1)                                            # the last place there is\n"),))
def _one_rank_off(kit):
    new = kit.layers.quantile_balancing.quantile_bias(normal(1, 8, 4).sigmoid(), torch.zeros(4, dtype=torch.float64), 1)
    return new * new[0].sign()
