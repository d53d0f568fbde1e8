"""Claims about an experiment, judged by a rule written before the first run.

A claim says what is expected and about which numbers. `judge` gives its word and a sentence made of the numbers:
    shown                     the rule holds
    contrary                  the rule holds the other way round
    not shown at this size    neither
"""

import statistics
from dataclasses import dataclass

from k3_scratch.analysis.spread import Spread, spread

SHOWN, NOT_SHOWN, CONTRARY = "shown", "not shown at this size", "contrary"


@dataclass(frozen=True)
class Verdict:
    """One of SHOWN, NOT_SHOWN, CONTRARY, and the sentence with the numbers."""

    word: str
    sentence: str


class _Claim:
    def check(self, experiment):
        """LabError unless the variants and sizes named are there."""
        for name in self._variants():
            experiment.variant(name)
        for name in self.sizes:
            experiment.size(name)

    def _sizes(self, result):
        return self.sizes or tuple(dict.fromkeys(cell["size"] for cell in result["cells"]
                                                 if cell["variant"] in self._variants()))


@dataclass(frozen=True)
class Above(_Claim):
    """Each of `better` has a larger value than each of `worse`, by more than `margin`.

    by="every seed"   compared seed by seed, the same data on both sides: shown when all pairs agree
    by="mean"         of all seeds: shown when the difference is above the margin and above twice its standard error
    lower=True        smaller is better
    """

    says: str
    value: str
    better: tuple
    worse: tuple
    sizes: tuple = ()                     # (): all sizes at which they were measured
    margin: float = 0.0
    by: str = "every seed"
    lower: bool = False

    def _variants(self):
        return (*self.better, *self.worse)

    def judge(self, result):
        """A `Verdict` on a result (the JSON as a dict); sizes at which one side is missing do not count."""
        pairs = self.comparisons(result)
        if not pairs:
            return Verdict(NOT_SHOWN, f"{self.says}: nothing was measured")
        sign = -1 if self.lower else 1
        gaps = [[sign * (a - b) for a, b in zip(left.values, right.values, strict=True)]
                for _, left, _, right, _ in pairs]
        if self.by == "every seed":
            flat = [gap for each in gaps for gap in each]
            wins = sum(gap > self.margin for gap in flat)
            word = SHOWN if wins == len(flat) else CONTRARY if all(-gap > self.margin for gap in flat) else NOT_SHOWN
            count = f"in {wins} of {len(flat)} comparisons seed by seed"
        else:
            clear = [self._clear(each) for each in gaps]
            word = SHOWN if min(clear) == 1 else CONTRARY if max(clear) == -1 else NOT_SHOWN
            count = "in the mean"
        closest = min(range(len(pairs)), key=lambda i: statistics.fmean(gaps[i]))
        better, left, worse, right, size = pairs[closest]
        where = f" at {size}" if size else ""
        nearest = "" if len(pairs) == 1 else "closest: "
        return Verdict(word, f"{self.says}: {nearest}{better} {left} against {worse} {right}{where}, {count}")

    def comparisons(self, result):
        """[(better, its Spread, worse, its Spread, size)] of all that is compared, both over the seeds they share."""
        pairs = []
        for size in self._sizes(result):
            for better in self.better:
                for worse in self.worse:
                    left, right = (spread(result, name, self.value, size) for name in (better, worse))
                    if left and right:
                        shared = min(len(left.values), len(right.values))
                        pairs.append((better, Spread(left.values[:shared]), worse, Spread(right.values[:shared]), size))
        return pairs

    def _clear(self, gaps):
        mean = statistics.fmean(gaps)
        error = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else 0.0
        return (abs(mean) > max(self.margin, 2 * error)) * (1 if mean > 0 else -1)


@dataclass(frozen=True)
class Within(_Claim):
    """Every seed of every variant named lies from `low` to `high`; contrary when none does."""

    says: str
    value: str
    variants: tuple
    low: float = float("-inf")
    high: float = float("inf")
    sizes: tuple = ()

    def _variants(self):
        return self.variants

    def judge(self, result):
        """A `Verdict` on a result (the JSON as a dict)."""
        found = [(name, size, numbers) for size in self._sizes(result) for name in self.variants
                 if (numbers := spread(result, name, self.value, size))]
        if not found:
            return Verdict(NOT_SHOWN, f"{self.says}: nothing was measured")
        inside = [self.low <= value <= self.high for _, _, numbers in found for value in numbers.values]
        word = SHOWN if all(inside) else NOT_SHOWN if any(inside) else CONTRARY
        text = "; ".join(f"{name} {numbers}" + (f" at {size}" if size else "") for name, size, numbers in found)
        return Verdict(word, f"{self.says}: {text}, {sum(inside)} of {len(inside)}")


def sentence(verdicts):
    """One sentence from all verdicts of an experiment.

    >>> sentence([Verdict(SHOWN, "a: 1 against 2"), Verdict(CONTRARY, "b: 3")])
    'Shown: a: 1 against 2. Contrary: b: 3.'
    """
    return " ".join(f"{each.word[0].upper()}{each.word[1:]}: {each.sentence}." for each in verdicts)
