"""Reverse: write a word backwards.

    text     flip wjxkqz>zqkxjw
    marks    ............^^^^^^$

The letter that came last is wanted first. Words are split as in `copy`, so a word held out there is held out here.
"""

from k3_scratch.tasks.example import Example
from k3_scratch.tasks.splits import draw_in_split
from k3_scratch.tasks.words import LONGEST_WORD, draw_word

NAME = "reverse"
LONGEST = len("flip ") + LONGEST_WORD + len(">") + LONGEST_WORD + 1


def example(rng, split):
    """One example whose word belongs to `split`: 3 to 20 random letters.

    >>> import numpy as np
    >>> shown = example(np.random.default_rng(11), "train")
    >>> print(shown.text + shown.marks)
    flip mpady>ydapm
    ...........^^^^^$
    """
    return draw_in_split(split, lambda: _draw(rng), contents)


def contents(example):
    """The word as it stands in the prompt."""
    return [example.turns[0][0].removeprefix("flip ").removesuffix(">")]


def _draw(rng):
    word = draw_word(rng)
    return Example(((f"flip {word}>", word[::-1]),))
