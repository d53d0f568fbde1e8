"""The readings inside a model: the same as each measurement alone; keys have length 1."""

import numpy as np
import pytest
import torch

from k3_scratch.analysis.decay import mean_decay
from k3_scratch.analysis.depth_attention import depth_attention
from k3_scratch.analysis.inside import inside, key_lengths
from k3_scratch.analysis.magnitudes import magnitudes
from k3_scratch.config import preset
from k3_scratch.model import K3


@pytest.mark.parametrize("seed", [0, 1])
def test_readings_are_those_of_each_measurement(seed):
    model = K3(preset("nano"), seed=seed).eval()
    tokens = torch.randint(260, (3, 11), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(11) < torch.tensor([[11], [7], [4]])
    seen = inside(model, tokens, mask)
    weights, readers, sources = depth_attention(model, tokens, mask)
    np.testing.assert_array_equal(seen.depth, weights)
    assert (seen.readers, seen.sources) == (readers, sources)
    names, read, _ = magnitudes(model, tokens, mask)
    np.testing.assert_array_equal(seen.sizes, read)
    assert seen.sublayers == names and len(names) == 8
    for name, alpha in mean_decay(model, tokens, mask).items():
        np.testing.assert_array_equal(seen.decay[name], alpha)
    assert not np.allclose(inside(model, tokens).sizes, read)            # the mask matters


def test_keys_have_unit_length_unless_the_layer_leaves_them():
    model = K3(preset("nano")).eval()
    tokens = torch.randint(260, (2, 9), generator=torch.Generator().manual_seed(3))
    lengths = key_lengths(model, tokens)
    assert list(lengths) == ["layer 0", "layer 1", "layer 2"]
    for each in lengths.values():
        assert each.shape == (2, 9, 2) and (np.abs(each - 1) < 0.2).all() and each.max() <= 1
    layer = model.layers[1].self_attn
    whole = type(layer).queries_keys_values
    layer.queries_keys_values = lambda *a, **k: tuple(3 * part for part in whole(layer, *a, **k))
    changed = key_lengths(model, tokens)
    np.testing.assert_allclose(changed["layer 1"], 3 * lengths["layer 1"], rtol=1e-6)
    np.testing.assert_allclose(changed["layer 0"], lengths["layer 0"])
