"""Pictures in the sequence: equal to NumPy, the same through the cache, tokens like any other, errors that teach."""

import numpy as np
import pytest
import torch
from torch_helpers import NANO, feed, live_model, weights_of

from k3_scratch.accounting import count_parameters
from k3_scratch.accounting.built import count_built, flops_built
from k3_scratch.config import ConfigError, VisionConfig, preset
from k3_scratch.generate import generate
from k3_scratch.layers.patches import patches
from k3_scratch.layers.pixel_shuffle import pixel_shuffle
from k3_scratch.layers.rope_2d import rope_2d
from k3_scratch.model import K3
from k3_scratch.reference import patches as reference_patches
from k3_scratch.reference import pixel_shuffle as reference_pixel_shuffle
from k3_scratch.reference import rope_2d as reference_rope_2d
from k3_scratch.reference.k3 import k3_forward
from k3_scratch.reference.vision import encode_pictures
from k3_scratch.shapes import ShapeError
from k3_scratch.tasks.vocabulary import IMAGE
from k3_scratch.vision import picture_tokens

EYE = 22                                                             # the marker of the small models here
EYES = {                                                             # sizes that all differ, several cuts
    "2 x 2": VisionConfig(num_layers=2, hidden_size=10, num_heads=2, qkv_size=16, intermediate_size=14, patch_size=3,
                          num_channels=2, position_table=7, merge=2, image_token=EYE),
    "no merge": VisionConfig(num_layers=1, hidden_size=9, num_heads=3, qkv_size=12, intermediate_size=11, patch_size=2,
                             num_channels=1, position_table=12, merge=1, image_token=EYE),
    "3 x 3": VisionConfig(num_layers=3, hidden_size=6, num_heads=1, qkv_size=8, intermediate_size=5, patch_size=1,
                          num_channels=3, position_table=18, merge=3, image_token=EYE),
}
SIDES = {"2 x 2": (12, 18), "no merge": (4, 6), "3 x 3": (6, 9)}     # each: 2 x 3 = 6 tokens
EVERY = pytest.mark.parametrize("name", EYES)


def seeing(name="2 x 2", seed=0):
    return live_model(NANO.replace(vision=EYES[name]), seed=seed)


def pictures(name="2 x 2", number=3, seed=2):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, (number, *SIDES[name], EYES[name].num_channels), np.uint8))


def interleaved(seed=3):
    """Two rows of 19 tokens: row 0 has pictures at 2 and 11, row 1 one at 5; text elsewhere."""
    tokens = torch.from_numpy(np.random.default_rng(seed).integers(0, EYE, (2, 19)))
    tokens[0, 2:8] = tokens[0, 11:17] = tokens[1, 5:11] = EYE
    return tokens


def close(got, want, tolerance=1e-9):
    assert got.shape == want.shape
    np.testing.assert_allclose(got.detach().numpy(), np.asarray(want.detach() if torch.is_tensor(want) else want),
                               rtol=tolerance, atol=tolerance)


# --- the parts ---

@pytest.mark.parametrize(("size", "shape"), [(1, (2, 3, 4, 5)), (2, (3, 4, 6, 1)), (3, (1, 6, 9, 2))])
def test_patches_and_pixel_shuffle_equal_numpy(size, shape):
    x = np.random.default_rng(size).normal(size=shape)
    close(patches(torch.from_numpy(x), size), reference_patches.patches(x, size), 0)
    close(pixel_shuffle(torch.from_numpy(x), size), reference_pixel_shuffle.pixel_shuffle(x, size), 0)


def test_a_patch_holds_its_pixels_by_row_column_and_channel():
    image = torch.arange(4 * 6 * 2).reshape(1, 4, 6, 2)
    assert patches(image, 2)[0, 1, 2].tolist() == image[0, 2:4, 4:6].flatten().tolist()
    assert pixel_shuffle(image, 2)[0, 0, 1].tolist() == [*image[0, 0, 2], *image[0, 0, 3], *image[0, 1, 2],
                                                         *image[0, 1, 3]]


@pytest.mark.parametrize(("y", "x", "H", "K"), [(1, 1, 1, 4), (3, 5, 2, 8), (4, 2, 3, 12)])
def test_rope_2d_equals_numpy(y, x, H, K):
    values = np.random.default_rng(K).normal(size=(2, y, x, H, K))
    turned = rope_2d(torch.from_numpy(values))
    close(turned, reference_rope_2d.rope_2d(values), 1e-12)
    close(turned.norm(dim=-1), np.linalg.norm(values, axis=-1), 1e-12)     # it only turns
    close(turned[:, 0, 0], values[:, 0, 0], 0)                             # the corner stays


