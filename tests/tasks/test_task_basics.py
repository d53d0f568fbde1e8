"""Vocabulary, splits, examples, batches, small helpers, and the examples in all docstrings."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest
from task_solvers import SOLVERS

import k3_scratch.tasks
from k3_scratch.tasks import splits
from k3_scratch.tasks.batch import Batch
from k3_scratch.tasks.dice import dice, pick
from k3_scratch.tasks.example import Example
from k3_scratch.tasks.rows import letter
from k3_scratch.tasks.splits import SPLITS, draw_in_split, split_of
from k3_scratch.tasks.vocabulary import BOS, EOS, IMAGE, PAD, VOCAB_SIZE, decode, encode
from k3_scratch.tasks.words import draw_word

MODULES = [found.name for found in pkgutil.iter_modules(k3_scratch.tasks.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    module = importlib.import_module(f"k3_scratch.tasks.{name}")
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", ["example", "recall", "copy", "reverse", "brackets", "addition", "stories"])
def test_marks_in_module_docstrings_stand_under_their_answers(name):
    lines = importlib.import_module(f"k3_scratch.tasks.{name}").__doc__.split("\n")
    text = next(line for line in lines if line.startswith("    text"))
    marks = next(line for line in lines if line.startswith("    marks"))
    assert len(marks) == len(text) + 1                                    # "$" stands for the newline
    answers = "".join(char for char, mark in zip(text, marks, strict=False) if mark == "^")
    line = text.removeprefix("    text").strip()
    assert answers == "".join(SOLVERS["recall" if name == "example" else name](line))


def test_module_docstring_of_the_corpus_is_aligned():
    doc = importlib.import_module("k3_scratch.tasks.corpus").__doc__
    window, marks, documents = (next(line.split(name)[1].strip() for line in doc.split("\n") if name in line)
                                for name in ("    window ", "    marks ", "    documents "))
    assert len(window) == len(documents) == len(marks) + 3
    assert window[:-3].replace("⏎", "") + window[-3:] == "8+3=11 2+2=447+85=132___"
    assert [char == "$" for char in marks] == [char == "⏎" for char in window[:-3]]
    assert [int(number) for number in documents] == [window[:place].count("⏎") for place in range(len(window))]


def test_vocabulary():
    assert (BOS, EOS, PAD, IMAGE, VOCAB_SIZE) == (256, 257, 258, 259, 260)
    text = "47+85=132\n é 雪"
    assert decode(encode(text)) == text
    assert decode([BOS, 72, PAD, IMAGE, EOS]) == "<bos>H<pad><image><eos>"
    assert decode(np.array([195, 72])) == "\ufffdH"
    assert decode([]) == ""


@pytest.mark.parametrize("wrong", [-1, -260])
def test_decode_refuses_other_numbers(wrong):
    with pytest.raises(ValueError, match=f"ids must be numbers from 0 on, but {wrong} came"):
        decode([wrong])


def test_encode_refuses_other_things():
    with pytest.raises(ValueError, match="text must be a str, but b'x' came"):
        encode(b"x")


def test_a_content_has_one_split_forever():
    contents, expected = (line.split()[1:] for line in splits.__doc__.split("\n") if line.startswith("    "))
    assert [split_of(content) for content in contents] == expected == ["train", "train", "validation", "test"]
    counts = np.array([[split_of(f"word {number}") == split for split in SPLITS] for number in range(4000)]).sum(axis=0)
    assert counts.sum() == 4000
    np.testing.assert_allclose(counts / 4000, [0.8, 0.1, 0.1], atol=0.02)


def test_split_wants_text():
    with pytest.raises(ValueError, match="content must be a str, but 5 came"):
        split_of(5)


def test_draw_in_split_wants_every_content():
    numbers = iter(range(1000))
    drawn = draw_in_split("test", lambda: next(numbers), lambda number: [str(number), str(number + 1)])
    assert split_of(str(drawn)) == split_of(str(drawn + 1)) == "test"


@pytest.mark.parametrize("turns", [(), (("", "a"),), (("a", ""),), (("a\n", "b"),), (("é", "b"),)])
def test_wrong_examples(turns):
    with pytest.raises(ValueError, match="turns must be"):
        Example(turns)


def test_dice_are_fair_and_pick_takes_each_once():
    roll = dice(np.random.default_rng(0), 3000)
    counts = np.bincount([roll(5) for _ in range(2000)], minlength=5)
    assert counts.sum() == 2000
    assert (abs(counts - 400) < 80).all()
    assert sorted(pick(roll, "abcde", 5)) == list("abcde")


def test_words_use_every_letter_and_length():
    rng = np.random.default_rng(0)
    words = [draw_word(rng) for _ in range(500)]
    assert {len(word) for word in words} == set(range(3, 21))
    assert set("".join(words)) == set("abcdefghijklmnopqrstuvwxyz")


def test_letters_are_all_different():
    assert len({letter(number) for number in range(100)}) == 100


def test_batch_shifts_by_one():
    batch = Batch.from_windows([[5, 6, 7, 8]], np.array([[True, False, True, True]]),
                               np.array([[True, True, True, False]]), [2], np.array([[0, 0, 1, 1]]))
    assert batch.tokens.tolist() == [[5, 6, 7]]
    assert batch.targets.tolist() == [[-1, 7, 8]]
    assert batch.scored.tolist() == [[True, True, False]]
    assert batch.documents.tolist() == [[0, 0, 1]]
    assert batch.family.tolist() == [2]
