"""Palindrome: a sequence, a bar, then the sequence backwards.

    tokens     c a d | d a
    targets    . . . d a c

One of the synthetic tasks of Kimi Linear (arXiv 2510.26692), as is `stack`. The newest symbol is wanted first.
"""

from dataclasses import dataclass

import numpy as np

from k3_scratch.tasks.arguments import need_whole
from k3_scratch.tasks.batch import Batch
from k3_scratch.tasks.rows import letter, rows_in_split


@dataclass(frozen=True)
class Palindrome:
    """The task and its sizes.

    >>> task = Palindrome(symbols=4, size=3)
    >>> print(task.batch(np.random.default_rng(1), 1).show(symbol=task.symbol))
    b c d | d c
    . . . d c b
    """

    symbols: int = 16       # different symbols; the bar is one more
    size: int = 10          # symbols in the sequence

    def __post_init__(self):
        need_whole("symbols", self.symbols, 1)
        need_whole("size", self.size, 1)

    @property
    def vocab_size(self):
        return self.symbols + 1

    @property
    def length(self):
        return 2 * self.size

    def symbol(self, token):
        """The name of a token: letters, and the bar."""
        return letter(token) if token < self.symbols else "|"

    def batch(self, rng, batch_size, split="train"):
        """`batch_size` rows; the sequence decides the split."""
        need_whole("batch_size", batch_size, 1)
        there = rows_in_split(split, batch_size, lambda n: rng.integers(self.symbols, size=(n, self.size)))
        bar = np.full((batch_size, 1), self.symbols)
        windows = np.hstack([there, bar, there[:, ::-1]])                                     # [B, 2 * size + 1]
        learnt = np.broadcast_to(np.arange(windows.shape[1]) > self.size, windows.shape)
        return Batch.from_windows(windows, learnt)
