"""Where a token looks in a picture: the layer's own weights, counted apart from the text."""

import numpy as np
import pytest
import torch
from torch_helpers import NANO, live_model, variant

from k3_scratch.analysis.decay import mean_decay
from k3_scratch.analysis.picture_attention import attention_weights, picture_attention, with_images
from k3_scratch.config import VisionConfig

EYE = 22
EYES = VisionConfig(num_layers=1, hidden_size=6, num_heads=1, qkv_size=8, intermediate_size=5, patch_size=2,
                    num_channels=1, position_table=9, merge=1, image_token=EYE)


def seen():
    """Two rows of 17 tokens with two pictures of 4 x 6 pixels (2 x 3 tokens) each, at different places."""
    rng = np.random.default_rng(2)
    tokens = torch.from_numpy(rng.integers(0, EYE, (2, 17)))
    tokens[0, 1:7] = tokens[0, 9:15] = tokens[1, 3:9] = tokens[1, 9:15] = EYE
    return tokens, torch.from_numpy(rng.integers(0, 256, (4, 4, 6, 1), np.uint8))


@pytest.mark.parametrize("name", ["k3", "no_shared_slice", "full_rank_q"])
def test_weights_give_the_layer_s_output(name):
    """Put back into the rest of the layer they make its output: these are the weights that it uses."""
    config = variant(name)
    layer = live_model(config).layers[config.mla_layers[0]].self_attn
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 7, config.hidden_size)))
    weights, latent = attention_weights(layer, x), layer.latents(x)[0]
    assert weights.shape == (2, config.num_heads, 7, 7) and not weights.triu(1).any()
    w_v = layer.kv_b_proj.weight.unflatten(0, (config.num_heads, -1))[:, config.qk_nope_head_dim:]
    o = torch.einsum("bhts,bsr,hvr->bthv", weights, latent, w_v).flatten(2)
    want = layer.o_proj(torch.sigmoid(layer.g_proj(x)) * o)
    torch.testing.assert_close(layer(x), want, rtol=1e-9, atol=1e-9)


def test_maps_are_the_weights_on_the_markers():
    model, (tokens, images) = live_model(NANO.replace(vision=EYES)), seen()
    maps, shares = picture_attention(model, tokens, images, [16, 12])
    assert set(maps) == set(shares) == {"layer 3"}
    assert maps["layer 3"].shape == (2, NANO.num_heads, 2, 2, 3)
    np.testing.assert_allclose(maps["layer 3"].sum((2, 3, 4)), shares["layer 3"], rtol=1e-12)
    assert (shares["layer 3"] > 0).all() and (shares["layer 3"] < 1).all()
    assert not maps["layer 3"][1, :, 1, 1, 1:].any()                     # place 12 sees no marker after it
    assert maps["layer 3"][1, :, 1, 1, 0].all() and maps["layer 3"][0].all()


def test_measurements_that_know_tokens_alone_see_the_pictures():
    model, (tokens, images) = live_model(NANO.replace(vision=EYES)), seen()
    with with_images(model, images):
        one = mean_decay(model, tokens)
    with with_images(model, 255 - images):
        other = mean_decay(model, tokens)
    assert any((one[name] != other[name]).any() for name in one)
    with pytest.raises(ValueError, match="no images came"):              # taken off again
        model(tokens)
    text = tokens.where(tokens != EYE, torch.tensor(0))
    with with_images(model, None):
        assert torch.equal(model(text), model(text))


def test_what_cannot_be_asked():
    model, (tokens, images) = live_model(NANO.replace(vision=EYES)), seen()
    with pytest.raises(ValueError, match="model must have a vision encoder"):
        picture_attention(live_model(NANO), tokens, images, [0, 0])
    for positions in ([3], [3, 17], [-1, 2]):
        with pytest.raises(ValueError, match="positions must be 2 places from 0 to 16"):
            picture_attention(model, tokens, images, positions)
    uneven = tokens.clone()
    uneven[1, 3:9] = 1
    with pytest.raises(ValueError, match=r"as many markers in each row, but \[12, 6\] came"):
        picture_attention(model, uneven, images[:3], [3, 3])
