"""Interleaved rounds of contenders, and the ratios that come of them.

A ratio of two programs is only worth something when both met the same machine. So nothing is timed on its own: a
round visits every contender once, the next round starts with another one, and ratios are taken round by round.
"""

import gc
import time
from dataclasses import dataclass

import numpy as np

MOST_CALLS = 2000       # in one visit


@dataclass(frozen=True)
class Contender:
    """Something to time: `call()` returns its result; `before()`, not timed, prepares each visit."""

    call: object
    before: object = None


@dataclass(frozen=True)
class Ratio:
    """value: ratio of medians; rounds [R]: the ratio in each round, whose quartiles are low and high."""

    value: float
    rounds: np.ndarray

    @property
    def low(self):
        """The lower quartile."""
        return float(np.percentile(self.rounds, 25))

    @property
    def high(self):
        """The upper quartile."""
        return float(np.percentile(self.rounds, 75))


@dataclass(frozen=True)
class Timed:
    """seconds {name: [R]}: CPU seconds of one call in each round; results {name: what the last call returned}."""

    seconds: dict
    results: dict

    def median(self, name):
        """Seconds of one call."""
        return float(np.median(self.seconds[name]))

    def ratio(self, above, below, factor=1.0):
        """factor * time of `above` / time of `below`."""
        return Ratio(factor * self.median(above) / self.median(below),
                     factor * self.seconds[above] / self.seconds[below])


def interleave(contenders, rounds, *, least_seconds=0.02, clock=time.process_time):
    """Visit all contenders in every round, in rotated order, after one round to warm up.            -> Timed

    contenders     {name: Contender or function without arguments}
    rounds         R, rounds that count
    least_seconds  a visit repeats the call until it has taken about this long; the number is fixed while warming up
    clock          () -> seconds
    """
    contenders = {name: each if isinstance(each, Contender) else Contender(each) for name, each in contenders.items()}
    names, results, calls = list(contenders), {}, {}
    seconds = {name: np.empty(rounds) for name in names}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()                                                         # as timeit does
    try:
        for name in names:
            once, _ = _visit(contenders[name], 1, clock)
            if once < 10 * least_seconds:                                # the first call loads and allocates
                once, _ = _visit(contenders[name], 1, clock)
            calls[name] = int(min(MOST_CALLS, max(1, np.ceil(least_seconds / max(once, 1e-9)))))
        for r in range(rounds):
            for name in rotated(names, r):
                results.pop(name, None)
                seconds[name][r], results[name] = _visit(contenders[name], calls[name], clock)
    finally:
        if collecting:
            gc.enable()
    return Timed(seconds, results)


def rotated(names, places):
    """The list, started `places` further on.

    >>> rotated(["a", "b", "c"], 4)
    ['b', 'c', 'a']
    """
    places %= len(names)
    return names[places:] + names[:places]


def median_ratio(ratios):
    """The median over several shapes: of the values, and round by round.                   [Ratio] -> Ratio"""
    rounds = min(len(each.rounds) for each in ratios)
    return Ratio(float(np.median([each.value for each in ratios])),
                 np.median([each.rounds[:rounds] for each in ratios], axis=0))


def slope(timed, names, sizes):
    """Exponent p of time ~ size^p by least squares in log-log, of the medians and of each round.        -> Ratio

    names [n] contenders, sizes [n] what each of them was run at.
    """
    sizes = np.log(np.asarray(sizes, dtype=np.float64))
    each = np.log(np.stack([timed.seconds[name] for name in names]))     # [n, R]
    middle = np.log([timed.median(name) for name in names])
    return Ratio(float(np.polyfit(sizes, middle, 1)[0]), np.polyfit(sizes, each, 1)[0])


def _visit(contender, calls, clock):
    """-> seconds of one call, result of the last."""
    if contender.before is not None:
        contender.before()
    result, start = None, clock()
    for _ in range(calls):
        result = contender.call()
    return (clock() - start) / calls, result
