"""The pictures of chapter 07: they hold the numbers, nothing is cut off, wrong arguments are refused."""

import numpy as np
import pytest
from matplotlib.patches import Wedge
from picture_helpers import assert_readable

from k3_scratch.plots.order_bars import order_bars
from k3_scratch.plots.rope_dials import rope_dials, turn_text
from k3_scratch.plots.style import PlotError
from k3_scratch.plots.wavelengths import wavelengths
from k3_scratch.shapes import ShapeError

TEXTS = (["Mo", "owes", "Di", "?"], ["Di", "owes", "Mo", "?"], ["owes", "Mo", "Di", "?"])


@pytest.mark.parametrize("kinds", [1, 2])
def test_order_bars(kinds):
    random = np.random.default_rng(kinds)
    weights = {f"kind {i}": random.dirichlet(np.ones(4), 3) for i in range(kinds)}
    outputs = {name: random.normal(size=(3, 2)) for name in weights}
    figure = order_bars(TEXTS, weights, outputs)
    assert len(figure.axes) == 3 * kinds
    for row, kind in enumerate(weights):
        for column, text in enumerate(TEXTS):
            axes = figure.axes[3 * row + column]
            assert [label.get_text() for label in axes.get_xticklabels()] == text
            heights = {patch.get_x() + patch.get_width() / 2: patch.get_height() for patch in axes.patches}
            np.testing.assert_allclose([heights[place] for place in sorted(heights)], weights[kind][column])
            assert f"{outputs[kind][column, 0]:.2f}".replace("-", "−") in axes.texts[-1].get_text()
    assert_readable(figure)


HALF = {"a": [[0.5, 0.5], [0.5, 0.5]]}


@pytest.mark.parametrize(("texts", "weights", "outputs", "error", "says"), [
    (("ab", "ba"), {}, {}, PlotError, "at least one"),
    (("ab", "ba"), HALF, {"b": HALF["a"]}, PlotError, "same kinds"),
    (("ab", "ac"), HALF, HALF, PlotError, "same words"),
    (("ab", "ba"), {"a": [[0.5, 0.6], [0.5, 0.5]]}, HALF, PlotError, "sum to 1"),
    (("abc", "bca"), HALF, HALF, ShapeError, "must have shape"),
])
def test_order_bars_refuses(texts, weights, outputs, error, says):
    with pytest.raises(error, match=says):
        order_bars([list(text) for text in texts], weights, outputs)


@pytest.mark.parametrize("pairs", [3, 8])
def test_rope_dials(pairs):
    speeds = 100.0 ** -(np.arange(pairs) / pairs)
    figure = rope_dials(speeds, trained=5, longer=40)
    for axes, speed in zip(figure.axes, speeds, strict=False):
        wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
        seen, reached = (min(360.0, np.degrees(length * speed)) for length in (5, 40))
        assert [wedge.theta2 for wedge in wedges] == pytest.approx([seen, reached] if reached > seen else [seen])
        assert wedges[0].theta1 == 0 and wedges[-1].theta1 == pytest.approx(seen if len(wedges) > 1 else 0)
    assert_readable(figure)


def test_turn_text():
    assert [turn_text(tokens) for tokens in (6.283, 62.8, 19869.2)] == ["6.3", "63", "19,869"]


@pytest.mark.parametrize(("arguments", "says"), [
    (([1.0, -1.0], 5, 9), "above 0"), (([1.0], 9, 5), "trained < longer"), (([1.0], 0, 5), "trained < longer"),
    (([1.0], 5, 9, ["one", "two"]), "marks"),
])
def test_rope_dials_refuses(arguments, says):
    with pytest.raises(PlotError, match=says):
        rope_dials(*arguments)


def test_wavelengths():
    turns = {"slow": 10.0 ** np.linspace(1, 6, 9), "quick": 10.0 ** np.linspace(0.5, 4, 9)}
    figure = wavelengths(turns, 1000, {"trained": 1000, "later": 50_000})
    axes = figure.axes[0]
    for i, values in enumerate(turns.values()):
        line, known, unknown = axes.lines[3 * i:3 * i + 3]
        np.testing.assert_array_equal(line.get_ydata(), values)
        np.testing.assert_array_equal(known.get_ydata(), values[values <= 1000])
        np.testing.assert_array_equal(unknown.get_ydata(), values[values > 1000])
        assert known.get_markerfacecolor() != unknown.get_markerfacecolor() == "white"
    assert [line.get_ydata()[0] for line in axes.lines[6:]] == [1000, 50_000]
    assert_readable(figure)


@pytest.mark.parametrize(("turns", "trained", "error", "says"), [
    ({}, 5, PlotError, "1 to"), ({"a": [1.0, -2.0]}, 5, PlotError, "above 0"), ({"a": [[1.0]]}, 5, ShapeError, "n"),
])
def test_wavelengths_refuses(turns, trained, error, says):
    with pytest.raises(error, match=says):
        wavelengths(turns, trained, {"here": 3})
