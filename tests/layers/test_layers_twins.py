"""Every operation of `layers` equals its NumPy twin in float64, argument for argument."""

import inspect

import numpy as np
import pytest
import torch
from torch_helpers import KIMI_LINEAR, NANO, REGIMES, kda_arguments, live_model, normal, weights_of

from k3_scratch.layers import (
    attention_residuals,
    decay_gates,
    experts,
    kda,
    mla,
    quantile_balancing,
    rms_norm,
    router,
    short_convolution,
    situ,
    two_phase,
    unit_keys,
)
from k3_scratch.layers.latent_moe import LatentMoE
from k3_scratch.reference import (
    attention_residuals as ref_attention_residuals,
)
from k3_scratch.reference import decay_gates as ref_decay_gates
from k3_scratch.reference import delta_rule as ref_delta_rule
from k3_scratch.reference import ffn as ref_ffn
from k3_scratch.reference import kda as ref_kda
from k3_scratch.reference import latent_moe as ref_latent_moe
from k3_scratch.reference import mla as ref_mla
from k3_scratch.reference import quantile_balancing as ref_quantile_balancing
from k3_scratch.reference import rms_norm as ref_rms_norm
from k3_scratch.reference import router as ref_router
from k3_scratch.reference import short_convolution as ref_short_convolution
from k3_scratch.reference import situ as ref_situ
from k3_scratch.reference import swiglu as ref_swiglu
from k3_scratch.reference import two_phase as ref_two_phase
from k3_scratch.reference import unit_keys as ref_unit_keys

TWINS = {
    "rms_norm": (rms_norm.rms_norm, ref_rms_norm.rms_norm), "l2_norm": (unit_keys.l2_norm, ref_unit_keys.l2_norm),
    "bounded_decay": (decay_gates.bounded_decay, ref_decay_gates.bounded_decay),
    "softplus_decay": (decay_gates.softplus_decay, ref_decay_gates.softplus_decay),
    "short_convolution": (short_convolution.short_convolution, ref_short_convolution.short_convolution),
    "situ_glu": (situ.situ_glu, ref_situ.situ_glu), "swiglu": (situ.swiglu, ref_swiglu.swiglu),
    "route": (router.route, ref_router.route),
    "quantile_bias": (quantile_balancing.quantile_bias, ref_quantile_balancing.quantile_bias),
    "depth_mix": (attention_residuals.depth_mix, ref_attention_residuals.depth_mix),
    "bank_phase": (two_phase.bank_phase, ref_two_phase.bank_phase),
    "merge_phase": (two_phase.merge_phase, ref_two_phase.merge_phase),
    "mla_naive": (mla.mla_naive, ref_mla.mla_naive), "mla_absorbed": (mla.mla_absorbed, ref_mla.mla_absorbed),
    "kda_step": (kda.kda_step, ref_kda.kda_step), "kda_recurrent": (kda.kda_recurrent, ref_kda.kda_recurrent),
    "kda_chunk": (kda.kda_chunk, ref_kda.kda_chunk),
}
RNG = np.random.default_rng(7)


def compare(name, *arguments, **keywords):
    """Both twins with the same positional arguments; their results, all of them, agree to 1e-10."""
    ours, reference = TWINS[name]
    got = ours(*arguments, **keywords)
    as_numpy = [x.numpy() if isinstance(x, torch.Tensor) else x for x in arguments]
    want = reference(*as_numpy, **{n: x.numpy() if isinstance(x, torch.Tensor) else x for n, x in keywords.items()})
    if not isinstance(got, tuple):
        got, want = (got,), (want,)
    assert len(got) == len(want)
    for ours_part, reference_part in zip(got, want, strict=True):
        assert ours_part.dtype == torch.int64 or ours_part.dtype == torch.float64
        np.testing.assert_allclose(ours_part.numpy(), reference_part, rtol=1e-10, atol=1e-10)
        assert ours_part.shape == reference_part.shape
    return got


@pytest.mark.parametrize("name", TWINS)
def test_twins_take_the_same_arguments(name):
    ours, reference = (inspect.signature(f).parameters for f in TWINS[name])
    extra = {"short_convolution": ["documents"], "kda_chunk": ["documents"]}.get(name, [])
    assert list(ours) == [*reference, *extra]
    for parameter in reference:
        assert (ours[parameter].default, ours[parameter].kind) == (reference[parameter].default,
                                                                   reference[parameter].kind)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e3])
