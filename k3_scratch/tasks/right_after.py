"""Right after: keys stand somewhere in filler; what came right after each of them?

    tokens     2 b 0 3 1 a 3 0 a b
    targets    . . . . . . . . 3 0

Letters are keys, numbers are values, and the filler is made of values too: the key alone marks a pair, and only
the order says which of its two neighbours is meant. More filler makes the same task longer.
"""

from dataclasses import dataclass

import numpy as np

from k3_scratch.tasks.arguments import need, need_whole
from k3_scratch.tasks.batch import IGNORED, Batch
from k3_scratch.tasks.rows import letter, rows_in_split


@dataclass(frozen=True)
class RightAfter:
    """The task and its sizes.

    >>> task = RightAfter(keys=3, values=4, pairs=2, filler=4, queries=2)
    >>> print(task.batch(np.random.default_rng(0), 1).show(symbol=task.symbol))
    0 0 3 2 a 2 c 3 c a
    . . . . . . . . 3 2
    """

    keys: int = 8           # different keys
    values: int = 8         # different values, which are the filler too
    pairs: int = 6          # keys in a row, each another and each followed by its value
    filler: int = 14        # values that belong to no key
    queries: int = 6        # keys asked at the end, each another

    def __post_init__(self):
        for name, least in (("keys", 1), ("values", 1), ("pairs", 1), ("filler", 0), ("queries", 1)):
            need_whole(name, getattr(self, name), least)
        need(self.pairs <= self.keys, "pairs", f"at most keys = {self.keys}", self.pairs)
        need(self.queries <= self.pairs, "queries", f"at most pairs = {self.pairs}", self.queries)

    @property
    def vocab_size(self):
        return self.keys + self.values

    @property
    def length(self):
        return 2 * self.pairs + self.filler + self.queries

    def symbol(self, token):
        """The name of a token: letters for keys, numbers for values."""
        return letter(token) if token < self.keys else str(token - self.keys)

    def batch(self, rng, batch_size, split="train"):
        """`batch_size` rows; everything before the questions decides the split."""
        need_whole("batch_size", batch_size, 1)
        shown = rows_in_split(split, batch_size, lambda n: self._shown(rng, n))               # [B, 2 * pairs + filler]
        where = np.nonzero(shown < self.keys)[1].reshape(batch_size, self.pairs)              # places of the keys
        where = rng.permuted(where, axis=1)[:, :self.queries]
        asked = np.take_along_axis(shown, where, axis=1)                                      # [B, queries]
        answers = np.take_along_axis(shown, where + 1, axis=1)
        return Batch.from_targets(np.hstack([shown, asked]), np.hstack([np.full_like(shown, IGNORED), answers]))

    def _shown(self, rng, n):
        """Shuffle blocks, 1 for a pair and 0 for a filler; a pair is one token wider."""
        blocks = rng.permuted(np.tile(np.arange(self.pairs + self.filler) < self.pairs, (n, 1)), axis=1)
        starts = np.cumsum(blocks + 1, axis=1) - (blocks + 1)
        where = starts[blocks].reshape(n, self.pairs)
        shown = self.keys + rng.integers(self.values, size=(n, 2 * self.pairs + self.filler))
        keys = rng.permuted(np.tile(np.arange(self.keys), (n, 1)), axis=1)[:, :self.pairs]
        np.put_along_axis(shown, where, keys, axis=1)
        return shown
