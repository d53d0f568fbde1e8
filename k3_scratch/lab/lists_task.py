"""Lists: MQAR with lists of several lengths in one training, and as many questions as pairs.

    batch of 4 pairs    k 2 c 0 f 3 a 3 f a k c            every row of a batch has the same number of pairs
                        . . . . . . . . 3 3 2 0

Short lists teach what to do, long ones ask for more than a small state holds.
"""

from dataclasses import dataclass

from k3_scratch.tasks.arguments import need
from k3_scratch.tasks.mqar import Mqar


@dataclass(frozen=True)
class Lists:
    """The task and its sizes; each batch draws one of `pairs`.

    >>> import numpy as np
    >>> task = Lists(keys=4, values=4, pairs=(2,))
    >>> task.batch(np.random.default_rng(0), 3).tokens.shape, task.length
    ((3, 6), 6)
    """

    keys: int = 64          # different keys
    values: int = 16        # different values
    pairs: tuple = (4, 8, 16)   # numbers of pairs, each equally likely; all keys of a list are asked once

    def __post_init__(self):
        need(isinstance(self.pairs, tuple) and self.pairs, "pairs", "a tuple with at least one number", self.pairs)
        for number in self.pairs:
            self.of(number)

    def of(self, number):
        """The task with this number of pairs alone; ValueError where there are not as many keys."""
        return Mqar(self.keys, self.values, number, number)

    @property
    def vocab_size(self):
        return self.keys + self.values

    @property
    def length(self):
        return self.of(max(self.pairs)).length

    def batch(self, rng, batch_size, split="train"):
        """`batch_size` rows with one number of pairs; the pairs decide the split."""
        return self.of(int(rng.choice(self.pairs))).batch(rng, batch_size, split)
