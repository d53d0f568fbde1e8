"""The whole model as one function of tokens and weights, in float64: slow, short, and the truth for the torch model.

What differs from a plain transformer, and where it lives:
  most layers keep a matrix memory in place of a cache      kda.py, short_convolution.py, decay_gates.py, unit_keys.py
  the others cache one latent a token, without positions    mla.py
  experts work in a latent space, the bias only selects     latent_moe.py, router.py
  the activation is bounded                                 situ.py
  layers are joined by a softmax over depth                 attention_residuals.py
  no positions, no biases, no scale on the embedding, and a head of its own (not the embedding transposed)
Source: K3 report; the variants (softplus decay, low-rank gate, plain MoE, plain residual) are Kimi Linear.
"""

import numpy as np

from k3_scratch.reference.attention_residuals import block_attention_residuals
from k3_scratch.reference.decay_gates import bounded_decay, softplus_decay
from k3_scratch.reference.ffn import gated_ffn
from k3_scratch.reference.kda import kda_recurrent
from k3_scratch.reference.latent_moe import latent_moe
from k3_scratch.reference.mla import mla_naive
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.short_convolution import short_convolution
from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.reference.silu import silu
from k3_scratch.reference.unit_keys import l2_norm
from k3_scratch.reference.vision import encode_pictures, place_pictures
from k3_scratch.shapes import check_shapes


def k3_forward(tokens, weights, config, images=None):
    """Logits of the next token at every position.          [B, T] -> [B, T, vocab]

    tokens   [B, T] whole numbers in 0 ... vocab-1
    weights  name -> array, for example "layers.0.self_attn.q_proj.weight" [H*K, D]; each is read as float64
    config   an object with the fields of K3Config; which weights are needed follows from it
    images   [P, Y, X, C] from 0 to 255, the pictures whose vectors replace the marker tokens; None: no pictures
    Raises ShapeError naming the weight; KeyError for a missing weight; ValueError for tokens that are not in the
    vocabulary; TypeError for tokens that are not whole numbers.
    """
    tokens = np.asarray(tokens)
    check_shapes("k3_forward", tokens=(tokens, "B T"))
    if not np.issubdtype(tokens.dtype, np.integer):
        raise TypeError(f"k3_forward: tokens must be whole numbers, but {tokens.dtype} came")
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < config.vocab_size:
        raise ValueError(f"k3_forward: tokens must lie in 0 ... {config.vocab_size - 1}, "
                         f"but {tokens.min()} ... {tokens.max()} came")
    table = _weight(weights, "embed_tokens.weight", f"{config.vocab_size} {config.hidden_size}")
    h = table[tokens]                                                            # [B, T] -> [B, T, D]
    if images is not None:
        h = place_pictures(h, tokens, encode_pictures(images, weights, config), config.vision.image_token)
    h = _stack(h, weights, config)                                               # [B, T, D]
    h = rms_norm(h, _weight(weights, "norm.weight", f"{config.hidden_size}"), config.rms_norm_eps)
    return _linear(h, weights, "lm_head.weight", config.vocab_size)              # [B, T, vocab]


def _stack(h, weights, config):
    """All decoder layers, joined over depth.          [B, T, D] -> [B, T, D]"""
    sublayers, mixes = [], []
    for i in range(config.num_layers):
        layer = f"layers.{i}."
        attention = _mla if i in config.mla_layers else _kda
        ffn = _dense if i < config.first_k_dense else _moe
        sublayers += [_with_norm(attention, layer + "input_layernorm.weight", layer + "self_attn.", weights, config),
                      _with_norm(ffn, layer + "post_attention_layernorm.weight", layer, weights, config)]
        mixes += [layer + "self_attention_res.", layer + "mlp_res."]
    if config.attn_res_block_size is None:                                       # the plain residual stream
        for sublayer in sublayers:
            h = h + sublayer(h)
        return h
    mixes.append("output_attn_res.")
    D = f"{config.hidden_size}"
    queries = np.stack([_weight(weights, mix + "query", D) for mix in mixes])              # [2 layers + 1, D]
    norm_weights = np.stack([_weight(weights, mix + "weight", D) for mix in mixes])        # [2 layers + 1, D]
    return block_attention_residuals(h, sublayers, queries, norm_weights, config.attn_res_block_size,
                                     config.rms_norm_eps)[0]


def _with_norm(part, norm_name, prefix, weights, config):
    """x -> part(RMSNorm(x)): what AttnRes calls a sublayer."""
    def sublayer(x):
        norm_weight = _weight(weights, norm_name, f"{config.hidden_size}")
        return part(rms_norm(x, norm_weight, config.rms_norm_eps), weights, prefix, config)
    return sublayer


