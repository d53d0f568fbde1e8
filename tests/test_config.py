"""K3Config: what it refuses and how it says so, the presets, the JSON round trip, where the MLA layers go."""

import dataclasses
import json

import pytest

from k3_scratch.config import PRESETS, ConfigError, K3Config, VisionConfig, preset

POSITIVE = ("vocab_size", "hidden_size", "num_layers", "num_heads", "kda_key_dim", "kda_value_dim", "conv_size",
            "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "intermediate_size", "num_experts",
            "num_experts_per_token", "moe_intermediate_size", "q_lora_rank", "moe_latent_size", "attn_res_block_size")
NUMBERS = ("rms_norm_eps", "l2_norm_eps", "latent_norm_eps", "routed_scaling_factor", "situ_beta", "situ_linear_beta",
           "initializer_range", "dt_min", "dt_max")


def refusal(**fields):
    """The message with which K3Config refuses these fields."""
    with pytest.raises(ConfigError) as caught:
        K3Config(**fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("value", [0, -1, True, 2.0, "4"])
def test_sizes_are_whole_numbers_from_one(name, value):
    assert refusal(**{name: value}) == f"{name} must be a whole number, at least 1, but {value!r} came"


@pytest.mark.parametrize("name", ["qk_rope_head_dim", "first_k_dense", "num_shared_experts"])
def test_sizes_that_may_be_zero(name):
    assert getattr(K3Config(**{name: 0}), name) == 0
    assert refusal(**{name: -1}) == f"{name} must be a whole number, at least 0, but -1 came"
    assert refusal(**{name: False}) == f"{name} must be a whole number, at least 0, but False came"


@pytest.mark.parametrize("name", ["q_lora_rank", "moe_latent_size", "attn_res_block_size", "gate_lower_bound"])
def test_parts_that_may_be_left_out(name):
    assert getattr(K3Config(**{name: None}), name) is None


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [0, -1e-3, float("nan"), True, "1", None])
def test_numbers_above_zero(name, value):
    assert refusal(**{name: value}) == f"{name} must be a number above 0, but {value!r} came"


def test_infinity_is_refused():
    """Python's JSON reader takes the word Infinity for a number, and a model made from it computes NaN."""
    for name in NUMBERS:
        assert name[:2] in refusal(**{name: float("inf")})
    assert "gate_lower_bound" in refusal(gate_lower_bound=-float("inf"))


@pytest.mark.parametrize(("fields", "message"), [
    ({"activation": "relu"}, "activation must be one of situ, swiglu, but 'relu' came"),
    ({"activation": None}, "activation must be one of situ, swiglu, but None came"),
    ({"checkpoint_dtype": "mxfp4"}, "checkpoint_dtype must be one of float32, bfloat16, but 'mxfp4' came"),
    ({"expert_dtype": "int8"}, "expert_dtype must be one of float32, bfloat16, mxfp4, but 'int8' came"),
    ({"gate_lower_bound": 0}, "gate_lower_bound must be a number below 0, or null (softplus), but 0 came"),
    ({"gate_lower_bound": 5.0}, "gate_lower_bound must be a number below 0, or null (softplus), but 5.0 came"),
    ({"use_full_rank_gate": 1}, "use_full_rank_gate must be true or false, but 1 came"),
    ({"mla_output_gate": "yes"}, "mla_output_gate must be true or false, but 'yes' came"),
    ({"moe_latent_norm": None}, "moe_latent_norm must be true or false, but None came"),
    ({"num_experts": 4, "num_experts_per_token": 5},
     "num_experts_per_token must be at most num_experts = 4, but 5 came"),
    ({"first_k_dense": 5}, "first_k_dense must be at most num_layers = 4, but 5 came"),
    ({"dt_min": 0.2}, "dt_max must be at least dt_min = 0.2, but 0.1 came"),
    ({"vision": "yes"}, "vision must be null or its fields, but 'yes' came"),
])
def test_messages_name_field_wanted_and_given(fields, message):
    assert refusal(**fields) == message


@pytest.mark.parametrize("layers", [(4,), (-1,), (1, 1), (3, 1), (0.0,), (True,), "13", ([1],), 3])
def test_layer_lists_out_of_range_twice_or_unsorted(layers):
    assert refusal(mla_layers=layers) == (
        f"mla_layers must be ascending layer numbers from 0 to 3, each once, but {layers!r} came")


def test_vision_fields_are_checked_too():
    with pytest.raises(ConfigError, match=r"patch_size must be a whole number, at least 1, but 0 came"):
        K3Config(vision={"patch_size": 0})
    with pytest.raises(ConfigError, match=r"^vision\.patches: no such field; known are hidden_size, .*patch_size"):
        K3Config(vision={"patches": 14})
    with pytest.raises(ConfigError, match=r"^vision\.qkv_size must be a multiple of 4 num_heads = 8 .*, but 20 came"):
        VisionConfig(num_heads=2, qkv_size=20)
    with pytest.raises(ConfigError, match=r"^vision\.image_token must be below vocab_size = 100, but 259 came"):
        K3Config(vocab_size=100, vision={})
    assert K3Config(vision={"merge": 3}).vision == VisionConfig(merge=3)
    assert VisionConfig().projector_size == 4096


