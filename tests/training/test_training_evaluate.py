"""Accuracy and exact match against numbers counted by hand."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from k3_scratch.tasks.batch import IGNORED, Batch
from k3_scratch.tasks.corpus import FAMILIES, Corpus
from k3_scratch.tasks.vocabulary import NEWLINE, encode
from k3_scratch.training import evaluate
from k3_scratch.training.evaluate import accuracy, batch_loss, exact_match


class Always(nn.Module):
    """A model that expects `token` next everywhere, `surely` (a difference of logits) more than any other."""

    def __init__(self, token, surely=9.0, vocab=260):
        super().__init__()
        self.row = torch.zeros(vocab)
        self.row[token] = surely
        self.modes, self.lm_head = [], nn.Identity()

    def hidden(self, tokens, cache=None, *, mask=None, documents=None, images=None):
        self.modes.append(self.training)
        return self.row.expand(*tokens.shape, -1)

    def forward(self, tokens, cache=None, **settings):
        return self.lm_head(self.hidden(tokens, cache, **settings))


class TwoRows:
    """Data of two families that always gives the same row."""

    families = ("copy", "reverse")

    def __init__(self):
        self.asked = []

    def batch(self, rng, batch_size, split="train", family=None):
        self.asked.append((batch_size, split, family))
        seven = ord("7")
        #              given     answer  answer  answer  newline   given    answer
        targets = [IGNORED, seven, ord("8"), seven, NEWLINE, IGNORED, seven if family == "copy" else ord("9")]
        scored = [False, True, True, True, False, False, True]
        return Batch.from_targets([[65] * 7] * batch_size, [targets] * batch_size, [scored] * batch_size)


def test_accuracy_counts_the_scored_characters():
    """Three of four characters are "7" in copy, two of four in reverse; the newline is learnt but not scored."""
    right, _ = accuracy(Always(ord("7")), TwoRows(), "validation", 3)
    assert right == {"copy": 3 / 4, "reverse": 2 / 4}
    right, _ = accuracy(Always(NEWLINE), TwoRows(), "validation", 3)
    assert right == {"copy": 0.0, "reverse": 0.0}
    right, _ = accuracy(Always(65), TwoRows(), "validation", 1)           # what is given is not scored
    assert right == {"copy": 0.0, "reverse": 0.0}


def test_the_loss_is_the_mean_over_what_is_learnt():
    """Five targets, of which the model is sure about the "7"s; the newline counts here."""
    data, surely = TwoRows(), 2.0
    normal = math.log(259 + math.exp(surely))
    wanted = {"copy": (3 * (normal - surely) + 2 * normal) / 5, "reverse": (2 * (normal - surely) + 3 * normal) / 5}
    for family, value in wanted.items():
        loss, _ = batch_loss(Always(ord("7"), surely), data.batch(None, 4, family=family))
        assert loss.item() == pytest.approx(value, rel=1e-6)
    _, mean = accuracy(Always(ord("7"), surely), data, "test", 2)
    assert mean == pytest.approx(sum(wanted.values()) / 2, rel=1e-6)


def test_every_row_counts_the_same_in_the_loss():
    """One row has a single target, on which the model is sure, the other four on which it is not: 1/2, not 1/5."""
    four = [8, 8, 8, 8, IGNORED]
    batch = Batch.from_targets([[65] * 5] * 3, [[7, *[IGNORED] * 4], four, four])
    normal = math.log(259 + math.exp(2.0))
    loss, logits = batch_loss(Always(7, 2.0), batch)
    assert loss.item() == pytest.approx((normal - 2.0) / 3 + 2 * normal / 3, rel=1e-6)
    assert logits.shape == (9, 260)
    nothing = Batch.from_targets([[65] * 5] * 2, [[7, *[IGNORED] * 4], [IGNORED] * 5])
    assert batch_loss(Always(7, 2.0), nothing)[0].item() == pytest.approx((normal - 2.0) / 2, rel=1e-6)


def test_rows_come_in_parts_and_from_the_split():
    data = TwoRows()
    accuracy(Always(0), data, "test", 150)
    assert data.asked == [(n, "test", family) for family in ("copy", "reverse") for n in (64, 64, 22)]


@pytest.mark.parametrize("mode", [True, False])
def test_it_runs_in_evaluation_mode_and_puts_the_mode_back(mode):
    model = Always(0).train(mode)
    accuracy(model, TwoRows(), "test", 1)
    assert model.training is mode and not any(model.modes)


def test_accuracy_on_the_corpus_is_the_share_of_that_character():
    data, wanted = Corpus(80), {}
    for family in FAMILIES:
        part = data.batch(np.random.default_rng([3, 1]), 10, "test", family)
        answers = part.targets[part.scored]
        wanted[family] = (answers == ord("1")).mean()
        assert NEWLINE not in answers and NEWLINE in part.targets
    assert accuracy(Always(ord("1")), data, "test", 10, seed=3)[0] == pytest.approx(wanted)
    assert wanted["addition"] > 0.1
    assert set(accuracy(Always(NEWLINE), data, "test", 3)[0].values()) == {0.0}


def examples(family, count, seed=0, split="test"):
    """The questions that exact_match asks: every prompt with the true text before it, and the answer."""
    rng, asked = np.random.default_rng([seed, 2]), []
    for _ in range(count):
        before = ""
        for prompt, answer in FAMILIES[family].example(rng, split).turns:
            asked.append((before + prompt, answer))
            before += prompt + answer
    return asked


def writes(monkeypatch, answers, tail="\nand more"):
    """Let `generate` write answers[prompt] and something after it; remember what it was asked."""
    seen = []

    def generate(model, prompts, max_new_tokens, **settings):
        seen.extend(bytes(prompt).decode() for prompt in prompts)
        assert settings.get("temperature", 0.0) == 0.0                    # greedy
        return [encode(answers[bytes(prompt).decode()] + tail)[:max_new_tokens] for prompt in prompts]

    monkeypatch.setattr(evaluate, "generate", generate)
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_all_answers_right(family, monkeypatch):
    asked = examples(family, 5)
    seen = writes(monkeypatch, dict(asked))
    assert exact_match(None, [family], "test", 5) == {family: 1.0}
    assert seen == [prompt for prompt, _ in asked]


def test_a_share_is_right(monkeypatch):
    """recall asks twice and more in an example; every third answer is spoilt in its last character."""
    asked = examples("recall", 70)
    assert len(asked) > 128                                               # more than one batch
    spoilt = {prompt: answer[:-1] + ("!" if i % 3 == 0 else answer[-1]) for i, (prompt, answer) in enumerate(asked)}
    writes(monkeypatch, spoilt)
    distinct = dict(asked)
    assert len(distinct) == len(asked)
    wrong = len(range(0, len(asked), 3))
    assert exact_match(None, ["recall"], "test", 70)["recall"] == pytest.approx(1 - wrong / len(asked))


def test_an_answer_that_ends_early_or_starts_late_is_wrong(monkeypatch):
    asked = examples("addition", 4)
    writes(monkeypatch, {prompt: answer[:-1] for prompt, answer in asked}, tail="")
    assert exact_match(None, ["addition"], "test", 4) == {"addition": 0.0}
    writes(monkeypatch, {prompt: " " + answer for prompt, answer in asked})
    assert exact_match(None, ["addition"], "test", 4) == {"addition": 0.0}


def test_families_are_asked_one_by_one_with_the_seed(monkeypatch):
    asked = [*examples("copy", 3, seed=9, split="validation"), *examples("reverse", 3, seed=9, split="validation")]
    seen = writes(monkeypatch, dict(asked))
    assert exact_match(None, ["copy", "reverse"], "validation", 3, seed=9) == {"copy": 1.0, "reverse": 1.0}
    assert seen == [prompt for prompt, _ in asked]
    assert exact_match(None, [], "test", 3) == {}
