"""Every tensor of a model, as a shape, and how many of each there are: what the other accounts multiply out.

Sources: released config and checkpoint index of moonshotai/Kimi-K3; Kimi Linear, arXiv 2510.26692, for the variants.
"""

from k3_scratch.config import K3Config


def tensor_shapes(config):
    """Every tensor of one instance of each part: part -> {name: shape}, matrices as [out, in].

    Names are the last ones of the released checkpoint; each mix over depth has its query `res_proj` and `res_norm`.
    A part that the configuration leaves out is an empty dict. Spec 3; released config; Kimi Linear for the variants.
    """
    c = need_config("tensor_shapes", config)
    D, E, F, L = c.hidden_size, c.num_experts, c.moe_intermediate_size, c.expert_size
    latent, shared = {}, {}
    if c.moe_latent_norm:                            # on the summed experts
        latent["routed_expert_norm"] = (L,)
    if c.moe_latent_size is not None:                # one way down and one way up, shared by all experts of a layer
        latent |= {"routed_expert_down_proj": (L, D), "routed_expert_up_proj": (D, L)}
    if c.num_shared_experts:                         # fused into one MLP, at full width
        shared = _glu_shapes("gate_proj", "up_proj", "down_proj", D, c.num_shared_experts * F)
    depth = {} if c.attn_res_block_size is None else {"res_proj": (1, D), "res_norm": (D,)}  # the query and its norm
    return {
        "embedding": {"embed_tokens": (c.vocab_size, D)},
        "kda": _kda_shapes(c),
        "mla": _mla_shapes(c),
        "dense_ffn": _glu_shapes("gate_proj", "up_proj", "down_proj", D, c.intermediate_size),
        "router": {"gate": (E, D), "e_score_correction_bias": (E,)},   # reads x at full width, never the latent
        "routed_experts": _glu_shapes("w1", "w3", "w2", L, F),         # one expert
        "latent": latent,
        "shared_experts": shared,
        "sublayer_norms": {"layernorm": (D,)},
        "depth_mixes": depth,
        "output_depth_mix": depth,
        "final_norm": {"norm": (D,)},
        "lm_head": {"lm_head": (c.vocab_size, D)},                     # untied
    }


def _kda_shapes(c):
    D, H, K, V, taps = c.hidden_size, c.num_heads, c.kda_key_dim, c.kda_value_dim, c.conv_size
    if c.use_full_rank_gate:
        gate = {"g_proj": (H * V, D)}
    else:
        gate = {"g_a_proj": (K, D), "g_b_proj": (H * V, K)}            # through K channels
    return {
        "q_proj": (H * K, D), "k_proj": (H * K, D), "v_proj": (H * V, D),
        "q_conv1d": (H * K, 1, taps), "k_conv1d": (H * K, 1, taps), "v_conv1d": (H * V, 1, taps),
        "f_a_proj": (K, D), "f_b_proj": (H * K, K),                    # decay: one number a key channel, low rank
        "A_log": (H,), "dt_bias": (H * K,), "b_proj": (H, D),          # b: one writing strength a head
        **gate, "o_norm": (V,), "o_proj": (D, H * V),                  # the norm's weight is shared by the heads
    }


def _mla_shapes(c):
    D, H, R = c.hidden_size, c.num_heads, c.kv_lora_rank
    n, r, v, Rq = c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim, c.q_lora_rank
    if Rq is None:
        query = {"q_proj": (H * (n + r), D)}
    else:
        query = {"q_a_proj": (Rq, D), "q_a_layernorm": (Rq,), "q_b_proj": (H * (n + r), Rq)}
    gate = {"g_proj": (H * v, D)} if c.mla_output_gate else {}
    return {
        **query,
        "kv_a_proj_with_mqa": (R + r, D), "kv_a_layernorm": (R,),      # the shared slice r is not normed
        "kv_b_proj": (H * (n + v), R),                                 # per head: n key channels, then v values
        **gate, "o_proj": (D, H * v),
    }


def _glu_shapes(gate, up, down, width, hidden):
    return {gate: (hidden, width), up: (hidden, width), down: (width, hidden)}


def parts_of_layer(c, layer):
    """Part -> number of instances in this layer."""
    attention = {"mla" if c.is_mla(layer) else "kda": 1}
    if c.is_dense(layer):
        ffn = {"dense_ffn": 1}
    else:
        ffn = {"router": 1, "routed_experts": c.num_experts, "latent": 1, "shared_experts": 1}
    return {**attention, **ffn, "sublayer_norms": 2, "depth_mixes": 2}  # before attention and before the FFN


def count_instances(c):
    """Part -> number of instances in the model; 0 for a part that has no tensors."""
    shapes = tensor_shapes(c)
    counts = dict.fromkeys(shapes, 0)
    for part in ("embedding", "output_depth_mix", "final_norm", "lm_head"):
        counts[part] = 1
    for layer in range(c.num_layers):
        for part, number in parts_of_layer(c, layer).items():
            counts[part] += number
    return {part: number if shapes[part] else 0 for part, number in counts.items()}


def need_config(function, config):
    """`config` itself when it is a K3Config; else a TypeError that says what came."""
    if not isinstance(config, K3Config):
        raise TypeError(f"{function}: config must be a K3Config (see config.PRESETS, K3Config.from_dict), "
                        f"but a {type(config).__name__} came")
    return config


def need_integer(function, name, value, least, most=None):
    """Nothing when `value` is a whole number in the range; else a TypeError or ValueError that names it."""
    wanted = f"a whole number, at least {least}" if most is None else f"a whole number from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{function}: {name} must be {wanted}, but {value!r} came")
    if value < least or (most is not None and value > most):
        raise ValueError(f"{function}: {name} must be {wanted}, but {value} came")
