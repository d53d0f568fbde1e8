"""The five pictures on small arrays: what is drawn, that nothing is cut off, and what is refused."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from k3_scratch.plots.bench_decode import decode_cost
from k3_scratch.plots.bench_moe import dispatch_times
from k3_scratch.plots.bench_step import step_parts
from k3_scratch.plots.bench_time import time_against_length
from k3_scratch.plots.style import PlotError, settings, to_bytes
from k3_scratch.shapes import ShapeError

LENGTHS = [256, 1024, 4096]
TIMES = {"forward": {"k3_scratch": [3, 11, 45], "softmax attention": [1, 12, 190], "fla": [40, 160, 600]},
         "fwd+bwd": {"k3_scratch": [9, 33, 130], "softmax attention": [3, 30, 450]}}
SLOPES = {panel: dict.fromkeys(lines, 1.0) for panel, lines in TIMES.items()}
MICROSECONDS = {"KDA": [40, 40, 41], "MLA, absorbed": [95, 222, 5700], "MLA, expanded anew": [600, 3000, None]}
KEPT = {"KDA": [65536] * 3, "MLA, absorbed": [65536, 524288, 8388608]}


def inside(figure):
    """Nothing of the drawing reaches over the edge of the figure."""
    with settings():
        box = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())
    width, height = figure.get_size_inches()
    return box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < width + 0.01 and box.y1 < height + 0.01


def drawn(axes):
    return {line.get_label(): line for line in axes.lines}


def words(axes):
    return [text.get_text() for text in axes.texts]


def test_time():
    figure = time_against_length(LENGTHS, TIMES, SLOPES)
    forward, training = figure.axes
    assert list(drawn(forward)["fla"].get_ydata()) == [40, 160, 600] and forward.get_yscale() == "log"
    assert words(training) == ["k3_scratch, T^1.00", "softmax attention, T^1.00"]
    assert drawn(forward)["k3_scratch"].get_color() == drawn(training)["k3_scratch"].get_color()
    assert [tick.get_text() for tick in forward.get_xticklabels()] == ["256", "1k", "4k"]
    assert inside(figure) and to_bytes(figure) == to_bytes(time_against_length(LENGTHS, TIMES, SLOPES))


def test_decode():
    figure = decode_cost([128, 1024, 16384], MICROSECONDS, KEPT)
    time, kept = figure.axes
    assert list(drawn(time)["MLA, expanded anew"].get_xdata()) == [128, 1024]
    assert words(time)[2] == "MLA, expanded anew (to 1k)"
    assert list(drawn(kept)["KDA"].get_ydata()) == [64, 64, 64] and kept.get_ylabel() == "KiB"
    assert inside(figure)


@pytest.mark.parametrize("experts", [[16], [16, 64]])
def test_moe(experts):
    times = {"loop": [36, 157], "sort, grouped product": [24, 29], "dense, masked": [190, 852]}
    figure = dispatch_times(experts, {form: values[:len(experts)] for form, values in times.items()})
    axes = figure.axes[0]
    for i, number in enumerate(experts):
        assert list(drawn(axes)[f"{number} experts"].get_xdata()) == [values[i] for values in times.values()]
    assert "190" in words(axes) and inside(figure) and len(words(axes)) == 3 * len(experts)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == list(times)


def test_step():
    figure = step_parts({"KDA": 20.0, "MoE": 30.0, "data": 0.0}, 60.0)
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["MoE", "KDA", "data", "rest"]
    assert words(axes)[0] == "30.0 ms, 50 %" and words(axes)[-1] == "10.0 ms, 17 %" and inside(figure)
    more_than_all = step_parts({"KDA": 40.0, "MoE": 30.0}, 60.0).axes[0]
    assert [tick.get_text() for tick in more_than_all.get_yticklabels()] == ["KDA", "MoE"]


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda: time_against_length([2, 1], TIMES, SLOPES), PlotError, "lengths must rise"),
    (lambda: time_against_length(LENGTHS, {}, {}), PlotError, "at least one line"),
    (lambda: time_against_length(LENGTHS, {"a": {"b": [1, 2]}}, {"a": {"b": 1}}), ShapeError, "n = 3"),
    (lambda: time_against_length(LENGTHS, {"a": {"b": [1, 2, 0]}}, {"a": {"b": 1}}), PlotError, "above 0"),
    (lambda: decode_cost([1, 2], {"KDA": [1, 2, 3]}, {}), ShapeError, "n = 2"),
    (lambda: decode_cost([1, 2], {"KDA": [None, None]}, {}), PlotError, "above 0"),
    (lambda: dispatch_times([16], {}), PlotError, "at least one form"),
    (lambda: dispatch_times([16], {"loop": [1, 2]}), ShapeError, "n = 1"),
    (lambda: dispatch_times([16], {"loop": [0]}), PlotError, "above 0"),
    (lambda: step_parts({}, 1.0), PlotError, "at least one part"),
    (lambda: step_parts({"KDA": 1.0}, 0.0), PlotError, "whole above 0"),
    (lambda: step_parts({"KDA": -1.0}, 1.0), PlotError, "0 or more"),
])
def test_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