def _kda(x, weights, prefix, config):
    """Kimi Delta Attention with everything around it.          [B, T, D] -> [B, T, D]"""
    H, K, V = config.num_heads, config.kda_key_dim, config.kda_value_dim

    def convolved(name, width):                                                  # [B, T, D] -> [B, T, H, width]
        y = _linear(x, weights, f"{prefix}{name}_proj.weight", H * width)        # [B, T, H*width]
        taps = _weight(weights, f"{prefix}{name}_conv1d.weight", f"{H * width} {config.conv_size}")
        return _heads(silu(short_convolution(y, taps)[0]), H, width)

    q = l2_norm(convolved("q", K), config.l2_norm_eps)                           # [B, T, H, K]; v stays as it is
    k = l2_norm(convolved("k", K), config.l2_norm_eps)
    v = convolved("v", V)                                                        # [B, T, H, V]

    z = _linear(x, weights, prefix + "f_a_proj.weight", K)                       # [B, T, K], no activation between
    z = _linear(z, weights, prefix + "f_b_proj.weight", H * K)                   # [B, T, H*K]
    z = _heads(z + _weight(weights, prefix + "dt_bias", f"{H * K}"), H, K)       # [B, T, H, K]
    A_log = _weight(weights, prefix + "A_log", f"{H}")
    if config.gate_lower_bound is None:
        g = softplus_decay(z, A_log)
    else:
        g = bounded_decay(z, A_log, config.gate_lower_bound)
    beta = sigmoid(_linear(x, weights, prefix + "b_proj.weight", H))             # [B, T, H]

    o, _ = kda_recurrent(q, k, v, g, beta)                                       # [B, T, H, V]
    o = rms_norm(o, _weight(weights, prefix + "o_norm.weight", f"{V}"), config.rms_norm_eps)   # each head on its own
    if config.use_full_rank_gate:
        gate = _linear(x, weights, prefix + "g_proj.weight", H * V)              # [B, T, H*V]
    else:
        gate = _linear(x, weights, prefix + "g_a_proj.weight", K)                # [B, T, K]
        gate = _linear(gate, weights, prefix + "g_b_proj.weight", H * V)         # [B, T, H*V]
    gated = _joined(o) * sigmoid(gate)                                           # the gate acts after the norm
    return _linear(gated, weights, prefix + "o_proj.weight", config.hidden_size)


def _mla(x, weights, prefix, config):
    """Gated multi-head latent attention.          [B, T, D] -> [B, T, D]"""
    H, R, n, r, v = (config.num_heads, config.kv_lora_rank, config.qk_nope_head_dim, config.qk_rope_head_dim,
                     config.v_head_dim)
    eps = config.latent_norm_eps
    if config.q_lora_rank is None:
        q = _linear(x, weights, prefix + "q_proj.weight", H * (n + r))           # [B, T, H*Q]
    else:
        q = _linear(x, weights, prefix + "q_a_proj.weight", config.q_lora_rank)
        q = rms_norm(q, _weight(weights, prefix + "q_a_layernorm.weight", f"{config.q_lora_rank}"), eps)
        q = _linear(q, weights, prefix + "q_b_proj.weight", H * (n + r))         # [B, T, H*Q]
    cached = _linear(x, weights, prefix + "kv_a_proj_with_mqa.weight", R + r)    # [B, T, R+r]
    latent = rms_norm(cached[..., :R], _weight(weights, prefix + "kv_a_layernorm.weight", f"{R}"), eps)
    shared_key = cached[..., R:]                                                 # [B, T, r], not normed
    w_kvb = _weight(weights, prefix + "kv_b_proj.weight", f"{H * (n + v)} {R}").reshape(H, n + v, R)
    o = _joined(mla_naive(_heads(q, H, n + r), latent, shared_key, w_kvb))       # [B, T, H, v] -> [B, T, H*v]
    if config.mla_output_gate:
        o = o * sigmoid(_linear(x, weights, prefix + "g_proj.weight", H * v))    # [B, T, H*v]
    return _linear(o, weights, prefix + "o_proj.weight", config.hidden_size)


def _dense(x, weights, prefix, config):
    """The feed-forward network of the first layers.          [B, T, D] -> [B, T, D]"""
    D, F = config.hidden_size, config.intermediate_size
    gate, up, down = (_weight(weights, f"{prefix}mlp.{name}_proj.weight", shape)
                      for name, shape in (("gate", f"{F} {D}"), ("up", f"{F} {D}"), ("down", f"{D} {F}")))
    return gated_ffn(x, gate, up, down, activation=config.activation, beta=config.situ_beta,
                     linear_beta=config.situ_linear_beta)


def _moe(x, weights, prefix, config):
    """Stable LatentMoE, or the plain mixture when there is no latent.          [B, T, D] -> [B, T, D]"""
    D, E, F, L = config.hidden_size, config.num_experts, config.moe_intermediate_size, config.moe_latent_size
    width = L or D
    S = config.num_shared_experts * F                                            # the shared experts, fused into one

    def get(name, shape, wanted=True):
        return _weight(weights, prefix + "block_sparse_moe." + name, shape) if wanted else None

    latent, normed, shared = L is not None, config.moe_latent_norm, S > 0
    return latent_moe(
        x, get("gate.weight", f"{E} {D}"), get("gate.e_score_correction_bias", f"{E}"),
        get("routed_expert_down_proj.weight", f"{L} {D}", latent),
        get("experts.w1", f"{E} {F} {width}"), get("experts.w3", f"{E} {F} {width}"),
        get("experts.w2", f"{E} {width} {F}"), get("routed_expert_norm.weight", f"{width}", normed),
        get("routed_expert_up_proj.weight", f"{D} {L}", latent),
        get("shared_experts.gate_proj.weight", f"{S} {D}", shared),
        get("shared_experts.up_proj.weight", f"{S} {D}", shared),
        get("shared_experts.down_proj.weight", f"{D} {S}", shared),
        k=config.num_experts_per_token, scale=config.routed_scaling_factor, eps=config.rms_norm_eps,
        beta=config.situ_beta, linear_beta=config.situ_linear_beta, activation=config.activation)


def _weight(weights, name, contract):
    """One weight as float64, with the shape that the configuration implies."""
    weight = np.asarray(weights[name], dtype=np.float64)
    check_shapes("k3_forward", **{name: (weight, contract)})
    return weight


def _linear(x, weights, name, width):
    """x W^T for a named weight [width, inputs].          [..., inputs] -> [..., width]"""
    return x @ _weight(weights, name, f"{width} {x.shape[-1]}").T


def _heads(x, H, width):
    """[B, T, H*width] -> [B, T, H, width]"""
    return x.reshape(*x.shape[:-1], H, width)


def _joined(x):
    """[B, T, H, width] -> [B, T, H*width]"""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])
