"""Keys, names, shapes and values of a GGUF file against the table that was found by reading llama.cpp's loader."""

import doctest

import numpy as np
import pytest

from k3_scratch.config import preset
from k3_scratch.export import gguf_tokenizer
from k3_scratch.export.gguf_keys import gguf_keys, remarks
from k3_scratch.export.gguf_tensors import gguf_shapes, gguf_tensors
from k3_scratch.export.gguf_tokenizer import byte_spelling
from k3_scratch.model import K3
from k3_scratch.tasks.vocabulary import BOS, EOS, SPECIALS

# V 23, D 24, H 2, K 8, taps 4, q 14, R 12, n 6, r 4, v 5, E 6, k 2, S 2, F 18, L 16, dense 40; layer 3 and 4 are MLA
CONFIG = preset("nano").replace(kda_value_dim=8, vocab_size=23, num_layers=5, routed_scaling_factor=2.5,
                                gate_lower_bound=-4.0, situ_beta=3.0, situ_linear_beta=20.0)
KEYS = {
    "context_length": 4096, "embedding_length": 24, "block_count": 5, "feed_forward_length": 40,
    "attention.head_count": 2, "attention.head_count_kv": [0, 0, 0, 1, 1], "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.q_lora_rank": 14, "attention.kv_lora_rank": 12, "rope.dimension_count": 4, "attention.key_length": 16,
    "attention.value_length": 12, "attention.key_length_mla": 10, "attention.value_length_mla": 5,
    "ssm.conv_kernel": 4, "kda.head_dim": 8, "kda.gate_lower_bound": -4.0, "expert_count": 6, "expert_used_count": 2,
    "expert_feed_forward_length": 18, "expert_shared_count": 2, "expert_latent_length": 16,
    "expert_weights_scale": 2.5, "expert_weights_norm": True, "expert_gating_func": 2, "leading_dense_block_count": 1,
    "activation.situ_beta": 3.0, "activation.situ_linear_beta": 20.0, "attn_res.block_size": 3, "vocab_size": 23,
}
EVERY_LAYER = {"attn_norm.weight": (24,), "ffn_norm.weight": (24,), "attn_res_score.weight": (24,),
               "ffn_res_score.weight": (24,)}
KDA = {"attn_q.weight": (16, 24), "attn_k.weight": (16, 24), "attn_v.weight": (16, 24),
       "ssm_conv1d_q.weight": (1, 16, 1, 4), "ssm_conv1d_k.weight": (1, 16, 1, 4), "ssm_conv1d_v.weight": (1, 16, 1, 4),
       "ssm_f_a.weight": (8, 24), "ssm_f_b.weight": (16, 8), "ssm_a": (2,), "ssm_dt.bias": (16,),
       "ssm_beta.weight": (2, 24), "ssm_g.weight": (16, 24), "ssm_norm.weight": (8,), "attn_output.weight": (24, 16)}
MLA = {"attn_q_a.weight": (14, 24), "attn_q_a_norm.weight": (14,), "attn_q_b.weight": (20, 14),
       "attn_kv_a_mqa.weight": (16, 24), "attn_kv_a_norm.weight": (12,), "attn_k_b.weight": (2, 12, 6),
       "attn_v_b.weight": (2, 5, 12), "attn_gate.weight": (10, 24), "attn_output.weight": (24, 10)}
DENSE = {"ffn_gate.weight": (40, 24), "ffn_up.weight": (40, 24), "ffn_down.weight": (24, 40)}
MOE = {"ffn_gate_inp.weight": (6, 24), "exp_probs_b.bias": (6,), "ffn_routed_down.weight": (16, 24),
       "ffn_routed_up.weight": (24, 16), "ffn_routed_norm.weight": (16,), "ffn_gate_exps.weight": (6, 18, 16),
       "ffn_down_exps.weight": (6, 16, 18), "ffn_up_exps.weight": (6, 18, 16), "ffn_gate_shexp.weight": (36, 24),
       "ffn_up_shexp.weight": (36, 24), "ffn_down_shexp.weight": (24, 36)}
TABLE = {"token_embd.weight": (23, 24), "output.weight": (23, 24), "output_norm.weight": (24,),
         "output_res_score.weight": (24,),
         **{f"blk.{i}.{name}": shape for i in range(5)
            for name, shape in {**EVERY_LAYER, **(MLA if i > 2 else KDA), **(MOE if i else DENSE)}.items()}}


def test_the_keys():
    prefix = "kimi-k3."
    own = {key.removeprefix(prefix): value for key, value in gguf_keys(CONFIG).items() if key.startswith(prefix)}
    assert own == KEYS
    assert {key: type(value) for key, value in own.items()} == {key: type(value) for key, value in KEYS.items()}
    assert "kimi-k3.attention.q_lora_rank" not in gguf_keys(CONFIG.replace(q_lora_rank=None))


def test_the_names_and_shapes():
    assert gguf_shapes(CONFIG) == TABLE
    tensors = gguf_tensors(K3(CONFIG), CONFIG)
    assert {name: x.shape for name, x in tensors.items()} == TABLE
    assert all(x.dtype == np.float32 and x.flags.c_contiguous for x in tensors.values())


