"""The whole model: every variant runs, each weight matters, and one layer of each kind equals plain loops."""

import numpy as np
import pytest

from k3_scratch.config import K3Config, preset
from k3_scratch.reference.k3 import k3_forward
from k3_scratch.reference.latent_moe import latent_moe
from k3_scratch.shapes import ShapeError

NANO = preset("nano").replace(vocab_size=17)
TINY = K3Config(vocab_size=11, hidden_size=6, num_layers=1, num_heads=2, mla_layers=(), attn_res_block_size=None,
                kda_key_dim=3, kda_value_dim=4, q_lora_rank=5, kv_lora_rank=4, qk_nope_head_dim=3, qk_rope_head_dim=2,
                v_head_dim=5, intermediate_size=8, num_experts=3, num_experts_per_token=2, moe_intermediate_size=4,
                moe_latent_size=5)
VARIANTS = {
    "k3": {}, "softplus": {"gate_lower_bound": None}, "low_rank_gate": {"use_full_rank_gate": False},
    "full_rank_q": {"q_lora_rank": None}, "ungated_mla": {"mla_output_gate": False},
    "plain_moe": {"moe_latent_size": None}, "no_latent_norm": {"moe_latent_norm": False},
    "no_shared": {"num_shared_experts": 0}, "swiglu": {"activation": "swiglu"},
    "plain_residual": {"attn_res_block_size": None},
    "one_block": {"attn_res_block_size": 9}, "no_shared_slice": {"qk_rope_head_dim": 0},
    "all_experts": {"num_experts_per_token": 6}, "scaled": {"routed_scaling_factor": 2.446},
    "all_dense": {"first_k_dense": 4}, "one_tap": {"conv_size": 1},
    "kimi_linear": {"gate_lower_bound": None, "use_full_rank_gate": False, "q_lora_rank": None,
                    "mla_output_gate": False, "moe_latent_size": None, "moe_latent_norm": False, "activation": "swiglu",
                    "attn_res_block_size": None},
}
TOKENS = np.random.default_rng(0).integers(0, 11, size=(2, 5))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rms(x, weight, eps):
    return x / np.sqrt((x ** 2).mean(-1, keepdims=True) + eps) * weight


def situ(gate, up):
    return 4 * np.tanh(gate / 4) * sigmoid(gate) * 25 * np.tanh(up / 25)


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(random_weights, variant):
    config = NANO.replace(**VARIANTS[variant])
    weights = random_weights(config)
    logits = k3_forward(TOKENS, weights, config)
    assert logits.shape == (2, 5, 17)
    assert logits.dtype == np.float64
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(k3_forward(TOKENS[:, :3], weights, config), logits[:, :3], atol=1e-10)   # causal
    np.testing.assert_allclose(k3_forward(TOKENS[1:], weights, config), logits[1:], atol=1e-10)         # one by one


@pytest.mark.parametrize("variant", ["softplus", "low_rank_gate", "full_rank_q", "ungated_mla", "no_latent_norm",
                                     "no_shared", "swiglu", "plain_residual", "one_block", "all_experts", "scaled"])
def test_every_switch_matters(random_weights, variant):
    config = NANO.replace(**VARIANTS[variant])
    weights = {**random_weights(config), **random_weights(NANO)}                 # the names of both
    assert not np.allclose(k3_forward(TOKENS, weights, config), k3_forward(TOKENS, weights, NANO))


@pytest.mark.parametrize("variant", ["k3", "kimi_linear"])
def test_every_weight_matters(random_weights, variant):
    config = NANO.replace(**VARIANTS[variant])
    weights = random_weights(config)
    want = k3_forward(TOKENS[:1], weights, config)
    unused = {"layers.0.self_attention_res.query", "layers.0.self_attention_res.weight"}      # one source: no choice
    for name, weight in weights.items():
        moved = weight[::-1] * 1.5 + 0.1                                         # reversed: experts, heads change
        changed = not np.array_equal(k3_forward(TOKENS[:1], {**weights, name: moved}, config), want)
        assert changed == (name not in unused), name


def test_missing_and_misshapen_weights_are_named(random_weights):
    weights = random_weights(NANO)
    for name in weights:
        with pytest.raises(KeyError, match=name):
            k3_forward(TOKENS[:1, :1], {n: w for n, w in weights.items() if n != name}, NANO)
        with pytest.raises(ShapeError, match=f"k3_forward: {name} must have shape"):
            k3_forward(TOKENS[:1, :1], {**weights, name: weights[name][:-1]}, NANO)


