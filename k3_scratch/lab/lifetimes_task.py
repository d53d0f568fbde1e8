"""Lifetimes: some facts hold for ever, others expire by themselves. Nothing overwrites what has expired.

Small letters write, capital letters ask, numbers are values, "-" is the answer "expired" and "_" is filler. First all
lasting facts are written. Then come rounds of four tokens: a passing fact or filler, then one lasting and one passing
key are asked, in either order. A passing fact that is at most `young` rounds old is answered with its value, one at
least `old` rounds old with "expired"; between the two it is not asked. Expired means forgotten: the memory has to make
room by itself, since no write to the same key says so.
"""

from dataclasses import dataclass

import numpy as np

from k3_scratch.tasks.arguments import need, need_whole
from k3_scratch.tasks.batch import IGNORED, Batch
from k3_scratch.tasks.rows import letter, rows_in_split

CLASSES = ("all", "lasting", "fresh", "expired")


@dataclass(frozen=True)
class Lifetimes:
    """The task and its sizes; a, b, ... last, later letters pass.

    >>> task = Lifetimes(lasting=2, passing=2, values=3, rounds=6, old=3)
    >>> print(task.batch(np.random.default_rng(3), 1).show(symbol=task.symbol))
    b 0 a 0 c 0 B C c 2 C A d 1 C B _ _ D B d 1 A C c 1 B C
    . . . . . . 0 0 . . 2 0 . . 2 0 . . 1 0 . . 0 - . . 0 1
    """

    lasting: int = 4        # keys whose facts hold for ever, each written once, first of all
    passing: int = 4        # keys whose facts expire
    values: int = 8
    rounds: int = 16
    young: int = 1
    old: int = 4
    busy: float = 0.5       # share of rounds that write
    score: str = "all"      # which answers count for accuracy, one of CLASSES; all of them are learnt

    def __post_init__(self):
        for name in ("lasting", "passing", "values", "rounds", "young"):
            need_whole(name, getattr(self, name), 1)
        need(self.old > self.young, "old", f"above young = {self.young}", self.old)
        need(0 < self.busy <= 1, "busy", "above 0 and at most 1", self.busy)
        need(self.score in CLASSES, "score", "one of " + ", ".join(CLASSES), self.score)

    @property
    def vocab_size(self):
        return 2 * (self.lasting + self.passing) + self.values + 2       # write, ask, values, expired, filler

    @property
    def length(self):
        return 2 * self.lasting + 4 * self.rounds

    def symbol(self, token):
        """The name of a token."""
        keys = self.lasting + self.passing
        if token < 2 * keys:
            return letter(token) if token < keys else letter(token - keys).upper()
        return str(token - 2 * keys) if token < 2 * keys + self.values else "-_"[token - 2 * keys - self.values]

    def batch(self, rng, batch_size, split="train"):
        """`batch_size` rows; the facts and their order decide the split."""
        need_whole("batch_size", batch_size, 1)
        plans = rows_in_split(split, batch_size, lambda n: self._plans(rng, n))      # [B, .]
        return self._spell(rng, plans)

    def _plans(self, rng, n):
        """Order and values of the lasting facts, key (or -1: none) and value of each round.  [n, 2 P + 2 R]"""
        order = rng.permuted(np.tile(np.arange(self.lasting), (n, 1)), axis=1)
        first = rng.integers(self.values, size=(n, self.lasting))
        keys = rng.integers(self.passing, size=(n, self.rounds))
        keys[rng.random(keys.shape) >= self.busy] = -1
        return np.hstack([order, first, keys, rng.integers(self.values, size=keys.shape)])

    def _spell(self, rng, plans):
        P, S, R, B = self.lasting, self.passing, self.rounds, len(plans)
        order, first, keys, new = np.split(plans, [P, 2 * P, 2 * P + R], axis=1)
        value0 = 2 * (P + S)
        expired, filler = value0 + self.values, value0 + self.values + 1
        rows, facts = np.arange(B), np.zeros((B, P), np.int64)
        np.put_along_axis(facts, order, first, axis=1)
        tokens = [np.stack([order, value0 + first], -1).reshape(B, -1)]
        targets = [np.full((B, 2 * P), IGNORED)]
        kinds = [np.zeros((B, 2 * P), np.int64)]
        held, age = np.zeros((B, S), np.int64), np.full((B, S), -1)      # -1: never written
        for r in range(R):
            age[age >= 0] += 1
            writes = keys[:, r] >= 0
            held[rows[writes], keys[writes, r]] = new[writes, r]
            age[rows[writes], keys[writes, r]] = 0
            fresh, gone = (age >= 0) & (age <= self.young), age >= self.old
            wanted = np.where((rng.random(B) < 0.5)[:, None], fresh, gone)
            wanted = np.where(wanted.any(1, keepdims=True), wanted, fresh | gone)
            there = wanted.any(1)
            key = np.where(wanted, rng.random((B, S)), -1.0).argmax(1)
            is_gone = gone[rows, key]
            answer = np.where(is_gone, expired, value0 + held[rows, key])
            lasting = rng.integers(P, size=B)
            ask = np.stack([P + S + lasting, np.where(there, 2 * P + S + key, filler)], 1)
            say = np.stack([value0 + facts[rows, lasting], np.where(there, answer, IGNORED)], 1)
            kind = np.stack([np.ones(B, np.int64), np.where(there, np.where(is_gone, 3, 2), 0)], 1)
            swap = (rng.random(B) < 0.5)[:, None]
            ask, say, kind = (np.where(swap, part[:, ::-1], part) for part in (ask, say, kind))
            put = np.stack([np.where(writes, P + keys[:, r], filler), np.where(writes, value0 + new[:, r], filler)], 1)
            tokens += [put, ask]
            targets += [np.full((B, 2), IGNORED), say]
            kinds += [np.zeros((B, 2), np.int64), kind]
        targets, kinds = np.hstack(targets), np.hstack(kinds)
        scored = targets != IGNORED if self.score == "all" else kinds == CLASSES.index(self.score)
        return Batch.from_targets(np.hstack(tokens), targets, scored)
