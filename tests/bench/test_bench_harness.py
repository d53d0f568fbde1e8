"""Rotation, medians, quartiles and slopes, on a clock that is turned by hand."""

import doctest
import gc

import numpy as np
import pytest

from k3_scratch.bench import gemm, harness, inputs
from k3_scratch.bench import report as report_module
from k3_scratch.bench.harness import Contender, Ratio, Timed, interleave, median_ratio, rotated, slope
from k3_scratch.plots import bench_axes


class Clock:
    """A clock that stands still but for what `takes` adds."""

    def __init__(self):
        self.now, self.order = 0.0, []

    def __call__(self):
        return self.now

    def takes(self, name, *seconds):
        """A contender whose n-th call takes the n-th of `seconds`, later ones the last."""
        calls = list(seconds)

        def call():
            self.now += calls.pop(0) if len(calls) > 1 else calls[0]
            self.order.append(name)
            return f"{name} {len(self.order)}"
        return call


def test_rotation_and_one_warm_up():
    clock = Clock()
    contenders = {name: clock.takes(name, 1.0) for name in "abc"}
    timed = interleave(contenders, 4, least_seconds=0.01, clock=clock)
    assert "".join(clock.order) == "abc" + "abc" + "bca" + "cab" + "abc"
    assert {len(seconds) for seconds in timed.seconds.values()} == {4}
    assert timed.results == {"a": "a 13", "b": "b 14", "c": "c 15"}
    assert rotated([1, 2, 3], 5) == [3, 1, 2]


def test_the_warm_up_does_not_count():
    clock = Clock()
    timed = interleave({"a": clock.takes("a", 9.0, 2.0)}, 3, least_seconds=0.01, clock=clock)
    assert list(timed.seconds["a"]) == [2, 2, 2]


def test_short_calls_are_repeated_within_a_visit():
    clock = Clock()
    timed = interleave({"short": clock.takes("short", 0.5, 0.25), "long": clock.takes("long", 5.0)}, 2,
                       least_seconds=1.0, clock=clock)
    assert clock.order.count("short") == 2 + 2 * 4 and clock.order.count("long") == 2 + 2
    assert timed.median("short") == 0.25 and timed.median("long") == 5
    clock = Clock()
    interleave({"nothing": clock.takes("nothing", 0.0)}, 1, least_seconds=1.0, clock=clock)
    assert len(clock.order) == 2 + harness.MOST_CALLS


def test_preparation_is_not_timed_and_runs_once_a_visit():
    clock, prepared = Clock(), []

    def before():
        prepared.append(clock.now)
        clock.now += 100
    timed = interleave({"a": Contender(clock.takes("a", 1.0), before)}, 3, least_seconds=0.01, clock=clock)
    assert list(timed.seconds["a"]) == [1, 1, 1] and len(prepared) == 4


def test_garbage_collection_is_put_back_even_after_an_error():
    def wrong():
        raise KeyError("here")
    assert gc.isenabled()
    with pytest.raises(KeyError, match="here"):
        interleave({"a": wrong}, 1)
    assert gc.isenabled()


def test_ratio_of_medians_and_quartiles_of_rounds():
    timed = Timed({"slow": np.array([10.0, 20, 60, 40, 50]), "fast": np.array([1.0, 2, 3, 4, 10])}, {})
    ratio = timed.ratio("slow", "fast")
    assert ratio.value == 40 / 3
    assert list(ratio.rounds) == [10, 10, 20, 10, 5]
    assert (ratio.low, ratio.high) == (10, 10)
    assert timed.ratio("slow", "fast", 0.5).value == 20 / 3
    ratio = Ratio(1.0, np.array([1.0, 2.0, 3.0, 4.0]))
    assert (ratio.low, ratio.high) == (1.75, 3.25)


def test_median_over_shapes():
    ratio = median_ratio([Ratio(2, np.array([1.0, 2])), Ratio(9, np.array([8.0, 9])), Ratio(4, np.array([3.0, 4]))])
    assert ratio.value == 4 and list(ratio.rounds) == [3, 4]


def test_slope_is_the_exponent():
    sizes = [256, 512, 1024]
    timed = Timed({T: np.array([T ** 1.5, 3 * T ** 1.5, 2.0 * T]) for T in sizes}, {})
    found = slope(timed, sizes, sizes)
    assert found.rounds == pytest.approx([1.5, 1.5, 1.0])
    medians = [np.median(timed.seconds[T]) for T in sizes]
    assert found.value == pytest.approx(np.polyfit(np.log(sizes), np.log(medians), 1)[0])


def test_examples_in_docstrings():
    for module in (harness, inputs, gemm, report_module, bench_axes):
        result = doctest.testmod(module)
        assert result.attempted and not result.failed, module.__name__
