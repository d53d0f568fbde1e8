"""mlx-lm reads a K3 by the names of the released checkpoint and gives our logits, our tokens, our packed experts."""

import sys

import pytest

if sys.platform == "win32":
    pytest.skip("mlx-lm: mlx has no build for Windows", allow_module_level=True)

import mlx.core as mx
import numpy as np
import torch
from mlx_lm.utils import load_model
from mlx_oracle import LIMIT, NAME, VERSION, in_mlx_lm, mlx_greedy, mlx_logits
from oracle_helpers import BASE, LENGTHS, corpus_prompts, cut, largest_difference, live_k3, pieces, prompt

from k3_scratch.export.huggingface import from_huggingface, to_huggingface
from k3_scratch.generate import generate
from k3_scratch.pretrained import pretrained
from k3_scratch.reference.mxfp4 import mxfp4_pack, mxfp4_unpack

LARGEST = "largest difference of a logit"
CONFIGURATIONS = {
    "base": {}, "no q rank": {"q_lora_rank": None}, "un-rotated width 0": {"qk_rope_head_dim": 0},
    "odd widths": {"hidden_size": 29, "kda_key_dim": 7, "kda_value_dim": 7, "kv_lora_rank": 11, "moe_latent_size": 15,
                   "qk_nope_head_dim": 5, "v_head_dim": 9, "num_heads": 5, "moe_intermediate_size": 17},
    "block size 1": {"attn_res_block_size": 1}, "block size 3": {"attn_res_block_size": 3},
    "block larger than the depth": {"attn_res_block_size": 9}, "partial last block": {"num_layers": 5},
    "plain residual": {"attn_res_block_size": None}, "low-rank gate": {"use_full_rank_gate": False},
    "softplus": {"gate_lower_bound": None}, "no latent": {"moe_latent_size": None, "moe_latent_norm": False},
    "no MLA gate": {"mla_output_gate": False}, "3 of 9 experts": {"num_experts": 9, "num_experts_per_token": 3},
}
STEPS = {"un-rotated width 0": (65,), "odd widths": (65,), "partial last block": (65,)}


def compare(record, covers, ours, theirs, make_prompt, split=(65,), steps=()):
    """Prompts of every length whole, those of the lengths `split` also in two parts and `steps` token by token.

    (Token by token a shorter prompt is the beginning of a longer one.)
    """
    for length in LENGTHS:
        ids = make_prompt(length)
        want = ours(ids)
        for way in ("whole", *["split"] * (length in split), *["steps"] * (length in steps)):
            got = mlx_logits(theirs, cut(ids, pieces(length, way)))
            record(NAME, VERSION, covers, LARGEST, largest_difference(got, want), LIMIT)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_random_weights(name, record):
    """Half of the configurations forget fast, half slowly; the base does both."""
    config, covers = BASE.replace(**CONFIGURATIONS[name]), f"whole text model, random weights, {name}"
    dt_bias = (-4.5, 0.0)[list(CONFIGURATIONS).index(name) % 2]
    model = live_k3(config, seed=3, dt_bias=dt_bias)
    compare(record, covers, model, in_mlx_lm(model), lambda length: prompt(config, length, seed=length),
            steps=STEPS.get(name, ()))


def test_random_weights_in_every_way(record):
    """The base configuration, forgetting fast, with every prompt in every way."""
    model = live_k3(BASE, seed=5, dt_bias=0.0)
    compare(record, "whole text model, random weights, base", model, in_mlx_lm(model),
            lambda length: prompt(BASE, length, seed=length), LENGTHS, LENGTHS[-1:])


@pytest.fixture(scope="module")
def mini():
    """The trained miniature: ours in float64, and in mlx-lm."""
    ours = pretrained("mini").double().requires_grad_(False)
    return ours, in_mlx_lm(ours)


def test_trained_miniature(mini, record):
    """Text of the corpus, as long as the prompts of the random models."""
    text = torch.tensor([sum(corpus_prompts(20), [])])
    compare(record, "whole text model, the trained miniature", *mini, lambda length: text[:, :length],
            LENGTHS, (65,))


def test_trained_miniature_continues_as_ours(mini):
    """Greedy continuations of prompts of the corpus, one of each family, token for token."""
    ours, theirs = mini
    for ids in corpus_prompts(6):
        assert mlx_greedy(theirs, ids, 12) == generate(ours, ids, 12)


def test_packed_experts(tmp_path, record):
    """mlx-lm's own loader reads the packed folder and unpacks exactly the values that we packed."""
    config = BASE.replace(moe_latent_size=64, moe_intermediate_size=96)
    model = live_k3(config, seed=3).float()
    to_huggingface(model, tmp_path / "packed", mxfp4=True)
    theirs, _ = load_model(tmp_path / "packed")
    largest = 0.0
    for number, moe in model.moe_layers().items():
        switch = theirs.layers[number].mlp.switch_mlp
        for ours, part in ((moe.experts.w1, switch.gate_proj), (moe.experts.w3, switch.up_proj),
                           (moe.experts.w2, switch.down_proj)):
            assert (part.mode, part.bits, part.group_size) == ("mxfp4", 4, 32)
            values = mx.dequantize(part.weight, part.scales, group_size=32, bits=4, mode="mxfp4", dtype=mx.float32)
            want = mxfp4_unpack(*mxfp4_pack(ours.numpy()))
            assert abs(want - ours.numpy()).max() > 0                    # something was rounded
            largest = max(largest, abs(np.array(values).astype(np.float64) - want).max())
    record(NAME, VERSION, "MXFP4 experts, read by its own loader", "largest difference of a stored value", largest, 0.0)
    unpacked, ids = from_huggingface(tmp_path / "packed").double(), prompt(config, 64)
    with torch.no_grad():
        difference = largest_difference(mlx_logits(theirs, [ids]), unpacked(ids))
    record(NAME, VERSION, "whole text model with MXFP4 experts", LARGEST, difference, LIMIT)
