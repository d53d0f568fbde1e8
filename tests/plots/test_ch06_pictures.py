"""The pictures of chapter 06: they hold the numbers, nothing is cut off, wrong arguments are refused."""

import numpy as np
import pytest
from picture_helpers import assert_readable, drawn_texts

from k3_scratch.plots.depth_weights import depth_weights
from k3_scratch.plots.source_trace import source_trace
from k3_scratch.plots.style import PlotError
from k3_scratch.shapes import ShapeError


def triangle(n, seed=0):
    weights = np.random.default_rng(seed).uniform(0.05, 1, (n, n))
    return np.where(np.tri(n, dtype=bool), weights / np.tril(weights).sum(axis=1, keepdims=True), np.nan)


@pytest.mark.parametrize(("n", "count"), [(4, 3), (5, 1), (11, 4), (9, 2)])
def test_depth_weights(n, count):
    panels = {f"way {i}": triangle(n, i) for i in range(count)}
    figure = depth_weights(panels, [f"x{i}" for i in range(n)], [f"v{i}" for i in range(n)])
    places = figure.axes[:count]
    assert [axes.get_title(loc="left") for axes in places] == list(panels)
    for axes, panel in zip(places, panels.values(), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array().filled(np.nan), panel)
        assert len(axes.texts) == (n * (n + 1) // 2 if n < 8 else 0)
    assert_readable(figure)


def test_depth_weights_writes_whole_numbers_short():
    figure = depth_weights({"sum": np.where(np.tri(2), 1.0, np.nan), "mean": [[1, np.nan], [0.25, 0.75]]}, "ab", "cd")
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "1", "1"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["1", ".25", ".75"]


@pytest.mark.parametrize(("panels", "readers", "error", "says"), [
    ({}, "abc", PlotError, "1 to 4"), ({"a": triangle(3)}, "ab", ShapeError, "must have shape"),
    ({"a": -triangle(3)}, "abc", PlotError, "0 or more"),
])
def test_depth_weights_refuses(panels, readers, error, says):
    with pytest.raises(error, match=says):
        depth_weights(panels, readers, "xyz")


ROWS = (["0 attention", "0 FFN", "output"], [[], ["e"], ["e"]], ["e", "$y_0$", "$y_0 + y_1$"], ["$y_0$", "$y_1$", ""],
        [True, False, False])


def test_source_trace():
    figure = source_trace(*ROWS)
    texts = [text.get_text() for text, _ in drawn_texts(figure)]
    assert texts.count("e") == 3 and {"0 FFN", "$y_0 + y_1$", "bank, vector 0"} <= set(texts)
    assert "bank, vector 1" not in texts
    assert_readable(figure)


@pytest.mark.parametrize(("changed", "error", "says"), [
    ({0: ["one"]}, ShapeError, "Q"), ({1: [["e"], ["e"], []]}, PlotError, "never shrink"),
    ({1: [["e"] * 6] * 3}, PlotError, "at most 5"),
])
def test_source_trace_refuses(changed, error, says):
    with pytest.raises(error, match=says):
        source_trace(*[changed.get(i, row) for i, row in enumerate(ROWS)])
