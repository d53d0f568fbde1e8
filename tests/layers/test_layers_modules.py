"""The layers around the operations: convolution over documents, depth mixes, gates, initial values."""

import math

import numpy as np
import pytest
import torch
from torch_helpers import NANO, live_model, normal, relative_error, variant

from k3_scratch.layers.attention_residuals import DepthMix, Source
from k3_scratch.layers.feed_forward import FeedForward
from k3_scratch.layers.kda_attention import KDACache, KimiDeltaAttention
from k3_scratch.layers.mla_attention import GatedMLA
from k3_scratch.layers.quantile_balancing import quantile_bias
from k3_scratch.layers.short_convolution import ShortConvolution, short_convolution
from k3_scratch.layers.situ import activation, situ_glu, swiglu
from k3_scratch.reference.ffn import gated_ffn

RNG = np.random.default_rng(11)


def test_convolution_over_documents():
    x, weight = normal(RNG, 2, 12, 5), normal(RNG, 5, 4)
    documents = torch.tensor([[3, 3, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3], [0] * 12])
    y, tail = short_convolution(x, weight, documents=documents)
    for b, start, end in ((0, 0, 2), (0, 2, 3), (0, 3, 8), (0, 8, 12), (1, 0, 12)):
        solo, _ = short_convolution(x[b:b + 1, start:end], weight)
        assert relative_error(y[b:b + 1, start:end], solo) <= 1e-14
    assert torch.equal(tail, x[:, -3:])


def test_convolution_in_any_pieces():
    x, weight, tail = normal(RNG, 2, 9, 5), normal(RNG, 5, 4), normal(RNG, 2, 3, 5)
    want, last = short_convolution(x, weight, tail)
    for first in range(10):
        a, middle = short_convolution(x[:, :first], weight, tail)
        b, end = short_convolution(x[:, first:], weight, middle)
        assert relative_error(torch.cat([a, b], 1), want) <= 1e-14
        assert torch.equal(end, last)


def test_convolution_gradients():
    leaves = [x.requires_grad_() for x in (normal(RNG, 2, 6, 3), normal(RNG, 3, 4), normal(RNG, 2, 3, 3))]
    documents = torch.tensor([[0, 0, 1, 1, 1, 1], [2, 2, 2, 2, 2, 3]])
    assert torch.autograd.gradcheck(short_convolution, leaves)
    assert torch.autograd.gradcheck(lambda x, w: short_convolution(x, w, documents=documents), leaves[:2])


def test_convolution_weights_start_within_their_bound():
    weight = ShortConvolution(4000, 4).weight
    assert weight.shape == (4000, 4)
    assert 0.49 < weight.abs().max() <= 0.5


def test_depth_mix_module():
    mix = DepthMix(NANO).double()
    assert (mix.query == 0).all()
    assert (mix.weight == 1).all()
    sources = [Source(normal(RNG, 2, 3, 24), 1e-5) for _ in range(3)]
    assert mix(sources[:1]) is sources[0].vector                                 # nothing to choose from
    assert relative_error(mix(sources), sum(s.vector for s in sources) / 3) <= 1e-14


def test_depth_mix_gradients():
    leaves = [x.requires_grad_() for x in (normal(RNG, 3, 2, 4), normal(RNG, 4), normal(RNG, 4))]

    def mixed(sources, query, weight):
        mix = DepthMix(NANO.replace(hidden_size=4)).double()
        del mix.query, mix.weight
        mix.query, mix.weight = query, weight
        return mix([Source(v, 1e-5) for v in sources])
    assert torch.autograd.gradcheck(mixed, leaves)