def test_rope_2d_knows_distances_and_both_directions():
    """With one q and one k everywhere the scores depend on the distance alone; rows and columns are told apart."""
    rng = np.random.default_rng(8)
    q, k = (torch.from_numpy(rng.normal(size=12)).expand(1, 4, 5, 1, 12) for _ in range(2))
    scores = torch.einsum("yxk,zwk->yxzw", rope_2d(q)[0, :, :, 0], rope_2d(k)[0, :, :, 0])
    for dy, dx in ((0, 0), (1, 0), (0, 1), (2, 3)):
        same = torch.stack([scores[y, x, y + dy, x + dx] for y in range(4 - dy) for x in range(5 - dx)])
        close(same, same[:1].expand_as(same), 1e-12)
    assert len({round(scores[0, 0, dy, dx].item(), 9) for dy in range(4) for dx in range(5)}) == 20
    assert abs(scores[1, 1, 2, 1] - scores[2, 1, 1, 1]) > 1e-3             # below is not above


def test_parts_refuse_what_cannot_be_cut():
    for function, name in ((patches, "size"), (pixel_shuffle, "merge"), (reference_patches.patches, "size"),
                           (reference_pixel_shuffle.pixel_shuffle, "merge")):
        for wrong in (0, 4):
            with pytest.raises(ValueError, match=f"multiple.* of {name} = {wrong}, but 6 x 8 came"):
                function(torch.zeros(1, 6, 8, 3), wrong)
    for function in (rope_2d, reference_rope_2d.rope_2d):
        with pytest.raises(ValueError, match="multiple of 4, but 6 came"):
            function(torch.zeros(1, 2, 2, 1, 6))


# --- encoder and model ---

@EVERY
@pytest.mark.parametrize("seed", [0, 1])
def test_the_encoder_equals_numpy(name, seed):
    model, images = seeing(name, seed), pictures(name, seed=seed)
    want = encode_pictures(images.numpy(), weights_of(model), model.config)
    close(model.vision(images), want)
    assert want.shape == (3, 6, NANO.hidden_size) and want.std(axis=0).min() > 1e-3    # pictures differ
    for p in range(3):                                                   # and do not meet
        close(model.vision(images[p:p + 1]), want[p:p + 1], 1e-12)


@EVERY
def test_the_model_with_pictures_equals_numpy(name):
    model, images, tokens = seeing(name), pictures(name), interleaved()
    want = k3_forward(tokens.numpy(), weights_of(model), model.config, images.numpy())
    close(model(tokens, images=images), want)


def test_attention_in_a_picture_is_not_causal():
    """The last pixel reaches the first patch; a rotated picture is another one (positions matter)."""
    model, images = seeing(), pictures()
    moved = images.clone()
    moved[:, -1, -1] = 255 - moved[:, -1, -1]
    assert ((model.vision(moved) - model.vision(images)).abs().amax(-1) > 1e-9).all()
    square = images[:, :12, :12]
    turned = model.vision(square.rot90(2, (1, 2)).contiguous()).flip(1)
    assert (turned - model.vision(square)).abs().max() > 1e-3


@EVERY
def test_prefill_equals_any_pieces(name):
    """Text, a picture and text through the cache; each picture comes whole, the text in any pieces."""
    model, images, tokens = seeing(name), pictures(name, 4), interleaved()
    tokens[1, 11:17] = EYE                                               # now both rows have two
    tokens[1, 2:11] = torch.tensor([EYE] * 6 + [4, 1, 9])
    want = model(tokens, images=images)
    first, second = images[[0, 2]], images[[1, 3]]                       # of both rows
    with torch.no_grad():
        for cuts in ((2, 8, 11, 17, 19), (1, 2, 8, 9, 10, 11, 17, 18, 19), (8, 11, 17, 19), (2, 9, 17, 19)):
            cache, outputs, start, rest = model.new_cache(2), [], 0, [first, second]
            for stop in cuts:
                part = tokens[:, start:stop]
                seen = rest.pop(0) if (part == EYE).any() else None
                outputs.append(model(part, cache, images=seen))
                start = stop
            close(torch.cat(outputs, 1), want)
        cache = model.new_cache(2)                                       # a picture, then decoding token by token
        close(torch.cat([model(tokens[:, :17], cache, images=images), feed(model, tokens[:, 17:], [], cache)], 1), want)


