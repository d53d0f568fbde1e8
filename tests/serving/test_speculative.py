"""Speculative decoding: whatever the draft guesses, the text is the one that the model would have written alone."""

import numpy as np
import pytest
from torch_helpers import NANO, live_model, tokens_for, variant

from k3_scratch.config import preset
from k3_scratch.generate import generate
from k3_scratch.model import K3
from k3_scratch.serving.rollback import Copies, Replay
from k3_scratch.serving.speculative import ModelDraft, speculate

NEW = 15
GUESSES = pytest.mark.parametrize("guesses", [1, 2, 5, 14, 30])


@pytest.fixture(scope="module")
def model():
    """float64 and wide weights: the logits are far apart, so rounding cannot change a choice."""
    return K3(preset("nano").replace(initializer_range=0.4), seed=3).double().eval()


@pytest.fixture(scope="module")
def prompt(model):
    return np.random.default_rng(2).integers(256, size=9).tolist()


@pytest.fixture(scope="module")
def alone(model, prompt):
    tokens = generate(model, prompt, NEW)
    assert len(set(tokens)) > 5
    return tokens


def oracle(prompt, alone):
    """Always right."""
    return lambda tokens, count: alone[len(tokens) - len(prompt):][:count]


def liar(prompt, alone):
    """Always wrong."""
    return lambda tokens, count: [(token + 1) % 256 for token in alone[len(tokens) - len(prompt):][:count]]


def moody(prompt, alone):
    """Right or wrong at random, and silent at times."""
    rng = np.random.default_rng(8)

    def draft(tokens, count):
        count = int(rng.integers(count + 1))
        right = alone[len(tokens) - len(prompt):][:count]
        return [token if rng.random() < 0.7 else (token + 1) % 256 for token in right]
    return draft


@GUESSES
@pytest.mark.parametrize("rollback", [Replay, Copies])
@pytest.mark.parametrize("kind", [oracle, liar, moody])
def test_the_text_does_not_depend_on_the_draft(model, prompt, alone, kind, rollback, guesses):
    result = speculate(model, kind(prompt, alone), prompt, NEW, guesses=guesses, rollback=rollback)
    assert result.tokens == alone
    assert 0 <= result.accepted <= result.proposed
    if kind is liar:
        assert (result.accepted, result.calls) == (0, NEW)               # one token a call, as without a draft
    if kind is oracle:
        assert result.acceptance == 1.0
        assert result.calls == 1 + -(-(NEW - 1) // (guesses + 1))        # each call gives all guesses and one more
        assert result.rollback_bytes > 0
    if kind is moody and guesses > 2:
        assert 0 < result.acceptance < 1 and result.calls < NEW


@pytest.mark.parametrize("kind", [oracle, liar, moody])
@pytest.mark.parametrize("guesses", [1, 4])
def test_the_stop_token_ends_the_text_wherever_it_falls(model, prompt, alone, kind, guesses):
    for stop in list(dict.fromkeys(alone))[:7]:
        want = alone[:alone.index(stop) + 1]                             # what `generate` does, see test_generate.py
        result = speculate(model, kind(prompt, alone), prompt, NEW, guesses=guesses, stop_tokens=(stop,))
        assert result.tokens == want
    assert speculate(model, kind(prompt, alone), prompt, NEW, stop_tokens=(alone[-1], alone[2])).tokens == alone[:3]


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_no_token_too_many(model, prompt, alone, length):
    result = speculate(model, oracle(prompt, alone), prompt, length, guesses=4)
    assert result.tokens == alone[:length]
    assert result.proposed == max(0, length - 2) == result.accepted      # a guess that could not be used is not made


@pytest.mark.parametrize("name", ["k3", "kimi_linear", "all_kda", "all_mla", "one_tap"])
def test_with_a_model_as_draft(name):
    """Another model, and the model itself: right every time."""
    config = variant(name)
    model, prompt = live_model(config), tokens_for(config, 7, seed=5).tolist()
    alone = generate(model, prompt, 12)
    small = live_model(config.replace(num_layers=1, mla_layers=()), seed=9)
    for draft, right in ((small, False), (model, True)):
        result = speculate(model, ModelDraft(draft), prompt, 12, guesses=3)
        assert result.tokens == alone
        assert not right or result.acceptance == 1.0


def test_a_model_draft_guesses_its_own_continuation_of_any_text():
    """Growing, shrinking and other texts; it remembers only what still holds."""
    model = live_model(NANO)
    draft, text = ModelDraft(model), tokens_for(NANO, 14, seed=5).tolist()
    for tokens, count in ((text[:5], 3), (text[:6], 1), (text[:11], 4), (text[:11], 2), (text[:4], 2), (text[3:9], 5),
                          (text, 1), (text[:13] + [1, 2], 2)):
        assert draft(tokens, count) == generate(model, tokens, count)
    assert draft(text, 0) == []
    assert draft(text + [4], 2) == generate(model, text + [4], 2)


def test_wrong_arguments_are_named(model):
    with pytest.raises(ValueError, match="speculate: guesses must be at least 1, but 0 came"):
        speculate(model, None, [1], guesses=0)
    with pytest.raises(ValueError, match="speculate: prompt_ids must be"):
        speculate(model, None, [])
    with pytest.raises(ValueError, match="speculate: max_new_tokens must be at least 1, but 0 came"):
        speculate(model, None, [1], 0)


def test_the_mode_of_the_model_is_restored(model, prompt, alone):
    model.train()
    try:
        speculate(model, oracle(prompt, alone), prompt, 3)
        assert model.training
    finally:
        model.eval()