def test_norms(size):
    x, weight = size * normal(RNG, 2, 5, 3, 7), normal(RNG, 7)
    for eps in (1e-5, 0.3):
        compare("rms_norm", x, weight, eps)
        compare("l2_norm", x, eps)
    compare("rms_norm", x, weight)
    compare("l2_norm", x)
    module = rms_norm.RMSNorm(7, 0.3).double()
    np.testing.assert_allclose(module(x).detach(), ref_rms_norm.rms_norm(x.numpy(), np.ones(7), 0.3), atol=1e-12)


@pytest.mark.parametrize("size", [0.1, 3.0, 200.0])
def test_decay_gates(size):
    z, A_log = size * normal(RNG, 2, 5, 3, 4), normal(RNG, 3)
    compare("bounded_decay", z, A_log)
    compare("bounded_decay", z, A_log, -2.0)
    compare("softplus_decay", z, A_log)
    compare("bounded_decay", z[0], A_log)                                        # without a batch axis


@pytest.mark.parametrize("taps", [1, 2, 4])
@pytest.mark.parametrize("T", [0, 1, 2, 3, 4, 9])
def test_short_convolution(taps, T):
    x, weight, tail = normal(RNG, 2, T, 5), normal(RNG, 5, taps), normal(RNG, 2, taps - 1, 5)
    compare("short_convolution", x, weight)
    compare("short_convolution", x, weight, tail)


def test_activations():
    gate, up = 6 * normal(RNG, 3, 5, 4), 40 * normal(RNG, 3, 5, 4)
    compare("situ_glu", gate, up)
    compare("situ_glu", gate, up, 1.5, 2.5)
    compare("swiglu", gate, up)


@pytest.mark.parametrize("k", [1, 2, 6])
@pytest.mark.parametrize("bias_size", [0.0, 0.5, 10.0])
def test_router(k, bias_size):
    x, w, bias = normal(RNG, 3, 5, 4), normal(RNG, 6, 4), bias_size * normal(RNG, 6)
    experts_chosen, weights, scores = compare("route", x, w, bias, k)
    compare("route", x, w, bias, k, 2.446)
    assert experts_chosen.shape == weights.shape == (3, 5, k)
    assert scores.shape == (3, 5, 6)


def test_a_router_far_out_of_range():
    x, w, bias = torch.full((1, 1), 1.0).double(), torch.full((3, 1), -900.0).double(), torch.zeros(3).double()
    _, weights, _ = router.route(x, w, bias, 2)                                  # every score underflows to 0
    assert torch.isfinite(weights).all()


@pytest.mark.parametrize(("m", "E", "k"), [(8, 4, 1), (7, 5, 2), (50, 6, 3), (9, 6, 4),
                                           (1, 3, 1), (3, 5, 4), (0, 4, 2), (5, 4, 4)])
def test_quantile_bias(m, E, k):
    bias = 0.2 * normal(RNG, E)
    before = bias.clone()
    new, = compare("quantile_bias", torch.from_numpy(RNG.uniform(size=(m, E))), bias, k)
    assert torch.equal(bias, before)
    assert new.data_ptr() != bias.data_ptr()


@pytest.mark.parametrize("N", [1, 2, 4])
def test_depth_mix(N):
    sources = normal(RNG, N, 2, 3, 5) * torch.tensor([1.0, 100.0, 1e-3, 7.0])[:N, None, None, None]
    compare("depth_mix", sources, normal(RNG, 5), normal(RNG, 5))
    compare("depth_mix", sources, normal(RNG, 5), normal(RNG, 5), 0.3)
    compare("depth_mix", sources[:, 0, 0], normal(RNG, 5), normal(RNG, 5))


