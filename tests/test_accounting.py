"""The accounts: K3's published numbers to the last digit, and every formula against one written out in letters here."""

import ast
import inspect
import json
from math import prod
from pathlib import Path

import pytest

from k3_scratch import accounting
from k3_scratch.accounting import (
    active_with_embedding,
    as_json,
    cache_bytes,
    checkpoint_bytes,
    count_parameters,
    depth_sources,
    flops_per_token,
    naive_total_without_latent,
    parameters_of_layer,
    table,
    tensor_shapes,
    vision_parameters,
)
from k3_scratch.config import PRESETS, VisionConfig

NANO, MINI, LINEAR, K3 = (PRESETS[name] for name in ("nano", "mini", "kimi_linear_48b", "kimi_k3"))

VARIANTS = {
    "nano": NANO,
    "mini": MINI,
    "kimi_linear_48b": LINEAR,
    "kimi_k3": K3,
    "V above K": NANO.replace(kda_key_dim=6, kda_value_dim=13),
    "V below K": NANO.replace(kda_key_dim=9, kda_value_dim=4),
    "no query rank": NANO.replace(q_lora_rank=None),
    "no shared slice": NANO.replace(qk_rope_head_dim=0),
    "no MLA gate": NANO.replace(mla_output_gate=False),
    "low-rank gate": NANO.replace(use_full_rank_gate=False),
    "no latent": NANO.replace(moe_latent_size=None, moe_latent_norm=False),
    "no latent but the norm": NANO.replace(moe_latent_size=None),
    "no latent norm": NANO.replace(moe_latent_norm=False),
    "no shared experts": NANO.replace(num_shared_experts=0),
    "plain residual": NANO.replace(attn_res_block_size=None),
    "block of one": NANO.replace(attn_res_block_size=1),
    "all KDA": NANO.replace(mla_layers=()),
    "all MLA": NANO.replace(mla_layers=(0, 1, 2, 3)),
    "all dense": NANO.replace(first_k_dense=4),
    "no dense": NANO.replace(first_k_dense=0),
    "seven layers, two taps": NANO.replace(num_layers=7, conv_size=2),
    "with pictures": NANO.replace(vision=VisionConfig(2, 12, 2, 16, 20, 4, 3, 5, 2)),
}
every_variant = pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)


def by_hand(c):
    """Part -> parameters in the whole model, as sums of products written out in letters."""
    D, H, K, V, taps = c.hidden_size, c.num_heads, c.kda_key_dim, c.kda_value_dim, c.conv_size
    R, n, r, v, Rq = c.kv_lora_rank, c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim, c.q_lora_rank
    E, F, S, vocab = c.num_experts, c.moe_intermediate_size, c.num_shared_experts, c.vocab_size
    n_mla = len(c.mla_layers)
    n_kda, n_moe = c.num_layers - n_mla, c.num_layers - c.first_k_dense
    L = c.moe_latent_size or D
    kda = 2 * D * H * K + D * H * V + taps * (2 * H * K + H * V) + K * D + H * K * K + H + H * K + H * D + V + D * H * V
    kda += D * H * V if c.use_full_rank_gate else K * D + H * V * K
    mla = (Rq * D + Rq + H * (n + r) * Rq if Rq else H * (n + r) * D)
    mla += (R + r) * D + R + H * (n + v) * R + D * H * v * (2 if c.mla_output_gate else 1)
    latent = (0 if c.moe_latent_size is None else 2 * D * L) + (L if c.moe_latent_norm else 0)
    depth = 0 if c.attn_res_block_size is None else 2 * D
    return {
        "embedding": vocab * D, "kda": n_kda * kda, "mla": n_mla * mla,
        "dense_ffn": c.first_k_dense * 3 * D * c.intermediate_size, "router": n_moe * (E * D + E),
        "routed_experts": n_moe * E * 3 * L * F, "latent": n_moe * latent, "shared_experts": n_moe * 3 * D * S * F,
        "sublayer_norms": c.num_layers * 2 * D, "depth_mixes": c.num_layers * 2 * depth, "output_depth_mix": depth,
        "final_norm": D, "lm_head": vocab * D,
    }


# Parameters

