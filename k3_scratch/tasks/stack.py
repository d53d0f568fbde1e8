"""Stack: symbols are pushed on several stacks and popped again; which one comes off?

    tokens     + 0 c + 1 a + 0 b - 0 b - 0 c - 1
    targets    . . . . . . . . . . b . . c . . a

An operation is three tokens: "+" or "-", the number of the stack, the symbol. At a pop the symbol is the target, and
it is fed back afterwards. Kimi Linear (arXiv 2510.26692) does it with 64 stacks. A stack is a state that a bag of
pairs cannot stand for: what a pop gives depends on all pushes and pops before it.
"""

from dataclasses import dataclass

import numpy as np

from k3_scratch.tasks.arguments import need_whole
from k3_scratch.tasks.batch import Batch
from k3_scratch.tasks.rows import letter, rows_in_split

PUSH, POP = 0, 1            # the first two tokens; then the stacks, then the symbols


@dataclass(frozen=True)
class Stack:
    """The task and its sizes.

    >>> task = Stack(stacks=2, symbols=4, operations=6)
    >>> print(task.batch(np.random.default_rng(3), 1).show(symbol=task.symbol))
    + 1 a + 0 d - 0 d - 1 a + 1 c - 1
    . . . . . . . d . . a . . . . . c
    """

    stacks: int = 4         # independent stacks
    symbols: int = 16       # different symbols
    operations: int = 16    # pushes and pops in a row; at least one is a pop

    def __post_init__(self):
        for name, least in (("stacks", 1), ("symbols", 1), ("operations", 2)):
            need_whole(name, getattr(self, name), least)

    @property
    def vocab_size(self):
        return 2 + self.stacks + self.symbols

    @property
    def length(self):
        return 3 * self.operations - 1

    def symbol(self, token):
        """The name of a token: + and -, numbers for stacks, letters for symbols."""
        names = ["+", "-", *map(str, range(self.stacks))]
        return names[token] if token < len(names) else letter(token - len(names))

    def batch(self, rng, batch_size, split="train"):
        """`batch_size` rows; all operations together decide the split."""
        need_whole("batch_size", batch_size, 1)
        windows = rows_in_split(split, batch_size, lambda n: self._operations(rng, n))        # [B, 3 * operations]
        popped = np.repeat(windows[:, ::3] == POP, 3, axis=1)
        return Batch.from_windows(windows, popped & (np.arange(windows.shape[1]) % 3 == 2))

    def _operations(self, rng, n):
        """Pop with probability 1/2 where the stack holds something; the last operation follows on the one before."""
        rows = np.arange(n)
        held = np.zeros((n, self.stacks, self.operations), np.int64)
        height = np.zeros((n, self.stacks), np.int64)
        windows = np.zeros((n, self.operations, 3), np.int64)
        for step in range(self.operations):
            last = step == self.operations - 1
            stack = windows[:, step - 1, 1] - 2 if last else rng.integers(self.stacks, size=n)     # [n]
            top = height[rows, stack]
            pop = (top > 0) & (last | (rng.random(n) < 0.5))
            new = 2 + self.stacks + rng.integers(self.symbols, size=n)
            shown = np.where(pop, held[rows, stack, top - 1], new)
            held[rows, stack, top] = np.where(pop, held[rows, stack, top], new)
            height[rows, stack] += np.where(pop, -1, 1)
            windows[:, step] = np.stack([np.where(pop, POP, PUSH), 2 + stack, shown], axis=1)
        return windows.reshape(n, -1)