def test_images_go_to_the_markers_row_after_row():
    """Each row alone with its own pictures gives the row of the batch; pictures exchanged do not."""
    model, images, tokens = seeing(), pictures(), interleaved()
    want = model(tokens, images=images)
    close(model(tokens[:1], images=images[:2]), want[:1], 1e-12)
    close(model(tokens[1:], images=images[2:]), want[1:], 1e-12)
    swapped = model(tokens, images=images[[1, 0, 2]])
    assert (swapped - want)[0, 8:].abs().amax(-1).min() > 1e-6
    close(swapped[1], want[1], 1e-12)


def test_a_picture_is_causal():
    """It changes no logit before its first marker, and every one from there on."""
    model, images, tokens = seeing(), pictures(), interleaved()
    other = images.clone()
    other[1] = 255 - other[1]                                            # the second picture of row 0, at 11
    moved = (model(tokens, images=other) - model(tokens, images=images)).abs().amax(-1)
    assert moved[0, :11].max() <= 1e-12 and moved[1].max() <= 1e-12
    assert (moved[0, 11:] > 1e-9).all()


def test_the_embedding_of_the_marker_is_replaced():
    model, images, tokens = seeing(), pictures(), interleaved()
    want = model(tokens, images=images)
    with torch.no_grad():
        model.embed_tokens.weight[EYE] += 5
    close(model(tokens, images=images), want, 1e-12)
    with torch.no_grad():
        model.embed_tokens.weight[tokens[0, 8]] += 1
    assert (model(tokens, images=images) - want).abs().max() > 1e-3


def test_packed_documents_keep_pictures_apart():
    model, images, tokens = seeing(), pictures(), interleaved()
    documents = torch.stack([torch.arange(19) >= 9, torch.arange(19) >= 3]).long()
    got = model(tokens, documents=documents, images=images)
    close(got[:1, 9:], model(tokens[:1, 9:], images=images[1:2]))
    close(got[1:, 3:], model(tokens[1:, 3:], images=images[2:]))


def test_left_padding_with_pictures():
    model, images, tokens = seeing(), pictures(), interleaved()
    padded = torch.cat([torch.full((2, 4), 7), tokens], 1)
    mask = torch.arange(23).expand(2, -1) >= 4
    close(model(padded, mask=mask, images=images)[:, 4:], model(tokens, images=images))


def test_text_alone_needs_no_picture_and_gives_the_numbers_of_the_text_model():
    """The text part of a model with eyes is drawn as that of the model without them."""
    blind, model = K3(NANO, seed=4), K3(NANO.replace(vision=EYES["2 x 2"]), seed=4)
    text = interleaved().where(interleaved() != EYE, torch.tensor(0))
    assert torch.equal(model(text), blind(text))
    assert torch.equal(model(text, images=pictures(number=0)), blind(text))
    assert all(torch.equal(x, model.state_dict()[n]) for n, x in blind.state_dict().items())


def test_the_gradient_reaches_every_part_of_the_encoder():
    model = seeing().train()
    logits = model(interleaved(), images=pictures())
    logits[:, -1].square().sum().backward()
    for name, parameter in model.vision.named_parameters():
        grad = parameter.grad
        if name == "position_table":
            assert (grad[:4, :6].abs().sum(-1) > 0).all() and not grad[4:].any() and not grad[:, 6:].any()
        else:
            assert grad.abs().max() > 0, name
    assert not model.embed_tokens.weight.grad[EYE].any()


def test_initial_encoder_matrices_have_the_stated_spread():
    model = K3(preset("vision"), seed=1)
    for name, p in model.vision.named_parameters():
        if p.dim() == 1:
            assert (p == 1).all(), name
        else:
            assert p.std().item() == pytest.approx(0.02, rel=6 / p.numel() ** 0.5), name


def test_the_recomputed_pass_is_the_same():
    model = seeing().train()
    want = torch.autograd.grad(model(interleaved(), images=pictures()).sum(), model.vision.position_table)[0]
    model.recompute = True
    close(torch.autograd.grad(model(interleaved(), images=pictures()).sum(), model.vision.position_table)[0], want)


# --- writing ---