def test_k3_parameters_are_the_published_ones_exactly():
    count = count_parameters(K3)
    assert count.total == 2_779_484_476_000
    assert count.active == 104_189_612_640
    assert count.routed_experts == 2_722_740_830_208
    assert count.vision == 401_214_464 + 46_144_512
    assert count.total_with_vision == 2_779_931_834_976
    assert vision_parameters(K3) == {"encoder": 401_214_464, "projector": 46_144_512}
    assert count.modules["kda"] == (443_740_384, 69, 69 * 443_740_384)
    assert count.modules["mla"] == (232_196_096, 24, 24 * 232_196_096)
    assert count.modules["routed_experts"] == (33_030_144, 896 * 92, 2_722_740_830_208)


def test_kimi_linear_parameters_are_those_of_its_checkpoint():
    count = count_parameters(LINEAR)
    assert count.total == count.total_with_vision == 49_122_681_728
    assert count.vision == 0
    assert vision_parameters(LINEAR) == {"encoder": 0, "projector": 0}


def test_nano_parameters_on_paper():
    modules = {part: count.total for part, count in count_parameters(NANO).modules.items()}
    assert modules == {
        "embedding": 260 * 24,
        # q and k, v, taps, f_a, f_b, A, dt, b, g, norm, o;  then q_a, norm, q_b, kv_a, norm, kv_b, g, o
        "kda": 3 * (768 + 480 + 208 + 192 + 128 + 2 + 16 + 48 + 480 + 10 + 480),
        "mla": 336 + 14 + 280 + 384 + 12 + 264 + 240 + 240,
        "dense_ffn": 3 * 24 * 40,
        "router": 3 * (6 * 24 + 6),
        "routed_experts": 3 * 6 * 3 * 16 * 18,
        "latent": 3 * (24 * 16 + 16 + 16 * 24),
        "shared_experts": 3 * 3 * 24 * 36,
        "sublayer_norms": 8 * 24, "depth_mixes": 8 * 48, "output_depth_mix": 48, "final_norm": 24, "lm_head": 260 * 24,
    }
    assert count_parameters(NANO).total == 52_344
    assert count_parameters(NANO).active == 52_344 - 6_240 - 3 * 4 * 864


@every_variant
def test_each_part_is_the_sum_written_in_letters(config):
    count, expected = count_parameters(config), by_hand(config)
    assert {part: number.total for part, number in count.modules.items()} == expected
    assert all(number.each * number.instances == number.total for number in count.modules.values())
    assert count.total == sum(expected.values())
    chosen = expected["routed_experts"] * config.num_experts_per_token // config.num_experts
    assert count.active == count.total - expected["embedding"] - expected["routed_experts"] + chosen


@every_variant
def test_layers_and_ends_add_up_to_the_model(config):
    layers = [parameters_of_layer(config, layer) for layer in range(config.num_layers)]
    ends = config.hidden_size * (2 * config.vocab_size + 1 + (0 if config.attn_res_block_size is None else 2))
    assert sum(sum(layer.values()) for layer in layers) + ends == count_parameters(config).total
    for number, layer in enumerate(layers):
        assert ("mla" in layer, "kda" in layer) == (config.is_mla(number), not config.is_mla(number))
        assert ("dense_ffn" in layer, "router" in layer) == (config.is_dense(number), not config.is_dense(number))
        assert all(layer.values())


@pytest.mark.parametrize(("variant", "change"), [
    ("no query rank", 20 * 24 - (336 + 14 + 280)),
    ("no MLA gate", -240),
    ("low-rank gate", 3 * (8 * 24 + 20 * 8 - 480)),
    ("no latent", 3 * (6 * 3 * (24 - 16) * 18 - 784)),
    ("no latent but the norm", 3 * (6 * 3 * (24 - 16) * 18 - 784 + 24)),
    ("no latent norm", -3 * 16),
    ("no shared experts", -3 * 2592),
    ("plain residual", -(8 + 1) * 48),
    ("all KDA", 2812 - 1770),
    ("all MLA", 3 * (1770 - 2812)),
    ("with pictures", 0),
])
def test_what_one_switch_changes(variant, change):
    assert count_parameters(VARIANTS[variant]).total - count_parameters(NANO).total == change


