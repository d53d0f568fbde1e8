"""Shared by the tests of the torch code: KDA inputs in several regimes, small live models, errors, dtype watching."""

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from k3_scratch.config import preset
from k3_scratch.course.faults.alive import enliven
from k3_scratch.model import K3
from k3_scratch.training.run_folder import save_weights

REGIMES = ("mild", "k3", "mixed", "floor", "unbounded", "none", "repeated", "twenty", "thousand")
NAMES = ("q", "k", "v", "g", "beta", "state")

NANO = preset("nano").replace(vocab_size=23, initializer_range=0.15)
KIMI_LINEAR = {"gate_lower_bound": None, "use_full_rank_gate": False, "q_lora_rank": None, "mla_output_gate": False,
               "moe_latent_size": None, "moe_latent_norm": False, "activation": "swiglu", "attn_res_block_size": None,
               "routed_scaling_factor": 2.446, "num_shared_experts": 1}
VARIANTS = {
    "k3": {}, "kimi_linear": KIMI_LINEAR, "full_rank_q": {"q_lora_rank": None},
    "no_shared_slice": {"qk_rope_head_dim": 0}, "wide_values": {"kda_key_dim": 5, "kda_value_dim": 9},
    "blocks_of_1": {"attn_res_block_size": 1}, "one_block": {"attn_res_block_size": 9},
    "partial_last_block": {"num_layers": 5, "attn_res_block_size": 2}, "no_shared_experts": {"num_shared_experts": 0},
    "no_latent": {"moe_latent_size": None, "moe_latent_norm": False}, "no_latent_norm": {"moe_latent_norm": False},
    "all_kda": {"mla_layers": ()}, "all_mla": {"mla_layers": (0, 1, 2, 3)},
    "plain_residual": {"attn_res_block_size": None}, "all_dense": {"first_k_dense": 4},
    "no_dense": {"first_k_dense": 0},
    "one_tap": {"conv_size": 1}, "two_taps": {"conv_size": 2}, "all_experts": {"num_experts_per_token": 6},
    "ungated_mla": {"mla_output_gate": False}, "softplus": {"gate_lower_bound": None},
    "low_rank_gate": {"use_full_rank_gate": False},
}


def variant(name):
    return NANO.replace(**VARIANTS[name])


def tensor(x, dtype=torch.float64):
    return torch.tensor(np.asarray(x), dtype=dtype)


def normal(rng, *shape):
    return torch.from_numpy(rng.normal(size=shape))


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def kda_arguments(regime, T, B=2, H=3, K=5, V=4, seed=0):
    """Float64 q, k, v, g, beta and state in a dict, in the order of the arguments; sizes that all differ."""
    rng = np.random.default_rng(seed)
    q, k, v = unit(normal(rng, B, T, H, K)), unit(normal(rng, B, T, H, K)), normal(rng, B, T, H, V)
    beta, uniform = torch.from_numpy(rng.uniform(size=(B, T, H))), torch.from_numpy(rng.uniform(size=(B, T, H, K)))
    g = {
        "mild": -0.1 * uniform,
        "gentle": -0.1 * uniform,
        "strong": -5 * uniform,
        "k3": -5 * torch.sigmoid(3 * normal(rng, B, T, H, K)),
        "mixed": -5.0 * (uniform < 0.5).double(),
        "floor": torch.full_like(uniform, -5.0),
        "unbounded": -60 * uniform ** 3,
        "none": torch.zeros_like(uniform),
        "repeated": -0.01 * uniform,
        "twenty": torch.full_like(uniform, -20.0),
        "thousand": -0.1 * uniform,
    }[regime]
    if regime == "repeated":                             # one unit key for all tokens, almost full strength
        k = unit(normal(rng, B, 1, H, K)).expand(-1, T, -1, -1).clone()
        q, beta = k + 0.1 * q, 0.9 + 0.099 * beta
    if regime == "thousand" and T:                       # all is forgotten, once
        g[:, T // 2] = -1000.0
    return {"q": q, "k": k, "v": v, "g": g, "beta": beta, "state": normal(rng, B, H, K, V)}


def values_and_gradients(function, arguments, dtype=torch.float64, seed=5, **keywords):
    """{"o", "state", "dq", ...} of a loss that reads every output and the final state, each with its own weight."""
    leaves = {name: x.to(dtype).requires_grad_() for name, x in arguments.items()}
    o, state = function(*leaves.values(), **keywords)
    rng = np.random.default_rng(seed)
    do, dstate = normal(rng, *o.shape), normal(rng, *state.shape)
    loss = (o * do.to(o.dtype)).sum() + (state * dstate.to(state.dtype)).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    result = {"o": o.detach(), "state": state.detach()}
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        result["d" + name] = torch.zeros_like(leaf) if gradient is None else gradient
    return result


def relative_error(got, want):
    """Largest error, relative to the largest number of the truth."""
    assert got.shape == want.shape
    assert torch.isfinite(got).all()
    if not want.numel():
        return 0.0
    size = want.abs().max().item()
    return (got.double() - want.double()).abs().max().item() / (size if size > 0 else 1.0)


def live_model(config, seed=0, dtype=torch.float64):
    """A model in which every part matters: depth queries, selection biases, norms and decays are random too."""
    return enliven(K3(config, seed=seed).to(dtype).eval(), seed + 100)


def weights_of(model):
    return {name: x.detach().double().numpy() for name, x in model.state_dict().items()}


def tokens_for(config, *shape, seed=1):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, config.vocab_size, size=shape))


def feed(model, tokens, lengths, cache=None, mask=None):
    """The logits of one call after the other, `lengths` tokens each; what is left comes one token at a time."""
    cache = model.new_cache(tokens.shape[0]) if cache is None else cache
    lengths = [*lengths, *[1] * (tokens.shape[1] - sum(lengths))]
    outputs, start = [], 0
    for length in lengths:
        part = slice(start, start + length)
        outputs.append(model(tokens[:, part], cache, mask=None if mask is None else mask[:, part]))
        start += length
    return torch.cat(outputs, 1)


def write_run(folder, model):
    """`folder`, new, with what a finished run of `model` leaves that commands read."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(model.config.to_json(), encoding="utf-8")
    save_weights(model, folder / "model.safetensors")
    (folder / "summary.json").write_text("{}", encoding="utf-8")
    return folder


class DtypeWatch(TorchDispatchMode):
    """Collects the floating dtypes of the results of every single torch operation inside `with`."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                self.seen.setdefault(x.dtype, str(function))
        return result