def test_generate_with_pictures_equals_feeding_by_hand():
    model, images = seeing(), pictures()
    prompts = [[3, *[EYE] * 6, 5, 1, *[EYE] * 6, 9], [2, *[EYE] * 6]]
    written = generate(model, prompts, 5, images=images)
    for prompt, own, output in zip(prompts, (images[:2], images[2:]), written, strict=True):
        tokens = list(prompt)
        for token in output:
            logits = model(torch.tensor([tokens]), images=own)[0, -1]
            logits[EYE] = -torch.inf
            assert token == logits.argmax().item()
            tokens.append(token)
    other = generate(model, prompts, 5, images=255 - images)
    assert other != written


def test_generate_never_writes_a_marker():
    """Even when nothing else is likely."""
    model = seeing()
    with torch.no_grad():
        prompt = torch.tensor([[1, 2, 3]])
        model.lm_head.weight[EYE] = 100 * model.hidden(prompt)[0, -1]
        assert model(prompt)[0, -1].softmax(-1)[EYE] > 0.999
    for temperature in (0, 1.0, 50.0):
        assert EYE not in generate(model, [1, 2, 3], 30, temperature=temperature)


# --- accounts ---

@EVERY
def test_parameters_are_counted_apart(name):
    config = NANO.replace(vision=EYES[name])
    model, count = K3(config), count_parameters(config)
    assert sum(p.numel() for p in model.vision.parameters()) == count.vision
    assert count.total == count_parameters(NANO).total                   # `total` is the text
    assert count_built(model).total == count.total_with_vision           # what is there, counted
    assert count_built(model).active == count.active                     # the encoder works once a picture
    assert flops_built(model, 7).modules == flops_built(K3(NANO), 7).modules


def test_the_preset_is_the_miniature_with_eyes():
    config = preset("vision")
    assert config.replace(vision=None) == preset("mini")
    assert config.vision.image_token == IMAGE
    assert picture_tokens(config.vision, 12, 12) == 9
    assert picture_tokens(preset("kimi_k3").vision, 28 * 32, 28) == 32


# --- refusals ---

@pytest.mark.parametrize(("tokens", "images", "kind", "text"), [
    (interleaved(), None, ValueError, r"K3: tokens has 18 picture markers (token 22), but no images came"),
    (interleaved(), pictures(number=2), ValueError,
     "K3: 2 images of 12 x 18 take 6 markers (token 22) each, 12 in all, but tokens has 18"),
    (interleaved()[:, :14], pictures(), ValueError,
     "K3: 3 images of 12 x 18 take 6 markers (token 22) each, 18 in all, but tokens has 15"),
    (torch.tensor([[EYE] * 7, [1, *[EYE] * 5, 1]]), pictures(number=2), ValueError,
     "K3: a picture takes 6 markers (token 22) in one row, but row 0 has 7: a picture must come whole, in one row"),
    (interleaved(), pictures().float(), ValueError, "K3: images must be uint8, 0 to 255, but torch.float32 came"),
    (interleaved(), pictures()[0], ShapeError, "K3: images must have shape [P, Y, X, 2], but [12, 18, 2] came"),
    (interleaved(), pictures().repeat(1, 1, 1, 2), ShapeError, "K3: images must have shape [P, Y, X, 2] with"),
    (interleaved(), pictures().numpy().tolist(), ShapeError, "K3: images must be an array of shape [P, Y, X, 2]"),
    (interleaved(), pictures()[:, :9], ValueError, "K3: images must have sides that are multiples of 6 (patch_size 3 "
     "times merge 2), but 9 x 18 came"),
    (interleaved(), pictures().repeat(1, 2, 2, 1), ValueError, "K3: images must be at most 21 pixels high and wide "
     "(position_table 7 times patch_size 3), but 24 x 36 came"),
])
def test_wrong_pictures(tokens, images, kind, text):
    with pytest.raises(kind) as error:
        seeing()(tokens, images=images)
    assert str(error.value).startswith(text)
    assert "\n" not in str(error.value)


def test_a_refused_call_leaves_the_cache_as_it_was():
    model, tokens = seeing(), interleaved()
    cache = model.new_cache(2)
    with torch.no_grad():
        model(tokens[:, :1], cache)
        with pytest.raises(ValueError, match="no images came"):
            model(tokens[:, 1:], cache)
        assert cache.length == 1
        close(model(tokens[:, 1:], cache, images=pictures()), model(tokens, images=pictures())[:, 1:])


def test_wrong_encoder_fields():
    with pytest.raises(ConfigError, match=r"vision.qkv_size must be a multiple of 4 num_heads = 12 .*, but 16 came"):
        VisionConfig(num_heads=3, qkv_size=16)
