"""The mixers against the public implementations in transformers 5.23.0: small random layers with copied weights.

Values and gradients to 1e-5 in float32, relative to the largest number of each: of the output, of the gradient of the
input and of every copied weight. transformers is needed here; without it these tests fail, they are never skipped.
"""

import numpy as np
import pytest
import torch
import transformers
from baseline_helpers import arguments_of, hidden_states, live_mixer
from torch_helpers import NANO, relative_error, values_and_gradients
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.gemma2 import modeling_gemma2 as gemma
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.llama import modeling_llama as llama
from transformers.models.mamba2 import modeling_mamba2 as mamba
from transformers.models.qwen3_next import modeling_qwen3_next as qwen

from k3_scratch.baselines.delta_net import delta_chunk, delta_recurrent
from k3_scratch.baselines.gated_delta_net import GatedDeltaNet, gated_delta_chunk, gated_delta_recurrent
from k3_scratch.baselines.kda_softplus import KDASoftplus
from k3_scratch.baselines.linear_attention import linear_attention_chunk, linear_attention_recurrent
from k3_scratch.baselines.rope_attention import RopeAttention
from k3_scratch.baselines.scalar_decay import scalar_decay_chunk, scalar_decay_recurrent
from k3_scratch.baselines.window_attention import WindowAttention
from k3_scratch.layers.mla_attention import GatedMLA

LIMIT = 1e-5
SQUARE = NANO.replace(kda_value_dim=8)                   # most of them know one width for keys and values
D, H, K, V = SQUARE.hidden_size, SQUARE.num_heads, 8, 8
SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


def test_the_version_is_the_pinned_one():
    assert transformers.__version__ == "5.23.0"


# ---- operators

def compare(ours, theirs, given):
    """Values, states and gradients of two functions of the same arguments in float32."""
    got, want = (values_and_gradients(function, given, torch.float32) for function in (ours, theirs))
    for key in want:
        assert relative_error(got[key], want[key]) <= LIMIT, key


def their_gated(form):
    """Their (gated) delta rule as a function of our arguments; g is 0 where it is not given."""
    def run(q, k, v, *gates):
        *decay, beta, state = gates
        g = decay[0] if decay else torch.zeros_like(beta)
        return form(q, k, v, g=g, beta=beta, initial_state=state, output_final_state=True)
    return run


@SEEDS
@pytest.mark.parametrize("theirs", [qwen.torch_recurrent_gated_delta_rule, qwen.torch_chunk_gated_delta_rule],
                         ids=["loop", "chunk"])
@pytest.mark.parametrize("ours", [gated_delta_recurrent, gated_delta_chunk, delta_recurrent, delta_chunk])
def test_gated_delta_rule_of_qwen3_next(ours, theirs, seed):
    name = "gated_delta" if "gated" in ours.__name__ else "delta"
    compare(ours, their_gated(theirs), arguments_of(name, ("mild", "k3", "none")[seed], 70, seed=seed))


def their_decayed_scan(q, k, v, g, state):
    """Mamba-2: C reads, B writes, e^(dt A) is the decay and dt the strength of a write.

    dt = -g and A = -1 make the decay e^g; what dt does to the written value is divided out beforehand.
    """
    o, last = mamba.mamba2_chunk_scan(v / -g.unsqueeze(-1), -g, -torch.ones(g.shape[-1]), k, q * q.shape[-1] ** -0.5,
                                      chunk_size=16, initial_states=state.mT, return_final_states=True)
    return o, last.mT


@SEEDS
@pytest.mark.parametrize("ours", [scalar_decay_recurrent, scalar_decay_chunk])
def test_scan_of_mamba2(ours, seed):
    given = arguments_of("scalar_decay", "mild", 45, seed=seed)
    given["g"] = given["g"] * (1, 10, 30)[seed] - 0.05                   # away from 0, by which the other side divides
    compare(ours, their_decayed_scan, given)


@SEEDS
@pytest.mark.parametrize("ours", [linear_attention_recurrent, linear_attention_chunk])
def test_scan_of_mamba2_without_decay(ours, seed):
    def theirs(q, k, v, state):
        one = torch.ones_like(q[..., 0])
        o, last = mamba.mamba2_chunk_scan(v, one, torch.zeros(one.shape[-1]), k, q * q.shape[-1] ** -0.5, chunk_size=16,
                                          initial_states=state.mT, return_final_states=True)
        return o, last.mT
    compare(ours, theirs, arguments_of("linear_attention", "none", 45, seed=seed))


# ---- whole layers

