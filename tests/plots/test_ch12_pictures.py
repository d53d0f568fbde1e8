import numpy as np
import pytest
from picture_helpers import assert_readable, clipped, words

from k3_scratch.plots.four_bit_line import four_bit_line
from k3_scratch.plots.growth_steps import growth_steps
from k3_scratch.plots.pooled_histogram import pooled_histogram
from k3_scratch.plots.scan_rounds import scan_rounds
from k3_scratch.plots.segment_exchange import segment_exchange
from k3_scratch.plots.style import PlotError
from k3_scratch.shapes import ShapeError


def test_segment_exchange_names_tokens_and_what_is_sent():
    for lengths in ([14, 20, 11], [5, 1], [3, 900, 40, 7]):
        figure = segment_exchange(lengths)
        found = words(figure)
        assert found.count("last 3 inputs") == found.count("all latents") == len(lengths) - 1
        assert_readable(figure)
    assert {"tokens 0–2", "tokens 3–902", "tokens 903–942", "tokens 943–949"} <= set(found)


def test_scan_rounds_reach_the_first_segment():
    for segments, rounds in ((2, 1), (5, 3), (8, 3), (9, 4)):
        figure = scan_rounds(segments)
        found = words(figure)
        assert f"1–{segments}" in found and f"round {rounds}" in found and f"round {rounds + 1}" not in found
        assert_readable(figure)
    assert {"2–3", "6–9", "2–9"} <= set(words(scan_rounds(9)))             # in rounds 1, 2 and 3


def test_pooled_histogram_marks_both_quantiles():
    counts = np.array([[3, 5, 0, 0], [0, 1, 4, 2], [0, 0, 1, 6]])
    figure = pooled_histogram(np.arange(5.0), counts, [0.5, 2.0, 3.2], 1.4, x_label="needed")
    axes, = figure.axes
    upright = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2]
    assert sorted(upright) == pytest.approx([1.4, 1.9])                   # of the sum; the mean of the three
    tops = [patch.get_y() + patch.get_height() for patch in axes.patches]
    assert max(tops) == 8 and len(tops) == 12                             # stacked: 0 + 2 + 6
    assert clipped(figure) == {}


def test_four_bit_line_joins_each_weight_with_its_place():
    values, stored, grid = np.array([-0.4, 0.1, 0.55]), np.array([-0.5, 0.0, 0.5]), 0.25 * np.array([-6, -2, 0, 2, 6])
    axes, = four_bit_line(values, stored, grid).axes
    joined = {tuple(line.get_xdata()) for line in axes.lines if tuple(line.get_ydata()) == (1, 0.12)}
    assert joined == set(zip(values, stored, strict=True))
    assert {"−6", "6", "0"} <= set(words(axes.figure)) and clipped(axes.figure) == {}


def test_growth_steps_say_count_and_factor():
    figure = growth_steps(["mini", "wider", "deeper"], [5.6e5, 2.8e6, 2.8e12])
    assert any(text.startswith("2.8 T") and "× 1e+06" in text for text in words(figure))
    assert "560 k" in words(figure) and clipped(figure) == {}


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda: segment_exchange([5]), PlotError, "lengths must be 2 to 4"),
    (lambda: segment_exchange([5, 0]), PlotError, "at least 1 each"),
    (lambda: scan_rounds(1), PlotError, "segments must be 2 to 9"),
    (lambda: scan_rounds(10), PlotError, "but 10 came"),
    (lambda: pooled_histogram(np.arange(4.0), np.ones((2, 4)), [1, 2], 1, x_label="x"), ShapeError, "edges"),
    (lambda: pooled_histogram(np.arange(5.0), -np.ones((2, 4)), [1, 2], 1, x_label="x"), PlotError, "at least 0"),
    (lambda: pooled_histogram(np.arange(5.0), np.ones((9, 4)), np.ones(9), 1, x_label="x"), PlotError, "9 machines"),
    (lambda: four_bit_line([1, 2], [1], [0, 6]), ShapeError, "stored"),
    (lambda: growth_steps(["a", "b"], [2, 1]), PlotError, "counts must rise"),
    (lambda: growth_steps(["a", "b"], [0, 1]), PlotError, "above 0"),
    (lambda: growth_steps(["a"], [1, 2]), ShapeError, "names")])
def test_what_cannot_be_drawn_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
