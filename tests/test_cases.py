"""Small cases with known answers, from public fault reports about the same parts elsewhere; one test a case.

The numbers are literal; the same kind of fault is looked for in general in tests/layers, test_model.py and
test_cache.py. What cases 24 and 25 ask of notebooks is tested in tests/course.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_helpers import NANO, kda_arguments, live_model, normal, tensor, tokens_for, variant

import k3_scratch
from k3_scratch.config import K3Config, preset
from k3_scratch.layers.attention_residuals import depth_mix
from k3_scratch.layers.decay_gates import bounded_decay, softplus_decay
from k3_scratch.layers.experts import expert_mixture
from k3_scratch.layers.kda import kda_chunk, kda_recurrent
from k3_scratch.layers.latent_moe import LatentMoE
from k3_scratch.layers.mla import mla_absorbed, mla_naive
from k3_scratch.layers.mla_attention import GatedMLA
from k3_scratch.layers.rms_norm import rms_norm
from k3_scratch.layers.router import route
from k3_scratch.layers.short_convolution import short_convolution
from k3_scratch.layers.situ import situ_glu, swiglu
from k3_scratch.layers.unit_keys import l2_norm
from k3_scratch.model import K3
from k3_scratch.reference.mxfp4 import MAGNITUDES, mxfp4_pack, mxfp4_unpack
from k3_scratch.shapes import ShapeError
from k3_scratch.training.checkpoint import load_checkpoint, save_checkpoint

BOTH_KDA = pytest.mark.parametrize("form", [kda_recurrent, kda_chunk])
BOTH_MLA = pytest.mark.parametrize("form", [mla_naive, mla_absorbed])


def scalars(T, g, beta=0.5, v=1.0, dtype=torch.float32):
    """q, k, v, g, beta for B = H = K = V = 1, q = k = 1."""
    one = torch.ones(1, T, 1, 1, dtype=dtype)
    return one, one.clone(), v * one, g * one, torch.full((1, T, 1), beta, dtype=dtype)


@BOTH_KDA
def test_case_01_overflow_of_the_chunk_form(form):
    chunks = [{}] if form is kda_recurrent else [{"chunk": c} for c in (None, 16, 17, 32, 64)]
    once = torch.zeros(64)
    once[30] = -1000.0
    for keywords in chunks:
        for g in (-5.0, -20.0, once.view(1, 64, 1, 1)):
            leaves = [x.requires_grad_() for x in scalars(64, g)]
            o, state = form(*leaves, scale=1.0, **keywords)
            gradients = torch.autograd.grad(o.sum() + state.sum(), leaves)
            assert all(torch.isfinite(x).all() for x in (o, state, *gradients))
            if isinstance(g, float) and g == -5.0:
                assert o[0, 0].item() == pytest.approx(0.5, abs=1e-6)
                assert o[0, 1].item() == pytest.approx(0.5016845, abs=1e-6)
            if not isinstance(g, float):
                assert o[0, 30].item() == pytest.approx(0.5, abs=1e-6)     # all was forgotten before this write
                assert o[0, 31].item() == pytest.approx(0.75, abs=1e-6)


@BOTH_KDA
def test_case_02_ratio_not_mask(form):
    o, _ = form(*scalars(2, np.log(0.5), dtype=torch.float64), scale=1.0)
    np.testing.assert_allclose(o.flatten(), [0.5, 0.625], atol=1e-12)    # a mask in A alone: .875, in A and L: .75


@pytest.mark.parametrize("T", [0, 1, 2, 3, 4, 7])
def test_case_03_short_prompts(T):
    rng = np.random.default_rng(T)
    x, weight = normal(rng, 2, T + 5, 3), normal(rng, 3, 4)
    whole, _ = short_convolution(x, weight)
    first, tail = short_convolution(x[:, :T], weight)
    assert torch.equal(tail, torch.cat([torch.zeros(2, 3, 3).double(), x[:, :T]], 1)[:, -3:])
    rest, _ = short_convolution(x[:, T:], weight, tail)
    np.testing.assert_allclose(torch.cat([first, rest], 1), whole, atol=1e-14)

    model = live_model(NANO)                                             # the same inside the model's cache
    tokens, cache = tokens_for(NANO, 1, T + 5), model.new_cache(1)
    model(tokens[:, :T], cache)
    attention = model.layers[0].self_attn
    h = model.layers[0].input_layernorm(model.embed_tokens(tokens[:, :T]))
    before = torch.cat([attention.q_proj(h), attention.k_proj(h), attention.v_proj(h)], -1)      # not yet SiLU
    want = torch.cat([torch.zeros(1, 3, before.shape[-1]).double(), before], 1)[:, -3:]
    np.testing.assert_allclose(cache.layers[0].tail, want.detach(), atol=1e-12)
    np.testing.assert_allclose(model(tokens[:, T:], cache).detach(), model(tokens)[:, T:].detach(), atol=1e-10)


def test_case_04_l2_norm_at_zero():
    x = torch.zeros(2, 5, requires_grad=True)
    y = l2_norm(x)
    y.sum().backward()
    assert (y == 0).all()
    np.testing.assert_allclose(x.grad, 1000.0, rtol=1e-5)                # eps^(-1/2)
    tiny = torch.full((3,), 1e-20, requires_grad=True)
    y = l2_norm(tiny)
    y.sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(tiny.grad).all()
    np.testing.assert_allclose(l2_norm(torch.tensor([3.0, 4.0])), [0.6, 0.8], atol=1e-6)


def test_case_05_bounded_gate():
    A_log = tensor([np.log(2.0)])
    g = bounded_decay(tensor([[[0.0, 1.0]]]), A_log, -5.0).flatten()
    np.testing.assert_allclose(g, [-2.5, -4.403985], atol=1e-6)
    older = softplus_decay(tensor([[[0.0, 1.0]]]), A_log).flatten()
    np.testing.assert_allclose(older, [-1.386, -2.627], atol=1e-3)
    far = bounded_decay(torch.tensor([[[-1e9, -300.0, 0.0, 300.0, 1e9]]]), torch.tensor([3.0])).flatten()
    assert (far >= -5).all()
    assert (far <= 0).all()
    assert far[0] == 0                                                   # both ends are reached
    assert far[-1] == -5


@BOTH_KDA
def test_case_06_scale_once(form):
    k = torch.zeros(1, 1, 1, 4)
    k[..., 0] = 1
    v = torch.arange(1.0, 10).view(1, 1, 1, 9)
    o, state = form(k, k, v, torch.zeros(1, 1, 1, 4), torch.ones(1, 1, 1))
    np.testing.assert_allclose(o, 0.5 * v, atol=1e-7)                    # K^(-1/2), once, whatever V is
    o3, state3 = form(k, k, v, torch.zeros(1, 1, 1, 4), torch.ones(1, 1, 1), scale=3.0)
    assert torch.equal(state, state3)
    np.testing.assert_allclose(o3, 3 * v, atol=1e-6)
    arguments = kda_arguments("k3", 19)
    (o, state), (o3, state3) = form(*arguments.values()), form(*arguments.values(), scale=0.7)
    assert torch.equal(state, state3)
    np.testing.assert_allclose(o3, 0.7 * 5 ** 0.5 * o, atol=1e-12)


@BOTH_KDA
@pytest.mark.parametrize("T", [0, 1, 2, 63, 64, 65])
def test_case_07_limits(form, T):
    arguments = kda_arguments("none", T)
    q, k, v, _, beta, state = arguments.values()
    o, last = form(*arguments.values())
    assert o.shape == v.shape
    want = state
    for t in range(T):                                                   # without decay: products of (I - beta k k^T)
        b, k_t = beta[:, t, :, None, None], k[:, t].unsqueeze(-1)
        want = (torch.eye(5).double() - b * k_t @ k_t.mT) @ want + b * k_t @ v[:, t].unsqueeze(-2)
    np.testing.assert_allclose(last, want, atol=1e-10)
    if T == 0:
        assert torch.equal(last, state)

    model, tokens = live_model(NANO), tokens_for(NANO, 2, T)
    assert torch.equal(model.train()(tokens), model.eval()(tokens))      # train and eval: the same numbers


@BOTH_KDA
@pytest.mark.parametrize(("second", "want"), [(1.0, [1, 5]), (2.0, [1, 9])])
def test_case_07_overwriting(form, second, want):
    e0 = torch.zeros(1, 2, 1, 3)
    e0[..., 0] = 1
    v = torch.tensor([1.0, 5.0]).view(1, 2, 1, 1)
    o, _ = form(e0, e0, v, torch.zeros(1, 2, 1, 3), torch.tensor([[[1.0], [second]]]), scale=1.0)
    np.testing.assert_allclose(o.flatten(), want, atol=1e-6)


@BOTH_MLA
def test_case_08_causal_mask_with_a_cache(form):
    values = torch.arange(1.0, 6).view(1, 5, 1)                          # cached 1, 2, 3, new 4, 5
    w_kvb = torch.ones(1, 2, 1)                                          # n = 1 key row, v = 1 value row
    o = form(torch.zeros(1, 2, 1, 2), values, torch.ones(1, 5, 1), w_kvb)
    np.testing.assert_allclose(o.flatten(), [2.5, 3.0], atol=1e-6)       # hidden cache: 1, 1.5; no mask: 3, 3


def test_case_09_spare_cache_slots():
    config = variant("all_mla")
    model, tokens = live_model(config), tokens_for(config, 2, 9)
    want = model(tokens).detach()
    cache = model.new_cache(2)

    def fill_spare():
        for layer in cache.layers:
            layer.rows[:, layer.length:] = float("nan")

    with torch.no_grad():
        model(tokens[:, :4], cache)
        assert cache.layers[0].rows.shape[1] > 4
        fill_spare()
        np.testing.assert_allclose(model(tokens[:, 4:], cache), want[:, 4:], atol=1e-10)
        cache.reset()
        fill_spare()
        np.testing.assert_allclose(model(tokens[:, :3], cache), want[:, :3], atol=1e-10)     # a shorter prompt
        np.testing.assert_allclose(model(tokens[:, 3:4], cache), want[:, 3:4], atol=1e-10)


def test_case_10_no_positions():
    torch.manual_seed(0)
    layer, x = GatedMLA(NANO).double(), normal(np.random.default_rng(0), 1, 7, 24)
    order = [3, 0, 5, 1, 4, 2, 6]
    np.testing.assert_allclose(layer(x[:, order])[:, 6].detach(), layer(x)[:, 6].detach(), atol=1e-13)
    assert (layer(x[:, order])[:, 5] - layer(x)[:, 5]).abs().max() > 1e-3
    config = NANO.replace(num_layers=1)                                  # a whole model of one MLA layer: a set as well
    model, tokens = live_model(config), tokens_for(config, 1, 7)
    np.testing.assert_allclose(model(tokens[:, order])[:, 6].detach(), model(tokens)[:, 6].detach(), atol=1e-10)
    model = live_model(NANO)                                             # and with KDA layers not one
    assert (model(tokens[:, order])[:, 6] - model(tokens)[:, 6]).abs().max() > 1e-3
    assert not [name for name, _ in model.named_parameters() if "position" in name or "rot" in name]

    config = K3Config(num_layers=8)
    assert config.mla_layers == (3, 7)
    assert sorted(config.mla_layers + config.kda_layers) == list(range(8))
    big = preset("kimi_k3")
    assert len(big.mla_layers) == 24
    assert big.mla_layers[-2:] == (91, 92)
    kinds = [isinstance(layer.self_attn, GatedMLA) for layer in live_model(NANO.replace(num_layers=6)).layers]
    assert kinds == [False, False, False, True, False, True]


def test_case_11_gates_act_where_they_should():
    gated = live_model(NANO).layers[3].self_attn
    plain = GatedMLA(NANO.replace(mla_output_gate=False)).double()
    plain.load_state_dict({n: x for n, x in gated.state_dict().items() if "g_proj" not in n})
    x = normal(np.random.default_rng(0), 2, 5, 24)
    with torch.no_grad():
        gated.g_proj.weight.zero_()
        np.testing.assert_allclose(gated(x), plain(x) / 2, atol=1e-12)
        kda = live_model(NANO).layers[0].self_attn
        kda.output_gate = lambda x: torch.full((2, 5, 20), 50.0).double()        # sigmoid = 1: no gate
        whole = kda(x)
        kda.output_gate = lambda x: torch.zeros(2, 5, 20).double()               # a constant gate of .5
        np.testing.assert_allclose(kda(x), whole / 2, rtol=1e-6, atol=1e-12)


def identity_moe(k=2, shared=0):
    """LatentMoE with D = L, W_down = W_up = I, no norm, and the identity for every expert."""
    config = NANO.replace(moe_latent_size=24, moe_latent_norm=False, routed_scaling_factor=2.5, num_experts_per_token=k,
                          num_shared_experts=shared)
    moe = LatentMoE(config).double()
    with torch.no_grad():
        moe.gate.weight.normal_()
        for projection in (moe.routed_expert_down_proj, moe.routed_expert_up_proj):
            nn.init.eye_(projection.weight)
    return moe


def test_case_12_routed_scale(monkeypatch):
    torch.manual_seed(0)
    x = normal(np.random.default_rng(0), 3, 5, 24)
    for k in (1, 2, 6):
        _, weights, _ = route(x, normal(np.random.default_rng(1), 6, 24), torch.zeros(6).double(), k, 2.5)
        np.testing.assert_allclose(weights.sum(-1), 2.5, atol=1e-12)

    def identity(z, experts, weights, w1, w3, w2, act):                  # what the mixture is for E_e(z) = z
        return weights.sum(-1, keepdim=True) * z

    monkeypatch.setattr("k3_scratch.layers.latent_moe.expert_mixture", identity)
    np.testing.assert_allclose(identity_moe()(x).detach(), 2.5 * x, atol=1e-12)
    moe = identity_moe(shared=1)
    moe.shared_experts = nn.Identity()
    np.testing.assert_allclose(moe(x).detach(), 3.5 * x, atol=1e-12)


def test_case_12_identity_experts():
    """The same through the real dispatch: w1, w3 and w2 are the identity and the activation returns its up branch."""
    z, eye = normal(np.random.default_rng(0), 15, 4), torch.eye(4).double().expand(6, 4, 4)
    chosen, weights, _ = route(z, normal(np.random.default_rng(1), 6, 4), torch.zeros(6).double(), 2, 2.5)
    for m in (1, 15):
        out = expert_mixture(z[:m], chosen[:m], weights[:m], eye, eye, eye, lambda gate, up: up)
        np.testing.assert_allclose(out, 2.5 * z[:m], atol=1e-12)


def test_case_13_selection_bias_survives(tmp_path):
    model, tokens = K3(NANO).train(), tokens_for(NANO, 4, 19)
    assert all(not moe.gate.e_score_correction_bias.any() for moe in model.moe_layers().values())
    model(tokens).sum().backward()
    model.balance()
    biases = [moe.gate.e_score_correction_bias.clone() for moe in model.moe_layers().values()]
    assert all(b.any() for b in biases)
    assert all(not moe.gate.e_score_correction_bias.requires_grad for moe in model.moe_layers().values())
    assert all(moe.gate.e_score_correction_bias.grad is None for moe in model.moe_layers().values())
    save_checkpoint(tmp_path / "model.pt", model.state_dict())
    other = K3(NANO, seed=5)
    other.load_state_dict(load_checkpoint(tmp_path / "model.pt"))
    model.eval(), other.eval()
    for evaluated in (model, other):                                     # evaluation never changes it
        evaluated(tokens_for(NANO, 3, 7, seed=9))
        for moe, bias in zip(evaluated.moe_layers().values(), biases, strict=True):
            assert torch.equal(moe.gate.e_score_correction_bias, bias)
    assert torch.equal(model(tokens), other(tokens))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_case_14_idle_experts(dtype):
    rng = np.random.default_rng(0)
    w1, w3, w2 = (normal(rng, 5, *shape).to(dtype).requires_grad_() for shape in ((8, 4), (8, 4), (4, 8)))
    for m in (1, 3, 20):
        z = normal(rng, m, 4).to(dtype).requires_grad_()
        chosen = torch.tensor([[1, 3]]).expand(m, -1)                    # all tokens to two of five experts
        out = expert_mixture(z, chosen, torch.full((m, 2), 0.5, dtype=dtype), w1, w3, w2, situ_glu)
        for gradient in torch.autograd.grad(out.sum(), (w1, w3, w2)):
            assert torch.isfinite(gradient).all()
            assert (gradient[[0, 2, 4]] == 0).all()
            assert gradient[1].any()
            assert gradient[3].any()
    none = expert_mixture(torch.zeros(0, 4, dtype=dtype), torch.zeros(0, 2, dtype=torch.int64),
                          torch.zeros(0, 2, dtype=dtype), w1, w3, w2, situ_glu)
    assert none.shape == (0, 4)
    assert none.dtype == dtype
    moe = live_model(NANO, dtype=dtype).layers[1].block_sparse_moe
    assert moe(torch.zeros(0, 5, 24, dtype=dtype)).shape == (0, 5, 24)
    every = live_model(variant("all_experts"), dtype=dtype).layers[1].block_sparse_moe       # k = number of experts
    experts, weights, _ = every.gate(torch.ones(2, 3, 24, dtype=dtype))
    assert (experts.sort(-1).values == torch.arange(6)).all()
    assert torch.isfinite(every(torch.ones(2, 3, 24, dtype=dtype))).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_case_15_router_precision(dtype):
    x, w = torch.tensor([[1.0, 1 / 512]], dtype=dtype), torch.tensor([[1.0, 1.0], [1.0, 0.0]], dtype=dtype)
    bias = torch.tensor([0.0, 1 / 8192])                                 # logits (1 + 1/512, 1)
    experts, _, scores = route(x, w, bias, 1)
    assert experts.item() == 0                                           # rounded to bfloat16 the logits are equal: 1
    assert scores.dtype == torch.float32
    assert (x.bfloat16() @ w.bfloat16().T)[0].tolist() == [1.0, 1.0]
    assert route(x, w, torch.tensor([0.0, 1 / 1024]), 1)[0].item() == 1  # but the bias does decide


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_case_15_experts_do_not_depend_on_the_batch(dtype):
    rng = np.random.default_rng(0)
    x, w, bias = normal(rng, 64, 24).to(dtype), normal(rng, 16, 24).to(dtype), 0.1 * normal(rng, 16).float()
    together, _, _ = route(x, w, bias, 3)
    for m in (1, 2, 5):
        for start in range(0, 64 - m, 7):
            assert torch.equal(route(x[start:start + m], w, bias, 3)[0], together[start:start + m])
    tied, _, _ = route(x, torch.zeros_like(w), torch.zeros(16), 3)       # all scores equal
    assert (tied == tied[0]).all()
    assert torch.equal(route(x[:1], torch.zeros_like(w), torch.zeros(16), 3)[0], tied[:1])


def test_case_16_latent_moe_wiring(monkeypatch):
    moe, rng = live_model(NANO).layers[1].block_sparse_moe, np.random.default_rng(0)
    x = normal(rng, 1, 9, 24)
    _, _, V = torch.linalg.svd(moe.routed_expert_down_proj.weight.detach())
    n = V[-1]                                                            # W_down n = 0
    assert (moe.routed_expert_down_proj.weight @ n).abs().max() < 1e-12
    seen = []
    monkeypatch.setattr("k3_scratch.layers.latent_moe.expert_mixture",
                        lambda z, *rest: seen.append((z, *rest[:2])) or expert_mixture(z, *rest))
    y, _ = moe(x), moe(x + 8 * n)
    (z, experts, weights), (z_moved, experts_moved, weights_moved) = seen
    np.testing.assert_allclose(z_moved.detach(), z.detach(), atol=1e-11)         # the experts' inputs stay
    assert not torch.equal(experts, experts_moved)                               # the routing reads the full width
    assert (weights - weights_moved).abs().max() > 0.01

    w = moe.experts
    u = expert_mixture(z, experts, weights, w.w1, w.w3, w.w2, moe.act)
    norm, up = moe.routed_expert_norm, moe.routed_expert_up_proj
    shared = moe.shared_experts(x[0])
    np.testing.assert_allclose(y[0].detach(), (up(norm(u)) + shared).detach(), atol=1e-12)       # weight one
    parts = sum(weights[:, i:i + 1] * rms_norm(expert_mixture(z, experts[:, i:i + 1], torch.ones(9, 1).double(),
                                                              w.w1, w.w3, w.w2, moe.act), norm.weight) for i in (0, 1))
    assert (up(parts) + shared - y[0]).abs().max() > 0.01                        # a norm before the sum: other numbers
    assert (up(u) + shared - y[0]).abs().max() > 0.01                            # and so without it


def test_case_17_recomputation():
    tokens, results = tokens_for(NANO, 2, 19), []
    for recompute in (False, True):
        model = live_model(NANO).train()
        model.recompute = recompute
        logits = model(tokens)
        logits.square().mean().backward()
        results.append((logits.detach(), [p.grad for p in model.parameters()],
                        torch.stack([moe.expert_counts for moe in model.moe_layers().values()])))
    (logits, gradients, counts), (logits2, gradients2, counts2) = results
    assert torch.equal(logits, logits2)
    for one, two in zip(gradients, gradients2, strict=True):
        assert (one is None) == (two is None)
        assert one is None or torch.allclose(one, two, rtol=1e-10, atol=1e-12)
    assert torch.equal(counts, counts2)
    assert (counts.sum(-1) == 2 * 19 * 2).all()                          # tokens k, not twice that


def banks(config):
    """Numbers of sources that each layer's two mixes and the output mix see; the first banked vector."""
    config = config.replace(hidden_size=2, num_heads=1, kda_key_dim=1, kda_value_dim=1, q_lora_rank=1, kv_lora_rank=1,
                            qk_nope_head_dim=1, qk_rope_head_dim=1, v_head_dim=1, intermediate_size=1, num_experts=1,
                            num_experts_per_token=1, moe_intermediate_size=1, moe_latent_size=1, vision=None,
                            vocab_size=3, expert_dtype="float32")
    model, seen, first = K3(config).double(), [], []

    def watch(module, arguments):
        seen.append(len(arguments[0]))
        first.append(arguments[0][0].vector)

    for layer in model.layers:
        layer.self_attention_res.register_forward_pre_hook(watch)
        layer.mlp_res.register_forward_pre_hook(watch)
    model.output_attn_res.register_forward_pre_hook(watch)
    tokens = torch.tensor([[0, 2, 1]])
    model(tokens)
    assert all(torch.equal(v, model.embed_tokens(tokens)) for v in first)        # the first source is the embedding
    return seen


