"""`config.json` of the released checkpoint, from and to a K3Config.

The released fields are written as they are (spec 3). What they cannot say (eps of the small norms, another value width,
how to start training) is kept beside them under one more key, `k3_scratch`; programs that do not know it ignore it.
Kimi Linear's flat files, under both spellings of their fields, are read too.
"""

from k3_scratch.config import K3Config, is_integer
from k3_scratch.export.files import ExportError

ARCHITECTURE, MODEL_TYPE, TEXT_TYPE, OWN = "KimiK3ForConditionalGeneration", "kimi_k3", "kimi_linear", "k3_scratch"
LINEAR = "linear_attn_config"
PACKED = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"}
NEEDED = {                                       # released name -> ours; a file without it is refused
    "vocab_size": "vocab_size", "hidden_size": "hidden_size", "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads", "rms_norm_eps": "rms_norm_eps", "kv_lora_rank": "kv_lora_rank",
    "qk_nope_head_dim": "qk_nope_head_dim", "qk_rope_head_dim": "qk_rope_head_dim", "v_head_dim": "v_head_dim",
    "intermediate_size": "intermediate_size", "num_experts": "num_experts",
    "num_experts_per_token": "num_experts_per_token", "num_shared_experts": "num_shared_experts",
    "moe_intermediate_size": "moe_intermediate_size", "routed_scaling_factor": "routed_scaling_factor",
    "first_k_dense_replace": "first_k_dense",
}
ABSENT_MEANS_OFF = {                             # what Kimi Linear does not have, and its files do not mention
    "q_lora_rank": ("q_lora_rank", None), "mla_use_output_gate": ("mla_output_gate", False),
    "routed_expert_hidden_size": ("moe_latent_size", None), "latent_moe_use_norm": ("moe_latent_norm", False),
    "attn_res_block_size": ("attn_res_block_size", None),
}
SITU = {"activation_situ_beta": "situ_beta", "activation_situ_linear_beta": "situ_linear_beta"}
ACTIVATIONS = {"situ": "situ", "silu": "swiglu"}
ONE_FORM = {                                     # the model has no other
    "mla_use_nope": True, "moe_renormalize": True, "moe_router_activation_func": "sigmoid",
    "num_expert_group": 1, "topk_group": 1,
}
MAY_BE_ABSENT = {                                # fields of other writers that may have this value only
    "tie_word_embeddings": False, "moe_layer_freq": 1, "attention_bias": False, "num_nextn_predict_layers": 0,
    "linear_layer_type": "kda",
}
SAME_THING = {                                   # transformers' own spelling of a released field
    "n_group": "num_expert_group", "norm_topk_prob": "moe_renormalize", "num_local_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_token", "n_shared_experts": "num_shared_experts",
}
FLAT_LINEAR = {"linear_head_dim": "head_dim", "linear_num_heads": "num_heads",
               "linear_conv_kernel_dim": "short_conv_kernel_size"}
WITHOUT_EFFECT = {                               # on the numbers of a text model
    "architectures", "auto_map", "transformers_version", "dtype", "torch_dtype", "use_cache", "pretraining_tp",
    "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "max_position_embeddings", "model_max_length",
    "rope_theta", "rope_scaling", "rope_parameters", "attention_dropout", "output_router_logits", "head_dim",
    "qk_head_dim", "use_grouped_topk", "initializer_range", "vision_config", "media_placeholder_token_id", "id2label",
    "label2id", "_name_or_path", "return_dict", "output_attentions", "output_hidden_states", "chunk_size_feed_forward",
    "is_encoder_decoder", "problem_type",
}