def test_wrong_tokens(random_weights):
    weights = random_weights(TINY)
    with pytest.raises(ShapeError, match="tokens"):
        k3_forward(TOKENS[0], weights, TINY)
    for bad in (-1, 11):
        with pytest.raises(ValueError, match="must lie in 0 ... 10"):
            k3_forward(np.array([[0, bad]]), weights, TINY)
    with pytest.raises(TypeError, match="whole numbers"):
        k3_forward(TOKENS.astype(float), weights, TINY)
    assert k3_forward(np.zeros((2, 0), dtype=int), weights, TINY).shape == (2, 0, 11)


def test_weights_are_never_modified(random_weights):
    weights = random_weights(NANO)
    before = {name: weight.copy() for name, weight in weights.items()}
    k3_forward(TOKENS, weights, NANO)
    for name in weights:
        np.testing.assert_array_equal(weights[name], before[name])


def around(weights, attention, tokens):
    """Embedding, one attention given as a function, the dense FFN, the final norm and the head."""
    h = weights["embed_tokens.weight"][tokens]
    h = h + attention(rms(h, weights["layers.0.input_layernorm.weight"], 1e-5))
    x = rms(h, weights["layers.0.post_attention_layernorm.weight"], 1e-5)
    gate, up, down = (weights[f"layers.0.mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
    h = h + situ(x @ gate.T, x @ up.T) @ down.T
    return rms(h, weights["norm.weight"], 1e-5) @ weights["lm_head.weight"].T


@pytest.mark.parametrize("bounded", [True, False])
def test_one_kda_layer_by_loops(random_weights, bounded):
    config = TINY if bounded else TINY.replace(gate_lower_bound=None, use_full_rank_gate=False, mla_layers=())
    weights, tokens = random_weights(config), TOKENS[1]
    w = {name.removeprefix("layers.0.self_attn."): array for name, array in weights.items()}

    def attention(x):                                                            # [T, D] -> [T, D]
        streams = {}
        for name in "qkv":
            y = np.concatenate([np.zeros((3, len(w[f"{name}_proj.weight"]))), x @ w[f"{name}_proj.weight"].T])
            taps = w[f"{name}_conv1d.weight"]
            y = np.array([sum(taps[:, j] * y[t + j] for j in range(4)) for t in range(len(x))])
            streams[name] = y * sigmoid(y)
        z = x @ w["f_a_proj.weight"].T @ w["f_b_proj.weight"].T + w["dt_bias"]
        out = np.zeros((len(x), 2, 4))
        for h in range(2):
            S, K, V, A = np.zeros((3, 4)), slice(3 * h, 3 * h + 3), slice(4 * h, 4 * h + 4), np.exp(w["A_log"][h])
            for t in range(len(x)):
                q, k = (s[t, K] / np.sqrt(np.sum(s[t, K] ** 2) + 1e-6) for s in (streams["q"], streams["k"]))
                g = -5 * sigmoid(A * z[t, K]) if bounded else -A * np.log1p(np.exp(z[t, K]))
                beta = sigmoid(w["b_proj.weight"][h] @ x[t])
                S = np.exp(g)[:, None] * S
                S = S + beta * np.outer(k, streams["v"][t, V] - k @ S)
                out[t, h] = rms(q @ S / np.sqrt(3), w["o_norm.weight"], 1e-5)
        gate = x @ w["g_proj.weight"].T if bounded else x @ w["g_a_proj.weight"].T @ w["g_b_proj.weight"].T
        return (out.reshape(len(x), 8) * sigmoid(gate)) @ w["o_proj.weight"].T

    np.testing.assert_allclose(k3_forward(tokens[None], weights, config)[0], around(weights, attention, tokens),
                               rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("gated", [True, False])
def test_one_mla_layer_by_loops(random_weights, gated):
    config = TINY.replace(mla_layers=(0,), mla_output_gate=gated, q_lora_rank=5 if gated else None)
    weights, tokens = random_weights(config), TOKENS[1]
    w = {name.removeprefix("layers.0.self_attn."): array for name, array in weights.items()}

    def attention(x):                                                            # [T, D] -> [T, D]
        if gated:
            q = rms(x @ w["q_a_proj.weight"].T, w["q_a_layernorm.weight"], 1e-6) @ w["q_b_proj.weight"].T
        else:
            q = x @ w["q_proj.weight"].T
        c = x @ w["kv_a_proj_with_mqa.weight"].T
        kv = rms(c[:, :4], w["kv_a_layernorm.weight"], 1e-6) @ w["kv_b_proj.weight"].T
        out = np.zeros((len(x), 10))
        for h in range(2):
            keys = np.concatenate([kv[:, 8 * h:8 * h + 3], c[:, 4:]], axis=1)    # per head: 3 key rows, 5 value rows
            for t in range(len(x)):
                p = np.exp(keys[:t + 1] @ q[t, 5 * h:5 * h + 5] / np.sqrt(5))
                out[t, 5 * h:5 * h + 5] = p / p.sum() @ kv[:t + 1, 8 * h + 3:8 * h + 8]
        if gated:
            out = out * sigmoid(x @ w["g_proj.weight"].T)
        return out @ w["o_proj.weight"].T

    np.testing.assert_allclose(k3_forward(tokens[None], weights, config)[0], around(weights, attention, tokens),
                               rtol=1e-10, atol=1e-12)


def test_zero_gate_weights_halve_the_latent_attention(random_weights):
    config = TINY.replace(mla_layers=(0,))
    weights = random_weights(config)
    gate, out = "layers.0.self_attn.g_proj.weight", "layers.0.self_attn.o_proj.weight"
    weights[gate] = np.zeros_like(weights[gate])
    halved = {**weights, out: weights[out] / 2}
    np.testing.assert_allclose(k3_forward(TOKENS, weights, config),
                               k3_forward(TOKENS, halved, config.replace(mla_output_gate=False)), atol=1e-12)


def test_one_moe_layer_reads_its_numbers_from_the_config(random_weights):
    config = TINY.replace(first_k_dense=0, rms_norm_eps=0.3, situ_beta=1.5, situ_linear_beta=2.5, num_shared_experts=2,
                          routed_scaling_factor=1.7)
    weights = random_weights(config)
    out = "layers.0.self_attn.o_proj.weight"
    weights[out] = np.zeros_like(weights[out])                                   # no attention
    w = {name.removeprefix("layers.0.block_sparse_moe."): array for name, array in weights.items()}
    h = w["embed_tokens.weight"][TOKENS]
    h = h + latent_moe(
        rms(h, w["layers.0.post_attention_layernorm.weight"], 0.3), w["gate.weight"], w["gate.e_score_correction_bias"],
        w["routed_expert_down_proj.weight"], w["experts.w1"], w["experts.w3"], w["experts.w2"],
        w["routed_expert_norm.weight"], w["routed_expert_up_proj.weight"], w["shared_experts.gate_proj.weight"],
        w["shared_experts.up_proj.weight"], w["shared_experts.down_proj.weight"],
        k=2, scale=1.7, eps=0.3, beta=1.5, linear_beta=2.5)
    want = rms(h, w["norm.weight"], 0.3) @ w["lm_head.weight"].T
    np.testing.assert_allclose(k3_forward(TOKENS, weights, config), want, rtol=1e-10, atol=1e-12)


def test_the_output_is_a_mix_over_depth(random_weights):
    config = TINY.replace(attn_res_block_size=1, rms_norm_eps=0.3)
    weights = random_weights(config)
    for name in ("layers.0.self_attn.o_proj.weight", "layers.0.mlp.down_proj.weight"):
        weights[name] = np.zeros_like(weights[name])                             # then h = 0, the bank [embedding]
    e = weights["embed_tokens.weight"][TOKENS]
    query = weights["output_attn_res.query"] * weights["output_attn_res.weight"]
    score = e @ query / np.sqrt((e ** 2).mean(-1) + 0.3)                         # against the score 0 of h = 0
    want = rms(sigmoid(score)[..., None] * e, weights["norm.weight"], 0.3) @ weights["lm_head.weight"].T
    np.testing.assert_allclose(k3_forward(TOKENS, weights, config), want, rtol=1e-10, atol=1e-12)


def test_the_norm_on_the_summed_experts_also_without_a_latent(random_weights):
    config = NANO.replace(moe_latent_size=None)
    weights = random_weights(config)
    assert weights["layers.1.block_sparse_moe.routed_expert_norm.weight"].shape == (24,)
    assert not np.allclose(k3_forward(TOKENS, weights, config),
                           k3_forward(TOKENS, weights, config.replace(moe_latent_norm=False)))
