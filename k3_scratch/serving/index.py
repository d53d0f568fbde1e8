"""Which prefixes are kept, and which go first when room is short. Counts bytes; what is kept is opaque to it.

    checkpoint   at one block edge: everything a prefix needs, its own state and the latents of every block before it
    block        latents of `block` tokens, shared by all checkpoints whose prefix runs through it

    A ─── B ─── C ●          two checkpoints ●; the blocks A and B are there once and counted once,
           └─── D ─── E ●    and go when the last checkpoint behind them goes

A checkpoint is kept whole or not at all, so a name that is found never leads to half a prefix.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any


@dataclass
class Checkpoint:
    """A kept prefix: the names of its blocks, its state (opaque), and the bytes of the state alone."""

    names: tuple
    state: Any
    nbytes: int


@dataclass
class Block:
    """Latents (opaque) of one block, their bytes, and the number of checkpoints that need them."""

    latents: Any
    nbytes: int
    users: int = 0


class PrefixIndex:
    """At most `budget` bytes of checkpoints; the one whose last use is longest ago goes first. budget None: no limit.

    nbytes, peak    bytes kept now, and the most so far
    evicted         checkpoints thrown out for want of room
    refused         checkpoints larger than the whole budget
    """

    def __init__(self, budget=None):
        if budget is not None and budget < 0:
            raise ValueError(f"PrefixIndex: budget must be None or at least 0 bytes, but {budget} came")
        self.budget = budget
        self.checkpoints, self.blocks = OrderedDict(), {}                # checkpoints: least recently used first
        self.nbytes = self.peak = self.evicted = self.refused = 0

    def longest(self, names):
        """The longest prefix of these blocks that is kept, as a Checkpoint, and now the last used one; or None."""
        for name in reversed(names):
            if name in self.checkpoints:
                self.checkpoints.move_to_end(name)
                return self.checkpoints[name]
        return None

    def latents(self, checkpoint):
        """What is kept of each block of a checkpoint, first to last."""
        return [self.blocks[name].latents for name in checkpoint.names]

    def add(self, names, state, state_bytes, block_bytes, make_latents=None):
        """Keep the prefix of these blocks; True if it is kept now, False if it is larger than the budget.

        names                    of all blocks of the prefix, at least one
        state, state_bytes       kept at its end
        block_bytes              of the latents of one block; make_latents(i) gives those of block i where none are kept
        """
        names = tuple(names)
        if not names:
            raise ValueError("PrefixIndex.add: names must be those of at least one block")
        if names[-1] in self.checkpoints:
            self.checkpoints.move_to_end(names[-1])
            return True
        if self.budget is not None and state_bytes + len(names) * block_bytes > self.budget:
            self.refused += 1
            return False
        missing = [name for name in names if name not in self.blocks]
        for name in names:
            if name in self.blocks:                                      # hold on to them before others are thrown out
                self.blocks[name].users += 1
        self._make_room(state_bytes + len(missing) * block_bytes)
        for number, name in enumerate(names):
            if name not in self.blocks:
                self.blocks[name] = Block(None if make_latents is None else make_latents(number), block_bytes, 1)
        self.checkpoints[names[-1]] = Checkpoint(names, state, state_bytes)
        self.nbytes += state_bytes + len(missing) * block_bytes
        self.peak = max(self.peak, self.nbytes)
        return True

    def clear(self):
        """Forget everything that is kept; the counts stay."""
        self.checkpoints.clear()
        self.blocks.clear()
        self.nbytes = 0

    def _make_room(self, needed):
        while self.budget is not None and self.nbytes + needed > self.budget:
            _, gone = self.checkpoints.popitem(last=False)
            self.nbytes -= gone.nbytes
            self.evicted += 1
            for name in gone.names:
                self.blocks[name].users -= 1
                if self.blocks[name].users == 0:
                    self.nbytes -= self.blocks.pop(name).nbytes
