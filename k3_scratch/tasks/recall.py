"""Recall: a list of letters with digits, then some of the letters are asked.

    text     a4 k7 q2 z9?q2a4z9
    marks    .............^.^.^$

Wants a memory of which digit went with which letter. Guessing is right one time in ten.
"""

from string import ascii_lowercase

from k3_scratch.tasks.dice import dice, pick
from k3_scratch.tasks.example import Example
from k3_scratch.tasks.splits import draw_in_split

NAME = "recall"
LONGEST = 8 * 3 + 6 * 2 + 1     # 8 pairs each with a space or the question mark, 6 queries, the newline


def example(rng, split):
    """One example whose list belongs to `split`: 4 to 8 pairs with different letters, 3 to 6 of them asked.

    >>> import numpy as np
    >>> shown = example(np.random.default_rng(3), "train")
    >>> print(shown.text + shown.marks)
    w6 s6 k8 u2?k8w6u2s6
    .............^.^.^.^$
    """
    return draw_in_split(split, lambda: _draw(rng), contents)


def contents(example):
    """The list of pairs: the same list with other questions is the same content."""
    return [example.turns[0][0].split("?")[0]]


def _draw(rng):
    roll = dice(rng, 24)
    pairs = [(key, str(roll(10))) for key in pick(roll, ascii_lowercase, 4 + roll(5))]
    asked = pick(roll, pairs, 3 + roll(min(6, len(pairs)) - 2))
    listed = " ".join(key + value for key, value in pairs)
    (first, answer), *others = asked
    return Example(((f"{listed}?{first}", answer), *others))
