"""Mean and spread, and claims that are judged by a rule written before the first run.

A claim says what is expected and about which numbers. `judge` gives its word and a sentence made of the numbers:
    shown                     the rule holds
    contrary                  the rule holds the other way round
    not shown at this size    neither
"""

import statistics
from dataclasses import dataclass

SHOWN, NOT_SHOWN, CONTRARY = "shown", "not shown at this size", "contrary"


@dataclass(frozen=True)
class Spread:
    """Some numbers, one a seed, in the order of the seeds."""

    values: tuple

    @property
    def mean(self):
        return statistics.fmean(self.values)

    @property
    def low(self):
        return min(self.values)

    @property
    def high(self):
        return max(self.values)

    @property
    def sd(self):
        """Standard deviation between seeds (n - 1); 0 for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0

    def __str__(self):
        return f"{show(self.mean)} ({show(self.low)}…{show(self.high)})"


def show(value):
    """Three digits that count.

    >>> show(0.98765), show(12.345), show(1.234e-5), show(0.0), show(16384.0), show(0.04)
    ('0.988', '12.3', '1.2e-05', '0', '16,384', '0.04')
    """
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.1e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(result, variant, value, size=None):
    """The values of all seeds of a cell in a result, as a `Spread`; None when there are none.

    size None: of the only or first size at which the variant was measured
    """
    cells = [cell for cell in result["cells"] if cell["variant"] == variant and value in cell["values"]]
    if size is None and cells:
        size = cells[0]["size"]
    cells = sorted((cell for cell in cells if cell["size"] == size), key=lambda cell: cell["seed"])
    return Spread(tuple(float(cell["values"][value]) for cell in cells)) if cells else None


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
        pairs = []
        for size in self._sizes(result):
            for better in self.better:
                for worse in self.worse:
                    left, right = (spread(result, name, self.value, size) for name in (better, worse))
                    if left and right and len(left.values) == len(right.values):
                        pairs.append((better, left, worse, right, size))
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


def table(result):
    """Markdown: a row for each variant and size, mean and spread of each value, and the seeds one by one."""
    values = list(result["table"]) or list(dict.fromkeys(name for cell in result["cells"] for name in cell["values"]))
    rows = dict.fromkeys((cell["variant"], cell["size"]) for cell in result["cells"])
    sized = any(size for _, size in rows)
    several = len({cell["seed"] for cell in result["cells"]}) > 1
    heads = ["variant", *(["size"] if sized else []),
             *(f"{name}: mean ± sd (seeds)" if several else name for name in values)]
    lines = [heads, ["---"] * len(heads)]
    for variant, size in rows:
        cells = [_entry(spread(result, variant, name, size)) for name in values]
        lines.append([variant, *([size] if sized else []), *cells])
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _entry(numbers):
    if numbers is None:
        return "–"
    if len(numbers.values) == 1 or numbers.low == numbers.high:
        return f"**{show(numbers.mean)}**"
    return f"**{show(numbers.mean)}** ± {show(numbers.sd)} ({', '.join(map(show, numbers.values))})"
