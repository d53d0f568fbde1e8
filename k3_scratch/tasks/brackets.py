"""Brackets: close everything that is still open, the newest first.

    text     end ([]{(=)})
    marks    ..........^^^$

The answer is the shortest text that closes all. "=" ends the prompt because ">" is itself a bracket.
"""

from k3_scratch.tasks.dice import dice
from k3_scratch.tasks.example import Example
from k3_scratch.tasks.splits import draw_in_split

NAME = "brackets"
CLOSER = {"(": ")", "[": "]", "{": "}", "<": ">"}
DEEPEST, MOST = 8, 28           # most brackets open at once; most brackets in the prompt
LONGEST = len("end ") + MOST + len("=") + DEEPEST + 1
_OPENERS = "".join(CLOSER)


def example(rng, split):
    """One example whose brackets belong to `split`: 3 to 28 of them, 1 to 8 still open at the end.

    >>> import numpy as np
    >>> shown = example(np.random.default_rng(1), "train")
    >>> print(shown.text + shown.marks)
    end ([])<<(=)>>
    ............^^^$
    """
    return draw_in_split(split, lambda: _draw(rng), contents)


def contents(example):
    """The brackets of the prompt."""
    return [example.turns[0][0].removeprefix("end ").removesuffix("=")]


def _draw(rng):
    """A random walk: open with probability 5/8, else close the newest; the last step opens if nothing is open."""
    roll = dice(rng, 1 + MOST)
    size = 3 + roll(MOST - 2)
    shown, open_now = [], []
    for step in range(size):
        number = roll(32)                                    # its last two bits: the kind; the rest: open or close
        wants_to_open = number < 20 and len(open_now) < DEEPEST
        if wants_to_open or not open_now or (step == size - 1 and len(open_now) == 1):
            opener = _OPENERS[number % 4]
            shown.append(opener)
            open_now.append(CLOSER[opener])
        else:
            shown.append(open_now.pop())
    return Example((("end " + "".join(shown) + "=", "".join(reversed(open_now))),))