def compare_layers(ours, theirs, weights, call, T=33):
    """weights: (ours, theirs) parameter pairs, each theirs as a function of ours; call(theirs, x) -> output."""
    x = hidden_states(2, T).float()
    results = []
    for run, parameters in ((ours, [mine for mine, _ in weights]), (lambda x: call(theirs, x), None)):
        leaf = x.clone().requires_grad_()
        y = run(leaf)
        y.backward(torch.from_numpy(np.random.default_rng(6).normal(size=y.shape)).float())
        results.append((y.detach(), leaf.grad, parameters))
    (y, dx, mine), (want_y, want_dx, _) = results
    assert relative_error(y, want_y) <= LIMIT
    assert relative_error(dx, want_dx) <= LIMIT
    for parameter, (_, gather) in zip(mine, weights, strict=True):
        assert relative_error(parameter.grad, gather(lambda p: p.grad).view_as(parameter)) <= LIMIT


def copied(pairs):
    """Copy each of our parameters into theirs; pairs (ours, [views of theirs])."""
    with torch.no_grad():
        for ours, theirs in pairs:
            theirs(lambda p: p).copy_(ours.view_as(theirs(lambda p: p)))
    return pairs


def whole(parameter):
    return lambda of: of(parameter)


def rows(parameter, index):
    """These rows of a parameter of theirs, or of its gradient."""
    return lambda of: of(parameter)[index]


@SEEDS
def test_gated_deltanet_layer_of_qwen3_next(seed):
    """Its output gate is a SiLU; ours is KDA's sigmoid, and theirs is set to it: the one thing that differs."""
    config = SQUARE.replace(kda_value_dim=10, gate_lower_bound=None)
    ours = live_mixer("gated_delta_net", config, seed, torch.float32)
    assert isinstance(ours, GatedDeltaNet)
    theirs = qwen.Qwen3NextGatedDeltaNet(qwen.Qwen3NextConfig(
        hidden_size=D, linear_num_key_heads=H, linear_num_value_heads=H, linear_key_head_dim=K,
        linear_value_head_dim=10, linear_conv_kernel_dim=4, rms_norm_eps=config.rms_norm_eps, num_hidden_layers=1,
        layer_types=["linear_attention"]), 0)
    theirs.norm.activation = "sigmoid"

    q_rows, k_rows, v_rows, z_rows, b_rows, a_rows = ([] for _ in range(6))
    for h in range(H):                                                   # theirs lie head by head: q, k, v, z and b, a
        start = h * (2 * K + 20)
        q_rows += range(start, start + K)
        k_rows += range(start + K, start + 2 * K)
        v_rows += range(start + 2 * K, start + 2 * K + 10)
        z_rows += range(start + 2 * K + 10, start + 2 * K + 20)
        b_rows.append(2 * h)
        a_rows.append(2 * h + 1)
    qkvz, ba, conv = theirs.in_proj_qkvz.weight, theirs.in_proj_ba.weight, theirs.conv1d.weight
    pairs = []
    for mine, parameter, index in (
            (ours.q_proj.weight, qkvz, q_rows), (ours.k_proj.weight, qkvz, k_rows), (ours.v_proj.weight, qkvz, v_rows),
            (ours.g_proj.weight, qkvz, z_rows), (ours.b_proj.weight, ba, b_rows), (ours.f_proj.weight, ba, a_rows),
            (ours.q_conv1d.weight, conv, range(H * K)), (ours.k_conv1d.weight, conv, range(H * K, 2 * H * K)),
            (ours.v_conv1d.weight, conv, range(2 * H * K, 2 * H * K + 10 * H))):
        index = list(index)
        with torch.no_grad():
            parameter[index] = mine.view_as(parameter[index])
        pairs.append((mine, rows(parameter, index)))
    pairs += copied([(ours.A_log, whole(theirs.A_log)), (ours.dt_bias, whole(theirs.dt_bias)),
                     (ours.o_norm.weight, whole(theirs.norm.weight)),
                     (ours.o_proj.weight, whole(theirs.out_proj.weight))])
    compare_layers(ours, theirs, pairs, lambda layer, x: layer(x), T=33)


@SEEDS
def test_kda_layer_of_kimi_linear(seed):
    config = SQUARE.replace(use_full_rank_gate=False)
    ours = live_mixer("kda_softplus", config, seed, torch.float32)
    assert isinstance(ours, KDASoftplus)
    theirs = kimi.KimiLinearDeltaAttention(kimi.KimiLinearConfig(
        hidden_size=D, num_hidden_layers=1, num_attention_heads=H, linear_attn_config={
            "num_heads": H, "head_dim": K, "short_conv_kernel_size": 4, "kda_layers": [1], "full_attn_layers": []},
        rms_norm_eps=config.rms_norm_eps), 0)
    pairs = copied([(getattr(ours, name).weight, whole(getattr(theirs, name).weight))
                    for name in ("q_proj", "k_proj", "v_proj", "b_proj", "g_a_proj", "g_b_proj", "o_norm", "o_proj")])
    gate = theirs.forget_gate
    pairs += copied([(ours.f_a_proj.weight, whole(gate.f_a_proj.weight)),
                     (ours.f_b_proj.weight, whole(gate.f_b_proj.weight)),
                     (ours.dt_bias, whole(gate.dt_bias)), (ours.A_log, whole(gate.A_log))])
    for i, conv in enumerate((ours.q_conv1d, ours.k_conv1d, ours.v_conv1d)):
        pairs += copied([(conv.weight, rows(theirs.conv1d.weight, slice(i * H * K, (i + 1) * H * K)))])
    compare_layers(ours, theirs, pairs, lambda layer, x: layer(x))


