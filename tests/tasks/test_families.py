"""Each family: right answers, right split, fits, same seed same example."""

import re

import numpy as np
import pytest
from task_solvers import SOLVERS, answers_from_marks

from k3_scratch.tasks import addition, brackets, recall, stories
from k3_scratch.tasks.corpus import FAMILIES
from k3_scratch.tasks.example import Example
from k3_scratch.tasks.splits import SPLITS, split_of

EACH = pytest.mark.parametrize("name", list(FAMILIES))


def draw(name, count, split="train", seed=0):
    rng = np.random.default_rng(seed)
    return [FAMILIES[name].example(rng, split) for _ in range(count)]


def test_six_families_in_order():
    assert list(FAMILIES) == ["recall", "copy", "reverse", "brackets", "addition", "stories"]


@EACH
def test_answers_agree_with_an_independent_solver(name):
    for example in draw(name, 500):
        marked = answers_from_marks(example)
        assert marked == SOLVERS[name](example.text[:-1]), example.text
        assert marked == [answer for _, answer in example.turns]


@EACH
def test_every_content_belongs_to_the_split_asked_for(name):
    seen = {}
    for split in SPLITS:
        examples = draw(name, 300, split)
        seen[split] = {content for example in examples for content in FAMILIES[name].contents(example)}
        assert {split_of(content) for content in seen[split]} == {split}
    assert not seen["train"] & seen["validation"]
    assert not seen["train"] & seen["test"]
    assert not seen["validation"] & seen["test"]


@EACH
def test_fits_and_is_one_line(name):
    sizes = [len(example.text) for example in draw(name, 2000)]
    assert max(sizes) <= FAMILIES[name].LONGEST <= 80
    assert all(example.text.count("\n") == 1 and example.text.endswith("\n") for example in draw(name, 50))


@EACH
def test_same_seed_same_examples(name):
    assert draw(name, 20) == draw(name, 20)
    assert draw(name, 20) != draw(name, 20, seed=1)


@EACH
def test_wrong_split(name):
    with pytest.raises(ValueError, match="split must be one of train, validation, test, but 'dev' came"):
        draw(name, 1, "dev")


def test_recall_sizes():
    for example in draw("recall", 300):
        listed, asked = example.turns[0][0].split("?")
        assert 4 <= len(listed.split()) <= 8
        assert 3 <= len(example.turns) <= 6
        asked = [asked, *(prompt for prompt, _ in example.turns[1:])]
        assert len(set(asked)) == len(asked)
        assert recall.contents(example) == [listed]


def test_bracket_sizes():
    for example in draw("brackets", 500):
        assert 3 <= len(brackets.contents(example)[0]) <= 28
        assert 1 <= len(example.turns[0][1]) <= 8
    assert {len(example.turns[0][1]) for example in draw("brackets", 500)} == set(range(1, 9))


def test_bracket_prompt_closes_as_well_as_opens():
    shown = "".join(brackets.contents(example)[0] for example in draw("brackets", 300))
    share = sum(shown.count(closer) for closer in ")]}>") / len(shown)
    assert 0.25 < share < 0.5


def test_addition_does_not_care_for_the_order_of_the_numbers():
    assert addition.contents(Example((("85+47=", "132"), (" 3+11=", "14")))) == ["47+85", "3+11"]


def test_addition_covers_all_problems_once():
    tables = [{prompt for prompt, _ in addition._problems(split)} for split in SPLITS]
    assert sum(map(len, tables)) == len(set.union(*tables)) == 10_000
    assert [round(len(table) / 1000) for table in tables] == [8, 1, 1]


def short_cuts(examples):
    """How often the short cuts are right: last name of the story, last name before the question, first owner."""
    right, asked = np.zeros(3), 0
    for example in examples:
        story = stories.contents(example)[0]
        before = ""
        for prompt, answer in example.turns:
            before += prompt
            thing = re.search(r"(\w+)\? $", prompt)[1].lower()
            guesses = (re.findall(r"[A-Z][a-z]\b", story)[-1],
                       [name for name in re.findall(r"[A-Z][a-z]\b", before) if name in stories.NAMES][-1],
                       re.search(rf"([A-Z][a-z])( has)? {thing}", story)[1])
            right += [guess == answer for guess in guesses]
            before += answer
            asked += 1
    return right / asked


def test_short_cuts_through_stories_pay_little():
    last, last_before, first = short_cuts(draw("stories", 3000))
    assert last < 0.5
    assert last_before < 0.5
    assert first < 0.5


def test_stories_keep_to_their_sizes():
    for example in draw("stories", 300):
        opening, *events = stories.contents(example)[0].rstrip(".").split(". ")
        assert 2 <= len(opening.split(", ")) <= 4
        assert 1 <= len(events) <= 3
        assert 1 <= len(example.turns) <= 3
        assert len({name for name in stories.NAMES if name in example.text}) <= 5