def test_all_mla_and_all_kda_are_possible():
    assert K3Config(mla_layers=()).kda_layers == (0, 1, 2, 3)
    assert K3Config(mla_layers=[0, 1, 2, 3]).kda_layers == ()


def test_kimi_k3_has_the_layers_of_the_released_config():
    config = preset("kimi_k3")
    assert [i + 1 for i in config.mla_layers] == [*range(4, 93, 4), 93]
    assert len(config.mla_layers) == 24 and config.mla_layers[-2:] == (91, 92)
    assert len(config.kda_layers) == 69 and set(config.kda_layers).isdisjoint(config.mla_layers)
    assert [config.is_mla(i) for i in (0, 3, 90, 91, 92)] == [False, True, False, True, True]
    assert [config.is_dense(i) for i in (0, 1, 92)] == [True, False, False]
    assert config.qk_head_dim == 192 and config.expert_size == 3584


def test_kimi_linear_has_the_layers_of_the_released_config():
    config = preset("kimi_linear_48b")
    assert [i + 1 for i in config.mla_layers] == [4, 8, 12, 16, 20, 24, 27] and len(config.kda_layers) == 20
    assert config.expert_size == config.hidden_size == 2304
    assert config.gate_lower_bound is None and config.attn_res_block_size is None


def test_another_depth_places_the_mla_layers_anew():
    nano = preset("nano")
    assert nano.replace(num_layers=93).mla_layers == preset("kimi_k3").mla_layers
    assert nano.replace(num_layers=5).mla_layers == (3, 4)
    assert nano.replace(num_layers=1).mla_layers == (0,)
    assert nano.replace(num_layers=6, mla_layers=(2,)).mla_layers == (2,)
    moved = nano.replace(mla_layers=(0,))
    assert moved.replace(num_heads=3).mla_layers == (0,)                  # other changes leave them where they are
    assert nano.mla_layers == (3,)


def test_replace_refuses_unknown_and_wrong_fields():
    with pytest.raises(ConfigError, match="'heads'"):
        preset("nano").replace(heads=3)
    with pytest.raises(ConfigError, match="num_heads must be .* but 0 came"):
        preset("nano").replace(num_heads=0)


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        preset("nano").num_heads = 3
    assert len({preset(name) for name in PRESETS}) == len(PRESETS)        # and so it can be a key


@pytest.mark.parametrize("name", PRESETS)
def test_json_round_trip(name, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(preset(name).to_json(), encoding="utf-8")
    again = K3Config.from_json(file)
    assert again == preset(name) and type(again.mla_layers) is tuple
    assert again.vision == preset(name).vision
    assert json.loads(file.read_text(encoding="utf-8")) == preset(name).to_dict()


def test_missing_fields_take_their_defaults_and_null_places_the_mla_layers():
    config = K3Config.from_dict({"num_layers": 8, "mla_layers": None})
    assert config == K3Config(num_layers=8) and config.mla_layers == (3, 7)


@pytest.mark.parametrize(("text", "message"), [
    ("{", "not a readable JSON configuration"),
    ("", "not a readable JSON configuration"),
    ("[1, 2]", "a configuration is an object of fields, but a list came"),
    ('{"heads": 4}', "heads: no such field; known are .*num_heads"),
    ('{"num_heads": 0}', "num_heads must be a whole number, at least 1, but 0 came"),
])
def test_a_broken_file_is_named(text, message, tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message) as caught:
        K3Config.from_json(file)
    assert str(caught.value).startswith(f"{file}: ") and "\n" not in str(caught.value)


def test_a_missing_or_binary_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere.json: not a readable JSON configuration"):
        K3Config.from_json(tmp_path / "nowhere.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="binary.json: not a readable JSON configuration"):
        K3Config.from_json(tmp_path / "binary.json")


def test_unknown_preset_lists_the_known():
    with pytest.raises(ConfigError) as caught:
        preset("huge")
    assert str(caught.value) == "preset must be one of nano, mini, vision, kimi_linear_48b, kimi_k3, but 'huge' came"


def test_every_preset_is_a_whole_configuration():
    """nano has a part of every kind, and sizes that can be told apart."""
    nano = preset("nano")
    assert nano.mla_layers and nano.kda_layers and nano.attn_res_block_size and nano.moe_latent_size
    sizes = [nano.hidden_size, nano.kda_key_dim, nano.kda_value_dim, nano.q_lora_rank, nano.kv_lora_rank,
             nano.qk_nope_head_dim, nano.v_head_dim, nano.intermediate_size, nano.moe_intermediate_size,
             nano.moe_latent_size]
    assert len(set(sizes)) == len(sizes)
    assert preset("mini") == K3Config()
