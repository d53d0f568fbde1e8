"""Names, shapes and values of the tensors in a `kimi-k3` GGUF file.

llama.cpp wants a few things folded: norm weight times depth query, -exp(A_log), W_kvb cut into keys and values by head.
"""

import numpy as np

from k3_scratch.export.gguf_keys import GGUFError, refuse_unfit
from k3_scratch.reference.mxfp4 import BLOCK, mxfp4_pack

BLOCK_BYTES = 1 + BLOCK // 2                     # one scale byte, 32 codes
EXPERTS = ("ffn_gate_exps", "ffn_down_exps", "ffn_up_exps")
OURS = {                                         # llama.cpp's name -> ours, in a layer; nothing to fold
    "kda": {"attn_q.weight": "q_proj", "attn_k.weight": "k_proj", "attn_v.weight": "v_proj",
            "ssm_f_a.weight": "f_a_proj", "ssm_f_b.weight": "f_b_proj", "ssm_beta.weight": "b_proj",
            "ssm_g.weight": "g_proj", "ssm_norm.weight": "o_norm", "attn_output.weight": "o_proj"},
    "mla": {"attn_q.weight": "q_proj", "attn_q_a.weight": "q_a_proj", "attn_q_a_norm.weight": "q_a_layernorm",
            "attn_q_b.weight": "q_b_proj", "attn_kv_a_mqa.weight": "kv_a_proj_with_mqa",
            "attn_kv_a_norm.weight": "kv_a_layernorm", "attn_gate.weight": "g_proj", "attn_output.weight": "o_proj"},
    "glu": {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"},
    "moe": {"ffn_gate_inp.weight": "gate.weight", "exp_probs_b.bias": "gate.e_score_correction_bias",
            "ffn_routed_down.weight": "routed_expert_down_proj.weight",
            "ffn_routed_up.weight": "routed_expert_up_proj.weight",
            "ffn_routed_norm.weight": "routed_expert_norm.weight", "ffn_gate_exps.weight": "experts.w1",
            "ffn_down_exps.weight": "experts.w2", "ffn_up_exps.weight": "experts.w3"},
}


def gguf_shapes(config):
    """{GGUF name: shape in NumPy order} of every tensor that such a model must have, no more and no fewer."""
    refuse_unfit(config)
    V, D = config.vocab_size, config.hidden_size
    shapes = {"token_embd.weight": (V, D), "output.weight": (V, D), "output_norm.weight": (D,),
              "output_res_score.weight": (D,)}
    for number in range(config.num_layers):
        layer = {f"{name}.weight": (D,) for name in ("attn_norm", "ffn_norm", "attn_res_score", "ffn_res_score")}
        layer |= _mla_shapes(config) if config.is_mla(number) else _kda_shapes(config)
        layer |= _glu_shapes("", D, config.intermediate_size) if config.is_dense(number) else _moe_shapes(config)
        shapes |= {f"blk.{number}.{name}": shape for name, shape in layer.items()}
    return shapes


def _kda_shapes(c):
    D, H, K, taps = c.hidden_size, c.num_heads, c.kda_key_dim, c.conv_size
    return {**dict.fromkeys(("attn_q.weight", "attn_k.weight", "attn_v.weight", "ssm_g.weight"), (H * K, D)),
            **dict.fromkeys((f"ssm_conv1d_{x}.weight" for x in "qkv"), (1, H * K, 1, taps)),
            "ssm_f_a.weight": (K, D), "ssm_f_b.weight": (H * K, K), "ssm_a": (H,), "ssm_dt.bias": (H * K,),
            "ssm_beta.weight": (H, D), "ssm_norm.weight": (K,), "attn_output.weight": (D, H * K)}


def _mla_shapes(c):
    D, H, R, q = c.hidden_size, c.num_heads, c.kv_lora_rank, c.q_lora_rank
    n, r, v = c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim
    if q is None:
        query = {"attn_q.weight": (H * (n + r), D)}
    else:
        query = {"attn_q_a.weight": (q, D), "attn_q_a_norm.weight": (q,), "attn_q_b.weight": (H * (n + r), q)}
    gate = {"attn_gate.weight": (H * v, D)} if c.mla_output_gate else {}
    return {**query, **gate, "attn_kv_a_mqa.weight": (R + r, D), "attn_kv_a_norm.weight": (R,),
            "attn_k_b.weight": (H, R, n), "attn_v_b.weight": (H, v, R), "attn_output.weight": (D, H * v)}


def _glu_shapes(suffix, D, hidden):
    return {f"ffn_gate{suffix}.weight": (hidden, D), f"ffn_up{suffix}.weight": (hidden, D),
            f"ffn_down{suffix}.weight": (D, hidden)}


def _moe_shapes(c):
    D, E, F, L = c.hidden_size, c.num_experts, c.moe_intermediate_size, c.moe_latent_size
    return {"ffn_gate_inp.weight": (E, D), "exp_probs_b.bias": (E,), "ffn_routed_down.weight": (L, D),
            "ffn_routed_up.weight": (D, L), **({"ffn_routed_norm.weight": (L,)} if c.moe_latent_norm else {}),
            "ffn_gate_exps.weight": (E, F, L), "ffn_down_exps.weight": (E, L, F), "ffn_up_exps.weight": (E, F, L),
            **(_glu_shapes("_shexp", D, c.num_shared_experts * F) if c.num_shared_experts else {})}


def gguf_tensors(model_or_state_dict, config, *, mxfp4=False):
    """{GGUF name: float32 array} of a model or of its state dict (torch or NumPy).

    mxfp4    True: the routed experts as raw bytes of GGML type MXFP4 instead, uint8 [E, rows, 17 bytes a block of 32]
    Raises GGUFError when llama.cpp has no place for the configuration, or a tensor is missing, unexpected or misshapen.
    """
    shapes = gguf_shapes(config)
    given = getattr(model_or_state_dict, "state_dict", lambda: model_or_state_dict)()
    weights = {name: _float64(x) for name, x in given.items()}
    try:
        tensors = _folded(weights, config)
    except KeyError as error:
        raise GGUFError(f"{error.args[0]}: the model has no such tensor") from error
    except ValueError as error:                                          # a reshape that does not fit
        raise GGUFError(f"the weights do not fit the configuration: {error}") from error
    if weights:                                                          # what `_folded` did not take
        raise GGUFError(f"{min(weights)}: a tensor that the configuration has no place for")
    tensors = {name: np.ascontiguousarray(x, np.float32) for name, x in tensors.items()}
    check_tensors(tensors, shapes)
    if mxfp4:
        for name in filter(is_expert, tensors):
            tensors[name] = mxfp4_blocks(name, tensors[name])
    return tensors


def _folded(weights, config):
    """Take every tensor out of `weights` and put it where llama.cpp looks for it."""
    take = weights.pop
    tensors = {"token_embd.weight": take("embed_tokens.weight"), "output.weight": take("lm_head.weight"),
               "output_norm.weight": take("norm.weight"),
               "output_res_score.weight": take("output_attn_res.query") * take("output_attn_res.weight")}
    for number in range(config.num_layers):
        ours, theirs = f"layers.{number}.", f"blk.{number}."
        attention, moe = f"{ours}self_attn.", f"{ours}block_sparse_moe."
        tensors |= {theirs + "attn_norm.weight": take(f"{ours}input_layernorm.weight"),
                    theirs + "ffn_norm.weight": take(f"{ours}post_attention_layernorm.weight")}
        for name, part in (("attn_res_score", "self_attention_res"), ("ffn_res_score", "mlp_res")):
            tensors[f"{theirs}{name}.weight"] = take(f"{ours}{part}.query") * take(f"{ours}{part}.weight")
        if config.is_mla(number):
            names, n, v = _mla_shapes(config), config.qk_nope_head_dim, config.v_head_dim
            pair = take(f"{attention}kv_b_proj.weight").reshape(config.num_heads, n + v, -1)       # [H, n + v, R]
            tensors |= {theirs + "attn_k_b.weight": pair[:, :n].transpose(0, 2, 1),                # [H, R, n]
                        theirs + "attn_v_b.weight": pair[:, n:]}                                   # [H, v, R]
        else:
            names = _kda_shapes(config)
            tensors |= {theirs + "ssm_a": -np.exp(take(f"{attention}A_log")),
                        theirs + "ssm_dt.bias": take(f"{attention}dt_bias")}
            for x in "qkv":
                tensors[f"{theirs}ssm_conv1d_{x}.weight"] = take(f"{attention}{x}_conv1d.weight")[None, :, None]
        for name, own in OURS["mla" if config.is_mla(number) else "kda"].items():
            if name in names:
                tensors[theirs + name] = take(f"{attention}{own}.weight")
        if config.is_dense(number):
            glu, suffix = f"{ours}mlp.", ""
        else:
            glu, suffix, names = f"{moe}shared_experts.", "_shexp", _moe_shapes(config)
            tensors |= {theirs + name: take(moe + own) for name, own in OURS["moe"].items() if name in names}
        if config.is_dense(number) or config.num_shared_experts:
            for name, own in OURS["glu"].items():
                tensors[f"{theirs}ffn_{name}{suffix}.weight"] = take(f"{glu}{own}.weight")
    return tensors


def check_tensors(tensors, shapes):
    """Raise GGUFError unless `tensors` holds exactly the names and shapes of `shapes`, finite everywhere.

    Experts may come as float32 or as MXFP4 bytes.
    """
    for name in shapes:
        if name not in tensors:
            raise GGUFError(f"{name}: missing")
    for name, x in tensors.items():
        if name not in shapes:
            raise GGUFError(f"{name}: unexpected, no such tensor in this configuration")
        wanted, packed = shapes[name], x.dtype == np.uint8 and is_expert(name)
        if packed:
            wanted = (*wanted[:-1], wanted[-1] // BLOCK * BLOCK_BYTES)
        elif x.dtype != np.float32:
            raise GGUFError(f"{name}: wanted float32, got {x.dtype}")
        if x.shape != wanted:
            raise GGUFError(f"{name}: wanted shape {list(wanted)}, got {list(x.shape)}")
        if not packed and not np.isfinite(x).all():
            raise GGUFError(f"{name}: not finite everywhere")


def is_expert(name):
    """True for the weights of the routed experts, which alone may be four-bit."""
    return any(part in name for part in EXPERTS)


def mxfp4_blocks(name, x):
    """float32 [E, rows, N] -> uint8 [E, rows, N / 32 * 17]: the same codes and scales as ours, in GGML's order.

    A block is its scale byte and 16 bytes; byte j holds values j (low nibble) and j + 16 (high nibble), where our
    layout has 2j and 2j + 1. GGML halves the scale and doubles the magnitudes, so the values are the same.
    """
    if x.shape[-1] % BLOCK:
        raise GGUFError(f"{name}: rows of MXFP4 must be a multiple of {BLOCK} wide, but {x.shape[-1]} came")
    packed, scales = mxfp4_pack(x)
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(*scales.shape, 2, BLOCK // 2)         # [..., G, 2, 16]
    return np.concatenate([scales[..., None], codes[..., 0, :] | codes[..., 1, :] << 4], -1).reshape(*x.shape[:-1], -1)


def _float64(x):
    return np.asarray(x.detach().cpu().double().numpy() if hasattr(x, "detach") else x, dtype=np.float64)
