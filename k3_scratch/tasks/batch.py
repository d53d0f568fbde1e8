"""A batch: what goes in, what should come out, and where that counts.

targets[t] is what should come after tokens[t]; -1 where nothing is to be learnt.

    tokens     a 4 _ k 7 ? k 7 a 4
    targets    . . . . . . 7 . 4 \\n
    scored     0 0 0 0 0 0 1 0 1 0
"""

from dataclasses import dataclass, fields

import numpy as np

IGNORED = -1                    # a target that counts for nothing


@dataclass(frozen=True)
class Batch:
    """Arrays of one batch; B rows of T tokens.

    >>> batch = Batch.from_windows(np.array([[5, 6, 7, 6]]), np.array([[False, False, False, True]]))
    >>> print(batch.show())
    5 6 7
    . . 6
    """

    tokens: np.ndarray          # int64 [B, T]  inputs
    targets: np.ndarray         # int64 [B, T]  what should come next, or -1
    scored: np.ndarray          # bool  [B, T]  targets that count for accuracy
    family: np.ndarray          # int64 [B]     number of the family of each row
    documents: np.ndarray       # int64 [B, T]  number of the example inside the row
    images: np.ndarray | None = None    # uint8 [B, P, Y, X, C]  pictures of each row, or none

    @classmethod
    def from_windows(cls, windows, learnt, scored=None, family=None, documents=None, images=None):
        """Cut windows of T + 1 tokens into inputs and targets.                    [B, T+1] -> [B, T]

        windows                       int [B, T+1]
        learnt, scored, documents     [B, T+1], about the tokens of the window; scored None: all that is learnt
        family                        int [B]
        images                        uint8 [B, P, Y, X, C]
        """
        windows = np.asarray(windows, dtype=np.int64)
        targets = np.where(learnt[:, 1:], windows[:, 1:], IGNORED)
        return cls.from_targets(
            windows[:, :-1], targets, None if scored is None else scored[:, 1:], family,
            None if documents is None else documents[:, :-1], images)

    @classmethod
    def from_targets(cls, tokens, targets, scored=None, family=None, documents=None, images=None):
        """Fill in what a plain task does not need: all targets scored, one family, one document a row."""
        tokens, targets = np.array(tokens, dtype=np.int64), np.array(targets, dtype=np.int64)
        scored = targets != IGNORED if scored is None else np.array(scored, dtype=bool)
        family = np.zeros(len(tokens), np.int64) if family is None else np.array(family, dtype=np.int64)
        documents = np.zeros_like(tokens) if documents is None else np.array(documents, dtype=np.int64)
        return cls(tokens, targets, scored, family, documents, images)

    def rows(self, which):
        """The batch of some rows, chosen by a slice or by numbers."""
        parts = (getattr(self, field.name) for field in fields(self))
        return Batch(*(None if part is None else part[which] for part in parts))

    def show(self, row=0, symbol=str):
        """Two aligned lines: the inputs of a row and under each its target, or a dot.

        symbol    function from a token to its name
        """
        above = [symbol(token) for token in self.tokens[row].tolist()]
        below = ["." if target == IGNORED else symbol(target) for target in self.targets[row].tolist()]
        width = max(map(len, above + below))
        return "\n".join(" ".join(name.ljust(width) for name in line).rstrip() for line in (above, below))
