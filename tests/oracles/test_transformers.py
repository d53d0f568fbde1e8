"""transformers: Kimi Linear as a whole (KDA with the softplus decay, NoPE MLA, plain MoE), and K3's bounded decay gate.

It runs its own PyTorch code here: an importable `fla` would make it look for a GPU.
"""

import importlib.util

import pytest
import torch
import transformers
from oracle_helpers import BASE, LENGTHS, cut, largest_difference, live_k3, pieces, prompt
from torch_helpers import KIMI_LINEAR
from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextForgetGate
from transformers.models.kimi_linear import KimiLinearConfig, KimiLinearForCausalLM

from k3_scratch.export.huggingface import hf_config, hf_tensors
from k3_scratch.layers.decay_gates import bounded_decay, softplus_decay

NAME, VERSION = "transformers", transformers.__version__
LARGEST, LIMIT = "largest difference of a logit", 5e-6                   # their float32 against our float64
LINEAR = BASE.replace(**KIMI_LINEAR, num_layers=5, initializer_range=0.06)
CONFIGURATIONS = {
    "base": {}, "with a q rank": {"q_lora_rank": 14}, "un-rotated width 0": {"qk_rope_head_dim": 0},
    "odd widths": {"hidden_size": 29, "kda_key_dim": 7, "kda_value_dim": 7, "kv_lora_rank": 11, "qk_nope_head_dim": 5,
                   "v_head_dim": 9, "num_heads": 5, "moe_intermediate_size": 17},
    "full attention first": {"mla_layers": (0, 2)}, "2 dense layers, 2 shared experts": {"first_k_dense": 2,
                                                                                       "num_shared_experts": 2},
}


def in_transformers(model):
    """The model as transformers' own, by the names of the released checkpoint and its own table from them to its own.

    What it stacks (convolutions, experts' w1 and w3) is stacked here. Nothing may be left over on either side.
    """
    config = KimiLinearConfig(**hf_config(model.config)["text_config"], pad_token_id=None)
    assert [i for i, kind in enumerate(config.layer_types) if kind == "full_attention"] == [*model.config.mla_layers]
    tensors = {name.removeprefix("language_model."): x.float()
               for name, x in hf_tensors(model, model.config).items()}
    for name in [name for name in tensors if name.endswith("q_conv1d.weight")]:
        tensors[name.replace("q_conv1d", "conv1d")] = torch.cat(
            [tensors.pop(name.replace("q_conv1d", f"{part}_conv1d")) for part in "qkv"])
    for name in [name for name in tensors if name.endswith("experts.0.w1.weight")]:
        stem, experts = name.removesuffix("0.w1.weight"), range(model.config.num_experts)
        w1, w2, w3 = ([tensors.pop(f"{stem}{e}.{part}.weight") for e in experts] for part in ("w1", "w2", "w3"))
        tensors[stem + "gate_up_proj"] = torch.cat([torch.stack(w1), torch.stack(w3)], 1)
        tensors[stem + "down_proj"] = torch.stack(w2)
    for name in [name for name in tensors if name.endswith("A_log")]:
        tensors[name] = tensors[name][:model.config.num_heads].view(1, 1, -1, 1)
    for own in ("f_a_proj", "f_b_proj", "dt_bias", "A_log"):
        tensors = {name.replace(f"self_attn.{own}", f"self_attn.forget_gate.{own}"): x for name, x in tensors.items()}
    theirs = KimiLinearForCausalLM(config)
    theirs.set_experts_implementation("eager")                           # the fast one wants rows of 16 bytes
    theirs.load_state_dict({name.replace("block_sparse_moe", "mlp"): x for name, x in tensors.items()})
    return theirs.eval().requires_grad_(False)


def logits(theirs, parts):
    """Logits of the prompt that comes in `parts`, through its cache.                              -> [1, T, vocab]"""
    cache, found = None, []
    for part in parts:
        out = theirs(part, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        found.append(out.logits)
    return torch.cat(found, 1)


def test_it_runs_its_own_code():
    assert importlib.util.find_spec("fla") is None


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_kimi_linear(name, record):
    """Prompts of every length whole and in two parts, the longest also token by token, at two speeds of forgetting."""
    config = LINEAR.replace(**CONFIGURATIONS[name])
    for dt_bias in (0.0, -4.5):
        model = live_k3(config, seed=4, dt_bias=dt_bias)
        theirs = in_transformers(model)
        for length in LENGTHS:
            ids = prompt(config, length, seed=length)
            want = model(ids)
            steps = ["steps"] * (length == LENGTHS[-1] and name == "base" and dt_bias == 0.0)
            for way in ("whole", "split", *steps):
                got = logits(theirs, cut(ids, pieces(length, way)))
                record(NAME, VERSION, f"Kimi Linear as a whole, random weights, {name}", LARGEST,
                       largest_difference(got, want), LIMIT)


@pytest.mark.parametrize("bound", [-5.0, -2.0, None])
def test_decay_gate(bound, record):
    """The gate alone, ours on the same float32 numbers: bounded as in K3, and the softplus."""
    H, K, D = 3, 6, 10
    config = type("Config", (), {"linear_head_dim": K, "linear_num_heads": H, "hidden_size": D,
                                 "linear_lower_bound": bound})
    theirs, generator = Glm5NextTextForgetGate(config).requires_grad_(False), torch.Generator().manual_seed(0)
    for parameter in theirs.parameters():
        parameter.normal_(generator=generator)
    largest = 0.0
    for size in (0.1, 3.0, 100.0):
        x = size * torch.randn(2, 7, D, generator=generator)
        z = (theirs.f_b_proj(theirs.f_a_proj(x)) + theirs.dt_bias).view(2, 7, H, K)
        ours = softplus_decay(z, theirs.A_log) if bound is None else bounded_decay(z, theirs.A_log, bound)
        want = theirs(x)
        assert ours.shape == want.shape
        assert want.min() < want.max() <= 0
        largest = max(largest, ((ours - want).abs() / want.abs().clamp(min=1.0)).max().item())
    # the bounded gate is the same three operations; they write the softplus as log(1 + e^z), we call PyTorch's
    record(NAME, VERSION, "decay gate alone, " + ("softplus" if bound is None else "bounded"),
           "largest difference of a log-decay", largest, 1e-6 if bound is None else 0.0)
