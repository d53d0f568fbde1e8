"""The corpus: whole examples in windows, targets one step on, splits, mixture."""

import numpy as np
import pytest
from task_solvers import SOLVERS

from k3_scratch.tasks.corpus import FAMILIES, WEIGHTS, Corpus
from k3_scratch.tasks.splits import split_of
from k3_scratch.tasks.vocabulary import NEWLINE, PAD, decode

NAMES = list(FAMILIES)


def window_of(batch, row):
    """Tokens of a row with the newline that is only a target, if there is one."""
    last = batch.targets[row, -1]
    return [*batch.tokens[row].tolist(), *([int(last)] if last >= 0 else [PAD])]


def lines_of(batch, row):
    """The examples of a row as texts, without PAD."""
    text = decode(token for token in window_of(batch, row) if token != PAD)
    assert text.endswith("\n"), "an example was cut"
    return text[:-1].split("\n")


@pytest.fixture(scope="module")
def batch():
    return Corpus().batch(np.random.default_rng(0), 64)


def test_shapes_and_types(batch):
    for array in (batch.tokens, batch.targets, batch.documents):
        assert (array.shape, array.dtype) == ((64, 80), np.int64)
    assert (batch.scored.shape, batch.scored.dtype) == ((64, 80), bool)
    assert (batch.family.shape, batch.family.dtype) == ((64,), np.int64)
    assert batch.tokens.max() == PAD


def test_same_seed_same_batch(batch):
    again = Corpus().batch(np.random.default_rng(0), 64)
    other = Corpus().batch(np.random.default_rng(1), 64)
    for name in ("tokens", "targets", "scored", "family", "documents"):
        np.testing.assert_array_equal(getattr(batch, name), getattr(again, name))
    assert (batch.tokens != other.tokens).any()


def test_examples_are_whole_and_answers_right(batch):
    for row in range(64):
        name = NAMES[batch.family[row]]
        lines = lines_of(batch, row)
        shown = decode(batch.targets[row][batch.scored[row]])
        assert shown == "".join(answer for line in lines for answer in SOLVERS[name](line))
        assert len(lines) == batch.documents[row][batch.tokens[row] != PAD].max() + 1


def test_targets_are_the_next_tokens_where_there_is_something_to_learn(batch):
    learnt = batch.targets >= 0
    np.testing.assert_array_equal(batch.targets[:, :-1][learnt[:, :-1]], batch.tokens[:, 1:][learnt[:, :-1]])
    np.testing.assert_array_equal(batch.targets[~learnt], -1)
    np.testing.assert_array_equal(learnt & ~batch.scored, batch.targets == NEWLINE)
    assert (batch.targets[batch.scored] != NEWLINE).all()


def test_alignment_by_hand():
    batch = Corpus(length=50, families=["copy"]).batch(np.random.default_rng(3), 1)
    text = decode(batch.tokens[0])
    first = text.index(">")                                   # the last character of the prompt
    word = text[len("copy "):first]
    assert [chr(target) for target in batch.targets[0, first:first + len(word) + 1]] == [*word, "\n"]
    assert not batch.scored[0, :first].any()
    assert batch.scored[0, first:first + len(word)].all()
    assert not batch.scored[0, first + len(word)]


def test_documents_keep_examples_and_padding_apart(batch):
    for row in range(64):
        number, found_pad = 0, False
        for token, document in zip(batch.tokens[row], batch.documents[row], strict=True):
            assert document == number
            found_pad |= token == PAD
            assert found_pad == (token == PAD)                # PAD only at the end
            number += token == NEWLINE


def test_splits_of_rows_are_kept():
    for split in ("validation", "test"):
        batch = Corpus().batch(np.random.default_rng(5), 24, split)
        for row in range(24):
            for line in lines_of(batch, row):
                assert {split_of(content) for content in contents_of(NAMES[batch.family[row]], line)} == {split}


def contents_of(name, line):
    """What decides the split, read from the text of an example."""
    if name == "addition":
        return ["+".join(sorted(problem.split("=")[0].split("+"), key=int)) for problem in line.split(" ")]
    if name == "stories":
        return [line[:line.index("?")].rsplit(" ", 1)[0]]
    return {"recall": [line.split("?")[0]], "copy": [line[5:].split(">")[0]], "reverse": [line[5:].split(">")[0]],
            "brackets": [line[4:].split("=")[0]]}[name]


@pytest.mark.parametrize("name", NAMES)
def test_one_family_alone(name):
    batch = Corpus().batch(np.random.default_rng(0), 4, family=name)
    assert (batch.family == NAMES.index(name)).all()
    only = Corpus(length=FAMILIES[name].LONGEST, families=[name])
    assert (only.batch(np.random.default_rng(0), 50).scored.sum(axis=1) > 0).all()


def test_mixture_follows_the_weights():
    family = Corpus().batch(np.random.default_rng(0), 1200).family
    shares = np.bincount(family, minlength=6) / 1200
    np.testing.assert_allclose(shares, np.array(list(WEIGHTS.values())) / sum(WEIGHTS.values()), atol=0.04)
    even = Corpus(weights={"copy": 1, "brackets": 3}).batch(np.random.default_rng(0), 200).family
    assert set(even) == {1, 3}


def test_longer_windows_hold_more_examples():
    assert Corpus(length=400).batch(np.random.default_rng(0), 4, family="addition").documents.max() > 6


@pytest.mark.parametrize("arguments, message", [
    ({"length": 79}, "length must be a whole number, at least 80, but 79 came"),
    ({"length": 80.0}, "length must be a whole number"),
    ({"families": ["copy", "poems"]}, "families must be different names out of recall, copy"),
    ({"families": []}, "families must be"),
    ({"families": ["copy", "copy"]}, "families must be"),
    ({"weights": {"poems": 1}}, "weights must be"),
    ({"weights": [1, 2]}, "weights must be"),
    ({"weights": {"copy": -1}}, "weights must be"),
    ({"weights": {"copy": 1}, "families": ["recall"]}, "weights must be"),
])
def test_wrong_corpus(arguments, message):
    with pytest.raises(ValueError, match=message):
        Corpus(**arguments)


@pytest.mark.parametrize("arguments, message", [
    ({"batch_size": 0}, "batch_size must be a whole number, at least 1, but 0 came"),
    ({"batch_size": 1, "split": "dev"}, "split must be one of"),
    ({"batch_size": 1, "family": "poems"}, "family must be None or one of recall, .* but 'poems' came"),
])
def test_wrong_batch(arguments, message):
    with pytest.raises(ValueError, match=message):
        Corpus().batch(np.random.default_rng(0), **arguments)


def test_family_outside_this_corpus():
    with pytest.raises(ValueError, match="family must be None or one of copy, but 'recall' came"):
        Corpus(families=["copy"]).batch(np.random.default_rng(0), 1, family="recall")
