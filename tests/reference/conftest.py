"""Inputs that many tests share: KDA in several decay regimes, and random weights for a whole model."""

import numpy as np
import pytest


@pytest.fixture(params=["mild", "k3", "mixed", "floor", "unbounded", "none", "repeated"])
def regime(request):
    """Mistakes hide in one regime and show in another; `kda_inputs` says what each name means."""
    return request.param


@pytest.fixture
def kda_inputs():
    return make_kda_inputs


@pytest.fixture
def random_weights():
    return make_weights


def make_kda_inputs(regime, T, B=2, H=3, K=5, V=4, seed=0):
    """A dict of q, k, v, g, beta and state; sizes that all differ."""
    rng = np.random.default_rng(seed)
    q, k = (unit(rng.normal(size=(B, T, H, K))) for _ in range(2))
    v, beta = rng.normal(size=(B, T, H, V)), rng.uniform(size=(B, T, H))
    g = {
        "mild": -0.1 * rng.uniform(size=(B, T, H, K)),
        "k3": -5 / (1 + np.exp(-3 * rng.normal(size=(B, T, H, K)))),
        "mixed": -5.0 * rng.integers(0, 2, size=(B, T, H, K)),
        "floor": np.full((B, T, H, K), -5.0),
        "unbounded": -60 * rng.uniform(size=(B, T, H, K)) ** 3,
        "none": np.zeros((B, T, H, K)),
        "repeated": -0.01 * rng.uniform(size=(B, T, H, K)),
    }[regime]
    if regime == "repeated":                             # one unit key for all, almost full strength
        k = np.broadcast_to(unit(rng.normal(size=(B, 1, H, K))), k.shape).copy()
        q, beta = k + 0.1 * q, 0.9 + 0.099 * beta
    return {"q": q, "k": k, "v": v, "g": g, "beta": beta, "state": rng.normal(size=(B, H, K, V))}


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def make_weights(config, seed=0):
    """Random weights under their names, large enough that every part matters."""
    c, rng, weights = config, np.random.default_rng(seed), {}
    D, H = c.hidden_size, c.num_heads

    def matrix(name, *shape):
        weights[name] = rng.normal(size=shape) / np.sqrt(shape[-1])

    def vector(name, size, center=0.0):
        weights[name] = center + 0.3 * rng.normal(size=size)

    matrix("embed_tokens.weight", c.vocab_size, D)
    matrix("lm_head.weight", c.vocab_size, D)
    vector("norm.weight", D, 1)
    if c.attn_res_block_size is not None:
        vector("output_attn_res.query", D)
        vector("output_attn_res.weight", D, 1)
    for i in range(c.num_layers):
        layer = f"layers.{i}."
        vector(layer + "input_layernorm.weight", D, 1)
        vector(layer + "post_attention_layernorm.weight", D, 1)
        if c.attn_res_block_size is not None:
            for name in ("self_attention_res", "mlp_res"):
                vector(f"{layer}{name}.query", D)
                vector(f"{layer}{name}.weight", D, 1)
        a = layer + "self_attn."
        if i in c.mla_layers:
            Q, n, r, v, R = c.qk_head_dim, c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim, c.kv_lora_rank
            if c.q_lora_rank is None:
                matrix(a + "q_proj.weight", H * Q, D)
            else:
                matrix(a + "q_a_proj.weight", c.q_lora_rank, D)
                vector(a + "q_a_layernorm.weight", c.q_lora_rank, 1)
                matrix(a + "q_b_proj.weight", H * Q, c.q_lora_rank)
            matrix(a + "kv_a_proj_with_mqa.weight", R + r, D)
            vector(a + "kv_a_layernorm.weight", R, 1)
            matrix(a + "kv_b_proj.weight", H * (n + v), R)
            if c.mla_output_gate:
                matrix(a + "g_proj.weight", H * v, D)
            matrix(a + "o_proj.weight", D, H * v)
        else:
            K, V = c.kda_key_dim, c.kda_value_dim
            for name, width in (("q", K), ("k", K), ("v", V)):
                matrix(f"{a}{name}_proj.weight", H * width, D)
                matrix(f"{a}{name}_conv1d.weight", H * width, c.conv_size)
            matrix(a + "f_a_proj.weight", K, D)
            matrix(a + "f_b_proj.weight", H * K, K)
            vector(a + "dt_bias", H * K, -2)
            vector(a + "A_log", H)
            matrix(a + "b_proj.weight", H, D)
            if c.use_full_rank_gate:
                matrix(a + "g_proj.weight", H * V, D)
            else:
                matrix(a + "g_a_proj.weight", K, D)
                matrix(a + "g_b_proj.weight", H * V, K)
            vector(a + "o_norm.weight", V, 1)
            matrix(a + "o_proj.weight", D, H * V)
        if i < c.first_k_dense:
            F = c.intermediate_size
            for name, shape in (("gate", (F, D)), ("up", (F, D)), ("down", (D, F))):
                matrix(f"{layer}mlp.{name}_proj.weight", *shape)
        else:
            m, E, F, L = layer + "block_sparse_moe.", c.num_experts, c.moe_intermediate_size, c.expert_size
            matrix(m + "gate.weight", E, D)
            vector(m + "gate.e_score_correction_bias", E)
            if c.moe_latent_size is not None:
                matrix(m + "routed_expert_down_proj.weight", L, D)
                matrix(m + "routed_expert_up_proj.weight", D, L)
            if c.moe_latent_norm:
                vector(m + "routed_expert_norm.weight", L, 1)
            matrix(m + "experts.w1", E, F, L)
            matrix(m + "experts.w3", E, F, L)
            matrix(m + "experts.w2", E, L, F)
            S = c.num_shared_experts * F
            if S:
                for name, shape in (("gate", (S, D)), ("up", (S, D)), ("down", (D, S))):
                    matrix(f"{m}shared_experts.{name}_proj.weight", *shape)
    return weights