def hf_config(config):
    """The whole `config.json` of a model, as plain dicts, lists, texts and numbers."""
    ours = config.to_dict()
    text = {"model_type": TEXT_TYPE}
    text |= {name: ours[own] for name, own in {**NEEDED, **SITU}.items()}
    text |= {name: ours[own] for name, (own, _) in ABSENT_MEANS_OFF.items()}
    text |= ONE_FORM | {
        "num_key_value_heads": config.num_heads,
        "hidden_act": next(name for name, own in ACTIVATIONS.items() if own == config.activation),
        LINEAR: {
            "head_dim": config.kda_key_dim, "num_heads": config.num_heads, "short_conv_kernel_size": config.conv_size,
            "full_attn_layers": [i + 1 for i in config.mla_layers], "kda_layers": [i + 1 for i in config.kda_layers],
            "gate_lower_bound": config.gate_lower_bound, "use_full_rank_gate": config.use_full_rank_gate,
        },
    }
    packed = {"quantization_config": PACKED} if config.expert_dtype == "mxfp4" else {}
    return {"architectures": [ARCHITECTURE], "model_type": MODEL_TYPE, "text_config": text, **packed, OWN: ours}


def config_from_hf(fields):
    """The K3Config that a released-style `config.json` describes, K3's or Kimi Linear's.

    The text model is described; of a picture encoder only `k3_scratch` tells. Fields that change no number are skipped.
    Raises ExportError or ConfigError naming the field: another architecture, missing, unknown, impossible, or stated
    twice with two values.
    """
    top = _object("config.json", fields)
    own = top.pop(OWN, None)
    kind = top.pop("model_type", None)
    if kind == MODEL_TYPE:
        text = _object("text_config", top.pop("text_config", None))
    elif kind == TEXT_TYPE:
        text, top = {"model_type": kind, **top}, {}
    else:
        raise ExportError(f"model_type: wanted {MODEL_TYPE!r} or {TEXT_TYPE!r}, got {kind!r}")
    architecture = top.get("architectures", [ARCHITECTURE])
    if architecture != [ARCHITECTURE]:
        raise ExportError(f"architectures: wanted [{ARCHITECTURE!r}], got {architecture!r}")
    packed = [place.pop("quantization_config", None) for place in (top, text)]
    _check_fixed(top, {}, MAY_BE_ABSENT)
    _nothing_left(top)
    stated, assumed = _text_fields(text)
    for given in filter(None, packed):
        _check_packed(given)
        stated["expert_dtype"] = "mxfp4"
    if own is None:
        return K3Config(**{**assumed, **stated})
    config = K3Config.from_dict({**assumed, **stated, **_object(OWN, own)})
    for name, value in stated.items():
        if getattr(config, name) != value:
            raise ExportError(f"{OWN}.{name}: {getattr(config, name)!r}, but the released fields say {value!r}")
    return config


def _text_fields(text):
    """Fields of K3Config that the released ones state, and those that only follow when nothing else is said."""
    linear = _spell(text)
    _check_fixed(text, {"model_type": TEXT_TYPE}, {**ONE_FORM, **MAY_BE_ABSENT})
    stated = {own: _take(text, name) for name, own in NEEDED.items()}
    stated |= {own: text.pop(name, off) for name, (own, off) in ABSENT_MEANS_OFF.items()}
    heads, act = stated["num_heads"], _take(text, "hidden_act")
    if not isinstance(act, str) or act not in ACTIVATIONS:
        raise ExportError(f"hidden_act: wanted one of {', '.join(ACTIVATIONS)}, got {act!r}")
    stated["activation"] = ACTIVATIONS[act]
    if act == "situ" or set(SITU) <= set(text):
        stated |= {own: _take(text, name) for name, own in SITU.items()}
    for name, value in (("num_key_value_heads", text.pop("num_key_value_heads", heads)),
                        (f"{LINEAR}.num_heads", _take(linear, "num_heads", LINEAR))):
        if value != heads:
            raise ExportError(f"{name}: wanted {heads}, as num_attention_heads, got {value!r}")
    stated |= {"kda_key_dim": _take(linear, "head_dim", LINEAR),
               "conv_size": _take(linear, "short_conv_kernel_size", LINEAR),
               "gate_lower_bound": linear.pop("gate_lower_bound", None),
               "use_full_rank_gate": linear.pop("use_full_rank_gate", False),
               "mla_layers": _mla_layers(stated["num_layers"], _take(linear, "full_attn_layers", LINEAR),
                                         _take(linear, "kda_layers", LINEAR))}
    _nothing_left(text)
    _nothing_left(linear, f"{LINEAR}.")
    return stated, {"kda_value_dim": stated["kda_key_dim"]}