def test_k3_shapes_are_those_of_the_checkpoint():
    shapes = tensor_shapes(K3)
    assert shapes["kda"] == {
        "q_proj": (12288, 7168), "k_proj": (12288, 7168), "v_proj": (12288, 7168), "g_proj": (12288, 7168),
        "q_conv1d": (12288, 1, 4), "k_conv1d": (12288, 1, 4), "v_conv1d": (12288, 1, 4), "f_a_proj": (128, 7168),
        "f_b_proj": (12288, 128), "b_proj": (96, 7168), "o_proj": (7168, 12288), "A_log": (96,), "dt_bias": (12288,),
        "o_norm": (128,),
    }
    assert shapes["mla"] == {
        "q_a_proj": (1536, 7168), "q_a_layernorm": (1536,), "q_b_proj": (18432, 1536),
        "kv_a_proj_with_mqa": (576, 7168), "kv_a_layernorm": (512,), "kv_b_proj": (24576, 512),
        "g_proj": (12288, 7168), "o_proj": (7168, 12288),
    }
    assert shapes["routed_experts"] == {"w1": (3072, 3584), "w3": (3072, 3584), "w2": (3584, 3072)}
    assert shapes["shared_experts"]["down_proj"] == (7168, 6144)
    assert shapes["latent"]["routed_expert_up_proj"] == (7168, 3584)


def test_pictures_of_a_small_model_on_paper():
    assert vision_parameters(VARIANTS["with pictures"]) == {
        "encoder": 2 * (4 * 12 * 16 + 2 * 12 * 20 + 24) + 4 * 4 * 3 * 12 + 5 * 5 * 12 + 12,
        "projector": 48 * 48 + 48 * 24 + 24,
    }


def test_the_two_common_wrong_answers():
    assert active_with_embedding(K3) == 104_189_612_640 + 163_840 * 7168
    assert round(active_with_embedding(K3) / 1e9, 2) == 105.36
    wrong = naive_total_without_latent(K3)
    at_full_width = 92 * 896 * 3 * 7168 * 3072
    assert round(at_full_width / 1e12, 3) == 5.445
    assert wrong == 2_779_484_476_000 - 2_722_740_830_208 - 92 * (2 * 7168 * 3584 + 3584) + at_full_width
    assert round(wrong / 1e12, 2) == 5.50
    assert naive_total_without_latent(LINEAR) == count_parameters(LINEAR).total


# Bytes

def test_k3_checkpoint_bytes_are_those_of_its_index():
    assert checkpoint_bytes(K3) == 1_560_860_324_864


def test_nano_checkpoint_bytes_on_paper():
    padding = 3 * (128 - 2) * 4                                        # A_log: 2 heads stored as 128, three KDA layers
    assert checkpoint_bytes(NANO) == 4 * 52_344 + padding
    float32 = 3 * (2 + 16 + 208 + 10) + 3 * 6                          # A_log, dt_bias, taps, o_norm; selection bias
    half = NANO.replace(checkpoint_dtype="bfloat16")
    assert checkpoint_bytes(half) == 2 * (52_344 - float32 - 15_552) + 4 * (float32 + 15_552) + padding
    assert checkpoint_bytes(half.replace(expert_dtype="bfloat16")) == 2 * (52_344 - float32) + 4 * float32 + padding
    packed = 18 * (2 * 18 * 17 + 16 * 17)                              # rows of 16 and of 18 columns: one block each
    assert checkpoint_bytes(NANO.replace(expert_dtype="mxfp4")) == 4 * (52_344 - 15_552) + packed + padding


def test_packed_experts_have_17_bytes_for_32_values():
    experts = 3 * 16 * 3 * 32 * 64
    assert count_parameters(MINI).routed_experts == experts
    saved = checkpoint_bytes(MINI) - checkpoint_bytes(MINI.replace(expert_dtype="mxfp4"))
    assert saved == experts * 4 - experts * 17 // 32


def test_more_than_128_heads_are_stored_as_256():
    many = NANO.replace(num_heads=130)
    assert checkpoint_bytes(many) == 4 * count_parameters(many).total + 3 * (256 - 130) * 4


def test_pictures_count_in_the_checkpoint():
    pictures = VARIANTS["with pictures"]
    assert checkpoint_bytes(pictures) - checkpoint_bytes(NANO) == 4 * count_parameters(pictures).vision
    assert checkpoint_bytes(K3) - checkpoint_bytes(K3.replace(vision=None)) == 2 * (401_214_464 + 46_144_512)


# What a sequence keeps

def test_k3_cache():
    cache = cache_bytes(K3, 1_000_000)
    assert cache.mla_values_per_token == 13_824 == 24 * 576
    assert cache.mla == 13_824 * 2 * 1_000_000
    assert cache.kda_state == 434_110_464 == 414 * 2 ** 20
    assert cache.convolution == 69 * 3 * 3 * 12288 * 2
    assert cache.total == cache.mla + cache.kda_state + cache.convolution
    assert cache.total_all_mla == 93 * 576 * 2 * 1_000_000
    assert round(1 - cache.mla / cache.total_all_mla, 3) == 0.742