@pytest.mark.parametrize("name", ["situ", "swiglu"])
def test_feed_forward_and_its_activation(name):
    config = NANO.replace(activation=name, situ_beta=1.5, situ_linear_beta=2.5)
    gate, up = 3 * normal(RNG, 4, 6), 3 * normal(RNG, 4, 6)
    want = situ_glu(gate, up, 1.5, 2.5) if name == "situ" else swiglu(gate, up)
    assert torch.equal(activation(config)(gate, up), want)
    ffn, x = FeedForward(config, 30).double(), normal(RNG, 2, 3, 24)
    w = {n: p.detach().numpy() for n, p in ffn.named_parameters()}
    want = gated_ffn(x.numpy(), *(w[f"{n}_proj.weight"] for n in ("gate", "up", "down")), activation=name, beta=1.5,
                     linear_beta=2.5)
    np.testing.assert_allclose(ffn(x).detach(), want, rtol=1e-10, atol=1e-12)


def test_initial_decay_of_a_fresh_layer():
    torch.manual_seed(0)
    layer = KimiDeltaAttention(NANO.replace(num_heads=50, kda_key_dim=40)).double()
    dt = torch.nn.functional.softplus(layer.dt_bias)
    assert (layer.A_log == 0).all()
    assert 1e-3 <= dt.min() < 1.1e-3
    assert 0.09 < dt.max() <= 0.1 + 1e-7
    assert abs(dt.log().mean().item() - (math.log(1e-3) + math.log(1e-1)) / 2) < 0.1     # log-uniform
    with torch.no_grad():
        layer.f_b_proj.weight.zero_()
        g = layer.decay(normal(RNG, 1, 1, 24)).flatten()
    assert relative_error(g, -5 * (1 - torch.exp(-dt.detach()))) <= 1e-6         # |g| = 5 (1 - e^-dt)
    assert 0.0049 < -g.max() < 0.0056
    assert 0.43 < -g.min() < 0.477


@pytest.mark.parametrize("name", ["k3", "kimi_linear", "wide_values"])
def test_a_pad_neither_writes_nor_decays_nor_enters_the_convolution(name):
    config = variant(name)
    layer = live_model(config).layers[0].self_attn
    x = normal(RNG, 2, 7, 24)
    mask = torch.tensor([[False] * 3 + [True] * 4, [True] * 7])
    cache, solo = (KDACache(config, n, torch.float64, "cpu") for n in (2, 1))
    y = layer(x, cache, mask=mask)
    bare = layer(x[:1, 3:], solo)
    assert relative_error(y[:1, 3:], bare) <= 1e-12
    assert relative_error(cache.state[:1], solo.state) <= 1e-12
    assert relative_error(cache.tail[:1], solo.tail) <= 1e-12
    before = cache.state
    layer(x[:, :3], cache, mask=torch.zeros(2, 3, dtype=torch.bool))             # nothing but pads
    assert torch.equal(cache.state, before)


@pytest.mark.parametrize("T", [0, 1, 5])
@pytest.mark.parametrize("layer", [0, 3])
def test_layers_accept_any_length(T, layer):
    part = live_model(NANO).layers[layer].self_attn
    assert isinstance(part, (KimiDeltaAttention, GatedMLA))
    assert part(normal(RNG, 2, T, 24)).shape == (2, T, 24)


def test_observation_of_the_experts():
    moe = live_model(NANO).layers[1].block_sparse_moe
    x, mask = normal(RNG, 2, 5, 24), torch.tensor([[False, False, True, True, True], [True] * 5])
    assert moe.expert_counts is None
    moe(x)
    assert moe.expert_counts is None                                             # evaluation observes nothing
    moe.balance()                                                                # and balancing has nothing to do
    moe.train()
    moe(x, mask)
    assert moe.observed_scores.shape == (8, 6)
    assert not moe.observed_scores.requires_grad
    experts, _, scores = moe.gate(x)
    assert torch.equal(moe.expert_counts, torch.bincount(experts[mask].flatten(), minlength=6))
    assert torch.equal(moe.observed_scores, scores[mask])
    moe(x)
    assert moe.expert_counts.sum() == 20                                         # overwritten, never added to
    before = moe.gate.e_score_correction_bias.clone()
    want = quantile_bias(moe.observed_scores, before, 2)
    moe.balance()
    assert torch.equal(moe.gate.e_score_correction_bias, want)
    assert not torch.equal(want, before)