def _spell(text):
    """Bring transformers' spellings to the released ones, in place; returns the fields of the KDA layers."""
    linear = _object(LINEAR, text.pop(LINEAR, None) or {})
    for name, released in SAME_THING.items():
        _rename(text, name, text, released)
    for name, released in FLAT_LINEAR.items():
        _rename(text, name, linear, released)
    kinds = _list(text, "layer_types")
    if kinds is not None:
        text["layer_types"] = [i + 1 for i, kind in enumerate(kinds) if kind == "full_attention"]
        _rename(text, "layer_types", linear, "full_attn_layers")
        text["layer_types"] = [i + 1 for i, kind in enumerate(kinds) if kind == "linear_attention"]
        _rename(text, "layer_types", linear, "kda_layers")
    ffns = _list(text, "mlp_layer_types")
    if ffns is not None:
        dense = ffns.index("sparse") if "sparse" in ffns else len(ffns)
        if ffns != ["dense"] * dense + ["sparse"] * (len(ffns) - dense):
            raise ExportError(f"mlp_layer_types: wanted dense layers, then sparse ones, got {ffns!r}")
        text["mlp_layer_types"] = dense
        _rename(text, "mlp_layer_types", text, "first_k_dense_replace")
    return linear


def _rename(fields, name, target, released):
    """Move a field to its released name; the same thing said twice must be the same."""
    if name in fields:
        value = fields.pop(name)
        if target.setdefault(released, value) != value:
            raise ExportError(f"{name}: it says {value!r}, but {released} is {target[released]!r}")


def _list(fields, name):
    """Take out a list; None when the field is absent or null."""
    value = fields.pop(name, None)
    if value is not None and not isinstance(value, list):
        raise ExportError(f"{name}: wanted a list, got {value!r:.60}")
    return value


def _mla_layers(layers, mla, kda):
    """0-based MLA layers from the two lists, counted from 1, that must share out all layers between them."""
    for name, numbers in (("full_attn_layers", mla), ("kda_layers", kda)):
        if not isinstance(numbers, list) or not all(map(is_integer, numbers)):
            raise ExportError(f"{LINEAR}.{name}: wanted a list of layer numbers, got {numbers!r}")
    if is_integer(layers) and sorted([*mla, *kda]) != list(range(1, layers + 1)):
        raise ExportError(f"{LINEAR}: full_attn_layers and kda_layers must share out the layers 1 to {layers}, "
                          f"each once, got {mla!r} and {kda!r}")
    return tuple(sorted(number - 1 for number in mla))


def _check_fixed(fields, needed, optional):
    """Take out the fields that may have one value only."""
    for name, wanted in {**optional, **needed}.items():
        if name not in fields and name in optional:
            continue
        given = _take(fields, name)
        if given != wanted or isinstance(given, bool) != isinstance(wanted, bool):
            raise ExportError(f"{name}: wanted {wanted!r}, got {given!r}")


def _check_packed(given):
    given = _object("quantization_config", given)
    for name, wanted in PACKED.items():
        if given.get(name) != wanted:
            raise ExportError(f"quantization_config.{name}: wanted {wanted!r}, got {given.get(name)!r}")


def _nothing_left(fields, prefix=""):
    unknown = sorted(set(fields) - WITHOUT_EFFECT)
    if unknown:
        raise ExportError(f"{prefix}{unknown[0]}: unknown field")


def _take(fields, name, place=None):
    if name not in fields:
        raise ExportError(f"{place + '.' if place else ''}{name}: missing")
    return fields.pop(name)


def _object(name, fields):
    if not isinstance(fields, dict):
        raise ExportError(f"{name}: wanted an object of fields, got {fields!r:.60}")
    return dict(fields)