def test_nano_cache_on_paper():
    cache = cache_bytes(NANO, 5, bytes_per_value=4)
    fixed = 3 * 2 * 8 * 10 * 4 + 3 * 3 * (16 + 16 + 20) * 4
    assert (cache.mla, cache.kda_state, cache.convolution) == (5 * 16 * 4, 1920, 1872)
    assert cache.total == 5 * 16 * 4 + fixed
    assert cache.total_all_mla == 4 * 5 * 16 * 4
    assert cache.total_expanded == 5 * 2 * (6 + 4 + 5) * 4 + fixed
    assert cache.total_all_mla_expanded == 4 * 5 * 2 * (6 + 4 + 5) * 4


def test_only_the_latents_grow():
    empty, long = cache_bytes(NANO, 0), cache_bytes(NANO, 1000)
    assert empty.mla == 0
    assert (empty.kda_state, empty.convolution) == (long.kda_state, long.convolution)
    assert cache_bytes(VARIANTS["all KDA"], 1000).total == cache_bytes(VARIANTS["all KDA"], 0).total
    every = cache_bytes(VARIANTS["all MLA"], 7)
    assert every.total == every.total_all_mla and every.total_expanded == every.total_all_mla_expanded


# Floating-point work

def test_nano_flops_on_paper():
    flops = flops_per_token(NANO, context=6)
    assert flops.modules == {
        "kda_projections": 3 * 2 * (768 + 480 + 192 + 128 + 48 + 480 + 480),
        "kda_convolutions": 3 * 2 * 208,
        "kda_recurrence": 3 * 7 * 2 * 8 * 10,
        "mla_projections": 2 * (336 + 280 + 384 + 264 + 240 + 240),
        "mla_attention": 2 * 7 * (2 * 10 + 2 * 5),
        "dense_ffn": 2 * 2880,
        "router": 3 * 2 * 144,
        "routed_experts": 3 * 2 * 2 * 864,
        "latent": 3 * 2 * 768,
        "shared_experts": 3 * 2 * 2592,
        "depth_mixes": 6 * 24 * (0 + 2 + 2 + 2 + 2 + 2 + 2 + 3 + 3),
        "lm_head": 2 * 6240,
    }
    assert flops.total == sum(flops.modules.values())
    assert flops_per_token(NANO, 6, decode=True).modules["mla_attention"] == 2 * 7 * (2 * 16 + 2 * 12)


def test_k3_flops():
    first, long = flops_per_token(K3), flops_per_token(K3, 999_999, decode=True)
    assert first.modules["kda_recurrence"] == 69 * 96 * 7 * 128 * 128
    assert first.modules["mla_attention"] == 24 * 96 * 2 * (192 + 128)
    assert long.modules["mla_attention"] == 24 * 96 * 10 ** 6 * 2 * (576 + 512)
    assert long.total - long.modules["mla_attention"] == first.total - first.modules["mla_attention"]
    assert 2.0 < first.total / count_parameters(K3).active < 2.01     # two a parameter, and little more


@every_variant
def test_matrix_work_is_two_flops_for_each_active_matrix_entry(config):
    modules, count, shapes = flops_per_token(config).modules, count_parameters(config), tensor_shapes(config)
    beside = ("kda_convolutions", "kda_recurrence", "mla_attention", "depth_mixes")
    vectors = sum(part.instances * prod(shape) for name, part in count.modules.items()
                  for shape in shapes[name].values() if len(shape) != 2)
    queries = (count.modules["depth_mixes"].total + count.modules["output_depth_mix"].total) // 2
    assert sum(work for name, work in modules.items() if name not in beside) == 2 * (count.active - vectors - queries)
    assert modules["kda_convolutions"] == 2 * sum(count.modules["kda"].instances * prod(shapes["kda"][name])
                                                  for name in ("q_conv1d", "k_conv1d", "v_conv1d"))


def test_sources_over_depth():
    assert depth_sources(NANO) == [0, 2, 2, 2, 2, 2, 2, 3, 3]          # blocks of three: layers 0 and 3 bank
    assert depth_sources(VARIANTS["block of one"]) == [0, 2, 2, 3, 3, 4, 4, 5, 5]
    assert depth_sources(LINEAR) == []
    sources = depth_sources(K3)
    assert (len(sources), sources[0], sources[-1], max(sources)) == (2 * 93 + 1, 0, 9, 9)


# Reports

