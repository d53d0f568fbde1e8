"""Copy: write a word again.

    text     copy wjxkqz>wjxkqz
    marks    ............^^^^^^$

Wants the whole word kept in order; the letters are random, so nothing can be guessed.
"""

from k3_scratch.tasks.example import Example
from k3_scratch.tasks.splits import draw_in_split
from k3_scratch.tasks.words import LONGEST_WORD, draw_word

NAME = "copy"
LONGEST = len("copy ") + LONGEST_WORD + len(">") + LONGEST_WORD + 1


def example(rng, split):
    """One example whose word belongs to `split`: 3 to 20 random letters.

    >>> import numpy as np
    >>> shown = example(np.random.default_rng(11), "train")
    >>> print(shown.text + shown.marks)
    copy mpady>mpady
    ...........^^^^^$
    """
    return draw_in_split(split, lambda: _draw(rng), contents)


def contents(example):
    """The word."""
    return [example.turns[0][0].removeprefix("copy ").removesuffix(">")]


def _draw(rng):
    word = draw_word(rng)
    return Example(((f"copy {word}>", word),))
