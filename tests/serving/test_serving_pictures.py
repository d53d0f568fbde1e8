"""Pictures in a conversation with a store: fed whole, told apart, and the answers are those of `generate`."""

import numpy as np
import pytest
import torch
from torch_helpers import live_model

from k3_scratch.config import preset
from k3_scratch.generate import generate
from k3_scratch.serving.answering import stream
from k3_scratch.serving.picture_spans import picture_bytes, picture_spans
from k3_scratch.serving.policies import at_turns, every
from k3_scratch.serving.prefix_store import PrefixStore
from k3_scratch.tasks.glyphs import SIDE
from k3_scratch.tasks.pictures import MARKERS, prompt


@pytest.fixture(scope="module")
def model():
    vision = preset("vision").vision
    return live_model(preset("nano").replace(initializer_range=0.15, vision=vision))


def pictures(count, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(256, size=(count, SIDE, SIDE, 3), dtype=np.uint8))


@pytest.mark.parametrize("block", [1, 5, 7])
@pytest.mark.parametrize("policy", [at_turns, every(1)])
def test_a_conversation_about_pictures(model, block, policy):
    images, store = pictures(3), PrefixStore(model, block=block)
    history, turns, saved = [], [], []
    for text, shown in (("@red?", 1), ("how many?", 1), ("\n@@left?", 3), ("what?", 3)):
        history = history + prompt(text)
        before = store.statistics.saved
        answer = list(stream(model, history, 6, store=store, policy=policy, turns=turns, images=images[:shown]))
        saved.append(store.statistics.saved - before)
        assert answer == generate(model, history, 6, images=images[:shown])
        assert model.config.vision.image_token not in answer
        turns, history = [*turns, len(history), len(history) + 6], history + answer
    assert saved[0] == 0 and all(saved[1:])


def test_no_state_is_kept_inside_a_picture(model):
    images, store, text = pictures(2), PrefixStore(model, block=5), prompt("ab@cdefgh@ijklmnopq")
    list(stream(model, text, 1, store=store, policy=every(5), images=images))
    edges = sorted(len(c.names) * 5 for c in store.index.checkpoints.values())
    assert edges == [edge for edge in range(5, len(text) + 1, 5)
                     if not (2 < edge < 2 + MARKERS or 8 + MARKERS < edge < 8 + 2 * MARKERS)] and len(edges) >= 2


def test_another_picture_behind_the_same_markers_is_no_hit(model):
    images, store, text = pictures(2), PrefixStore(model, block=3), prompt("abcd@efghijk")
    list(stream(model, text, 1, store=store, policy=every(3), images=images[:1]))
    for image, reused in ((images[:1], 18), (images[1:], 3)):
        before = store.statistics.saved
        assert list(stream(model, text, 4, store=store, images=image)) == generate(model, text, 4, images=image)
        assert store.statistics.saved - before == reused
    assert generate(model, text, 4, images=images[:1]) != generate(model, text, 4, images=images[1:])


def test_spans(model):
    images, text = pictures(2), prompt("ab@@c")
    spans = picture_spans(model.config, text, images)
    assert spans == [(2, 2 + MARKERS), (2 + MARKERS, 2 + 2 * MARKERS)]
    assert picture_bytes(spans, images) == {2: images[0].numpy().tobytes(), 2 + MARKERS: images[1].numpy().tobytes()}
    assert picture_spans(model.config, prompt("ab"), None) == [] == picture_spans(preset("nano"), [259], None)
    with pytest.raises(ValueError, match="images"):
        picture_spans(model.config, text, images[:1])
    with pytest.raises(ValueError, match="no images came"):
        picture_spans(model.config, text, None)
    with pytest.raises(ValueError, match="images needs a model with a vision encoder"):
        picture_spans(preset("nano"), text, images)