@pytest.mark.parametrize(("changes", "gone", "new"), [
    ({"q_lora_rank": None}, {f"blk.{i}.attn_{x}.weight" for i in (3, 4) for x in ("q_a", "q_a_norm", "q_b")},
     {f"blk.{i}.attn_q.weight": (20, 24) for i in (3, 4)}),
    ({"mla_output_gate": False}, {"blk.3.attn_gate.weight", "blk.4.attn_gate.weight"}, {}),
    ({"moe_latent_norm": False}, {f"blk.{i}.ffn_routed_norm.weight" for i in range(1, 5)}, {}),
    ({"num_shared_experts": 0}, {f"blk.{i}.ffn_{x}_shexp.weight" for i in range(1, 5) for x in ("gate", "up", "down")},
     {})])
def test_what_a_configuration_leaves_out(changes, gone, new):
    config = CONFIG.replace(**changes)
    wanted = {name: shape for name, shape in TABLE.items() if name not in gone} | new
    assert gguf_shapes(config) == wanted
    assert {name: x.shape for name, x in gguf_tensors(K3(config), config).items()} == wanted


def test_the_values_that_are_folded():
    rng = np.random.default_rng(4)
    weights = {name: rng.normal(size=x.shape) for name, x in K3(CONFIG).state_dict().items()}
    tensors = gguf_tensors(weights, CONFIG)

    def same(name, wanted):
        np.testing.assert_array_equal(tensors[name], np.asarray(wanted, np.float32), err_msg=name)

    same("output_res_score.weight", weights["output_attn_res.query"] * weights["output_attn_res.weight"])
    same("blk.2.attn_res_score.weight",
         weights["layers.2.self_attention_res.query"] * weights["layers.2.self_attention_res.weight"])
    same("blk.2.ffn_res_score.weight", weights["layers.2.mlp_res.query"] * weights["layers.2.mlp_res.weight"])
    same("blk.1.ssm_a", -np.exp(weights["layers.1.self_attn.A_log"]))
    pair = weights["layers.4.self_attn.kv_b_proj.weight"]                # head 0: 6 keys, 5 values; head 1: the same
    for head in range(2):
        rows = pair[11 * head:11 * (head + 1)]
        np.testing.assert_array_equal(tensors["blk.4.attn_k_b.weight"][head], rows[:6].T.astype(np.float32))
        np.testing.assert_array_equal(tensors["blk.4.attn_v_b.weight"][head], rows[6:].astype(np.float32))
    same("blk.0.ssm_conv1d_k.weight", weights["layers.0.self_attn.k_conv1d.weight"].reshape(1, 16, 1, 4))
    for name, own in (("ffn_gate_exps", "w1"), ("ffn_down_exps", "w2"), ("ffn_up_exps", "w3")):
        same(f"blk.3.{name}.weight", weights[f"layers.3.block_sparse_moe.experts.{own}"])


def test_every_number_of_the_model_is_in_the_file():
    """Each value differs from all others, so a tensor taken twice or mixed up would show."""
    weights, start = {}, 1
    for name, x in K3(CONFIG).state_dict().items():
        weights[name] = np.arange(start, start + x.numel()).reshape(x.shape)
        start += x.numel()
    folded = [name for name in weights if name.endswith(("_res.query", "_res.weight", "A_log"))]
    tensors = {name: x for name, x in gguf_tensors(
        {name: x * 0.0 if name in folded else x for name, x in weights.items()}, CONFIG).items()
        if not name.endswith(("_res_score.weight", "ssm_a"))}
    found = np.concatenate([x.ravel() for x in tensors.values()])
    wanted = np.concatenate([x.ravel() for name, x in weights.items() if name not in folded])
    np.testing.assert_array_equal(np.sort(found), np.sort(wanted).astype(np.float32))


def test_the_tokenizer():
    keys = gguf_keys(CONFIG.replace(vocab_size=260))
    tokens = keys["tokenizer.ggml.tokens"]
    assert keys["tokenizer.ggml.model"] == "gpt2" and keys["tokenizer.ggml.pre"] == "kimi-k2"
    assert len(tokens) == len(set(tokens)) == 260
    assert tokens[ord("A")] == "A" and tokens[0] == "Ā" and tokens[32] == "Ġ" and tokens[127] == "ġ"
    assert tokens[0xA0] == "ł" and tokens[0xAD] == "Ń" and tokens[0xFF] == "ÿ" and tokens[0xC3] == "Ã"
    assert tokens[256:] == list(SPECIALS.values())
    assert keys["tokenizer.ggml.token_type"] == [1] * 256 + [3] * 4
    assert keys["tokenizer.ggml.bos_token_id"] == BOS and keys["tokenizer.ggml.eos_token_id"] == EOS
    assert keys["tokenizer.ggml.add_bos_token"] is False and "tokenizer.ggml.merges" not in keys
    assert {key: value for key, value in gguf_keys(CONFIG).items() if "tokenizer" in key} == {
        "tokenizer.ggml.model": "none"}
    assert doctest.testmod(gguf_tokenizer).failed == 0 and byte_spelling(33) == "!"


def test_remarks_name_the_eps_that_differ():
    assert len(remarks(CONFIG)) == 2
    assert remarks(CONFIG.replace(l2_norm_eps=1e-5)) == [
        "latent_norm_eps is 1e-06 here; llama.cpp uses rms_norm_eps = 1e-05 there"]
    assert remarks(CONFIG.replace(l2_norm_eps=1e-5, latent_norm_eps=1e-5)) == []
