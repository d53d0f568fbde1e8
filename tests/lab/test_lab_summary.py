"""Claims are judged by their rule; means, spreads and tables come from the numbers."""

import pytest

from k3_scratch.lab.summary import CONTRARY, NOT_SHOWN, SHOWN, Above, Within, sentence


def result(**variants):
    """A result with one value "v" at one size: variant=[value of each seed]."""
    return {"table": [], "cells": [{"variant": name, "size": "", "seed": seed, "values": {"v": value}}
                                   for name, values in variants.items() for seed, value in enumerate(values)]}


@pytest.mark.parametrize(("a", "b", "word"), [
    ([2, 3, 4], [1, 2, 3], SHOWN),            # above in every seed, although the ranges overlap
    ([2, 3, 2.9], [1, 2, 3], NOT_SHOWN),
    ([1, 2, 3], [2, 3, 4], CONTRARY),
    ([1, 2, 3], [1, 2, 3], NOT_SHOWN)])
def test_every_seed(a, b, word):
    assert Above("a", "v", ("a",), ("b",)).judge(result(a=a, b=b)).word == word
    down = Above("a", "v", ("a",), ("b",), lower=True).judge(result(a=a, b=b)).word
    assert down == {SHOWN: CONTRARY, CONTRARY: SHOWN, NOT_SHOWN: NOT_SHOWN}[word]


def test_every_one_of_better_against_every_one_of_worse():
    numbers = result(a=[5, 5], b=[3, 4], c=[1, 1], d=[2, 3.5])
    assert Above("x", "v", ("a", "b"), ("c", "d")).judge(numbers).word == SHOWN
    verdict = Above("x", "v", ("a", "b"), ("c", "d"), margin=0.75).judge(numbers)
    assert verdict.word == NOT_SHOWN
    assert verdict.sentence == "x: closest: b 3.5 (3…4) against d 2.75 (2…3.5), in 7 of 8 comparisons seed by seed"


@pytest.mark.parametrize(("a", "b", "word"), [
    ([1.0, 1.1, 0.9], [0.5, 0.6, 0.4], SHOWN), ([1.0, 2.0, 0.0], [0.9, 0.4, 1.6], NOT_SHOWN),
    ([0.5, 0.6, 0.4], [1.0, 1.1, 0.9], CONTRARY), ([1.0], [0.5], SHOWN)])
def test_the_mean_must_be_twice_its_error(a, b, word):
    assert Above("a", "v", ("a",), ("b",), by="mean").judge(result(a=a, b=b)).word == word


def test_within():
    numbers = result(a=[0.01, 0.04], b=[0.06, 0.07])
    for variants, word in ((("a",), SHOWN), (("a", "b"), NOT_SHOWN), (("b",), CONTRARY)):
        assert Within("x", "v", variants, high=0.05).judge(numbers).word == word
    assert Within("x", "v", ("a",), high=0.05).judge(numbers).sentence == "x: a 0.025 (0.01…0.04), 2 of 2"


def test_nothing_measured_is_not_shown():
    for claim in (Above("x", "w", ("a",), ("b",)), Within("x", "w", ("a",))):
        assert claim.judge(result(a=[1], b=[2])).word == NOT_SHOWN


def test_the_sentence_names_each_word():
    verdicts = [Within("x", "v", ("a",), high=high).judge(result(a=[1.0, 3.0])) for high in (5, 2, 0)]
    text = sentence(verdicts)
    assert [text.count(word) for word in ("Shown: ", "Not shown at this size: ", "Contrary: ")] == [1, 1, 1]
