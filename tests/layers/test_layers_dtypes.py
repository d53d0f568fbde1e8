"""Low precision comes in and goes out, float32 in between; a float64 model is float64 in every operation."""

import numpy as np
import pytest
import torch
from torch_helpers import DtypeWatch, kda_arguments, live_model, normal, tokens_for, variant

from k3_scratch.layers.attention_residuals import depth_mix
from k3_scratch.layers.decay_gates import bounded_decay, softplus_decay
from k3_scratch.layers.experts import expert_mixture
from k3_scratch.layers.kda import kda_chunk, kda_recurrent
from k3_scratch.layers.mla import mla_absorbed, mla_naive
from k3_scratch.layers.precision import raised
from k3_scratch.layers.quantile_balancing import quantile_bias
from k3_scratch.layers.rms_norm import rms_norm
from k3_scratch.layers.router import route
from k3_scratch.layers.short_convolution import short_convolution
from k3_scratch.layers.situ import situ_glu, swiglu
from k3_scratch.layers.unit_keys import l2_norm

LOW = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def draw(dtype, *shape, size=1.0, seed=0):
    return (size * normal(np.random.default_rng(seed + len(shape)), *shape)).to(dtype)


def results(x):
    return x if isinstance(x, tuple) else (x,)


def computes_in_float32(function, arguments, outputs, **keywords):
    """The result is that of the raised arguments, rounded once at the end where `outputs` says "same"."""
    dtype = next(x.dtype for x in arguments if isinstance(x, torch.Tensor))
    got = results(function(*arguments, **keywords))
    want = results(function(*(x.float() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                              for x in arguments), **keywords))
    for value, truth, output in zip(got, want, outputs, strict=True):
        if truth.is_floating_point():
            assert value.dtype == (dtype if output == "same" else torch.float32)
            assert torch.isfinite(value).all()
            once = 0.501 * torch.finfo(value.dtype).eps if output == "same" else 0.0         # rounded once, not twice
            torch.testing.assert_close(value.float(), truth, rtol=once + 1e-6, atol=1e-6 * truth.abs().max().item())
        else:
            assert torch.equal(value, truth)


@LOW
def test_ops_compute_in_float32(dtype):
    x = draw(dtype, 2, 5, 3, 7, size=3)
    computes_in_float32(rms_norm, (x, draw(dtype, 7)), ["same"])
    computes_in_float32(l2_norm, (x,), ["wide"])
    computes_in_float32(bounded_decay, (x, draw(dtype, 3)), ["wide"])
    computes_in_float32(softplus_decay, (x, draw(dtype, 3)), ["wide"])
    computes_in_float32(situ_glu, (x, draw(dtype, 2, 5, 3, 7, size=40, seed=1)), ["same"])
    computes_in_float32(route, (draw(dtype, 9, 7), draw(dtype, 5, 7, seed=1), draw(dtype, 5), 2), ["", "wide", "wide"])
    sources = torch.stack([draw(dtype, 2, 5, 7, seed=i) for i in range(3)])
    computes_in_float32(depth_mix, (sources, draw(dtype, 7), draw(dtype, 7, seed=1)), ["same", "wide"])
    for form in (mla_naive, mla_absorbed):
        computes_in_float32(form, (draw(dtype, 2, 4, 3, 7), draw(dtype, 2, 6, 8), draw(dtype, 2, 6, 2),
                                   draw(dtype, 3, 11, 8)), ["same"])


@LOW
@pytest.mark.parametrize("regime", ["k3", "unbounded", "repeated"])
def test_kda_computes_in_float32(dtype, regime):
    arguments = [x.to(dtype) for x in kda_arguments(regime, 21).values()]
    computes_in_float32(kda_recurrent, arguments, ["same", "wide"])
    for chunk in (None, 5):
        computes_in_float32(kda_chunk, arguments, ["same", "wide"], chunk=chunk)
    q, k, v, g, beta, state = arguments
    mixed = [q.float(), k.float(), v, g.float(), beta.float(), state.float()]    # as the layer calls it
    for form in (kda_recurrent, kda_chunk):
        o, last = form(*mixed)
        assert (o.dtype, last.dtype) == (dtype, torch.float32)