@pytest.mark.parametrize("N", [0, 1, 2, 4])
def test_two_phases(N):
    """As the NumPy twin, and together as one mix over the bank and h."""
    bank = normal(RNG, N, 2, 3, 5) * torch.tensor([1.0, 100.0, 1e-3, 7.0])[:N, None, None, None]
    queries, norms, h = normal(RNG, 4, 5), normal(RNG, 4, 5), normal(RNG, 4, 2, 3, 5)
    log_total, mean = compare("bank_phase", bank, queries, norms, 0.3)
    for i in range(4):
        mixed, = compare("merge_phase", log_total[i], mean[i], h[i], queries[i], norms[i], 0.3)
        want = attention_residuals.depth_mix(torch.cat([bank, h[i:i + 1]]), queries[i], norms[i], 0.3)[0]
        torch.testing.assert_close(mixed, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("function", ["situ_glu", "depth_mix", "l2_norm", "rms_norm", "bounded_decay"])
@pytest.mark.parametrize("size", [0.3, 30.0])
def test_gradients_by_hand(function, size):
    shapes = {"situ_glu": [(4, 3), (4, 3)], "depth_mix": [(3, 2, 4, 5), (5,), (5,)], "l2_norm": [(3, 5)],
              "rms_norm": [(2, 3, 5), (5,)], "bounded_decay": [(2, 3, 4, 5), (4,)]}[function]
    leaves = [(size * normal(RNG, *shape)).requires_grad_() for shape in shapes]
    if function == "bounded_decay":                                      # A_log is a logarithm: e^30 is no rate
        leaves[1] = (leaves[1].detach() / size).requires_grad_()
    assert torch.autograd.gradcheck(TWINS[function][0], leaves)


@pytest.mark.parametrize("form", ["mla_naive", "mla_absorbed"])
@pytest.mark.parametrize(("T", "S"), [(0, 0), (0, 3), (1, 1), (1, 9), (6, 6), (4, 9)])
@pytest.mark.parametrize(("n", "r"), [(5, 2), (5, 0), (0, 4)])
def test_latent_attention(form, T, S, n, r):
    q, latent, shared = normal(RNG, 2, T, 3, n + r), normal(RNG, 2, S, 8), 2 * normal(RNG, 2, S, r)
    w_kvb = normal(RNG, 3, n + 7, 8)
    compare(form, q, latent, shared, w_kvb)
    for density in (0.0, 0.4):
        compare(form, q, latent, shared, w_kvb, mask=torch.from_numpy(RNG.random((2, T, S)) < density))


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("T", [0, 1, 7, 33])
def test_kda(regime, T):
    arguments = kda_arguments(regime, T)
    compare("kda_recurrent", *arguments.values())
    compare("kda_recurrent", *list(arguments.values())[:5])
    compare("kda_recurrent", *arguments.values(), scale=1.7)
    compare("kda_chunk", *arguments.values(), chunk=5)
    compare("kda_chunk", *list(arguments.values())[:5], scale=0.3)
    documents = torch.from_numpy(np.sort(RNG.integers(0, 4, size=(2, T)), 1))
    compare("kda_recurrent", *arguments.values(), documents=documents)
    if T:
        first = {name: x if name == "state" else x[:, 0] for name, x in arguments.items()}
        state = first.pop("state")
        compare("kda_step", state, *first.values())
        compare("kda_step", state, *first.values(), scale=0.3)


@pytest.mark.parametrize("regime", ["none", "repeated"])
def test_the_delta_rule_is_kda_without_decay(regime):
    arguments = kda_arguments(regime, 20)
    arguments["g"] = torch.zeros_like(arguments["g"])
    q, k, v, _, beta, state = arguments.values()
    want = ref_delta_rule.delta_recurrent(*(x.numpy() for x in (q, k, v, beta, state)))
    for form in (kda.kda_recurrent, kda.kda_chunk):
        for got, truth in zip(form(*arguments.values()), want, strict=True):
            np.testing.assert_allclose(got.numpy(), truth, rtol=1e-10, atol=1e-10)


def dense_mixture(z, chosen, weights, w1, w3, w2, activation):
    """The definition: one expert after the other, in NumPy."""
    u = np.zeros(z.shape)
    for i, row in enumerate(z.numpy()):
        for e, p in zip(chosen[i].tolist(), weights[i].tolist(), strict=True):
            u[i] += p * ref_ffn.gated_ffn(row, w1[e].numpy(), w3[e].numpy(), w2[e].numpy(), activation=activation)
    return u


@pytest.mark.parametrize("m", [0, 1, 2, 13])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("activation", ["situ", "swiglu"])
def test_expert_mixture(m, k, activation):
    z, w1, w3, w2 = normal(RNG, m, 8), normal(RNG, 5, 12, 8), normal(RNG, 5, 12, 8), normal(RNG, 5, 8, 12)
    chosen = torch.from_numpy(np.array([RNG.permutation(5)[:k] for _ in range(m)], dtype=np.int64).reshape(m, k))
    weights = torch.from_numpy(RNG.uniform(size=(m, k)))
    act = situ.situ_glu if activation == "situ" else situ.swiglu
    want = dense_mixture(z, chosen, weights, w1, w3, w2, activation)
    got = experts.expert_mixture(z, chosen, weights, w1, w3, w2, act)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
    narrow = experts.expert_mixture(*(x.float() if x.is_floating_point() else x
                                      for x in (z, chosen, weights, w1, w3, w2)), act)
    assert narrow.dtype == torch.float32                                         # may take another product
    np.testing.assert_allclose(narrow, want, rtol=1e-4, atol=1e-4 * (np.abs(want).max() if m else 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("m", [1, 9])
def test_gradients_of_the_expert_mixture(dtype, m):
    """Against a dense product over all experts, differentiated by autograd."""
    rng = np.random.default_rng(3)
    leaves = [normal(rng, m, 8), torch.from_numpy(rng.uniform(size=(m, 2))), normal(rng, 5, 12, 8),
              normal(rng, 5, 12, 8), normal(rng, 5, 8, 12)]
    chosen, seen = torch.from_numpy(np.array([rng.permutation(4)[:2] for _ in range(m)])), normal(rng, m, 8)

    def gradients(function, dtype):
        copies = [x.to(dtype).requires_grad_() for x in leaves]
        return torch.autograd.grad((function(*copies) * seen.to(dtype)).sum(), copies)

    def dense(z, weights, w1, w3, w2):
        full = torch.zeros(m, 5, dtype=z.dtype).scatter(1, chosen, weights)
        hidden = situ.situ_glu(torch.einsum("ml,efl->mef", z, w1), torch.einsum("ml,efl->mef", z, w3))
        return torch.einsum("mef,elf,me->ml", hidden, w2, full)

    got = gradients(lambda z, p, w1, w3, w2: experts.expert_mixture(z, chosen, p, w1, w3, w2, situ.situ_glu), dtype)
    for ours, want in zip(got, gradients(dense, torch.float64), strict=True):
        assert ours.dtype == dtype
        assert (ours.double() - want).abs().max() <= (1e-10 if dtype == torch.float64 else 1e-5) * want.abs().max()
    assert all((ours[4] == 0).all() for ours in got[2:])                         # expert 4 was never chosen


@pytest.mark.parametrize("changes", [{}, {"moe_latent_size": None, "moe_latent_norm": False},
                                     {"moe_latent_norm": False}, KIMI_LINEAR, {"num_shared_experts": 0},
                                     {"num_experts_per_token": 6}, {"rms_norm_eps": 0.3}],
                         ids=lambda changes: "+".join(changes)[:20] or "k3")
@pytest.mark.parametrize("shape", [(2, 5), (1, 1), (3, 0)])
def test_latent_moe(changes, shape):
    config = NANO.replace(**changes)
    moe = live_model(config).layers[1].block_sparse_moe
    w, x = weights_of(moe), normal(RNG, *shape, config.hidden_size)
    names = ("gate.weight", "gate.e_score_correction_bias", "routed_expert_down_proj.weight", "experts.w1",
             "experts.w3", "experts.w2", "routed_expert_norm.weight", "routed_expert_up_proj.weight",
             "shared_experts.gate_proj.weight", "shared_experts.up_proj.weight", "shared_experts.down_proj.weight")
    assert set(w) <= set(names)
    want = ref_latent_moe.latent_moe(
        x.numpy(), *(w.get(name) for name in names), k=config.num_experts_per_token,
        scale=config.routed_scaling_factor, eps=config.rms_norm_eps, activation=config.activation)
    np.testing.assert_allclose(moe(x).detach(), want, rtol=1e-10, atol=1e-10)
    assert isinstance(moe, LatentMoE)
