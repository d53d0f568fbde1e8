"""Addition: sums of two numbers from 0 to 99, the digits in the ordinary order.

    text     47+85=132 8+3=11
    marks    ......^^^.....^^$

The first digit written depends on carries from digits further right.
"""

from functools import cache
from re import findall

from k3_scratch.tasks.dice import dice
from k3_scratch.tasks.example import Example
from k3_scratch.tasks.splits import need_split, split_of

NAME = "addition"
FEWEST, MOST = 2, 4             # problems in an example
LONGEST = MOST * len("99+99=198 ")


def example(rng, split):
    """One example of 2 to 4 problems which all belong to `split`.

    >>> import numpy as np
    >>> shown = example(np.random.default_rng(1), "train")
    >>> print(shown.text + shown.marks)
    94+86=180 14+54=68
    ......^^^.......^^$
    """
    problems = _problems(split)
    roll = dice(rng, 1 + MOST)
    drawn = [problems[roll(len(problems))] for _ in range(FEWEST + roll(MOST - FEWEST + 1))]
    (first, answer), *others = drawn
    return Example(((first, answer), *((" " + prompt, answer) for prompt, answer in others)))


def contents(example):
    """Each problem, smaller number first: 85+47 and 47+85 are the same content "47+85"."""
    return [_content(*map(int, findall("[0-9]+", prompt))) for prompt, _ in example.turns]


def _content(a, b):
    return f"{min(a, b)}+{max(a, b)}"


@cache
def _problems(split):
    """All (prompt, answer) of a split: with 10,000 problems a table is faster than drawing until one belongs."""
    need_split(split)
    return [(f"{a}+{b}=", str(a + b)) for a in range(100) for b in range(100) if split_of(_content(a, b)) == split]
