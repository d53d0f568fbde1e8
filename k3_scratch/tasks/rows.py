"""Rows of symbols for the synthetic tasks, drawn until they belong to a split."""

import numpy as np

from k3_scratch.tasks.splits import need_split, split_of

_BLOCKS = 1000       # blocks drawn before a task counts as too small to have a prompt in the split


def rows_in_split(split, count, draw):
    """`count` rows that all belong to `split`.                                        -> int64 [count, P]

    draw    function from a number n to n random rows [n, P]
    Raises ValueError when a task is so small that the split has none of its rows.
    """
    need_split(split)
    found = []
    for _ in range(_BLOCKS):
        rows = draw(count)
        found += [row for row, symbols in zip(rows, rows.tolist(), strict=True)
                  if split_of(" ".join(map(str, symbols))) == split]
        if len(found) >= count:
            return np.array(found[:count], dtype=np.int64)
    raise ValueError(f"split must be one which has rows, but none of {_BLOCKS * count} random rows is in {split!r}: "
                     "the task is too small, make it longer")


def interleave(*columns):
    """Columns a, b, ... [N, P] as rows a b a b ... [N, 2P].

    >>> interleave(np.array([[1, 2]]), np.array([[8, 9]]))
    array([[1, 8, 2, 9]])
    """
    return np.stack(columns, axis=-1).reshape(len(columns[0]), -1)


def letter(number):
    """A short name for a symbol: a ... z, then a1 ... z1, and so on.

    >>> letter(0), letter(25), letter(26)
    ('a', 'z', 'a1')
    """
    return chr(ord("a") + number % 26) + (str(number // 26) if number >= 26 else "")