def projections(ours, theirs):
    return copied([(getattr(ours, name).weight, whole(getattr(theirs, name).weight))
                   for name in ("q_proj", "k_proj", "v_proj", "o_proj")])


def with_positions(embedding, mask):
    """Call their attention with angles for positions 0, 1, ... and an additive mask."""
    def call(layer, x):
        positions = torch.arange(x.shape[1]).unsqueeze(0)
        return layer(x, position_embeddings=embedding(x, positions), attention_mask=mask(x.shape[1]))[0]
    return call


def causal(T, window=None):
    """0 where a token may look, the lowest number elsewhere.                                        -> [1, 1, T, T]"""
    distance = torch.arange(T).unsqueeze(-1) - torch.arange(T)
    seen = (distance >= 0) & (distance < (window or T))
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min).expand(1, 1, T, T)


@SEEDS
def test_attention_layer_of_llama(seed):
    ours = live_mixer("attention_rope", SQUARE, seed, torch.float32)
    assert isinstance(ours, RopeAttention)
    config = llama.LlamaConfig(hidden_size=D, num_attention_heads=H, num_key_value_heads=H, head_dim=K,
                               attn_implementation="eager", rope_parameters={"rope_type": "default",
                                                                             "rope_theta": 10_000.0})
    theirs = llama.LlamaAttention(config, 0)
    compare_layers(ours, theirs, projections(ours, theirs),
                   with_positions(llama.LlamaRotaryEmbedding(config), causal))


@SEEDS
def test_sliding_window_layer_of_gemma2(seed):
    """With the library's own mask for sliding windows; soft capping off, the scale 1 / sqrt(K)."""
    from transformers.masking_utils import create_sliding_window_causal_mask
    ours = live_mixer("window_of_5", SQUARE, seed, torch.float32)
    assert isinstance(ours, WindowAttention)
    config = gemma.Gemma2Config(
        hidden_size=D, num_attention_heads=H, num_key_value_heads=H, head_dim=K, query_pre_attn_scalar=K,
        attn_logit_softcapping=None, sliding_window=5, num_hidden_layers=1, layer_types=["sliding_attention"],
        attn_implementation="eager", rope_parameters={"rope_type": "default", "rope_theta": 10_000.0})
    theirs = gemma.Gemma2Attention(config, 0).eval()

    def mask(T):
        return create_sliding_window_causal_mask(
            config=config, inputs_embeds=torch.zeros(2, T, D), attention_mask=None, past_key_values=None,
            position_ids=torch.arange(T).unsqueeze(0))

    assert torch.equal(mask(9)[:1] == 0, causal(9, 5) == 0)
    compare_layers(ours, theirs, projections(ours, theirs), with_positions(gemma.Gemma2RotaryEmbedding(config), mask))


@SEEDS
@pytest.mark.parametrize("rank", [14, None])
def test_mla_layer_of_deepseek_v3(rank, seed):
    """Ours has no positions, theirs turns the slice r: with every angle 0 it does not. No output gate there either."""
    config = NANO.replace(mla_output_gate=False, q_lora_rank=rank)
    ours = live_mixer("mla", config, seed, torch.float32)
    assert isinstance(ours, GatedMLA)
    theirs = deepseek.DeepseekV3Attention(deepseek.DeepseekV3Config(
        hidden_size=D, num_attention_heads=H, num_key_value_heads=H, q_lora_rank=rank, kv_lora_rank=config.kv_lora_rank,
        qk_nope_head_dim=config.qk_nope_head_dim, qk_rope_head_dim=config.qk_rope_head_dim, rope_interleave=False,
        v_head_dim=config.v_head_dim, attn_implementation="eager"), 0)
    assert dict(theirs.named_parameters()).keys() == dict(ours.named_parameters()).keys()
    pairs = copied([(parameter, whole(theirs.get_parameter(name))) for name, parameter in ours.named_parameters()])

    def still(x, positions):
        angles = torch.zeros(1, x.shape[1], config.qk_rope_head_dim)
        return angles.cos(), angles.sin()

    compare_layers(ours, theirs, pairs, with_positions(still, causal))