@every_variant
def test_json_is_plain_and_says_the_same(config):
    account = as_json(config, context=9)
    assert json.loads(json.dumps(account)) == account
    count = count_parameters(config)
    assert (account["total"], account["active"], account["routed_experts"]) == (count.total, count.active,
                                                                                count.routed_experts)
    assert (account["vision"], account["total_with_vision"]) == (count.vision, count.total_with_vision)
    assert account["checkpoint_bytes"] == checkpoint_bytes(config)
    assert account["modules"]["kda"] == count.modules["kda"]._asdict()
    assert account["cache"]["tokens"] == 10
    assert account["cache"]["mla"] == cache_bytes(config, 10).mla
    assert account["flops_per_token"]["decode"]["total"] == flops_per_token(config, 9, decode=True).total


def test_table_of_k3_has_the_numbers():
    text = table(K3, "Kimi K3")
    assert text.startswith("Kimi K3\n")
    for number in ("2,779,484,476,000", "104,189,612,640", "2,722,740,830,208", "443,740,384", "232,196,096", "82,432",
                   "401,214,464", "46,144,512", "2,779,931,834,976", "1,560,860,324,864", "1,453.66 GiB", "1.56 TB",
                   "434,110,464", "414.00 MiB", "13,824", "53,568", "not 105.36 B", "not 5.50 T"):
        assert number in text


@every_variant
def test_table_is_aligned_and_shows_what_exists(config):
    text = table(config)
    rows = text.split("\n\n")[0].splitlines()
    head, end = rows[0], rows[0].index("instances") + len("instances")
    assert head.startswith("part")
    assert all(row[end - 1].isdigit() and row[end] == " " for row in rows[2:])
    shown = {row.split("  ")[0] for row in rows[2:]}
    parts = {name.replace("_", " ") for name, part in count_parameters(config).modules.items() if part.total}
    assert shown == parts | ({"vision encoder", "vision projector"} if config.vision else set())
    differs = naive_total_without_latent(config) != count_parameters(config).total
    assert ("forgets that the experts" in text) == differs
    assert max(map(len, text.splitlines())) <= 120 and not any(line != line.rstrip() for line in text.splitlines())


# Errors that teach

@pytest.mark.parametrize("function", [
    count_parameters, checkpoint_bytes, flops_per_token, as_json, table, tensor_shapes, depth_sources,
    vision_parameters, active_with_embedding, naive_total_without_latent, lambda config: parameters_of_layer(config, 0),
    lambda config: cache_bytes(config, 1),
])
@pytest.mark.parametrize("wrong", ["kimi_k3", {"hidden_size": 64}, None, 3])
def test_a_wrong_configuration_is_named(function, wrong):
    with pytest.raises(TypeError, match=f"config must be a K3Config.*{type(wrong).__name__} came"):
        function(wrong)


@pytest.mark.parametrize(("error", "words", "call"), [
    (TypeError, "layer must be a whole number from 0 to 3, but '0' came", lambda: parameters_of_layer(NANO, "0")),
    (ValueError, "layer must be a whole number from 0 to 3, but 4 came", lambda: parameters_of_layer(NANO, 4)),
    (ValueError, "layer must be .* but -1 came", lambda: parameters_of_layer(NANO, -1)),
    (TypeError, "tokens must be a whole number, at least 0, but 1.5 came", lambda: cache_bytes(NANO, 1.5)),
    (ValueError, "tokens must be .* but -1 came", lambda: cache_bytes(NANO, -1)),
    (ValueError, "bytes_per_value must be .* at least 1, but 0 came", lambda: cache_bytes(NANO, 1, 0)),
    (TypeError, "context must be .* but True came", lambda: flops_per_token(NANO, True)),
    (ValueError, "as_json: context must be .* but -2 came", lambda: as_json(NANO, -2)),
    (TypeError, "decode must be True .* but 1 came", lambda: flops_per_token(NANO, 0, 1)),
])
def test_wrong_numbers_are_named(error, words, call):
    with pytest.raises(error, match=words):
        call()


def test_accounting_knows_no_torch_and_every_name_has_a_docstring():
    """Counting from a config needs no torch; built.py alone counts a model that is there."""
    assert all(inspect.getdoc(getattr(accounting, name)) for name in accounting.__all__)
    allowed = ("k3_scratch.accounting", "k3_scratch.config", "dataclasses", "math", "typing")
    for path in set(Path(accounting.__file__).parent.glob("*.py")) - {Path(accounting.__file__).with_name("built.py")}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in getattr(node, "names", [])]
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                assert all(name.startswith(allowed) for name in names)