@pytest.mark.parametrize(("L", "S", "seals", "sources"), [(13, 3, 5, 6), (93, 12, 8, 9), (4, 9, 1, 2), (4, 1, 4, 5),
                                                          (6, 3, 2, 3), (1, 1, 1, 2)])
def test_case_18_attention_residual_edges(L, S, seals, sources):
    config = K3Config(num_layers=L, attn_res_block_size=S) if L != 93 else preset("kimi_k3")
    assert config.attn_res_block_size == S
    seen = banks(config)
    assert seen[0] == 1                                                  # layer 0 has one source
    assert seen[-1] == sources
    for i in range(L):                                                   # a seal where the number is divisible
        assert seen[2 * i] == 1 + -(-i // S)
        assert seen[2 * i + 1] == 2 + i // S
    assert sum(seen[2 * i + 1] > seen[2 * i] for i in range(L)) == seals


def test_case_19_attention_residual_mix():
    mixed, weights = depth_mix(tensor([[3, 4], [1, 0]]), torch.zeros(2).double(), torch.ones(2).double())
    np.testing.assert_allclose(mixed, [2, 2], atol=1e-12)
    np.testing.assert_allclose(weights, [0.5, 0.5], atol=1e-12)
    rng = np.random.default_rng(0)
    sources, query = normal(rng, 4, 2, 6, 5), normal(rng, 5)
    sources = 3 * sources / sources.square().mean(-1, keepdim=True).sqrt()       # RMS 3
    mixed, weights = depth_mix(sources, query, torch.ones(5).double())
    larger = sources.clone()
    larger[1] *= 1000
    mixed_larger, weights_larger = depth_mix(larger, query, torch.ones(5).double())
    assert (weights_larger - weights).abs().max() < 1e-4                 # keys are normed
    np.testing.assert_allclose(mixed_larger - mixed, 999 * weights[1, ..., None] * sources[1], rtol=1e-3, atol=0.05)
    one, other = tensor([[2.0, 2.0, 2.0, 2.0], [-2.0, -2.0, -2.0, -2.0]])
    _, weights = depth_mix(torch.stack([one, other]), torch.ones(4).double(), torch.ones(4).double())
    np.testing.assert_allclose(weights[0].log() - weights[1].log(), 8.0, atol=1e-4)      # no 1/sqrt(D)
    changed = sources.clone()
    changed[:, :, 4] += 1                                                # a later token
    _, moved = depth_mix(changed, query, torch.ones(5).double())
    _, before = depth_mix(sources, query, torch.ones(5).double())
    assert torch.equal(moved[:, :, [0, 1, 2, 3, 5]], before[:, :, [0, 1, 2, 3, 5]])


def test_case_20_situ():
    pairs = {(4, 25): 56.9593, (-3, 5): -0.594544, (5, 40): 77.660364, (40, 40): 92.166855}
    for (gate, up), want in pairs.items():
        assert situ_glu(tensor([gate]), tensor([up])).item() == pytest.approx(want, rel=1e-6)
    assert situ_glu(tensor([4.0]), tensor([25.0]), 25.0, 4.0).item() == pytest.approx(15.5794, abs=1e-4)
    assert swiglu(tensor([4.0]), tensor([25.0])).item() == pytest.approx(98.2014, abs=1e-4)
    far = torch.tensor([-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4])
    gate, up = torch.meshgrid(far, far, indexing="ij")
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        y = situ_glu(gate.to(dtype), up.to(dtype))
        assert y.dtype == dtype
        assert torch.isfinite(y).all()
        assert (y.abs() <= 100).all()


@torch.no_grad()
def test_case_21_conversations():
    model, tokens = live_model(NANO), tokens_for(NANO, 2, 12)
    cache = model.new_cache(1)
    model(tokens[:1, :5], cache)
    never = model(tokens[:1, 5:], cache.clone())
    snapshot = cache.snapshot()
    for _ in range(2):
        model(tokens[1:, :3], cache)
        cache.restore(snapshot)
        assert torch.equal(model(tokens[:1, 5:], cache), never)
        cache.restore(snapshot)
    caches = [model.new_cache(1) for _ in range(2)]
    halves = [[model(tokens[b:b + 1, part], caches[b]) for b in range(2)] for part in (slice(0, 7), slice(7, 12))]
    for b in range(2):
        np.testing.assert_allclose(torch.cat([half[b] for half in halves], 1), model(tokens[b:b + 1]), atol=1e-10)
    with pytest.raises(RuntimeError, match="a KDA state cannot give back its last 1 tokens: each write decayed"):
        cache.drop(1)


@BOTH_KDA
@pytest.mark.parametrize(("name", "shape", "letters"), [
    ("g", (2, 7, 3), "[B, T, H, K]"), ("g", (2, 7, 5, 3), "[B, T, H, K]"), ("beta", (2, 7, 3, 5), "[B, T, H]"),
    ("g", (2, 7, 3, 1), "[B, T, H, K]"), ("beta", (2, 1, 3), "[B, T, H]"), ("v", (2, 7, 1, 4), "[B, T, H, V]")])
def test_case_23_error_texts(form, name, shape, letters):
    arguments = kda_arguments("k3", 7) | {name: torch.zeros(shape)}
    with pytest.raises(ShapeError) as error:
        form(**arguments)
    for part in (f"{form.__name__}: {name} must have shape {letters}", "T = 7", "H = 3", f"but {list(shape)} came"):
        assert part in str(error.value)


@pytest.mark.parametrize("name", ["k3", "kimi_linear"])
def test_case_24_the_same_seed_gives_the_same_bits(name):
    def train():
        config = variant(name)
        model = K3(config, seed=3).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            tokens = tokens_for(config, 2, 19, seed=step)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
            model.balance()
        return model.state_dict()

    torch.manual_seed(1)
    first = train()
    torch.manual_seed(2)
    second = train()
    assert all(torch.equal(first[n], second[n]) for n in first)
    assert all(torch.isfinite(x).all() for x in first.values())


def test_case_25_checkpoints_hold_tensors_and_plain_numbers(tmp_path):
    model = K3(NANO)
    path = tmp_path / "a folder" / "model.pt"
    path.parent.mkdir()
    save_checkpoint(path, {"model": model.state_dict(), "step": 3, "config": NANO.to_dict()})
    loaded = torch.load(path)                                            # the defaults refuse anything but plain data
    assert loaded["step"] == 3
    assert K3Config.from_dict(loaded["config"]) == NANO
    other = K3(NANO, seed=1)
    other.load_state_dict(loaded["model"])
    assert torch.equal(other(tokens_for(NANO, 1, 5)), model(tokens_for(NANO, 1, 5)))
    assert [file.name for file in path.parent.iterdir()] == ["model.pt"]


def test_case_22_mxfp4():
    rng = np.random.default_rng(0)
    for exponent in (-9, 0, 5):                                         # grid values whose largest is 6 * 2^e survive
        block = rng.choice([-1.0, 1.0], 32) * rng.choice(MAGNITUDES, 32) * 2.0 ** exponent
        block[7] = -6 * 2.0 ** exponent
        packed, scales = mxfp4_pack(block)
        assert scales.tolist() == [127 + exponent] and packed.shape == (16,)
        assert np.array_equal(mxfp4_unpack(packed, scales), block)
    assert np.array_equal(mxfp4_unpack(*mxfp4_pack(np.zeros((2, 32)))), np.zeros((2, 32)))
    x = rng.standard_normal((3, 64)) * np.exp2(rng.integers(-8, 8, (3, 1)))
    once = mxfp4_unpack(*mxfp4_pack(x))
    assert np.array_equal(mxfp4_unpack(*mxfp4_pack(once)), once)        # quantising again changes nothing
    assert not np.array_equal(once, x) and np.abs(once - x).max() <= np.abs(x).max() / 3
    wide = rng.standard_normal((2, 40)) * np.array([[1.0], [100.0]])    # two scales a row, shared with no other row
    packed, scales = mxfp4_pack(wide)
    assert scales.shape == (2, 2) and packed.shape == (2, 32)
    for row in range(2):
        alone = mxfp4_pack(wide[row])
        assert np.array_equal(alone[0], packed[row]) and np.array_equal(alone[1], scales[row])
    assert mxfp4_unpack(packed, scales, 40).shape == (2, 40)
    assert mxfp4_pack(np.array([6.0, -1.0]))[0][0] == 0x7 | 0xA << 4    # low nibble first, bit 3 is the sign
    ties = mxfp4_unpack(*mxfp4_pack(np.array([6, 5, 3.5, 2.5, 1.75, 0.25, 0.75, 7.9])), 8)
    assert ties.tolist() == [6, 4, 4, 2, 2, 0, 1, 6]                    # ties to the even code; 7.9 saturates
    with pytest.raises(ValueError, match="x must be finite"):
        mxfp4_pack(np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match=r"packed must have shape \[..., 32\]"):
        mxfp4_unpack(packed[:, :-1], scales)


def test_case_25_no_float64_in_a_float32_model():
    model = K3(NANO).train()
    model(tokens_for(NANO, 2, 5)).sum().backward()
    model.balance()
    held = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters() if p.grad is not None),
            *(moe.observed_scores for moe in model.moe_layers().values())]
    assert {x.dtype for x in held} == {torch.float32}


def test_case_25_every_open_names_its_encoding():
    folder, calls = Path(k3_scratch.__file__).parent, 0
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for match in re.finditer(r"(?<!def )(?<![\w.])open\(|\.(open|read_text|write_text)\(", source):
            depth, end = 1, match.end()
            while depth:
                depth += {"(": 1, ")": -1}.get(source[end], 0)
                end += 1
            call = source[match.start():end]
            calls += 1
            binary = re.search(r"[\"'][rwax]\+?b\+?[\"']", call)
            assert "encoding=" in call or binary, f"{path.name}: {call}"
    assert calls > 0
