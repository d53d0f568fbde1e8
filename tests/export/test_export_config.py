"""config.json in the released form: out, back, without our own key, and every field that must be refused."""

import json

import pytest
from torch_helpers import VARIANTS, variant

from k3_scratch.config import PRESETS, ConfigError, preset
from k3_scratch.export.files import ExportError
from k3_scratch.export.huggingface import config_from_hf, hf_config

EVERY_FIELD = variant("wide_values").replace(
    l2_norm_eps=3e-6, latent_norm_eps=2e-6, initializer_range=0.3, dt_min=2e-3, dt_max=0.2, checkpoint_dtype="bfloat16",
    expert_dtype="mxfp4", situ_beta=3.0, situ_linear_beta=20.0, mla_layers=(0, 2))
CONFIGS = {**PRESETS, **{name: variant(name) for name in VARIANTS}, "every field": EVERY_FIELD}


def fields(config=None):
    """What is in the file: through JSON, so that tuples and the like cannot hide."""
    return json.loads(json.dumps(hf_config(config or preset("mini"))))


@pytest.mark.parametrize("name", CONFIGS)
def test_round_trip(name):
    assert config_from_hf(fields(CONFIGS[name])) == CONFIGS[name]


@pytest.mark.parametrize("name", ["mini", "kimi_k3", "kimi_linear_48b", *sorted(set(VARIANTS) - {"wide_values"})])
def test_the_released_fields_alone_say_the_same(name):
    """What they cannot say takes its default: how training starts, the dtype of the file, the picture encoder."""
    config = CONFIGS[name]
    if name in VARIANTS:
        config = config.replace(kda_value_dim=config.kda_key_dim, mla_layers=config.mla_layers)
    stated = fields(config)
    del stated["k3_scratch"]
    default = preset("mini")
    expert = "mxfp4" if config.expert_dtype == "mxfp4" else "float32"
    assert config_from_hf(stated) == config.replace(initializer_range=default.initializer_range, expert_dtype=expert,
                                                    checkpoint_dtype="float32", vision=None)


def test_the_released_fields_of_kimi_k3():
    """The numbers of spec 3, and no field beside them."""
    given = hf_config(preset("kimi_k3"))
    assert given["architectures"] == ["KimiK3ForConditionalGeneration"] and given["model_type"] == "kimi_k3"
    assert set(given) == {"architectures", "model_type", "text_config", "quantization_config", "k3_scratch"}
    text = given["text_config"]
    linear = text.pop("linear_attn_config")
    assert text == {
        "model_type": "kimi_linear", "vocab_size": 163840, "hidden_size": 7168, "intermediate_size": 33792,
        "num_hidden_layers": 93, "num_attention_heads": 96, "num_key_value_heads": 96, "rms_norm_eps": 1e-5,
        "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": True,
        "mla_use_output_gate": True, "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2,
        "moe_intermediate_size": 3072, "routed_expert_hidden_size": 3584, "latent_moe_use_norm": True,
        "first_k_dense_replace": 1, "moe_renormalize": True, "moe_router_activation_func": "sigmoid",
        "routed_scaling_factor": 1.0, "num_expert_group": 1, "topk_group": 1, "attn_res_block_size": 12}
    mla = [*range(4, 93, 4), 93]
    assert linear == {"head_dim": 128, "num_heads": 96, "short_conv_kernel_size": 4, "full_attn_layers": mla,
                      "kda_layers": [n for n in range(1, 94) if n not in mla], "gate_lower_bound": -5.0,
                      "use_full_rank_gate": True}


def test_kimi_linear_as_transformers_writes_it():
    """Flat, with transformers' own names and lists of layer kinds."""
    config = variant("kimi_linear").replace(kda_value_dim=8, initializer_range=0.02)
    flat = fields(config)["text_config"]
    for theirs, released in (("n_group", "num_expert_group"), ("norm_topk_prob", "moe_renormalize"),
                             ("num_local_experts", "num_experts"), ("num_experts_per_tok", "num_experts_per_token"),
                             ("n_shared_experts", "num_shared_experts")):
        flat[theirs] = flat.pop(released)
    linear = flat.pop("linear_attn_config")
    flat |= {"linear_head_dim": linear["head_dim"], "linear_num_heads": linear["num_heads"],
             "linear_conv_kernel_dim": linear["short_conv_kernel_size"],
             "layer_types": ["linear_attention"] * 3 + ["full_attention"],
             "mlp_layer_types": ["dense"] + ["sparse"] * 3,
             "architectures": ["KimiLinearForCausalLM"], "tie_word_embeddings": False, "head_dim": 4,
             "attention_bias": False, "dtype": "float32", "transformers_version": "5.23.0", "use_cache": True}
    for absent in ("mla_use_output_gate", "routed_expert_hidden_size", "latent_moe_use_norm", "attn_res_block_size",
                   "q_lora_rank", "activation_situ_beta", "first_k_dense_replace", "mla_use_nope",
                   "moe_router_activation_func"):
        del flat[absent]
    del flat["activation_situ_linear_beta"]
    assert config_from_hf(dict(flat)) == config
    for changes, named in (({"linear_head_dim": 9, "linear_attn_config": {"head_dim": 8}}, "linear_head_dim"),
                           ({"num_experts": 5}, "num_local_experts"),
                           ({"mlp_layer_types": ["sparse", "dense", "sparse", "sparse"]}, "mlp_layer_types"),
                           ({"layer_types": "all"}, "layer_types: wanted a list"),
                           ({"layer_types": ["linear_attention"] * 3 + ["sliding"]}, "share out the layers 1 to 4")):
        with pytest.raises(ExportError, match=named):
            config_from_hf({**flat, **changes})