@LOW
def test_the_other_ops_return_the_dtype_that_came(dtype):
    """Plain products, which run in the dtype of the model: equal to float32 up to its rounding."""
    eps = torch.finfo(dtype).eps
    x, taps, tail = draw(dtype, 2, 9, 5), draw(dtype, 5, 4), draw(dtype, 2, 3, 5, seed=1)
    y, new_tail = short_convolution(x, taps, tail)
    want, _ = short_convolution(x.float(), taps.float(), tail.float())
    assert y.dtype == new_tail.dtype == dtype
    assert (y.float() - want).abs().max() <= 8 * eps * want.abs().max()
    gate, up = draw(dtype, 4, 6), draw(dtype, 4, 6, seed=1)
    assert swiglu(gate, up).dtype == dtype
    assert (swiglu(gate, up).float() - swiglu(gate.float(), up.float())).abs().max() <= 16 * eps
    z, weights = draw(dtype, 9, 8), draw(torch.float32, 9, 2).abs()
    w1, w3 = (draw(dtype, 4, 16, 8, size=0.3, seed=i) for i in range(2))
    w2 = draw(dtype, 4, 8, 16, size=0.3, seed=2)
    chosen = torch.from_numpy(np.array([np.random.default_rng(i).permutation(4)[:2] for i in range(9)]))
    want = expert_mixture(z.float(), chosen, weights, w1.float(), w3.float(), w2.float(), situ_glu)
    for m in (1, 9):
        got = expert_mixture(z[:m], chosen[:m], weights[:m], w1, w3, w2, situ_glu)
        assert got.dtype == dtype
        assert (got.float() - want[:m]).abs().max() <= 16 * eps * want.abs().max()


@LOW
def test_half_precision_overflows_nowhere_inside(dtype):
    big = torch.full((2, 6), 300.0, dtype=dtype)                                 # 300 squared is beyond half precision
    assert (rms_norm(big, torch.ones(6, dtype=dtype)) == 1).all()
    assert torch.isfinite(l2_norm(big)).all()
    mixed, weights = depth_mix(torch.stack([big, big]), torch.ones(6, dtype=dtype), torch.ones(6, dtype=dtype))
    assert (mixed == 300).all()
    assert (weights == 0.5).all()
    assert torch.isfinite(situ_glu(big * 100, -big * 100)).all()


def test_raised():
    for dtype, wide in ((torch.bfloat16, torch.float32), (torch.float16, torch.float32),
                        (torch.float32, torch.float32), (torch.float64, torch.float64)):
        assert raised(torch.ones(1, dtype=dtype)).dtype == wide


@pytest.mark.parametrize("name", ["k3", "kimi_linear"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_operation_of_a_model_keeps_its_dtype(name, dtype):
    """Forward, backward, balancing and decoding: no result of any single operation has another floating dtype."""
    config = variant(name)
    model, tokens = live_model(config, dtype=dtype).train(), tokens_for(config, 2, 19)
    documents = (torch.arange(19) // 7).expand(2, -1)
    outputs = {}
    for part_name, part in model.named_modules():
        part.register_forward_hook(lambda _, __, output, part_name=part_name: outputs.update({part_name: output}))
    with DtypeWatch() as watch:
        model(tokens).square().sum().backward()
        model.balance()
        model(tokens, documents=documents)
        model(tokens, mask=torch.arange(19).expand(2, -1) > 3)
        with torch.no_grad():
            cache = model.eval().new_cache(2)
            model(tokens, cache)
            model(tokens[:, :1], cache)
            model(tokens[:, :3], cache)
    assert set(watch.seen) == {dtype}, watch.seen
    assert {"lm_head", "norm", "layers.0.self_attn.o_norm", "layers.3.self_attn"} <= set(outputs)
    for output in outputs.values():
        for x in output if isinstance(output, tuple) else (output,):
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                assert x.dtype == dtype
    assert all(p.grad is None or p.grad.dtype == dtype for p in model.parameters())
    for layer in cache.layers:
        for x in vars(layer).values():
            assert not isinstance(x, torch.Tensor) or x.dtype in (dtype, torch.bool)


@LOW
@pytest.mark.parametrize("name", ["k3", "kimi_linear"])
def test_a_model_in_low_precision(dtype, name):
    config = variant(name)
    exact = live_model(config, dtype=torch.float32)
    model, tokens = live_model(config, dtype=torch.float32).to(dtype), tokens_for(config, 2, 19)
    exact.load_state_dict(model.state_dict())                                    # the same rounded weights
    want, got = exact(tokens), model(tokens)
    assert got.dtype == dtype
    assert (got.float() - want).norm() <= 100 * torch.finfo(dtype).eps * want.norm()
    cache = model.new_cache(2)
    steps = torch.cat([model(tokens[:, t:t + 1], cache) for t in range(19)], 1)
    assert steps.dtype == dtype
    assert (steps.float() - want).norm() <= 100 * torch.finfo(dtype).eps * want.norm()
    for i in config.kda_layers:
        assert cache.layers[i].state.dtype == torch.float32                      # the state is never below float32
        assert cache.layers[i].tail.dtype == dtype
    for i in config.mla_layers:
        assert cache.layers[i].rows.dtype == dtype


def test_quantile_bias_of_low_precision_scores():
    scores = torch.rand(9, 4, generator=torch.Generator().manual_seed(0))
    new = quantile_bias(scores, torch.zeros(4, dtype=torch.bfloat16), 1)
    assert torch.equal(new, quantile_bias(scores, torch.zeros(4), 1))
