"""A silent part adds nothing, and speaks again afterwards."""

import pytest
import torch

from k3_scratch.analysis.silence import silenced


@torch.no_grad()
def test_a_silent_part_adds_nothing(make, tokens):
    """The same as a layer whose output matrix is zero; two parts at a time; nothing is left behind."""
    model, other = make(), make()
    before = model(tokens)
    other.layers[1].self_attn.o_proj.weight.zero_()
    with silenced(model.layers[1].self_attn):
        quiet = model(tokens)
    assert torch.equal(quiet, other(tokens)) and not torch.allclose(quiet, before)
    other.layers[3].self_attn.o_proj.weight.zero_()
    with silenced(model.layers[1].self_attn, model.layers[3].self_attn):
        assert torch.equal(model(tokens), other(tokens))
    assert torch.equal(model(tokens), before)
    assert not any(module._forward_hooks for module in model.modules())


def test_it_speaks_again_after_an_error(make, tokens):
    model = make()
    with pytest.raises(ValueError, match="999"), silenced(model.layers[0].self_attn):
        model(tokens * 0 + 999)
    assert not any(module._forward_hooks for module in model.modules())