def changed(path, value):
    """The fields of mini with the one at `path` set, or taken out for None."""
    given = fields()
    place = given
    *outer, last = path.split("/")
    for part in outer:
        place = place[part]
    if value is MISSING:
        del place[last]
    else:
        place[last] = value
    return given


MISSING = object()
REFUSED = [
    ("model_type", "llama", "model_type: wanted 'kimi_k3' or 'kimi_linear', got 'llama'"),
    ("model_type", MISSING, "model_type: .* got None"),
    ("architectures", ["LlamaForCausalLM"], "architectures: .*LlamaForCausalLM"),
    ("text_config", MISSING, "text_config: wanted an object"),
    ("text_config", 3, "text_config: wanted an object"),
    ("text_config/model_type", "llama", "model_type: wanted 'kimi_linear'"),
    ("text_config/model_type", MISSING, "model_type: missing"),
    ("text_config/sliding_window", 4096, "sliding_window: unknown field"),
    ("quantisation", {}, "quantisation: unknown field"),
    ("text_config/linear_attn_config/heads", 3, "linear_attn_config.heads: unknown field"),
    ("text_config/linear_attn_config", [], "linear_attn_config.num_heads: missing|linear_attn_config: wanted"),
    ("text_config/hidden_size", MISSING, "hidden_size: missing"),
    ("text_config/hidden_size", -1, "hidden_size"), ("text_config/hidden_size", "64", "hidden_size"),
    ("text_config/num_hidden_layers", "4", "num_layers"), ("text_config/num_hidden_layers", 5, "layers 1 to 5"),
    ("text_config/num_key_value_heads", 2, "num_key_value_heads: wanted 4"),
    ("text_config/hidden_act", "gelu", "hidden_act: wanted one of situ, silu, got 'gelu'"),
    ("text_config/hidden_act", ["situ"], "hidden_act"),
    ("text_config/activation_situ_beta", MISSING, "activation_situ_beta: missing"),
    ("text_config/mla_use_nope", False, "mla_use_nope: wanted True"),
    ("text_config/moe_renormalize", False, "moe_renormalize: wanted True"),
    ("text_config/moe_renormalize", 1, "moe_renormalize: wanted True"),
    ("text_config/moe_router_activation_func", "softmax", "moe_router_activation_func"),
    ("text_config/num_expert_group", 8, "num_expert_group: wanted 1"),
    ("text_config/tie_word_embeddings", True, "tie_word_embeddings: wanted False"),
    ("tie_word_embeddings", True, "tie_word_embeddings: wanted False"),
    ("text_config/linear_attn_config/num_heads", 5, "linear_attn_config.num_heads: wanted 4"),
    ("text_config/linear_attn_config/head_dim", MISSING, "linear_attn_config.head_dim: missing"),
    ("text_config/linear_attn_config/full_attn_layers", [3], "share out the layers 1 to 4"),
    ("text_config/linear_attn_config/full_attn_layers", [4, 4], "share out"),
    ("text_config/linear_attn_config/kda_layers", 3, "kda_layers: wanted a list"),
    ("text_config/linear_attn_config/kda_layers", [True, 2, 3], "kda_layers: wanted a list"),
    ("text_config/linear_attn_config/gate_lower_bound", -4.0, "k3_scratch.gate_lower_bound: -5.0, but .* say -4.0"),
    ("text_config/linear_attn_config/gate_lower_bound", 4.0, "gate_lower_bound"),
    ("text_config/q_lora_rank", None, "k3_scratch.q_lora_rank: 32, but .* None"),
    ("text_config/num_experts", 17, "k3_scratch.num_experts: 16, but .* 17"),
    ("k3_scratch/hidden_size", 65, "k3_scratch.hidden_size: 65, but .* 64"),
    ("k3_scratch/mla_layers", [2], "k3_scratch.mla_layers"),
    ("k3_scratch/colour", "red", "colour: no such field"), ("k3_scratch", [], "k3_scratch: wanted an object"),
    ("k3_scratch/dt_min", 0.0, "dt_min"),
    ("quantization_config", {"quant_method": "gptq"}, "quantization_config.quant_method: wanted .* got 'gptq'"),
    ("quantization_config", {"quant_method": "compressed-tensors", "format": "int-quantized"},
     "quantization_config.format"),
    ("text_config/quantization_config", "mxfp4", "quantization_config: wanted an object"),
]


@pytest.mark.parametrize(("path", "value", "named"), REFUSED, ids=[f"{i} {row[0]}" for i, row in enumerate(REFUSED)])
def test_refused_with_the_name_of_the_field(path, value, named):
    with pytest.raises((ExportError, ConfigError), match=named):
        config_from_hf(changed(path, value))


def test_harmless_fields_of_other_writers():
    given = fields()
    given |= {"torch_dtype": "float32", "vision_config": {"depth": 27}, "bos_token_id": 1, "quantization_config": None}
    given["text_config"] |= {"max_position_embeddings": 1048576, "moe_layer_freq": 1, "tie_word_embeddings": False}
    assert config_from_hf(given) == preset("mini")
    for nonsense in (None, [], "config", 3):
        with pytest.raises(ExportError, match="config.json: wanted an object"):
            config_from_hf(nonsense)


def test_what_was_read_is_not_changed():
    given = fields()
    before = json.dumps(given)
    config_from_hf(given)
    assert json.dumps(given) == before
