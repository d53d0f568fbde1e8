"""Multi-query associative recall: pairs of a key and a value, then several of the keys are asked.

    tokens     c 3 a 0 d 3 a d
    targets    . . . . . . 0 3

Letters are keys and numbers are values. Every key occurs once; the answers are targets and are not fed back.
After Arora et al., "Zoology", arXiv 2312.04927.
"""

from dataclasses import dataclass

import numpy as np

from k3_scratch.tasks.arguments import need, need_whole
from k3_scratch.tasks.batch import IGNORED, Batch
from k3_scratch.tasks.rows import interleave, letter, rows_in_split


@dataclass(frozen=True)
class Mqar:
    """The task and its sizes.

    >>> task = Mqar(keys=4, values=4, pairs=3, queries=2)
    >>> print(task.batch(np.random.default_rng(5), 1).show(symbol=task.symbol))
    d 3 b 1 c 2 b d
    . . . . . . 1 3
    """

    keys: int = 32          # different keys
    values: int = 32        # different values
    pairs: int = 8          # pairs in a row, each with another key
    queries: int = 8        # keys asked at the end, each another

    def __post_init__(self):
        for name in ("keys", "values", "pairs", "queries"):
            need_whole(name, getattr(self, name), 1)
        need(self.pairs <= self.keys, "pairs", f"at most keys = {self.keys}", self.pairs)
        need(self.queries <= self.pairs, "queries", f"at most pairs = {self.pairs}", self.queries)

    @property
    def vocab_size(self):
        return self.keys + self.values

    @property
    def length(self):
        return 2 * self.pairs + self.queries

    def symbol(self, token):
        """The name of a token: letters for keys, numbers for values."""
        return letter(token) if token < self.keys else str(token - self.keys)

    def batch(self, rng, batch_size, split="train"):
        """`batch_size` rows; the pairs decide the split."""
        need_whole("batch_size", batch_size, 1)
        pairs = rows_in_split(split, batch_size, lambda n: self._pairs(rng, n))               # [B, 2 * pairs]
        order = rng.permuted(np.tile(np.arange(self.pairs), (batch_size, 1)), axis=1)[:, :self.queries]
        asked = np.take_along_axis(pairs[:, ::2], order, axis=1)                              # [B, queries]
        answers = np.take_along_axis(pairs[:, 1::2], order, axis=1)
        return Batch.from_targets(np.hstack([pairs, asked]), np.hstack([np.full_like(pairs, IGNORED), answers]))

    def _pairs(self, rng, n):
        keys = rng.permuted(np.tile(np.arange(self.keys), (n, 1)), axis=1)[:, :self.pairs]
        values = self.keys + rng.integers(self.values, size=(n, self.pairs))
        return interleave(keys, values)
