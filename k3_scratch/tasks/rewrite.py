"""Rewrite: keys are written several times, and the newest value counts.

    tokens     a 3 b 1 a 2 b a
    targets    . . . . . . 1 2

Letters are keys and numbers are values. A memory that only adds finds 3 and 2 mixed under "a"; the delta rule
takes 3 out before it writes 2. The answers are targets and are not fed back.
"""

from dataclasses import dataclass

import numpy as np

from k3_scratch.tasks.arguments import need, need_whole
from k3_scratch.tasks.batch import IGNORED, Batch
from k3_scratch.tasks.rows import interleave, letter, rows_in_split


@dataclass(frozen=True)
class Rewrite:
    """The task and its sizes.

    >>> task = Rewrite(keys=2, values=4, writes=4, queries=2)
    >>> print(task.batch(np.random.default_rng(37), 1).show(symbol=task.symbol))
    a 0 b 3 b 2 a 1 b a
    . . . . . . . . 2 1
    """

    keys: int = 6           # different keys; each is written at least once
    values: int = 6         # different values
    writes: int = 18        # pairs of a key and a value
    queries: int = 6        # keys asked at the end, each another

    def __post_init__(self):
        for name in ("keys", "values", "writes", "queries"):
            need_whole(name, getattr(self, name), 1)
        need(self.writes >= self.keys, "writes", f"at least keys = {self.keys}", self.writes)
        need(self.queries <= self.keys, "queries", f"at most keys = {self.keys}", self.queries)

    @property
    def vocab_size(self):
        return self.keys + self.values

    @property
    def length(self):
        return 2 * self.writes + self.queries

    def symbol(self, token):
        """The name of a token: letters for keys, numbers for values."""
        return letter(token) if token < self.keys else str(token - self.keys)

    def batch(self, rng, batch_size, split="train"):
        """`batch_size` rows; the writes decide the split."""
        need_whole("batch_size", batch_size, 1)
        writes = rows_in_split(split, batch_size, lambda n: self._writes(rng, n))             # [B, 2 * writes]
        newest = np.zeros((batch_size, self.keys), np.int64)
        rows = np.arange(batch_size)
        for step in range(0, 2 * self.writes, 2):
            newest[rows, writes[:, step]] = writes[:, step + 1]
        asked = rng.permuted(np.tile(np.arange(self.keys), (batch_size, 1)), axis=1)[:, :self.queries]
        answers = np.take_along_axis(newest, asked, axis=1)                                   # [B, queries]
        return Batch.from_targets(np.hstack([writes, asked]), np.hstack([np.full_like(writes, IGNORED), answers]))

    def _writes(self, rng, n):
        once = np.tile(np.arange(self.keys), (n, 1))
        again = rng.integers(self.keys, size=(n, self.writes - self.keys))
        keys = rng.permuted(np.hstack([once, again]), axis=1)
        values = self.keys + rng.integers(self.values, size=(n, self.writes))
        return interleave(keys, values)
