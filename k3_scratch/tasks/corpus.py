"""The corpus: windows filled with examples of the six families.

A row holds complete examples of one family, one after the other, while they fit; the rest is PAD ("_" below).

    window       8+3=11 2+2=4⏎47+85=132⏎___
    marks        ....^^.....^$......^^^$
    documents    00000000000001111111111222
"""

import numpy as np

from k3_scratch.tasks import addition, brackets, copy, recall, reverse, stories
from k3_scratch.tasks.arguments import need, need_whole
from k3_scratch.tasks.batch import Batch
from k3_scratch.tasks.splits import need_split
from k3_scratch.tasks.vocabulary import NEWLINE, PAD, VOCAB_SIZE

FAMILIES = {family.NAME: family for family in (recall, copy, reverse, brackets, addition, stories)}
WEIGHTS = {"recall": 2.0, "copy": 1.0, "reverse": 1.2, "brackets": 1.0, "addition": 1.2, "stories": 3.0}


class Corpus:
    """A mixture of families.

    length     tokens in a row, T; at least the longest example
    weights    {family name: share}, any scale; None: more of what is learnt last, stories before all
    families   names of those in the mixture; None: all six
    """

    vocab_size = VOCAB_SIZE

    def __init__(self, length=80, weights=None, families=None):
        self.families = tuple(FAMILIES if families is None else families)
        different = len(set(self.families)) == len(self.families) > 0
        need(different and set(self.families) <= set(FAMILIES), "families",
             "different names out of " + ", ".join(FAMILIES), families)
        need_whole("length", length, max(FAMILIES[name].LONGEST for name in self.families))
        self.length = length
        weights = WEIGHTS if weights is None else weights
        known = isinstance(weights, dict) and set(weights) <= set(FAMILIES)
        need(known, "weights", "{family: share} with families out of " + ", ".join(FAMILIES), weights)
        shares = [float(weights.get(name, 0)) for name in self.families]
        need(min(shares) >= 0 and 0 < sum(shares) < float("inf"), "weights", "shares of at least 0, one above", weights)
        self.shares = np.array(shares) / sum(shares)

    def batch(self, rng, batch_size, split="train", family=None):
        """`batch_size` rows of one split.

        rng       NumPy Generator; the same state gives the same batch
        family    name of the one family wanted (one of `families`), or None for the mixture
        Returns a Batch; `batch.family` counts in the order of FAMILIES, `batch.documents` gives the PAD tail a number
        of its own, and the scored targets are the characters of answers. Raises ValueError for unknown names.
        """
        need_whole("batch_size", batch_size, 1)
        need_split(split)
        need(family is None or family in self.families, "family", "None or one of " + ", ".join(self.families), family)
        if family is None:
            names = [self.families[i] for i in rng.choice(len(self.families), size=batch_size, p=self.shares)]
        else:
            names = [family] * batch_size
        rows = [self._row(rng, split, FAMILIES[name]) for name in names]
        windows = _array([text for text, _ in rows]).astype(np.int64)            # [B, T+1]
        marks = _array([marks for _, marks in rows])                             # [B, T+1]
        ends = windows == NEWLINE
        documents = np.cumsum(ends, axis=1) - ends                               # newlines before each token
        windows[marks == ord(" ")] = PAD
        scored = marks == ord("^")
        numbers = {name: number for number, name in enumerate(FAMILIES)}
        return Batch.from_windows(windows, scored | ends, scored, [numbers[name] for name in names], documents)

    def _row(self, rng, split, family):
        """Text and marks of one window of T + 1 characters, filled up with blanks."""
        text = marks = ""
        size = self.length + 1
        while True:
            example = family.example(rng, split)
            added = example.text
            if len(text) + len(added) > size:
                return text.ljust(size), marks.ljust(size)
            text += added
            marks += example.marks


def _array(lines):
    """Lines of equal length as an array of bytes.                              B texts -> uint8 [B, T+1]"""
    return np.frombuffer("".join(lines).encode("ascii"), np.uint8).reshape(len(lines), -1)
