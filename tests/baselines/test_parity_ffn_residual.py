"""The same numbers as the transformers library, float32, copied weights: values and gradients to 1e-5."""

import numpy as np
import pytest
import torch
from part_helpers import CONFIG, D, copied, drawn, normal, parts_of, run_stack
from transformers.models.deepseek_v2.configuration_deepseek_v2 import DeepseekV2Config
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MLP, DeepseekV3MoE
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperConnection, DeepseekV4HyperHead
from transformers.models.nemotron_h.configuration_nemotron_h import NemotronHConfig
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHMoE
from transformers.models.qwen2_moe.modeling_qwen2_moe import load_balancing_loss_func

from k3_scratch.baselines.ffns import FFNS
from k3_scratch.baselines.hyper_connections import HyperConnections
from k3_scratch.baselines.softmax_moe import load_balance_loss

LIMIT = 1e-5
SEEDS = [0, 1, 2]


def agree(got, want, what):
    """Largest difference, relative to the largest number of the truth where that is above 1."""
    assert got.shape == want.shape, what
    assert want.abs().max() > 1e-3, what
    difference = (got - want).abs().max() / want.abs().max().clamp_min(1)
    assert difference <= LIMIT, f"{what}: {difference:g}"


def inputs(seed, *shape):
    return normal(np.random.default_rng(100 + seed), *shape).float()


def both(ours, theirs, x, pairs):
    """Compare y, dx and the gradients of `pairs` [(ours, theirs, name)], parameters or parts of gradients."""
    results = []
    for part in (ours, theirs):
        leaf = x.clone().requires_grad_()
        y = part(leaf)
        (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
        results.append((y.detach(), leaf.grad))
    for a, b, what in zip(*results, ("y", "dx"), strict=True):
        agree(a, b, what)
    for mine, other, what in pairs:
        agree(mine(ours), other(theirs), what)


def gated_experts(theirs):
    """The names of our experts, from one tensor that holds gate above up."""
    gate, up = theirs.experts.gate_up_proj.chunk(2, 1)
    return {"experts.w1": gate, "experts.w3": up, "experts.w2": theirs.experts.down_proj}


def shared(theirs):
    return {f"shared_experts.{n}_proj.weight": getattr(theirs.shared_experts, f"{n}_proj").weight
            for n in ("gate", "up", "down")}


GATED = [(lambda o: o.gate.weight.grad, lambda t: t.gate.weight.grad, "gate"),
         (lambda o: torch.cat([o.experts.w1.grad, o.experts.w3.grad], 1), lambda t: t.experts.gate_up_proj.grad, "up"),
         (lambda o: o.experts.w2.grad, lambda t: t.experts.down_proj.grad, "down")]
SIZES = {"hidden_size": D, "moe_intermediate_size": CONFIG.moe_intermediate_size, "n_routed_experts": 6,
         "n_shared_experts": 2, "hidden_act": "silu", "num_attention_heads": 4}
SWIGLU = CONFIG.replace(activation="swiglu")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("k", "scale"), [(1, 1.0), (2, 2.5), (6, 1.0)])
def test_deepseek_v3_moe(k, scale, seed):
    config = DeepseekV3Config(**SIZES, num_experts_per_tok=k, routed_scaling_factor=scale, n_group=1, topk_group=1,
                              norm_topk_prob=True)
    theirs = drawn(DeepseekV3MoE(config), seed, dtype=torch.float32)
    assert theirs.gate.e_score_correction_bias.abs().max() > 0.1
    ours = FFNS["sigmoid_moe"](SWIGLU.replace(num_experts_per_token=k, routed_scaling_factor=scale))
    copied(ours, {"gate.weight": theirs.gate.weight, **gated_experts(theirs), **shared(theirs),
                  "gate.e_score_correction_bias": theirs.gate.e_score_correction_bias})
    both(ours, theirs, inputs(seed, 3, 11, D), GATED[0 if k > 1 else 1:])        # k = 1: the weight is always 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("k", "scale"), [(1, 1.0), (2, 4.0), (6, 1.0)])
