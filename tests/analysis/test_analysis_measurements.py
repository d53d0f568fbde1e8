"""Decay, magnitudes, and the hooks they look through."""

import numpy as np
import pytest
import torch

from k3_scratch.analysis.decay import mean_decay
from k3_scratch.analysis.magnitudes import magnitudes
from k3_scratch.analysis.watch import watched


def inputs_and_outputs(model, tokens):
    """{module name: (input, output)} of one forward pass, by a hook on every module."""
    seen = {}
    handles = [module.register_forward_hook(lambda m, i, out, name=name: seen.__setitem__(name, (i[0], out)))
               for name, module in model.named_modules() if name]
    with torch.no_grad():
        model(tokens)
    for handle in handles:
        handle.remove()
    return seen


def decay_by_hand(layer, x, bounded):
    """log(alpha) [n, H, K] of the specification: z = W_fb W_fa x + dt_bias, then one of the two gates."""
    z = x @ layer.f_a_proj.weight.T @ layer.f_b_proj.weight.T + layer.dt_bias
    z, a = z.reshape(*x.shape[:-1], 2, 8), layer.A_log.exp()[:, None]
    return -5 / (1 + torch.exp(-a * z)) if bounded else -a * torch.log(1 + torch.exp(z))


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_mean_decay(bounded, masked, make, tokens, mask):
    model = make(gate_lower_bound=-5.0 if bounded else None).double()
    measured = mean_decay(model, tokens, mask if masked else None)
    assert list(measured) == ["layer 0", "layer 1", "layer 2"]            # layer 3 is MLA
    seen, chosen = inputs_and_outputs(model, tokens), mask if masked else torch.ones_like(mask)
    for i in range(3):
        layer = model.layers[i].self_attn
        x = seen[f"layers.{i}.input_layernorm"][1][chosen]
        with torch.no_grad():
            wanted = decay_by_hand(layer, x, bounded).mean(0).exp()       # [H, K]
        result = measured[f"layer {i}"]
        assert result.shape == (2, 8) and result.dtype == np.float64
        np.testing.assert_allclose(result, wanted.numpy(), rtol=1e-9)
        assert (result > 0).all() and (result <= 1).all() and result.std() > 1e-3


def test_mean_decay_without_kda_layers_is_empty(make, tokens):
    assert mean_decay(make(mla_layers=(0, 1, 2, 3)), tokens) == {}


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("block", [3, None])
def test_magnitudes(masked, block, make, tokens, mask):
    model = make(attn_res_block_size=block).double()
    names, read, written = magnitudes(model, tokens, mask if masked else None)
    assert names == ["0 KDA", "0 dense", "1 KDA", "1 MoE", "2 KDA", "2 MoE", "3 MLA", "3 MoE"]
    assert read.shape == written.shape == (8,)
    seen, chosen = inputs_and_outputs(model, tokens), mask if masked else torch.ones_like(mask)

    def rms(x):
        return np.sqrt((x[chosen].numpy() ** 2).mean())

    for i in range(4):
        body = "mlp" if i == 0 else "block_sparse_moe"
        parts = [("input_layernorm", "self_attn"), ("post_attention_layernorm", body)]
        for row, (norm, sublayer) in enumerate(parts):
            assert read[2 * i + row] == pytest.approx(rms(seen[f"layers.{i}.{norm}"][0]), rel=1e-9)
            assert written[2 * i + row] == pytest.approx(rms(seen[f"layers.{i}.{sublayer}"][1]), rel=1e-9)
    assert read[0] == pytest.approx(rms(model.embed_tokens(tokens).detach()), rel=1e-9)


def test_measuring_changes_nothing(make, tokens, mask):
    model = make()
    with torch.no_grad():
        before = model(tokens)
    for measure in (mean_decay, magnitudes):
        measure(model, tokens, mask)
    with torch.no_grad():
        assert torch.equal(model(tokens), before)
    assert not any(module._forward_hooks for module in model.modules())


def test_watched_sees_input_and_output_and_takes_its_hooks_off(make, tokens):
    model = make()
    with watched({"norm": model.norm, "head": model.lm_head}) as seen:
        assert seen == {}
        logits = model(tokens)
        assert not logits.requires_grad                                   # no graph is kept
        assert seen["head"][1] is logits and seen["head"][0] is seen["norm"][1]
    assert not any(module._forward_hooks for module in model.modules())
    last = seen["head"][1]
    model(tokens + 1)
    assert seen["head"][1] is last                                        # nothing is written after the end
    assert torch.is_grad_enabled()


def test_watched_takes_its_hooks_off_after_an_error(make, tokens):
    model = make()
    with pytest.raises(ValueError, match="999"), watched({"norm": model.norm}):
        model(tokens * 0 + 999)
    assert not any(module._forward_hooks for module in model.modules())


def test_watched_leaves_other_hooks_alone(make, tokens):
    model, calls = make(), []
    handle = model.norm.register_forward_hook(lambda *_: calls.append(1))
    with watched({"norm": model.norm}):
        model(tokens)
    model(tokens)
    assert calls == [1, 1]
    handle.remove()