def test_deepseek_v2_moe(k, scale, seed):
    theirs = drawn(DeepseekV2Moe(DeepseekV2Config(**SIZES, num_experts_per_tok=k, routed_scaling_factor=scale,
                                                  topk_method="greedy")), seed, dtype=torch.float32)
    ours = FFNS["softmax_moe"](SWIGLU.replace(num_experts_per_token=k, routed_scaling_factor=scale))
    copied(ours, {"gate.weight": theirs.gate.weight, **gated_experts(theirs), **shared(theirs)})
    both(ours, theirs, inputs(seed, 3, 11, D), GATED)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_auxiliary_loss(k, seed):
    """Theirs adds up the choices of a token, so it is k times ours: k at perfect balance."""
    moe = drawn(FFNS["softmax_moe"](CONFIG.replace(num_experts_per_token=k)), seed, dtype=torch.float32).train()
    x, mask = inputs(seed, 3, 11, D), torch.ones(3, 11, dtype=torch.bool)
    mask[0, :4] = mask[2, :9] = False
    for seen in (None, mask):
        moe(x, seen)
        mine = torch.autograd.grad(moe.aux_loss, moe.gate.weight)[0]
        value = moe.aux_loss
        logits = (x @ moe.gate.weight.mT).flatten(0, 1)
        theirs = load_balancing_loss_func((logits,), 6, k, None if seen is None else seen.long()) / k
        agree(value, theirs, "loss")
        agree(100 * mine, 100 * torch.autograd.grad(theirs, moe.gate.weight)[0], "gradient")
    agree(load_balance_loss(*moe.gate(x[mask])[2:], moe.expert_counts, k), theirs, "the function")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_nemotron_latent_moe(scale, seed):
    """Its experts have no gate: relu(up)^2, which is our gated form with w1 = w3 and act = relu(gate) * up."""
    config = NemotronHConfig(hidden_size=D, moe_intermediate_size=18, moe_shared_expert_intermediate_size=36,
                             moe_latent_size=16, n_routed_experts=6, num_experts_per_tok=2, n_group=1, topk_group=1,
                             norm_topk_prob=True, routed_scaling_factor=scale, mlp_hidden_act="relu2", mlp_bias=False)
    theirs = drawn(NemotronHMoE(config), seed, dtype=torch.float32)
    ours = FFNS["latent_moe_no_norm"](CONFIG.replace(routed_scaling_factor=scale))
    copied(ours, {
        "gate.weight": theirs.gate.weight, "gate.e_score_correction_bias": theirs.gate.e_score_correction_bias,
        "routed_expert_down_proj.weight": theirs.fc1_latent_proj.weight,
        "routed_expert_up_proj.weight": theirs.fc2_latent_proj.weight, "experts.w1": theirs.experts.up_proj,
        "experts.w3": theirs.experts.up_proj, "experts.w2": theirs.experts.down_proj,
        "shared_experts.gate_proj.weight": theirs.shared_experts.up_proj.weight,
        "shared_experts.up_proj.weight": theirs.shared_experts.up_proj.weight,
        "shared_experts.down_proj.weight": theirs.shared_experts.down_proj.weight})
    ours.act = ours.shared_experts.act = lambda gate, up: torch.relu(gate) * up
    both(ours, theirs, inputs(seed, 3, 11, D), [
        GATED[0], GATED[2],
        (lambda o: o.experts.w1.grad + o.experts.w3.grad, lambda t: t.experts.up_proj.grad, "up"),
        (lambda o: o.routed_expert_up_proj.weight.grad, lambda t: t.fc2_latent_proj.weight.grad, "latent up"),
        (lambda o: o.routed_expert_down_proj.weight.grad, lambda t: t.fc1_latent_proj.weight.grad, "latent down")])


@pytest.mark.parametrize("seed", SEEDS)
def test_swiglu(seed):
    theirs = drawn(DeepseekV3MLP(DeepseekV3Config(hidden_size=D, intermediate_size=40)), seed, dtype=torch.float32)
    ours = copied(FFNS["swiglu"](CONFIG), dict(theirs.named_parameters()))
    both(ours, theirs, inputs(seed, 3, 11, D),
         [(lambda o, n=n: getattr(o, n).weight.grad, lambda t, n=n: getattr(t, n).weight.grad, n)
          for n in ("gate_proj", "up_proj", "down_proj")])


# ---- hyper-connections

class TheirStack(torch.nn.Module):
    """Sublayers joined by the library's hyper-connections, as its decoder layer and its model join them."""

    def __init__(self, count, streams, iterations, eps):
        super().__init__()
        config = DeepseekV4Config(hidden_size=D, hc_mult=streams, hc_sinkhorn_iters=iterations, hc_eps=eps,
                                  rms_norm_eps=CONFIG.rms_norm_eps)
        self.streams = streams
        self.connections = torch.nn.ModuleList(DeepseekV4HyperConnection(config) for _ in range(count))
        self.head = DeepseekV4HyperHead(config)
        for name, x in self.named_parameters():                                  # made without numbers in them
            torch.nn.init.constant_(x, 1.0 if name.endswith("scale") else 0.0)

    def forward(self, h, sublayers):
        streams = h.unsqueeze(2).expand(-1, -1, self.streams, -1).contiguous()
        for connection, sublayer in zip(self.connections, sublayers, strict=True):
            post, mixing, x = connection(streams)
            streams = post.unsqueeze(-1) * sublayer(x).unsqueeze(-2) + mixing.transpose(-1, -2) @ streams
        return self.head(streams)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("count", "streams", "iterations", "eps"), [
    (2, 4, 20, 1e-6), (6, 4, 20, 1e-6), (4, 3, 5, 1e-6), (4, 3, 5, 0.01), (2, 1, 1, 0.01), (4, 2, 20, 1e-3)])
def test_hyper_connections(count, streams, iterations, eps, seed):
    """A large eps shows that each one sits where theirs does."""
    theirs = drawn(TheirStack(count, streams, iterations, eps), seed, std=0.2, dtype=torch.float32)
    ours = HyperConnections(CONFIG, count, streams, iterations, eps)
    for mine, other in zip(ours.connections, theirs.connections, strict=True):
        copied(mine, other.state_dict())
    copied(ours.head, {name.removeprefix("hc_"): x for name, x in theirs.head.state_dict().items()})
    matrices = [inputs(seed + i, D, D) / 8 for i in range(count)]
    sublayers = [lambda x, w=w: torch.tanh(x @ w) for w in matrices]
    h = inputs(seed, 2, 5, D)
    results = []
    for run, modules in ((lambda x: run_stack(ours, x, sublayers), parts_of(ours, count)),
                         (lambda x: theirs(x, sublayers), theirs)):
        leaf = h.clone().requires_grad_()
        y = run(leaf)
        (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
        gradients = {(name.split(".")[-1].removeprefix("hc_"), "head" in name or "output" in name): []
                     for name, _ in modules.named_parameters()}
        for name, x in modules.named_parameters():                               # sublayer by sublayer, in order
            gradients[name.split(".")[-1].removeprefix("hc_"), "head" in name or "output" in name].append(x.grad)
        results.append((y.detach(), leaf.grad, gradients))
    (y, dh, mine), (want, want_dh, other) = results
    agree(y, want, "y")
    agree(dh, want_dh, "dh")
    assert set(mine) == set(other)
    for what, gradients in mine.items():
        agree(torch.stack(gradients), torch.stack(other[what]), str(what))
