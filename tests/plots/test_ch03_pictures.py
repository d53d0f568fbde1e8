"""The pictures of chapter 03 hold what they are given, are not clipped, and refuse what they cannot draw."""

import numpy as np
import pytest
from matplotlib.patches import Polygon
from picture_helpers import assert_readable, clipped, drawn_texts, line

from k3_scratch.plots.chunk_chain import chunk_chain
from k3_scratch.plots.chunk_triangle import chunk_triangle
from k3_scratch.plots.error_curves import error_curves
from k3_scratch.plots.style import PlotError
from k3_scratch.plots.tile_exponents import tile_exponents
from k3_scratch.plots.time_ratios import time_ratios
from k3_scratch.shapes import ShapeError

P = np.tril(np.random.default_rng(3).normal(size=(7, 7)))


def written(figure):
    return [text.get_text() for text, _ in drawn_texts(figure)]


@pytest.mark.parametrize(("tokens", "chunk"), [(12, 4), (6, 2), (3, 3), (16, 1)])
def test_chain(tokens, chunk):
    figure = chunk_chain(tokens, chunk)
    states = [text for text in written(figure) if text.startswith("$S_")]
    assert len(states) == tokens + 1 + tokens // chunk + 1
    assert any(f"{tokens} steps" in text for text in written(figure))
    assert_readable(figure)


@pytest.mark.parametrize(("tokens", "chunk"), [(12, 5), (1, 1), (17, 1), (12, 0)])
def test_chain_refuses(tokens, chunk):
    with pytest.raises(PlotError, match=f"chunk = {chunk} came"):
        chunk_chain(tokens, chunk)


@pytest.mark.parametrize(("chunk", "within", "words"), [
    (3, 13, "2 states carry them"), (7, 28, "there are none"), (1, 7, "6 states carry them"),
    (4, 16, "1 state carries")])
def test_triangle(chunk, within, words):
    """The last chunk is shorter: 7 tokens in chunks of 3 are tiles of 3, 3 and 1."""
    figure = chunk_triangle(P, chunk)
    axes, text = figure.axes[0], " ".join(written(figure))
    assert f"{within} numbers in" in text and f"{28 - within} numbers, none" in text and words in text
    assert len([patch for patch in axes.patches if isinstance(patch, Polygon)]) == -(-7 // chunk)
    assert len(axes.texts) == 28
    bold = [t for t in axes.texts if t.get_fontweight() == "bold"]
    assert len(bold) == within
    assert_readable(figure)


def test_triangle_refuses():
    with pytest.raises(ShapeError, match="weights must have shape"):
        chunk_triangle(np.zeros((3, 4)), 1)
    for weights, chunk in ((np.zeros((17, 17)), 4), (P, 0), (P, 8)):
        with pytest.raises(PlotError, match="at most 16 tokens"):
            chunk_triangle(weights, chunk)
    with pytest.raises(PlotError, match="above the diagonal"):
        chunk_triangle(np.ones((3, 3)), 1)


def test_exponents_mark_what_is_lost():
    tile = np.array([[1.0, 99, 99], [2, -3, 99], [50, 51, 4]])
    figure = tile_exponents({"one": tile, "other": np.zeros((8, 8))}, 40)
    lost, = (each for each in figure.axes[0].lines if each.get_marker() == "x")
    assert list(zip(lost.get_xdata(), lost.get_ydata(), strict=True)) == [(1, 3), (2, 3)]
    shown = figure.axes[0].images[0].get_array()
    assert sorted(shown.compressed()) == [-3, 1, 2, 4]
    assert "largest 51\n2 of 6 lost" in written(figure) and "largest 0\n0 of 36 lost" in written(figure)
    assert clipped(figure) == {}


def test_exponents_refuse():
    for tiles, limit in (({}, 3), ({"one": np.zeros((2, 2))}, 0), (np.zeros((2, 2)), 3)):
        with pytest.raises(PlotError, match="at least one tile"):
            tile_exponents(tiles, limit)
    with pytest.raises(ShapeError, match="one"):
        tile_exponents({"one": np.zeros((2, 3))}, 3)


def test_errors():
    runs = np.array([[1e-7, 1e-6, np.inf], [3e-7, 3e-6, 1e-2], [2e-7, 2e-6, np.nan]])
    figure = error_curves([4, 8, 16], {"bad": runs, "good": [1e-7, 1e-7, 0]}, title="t", x_label="C")
    axes = figure.axes[0]
    assert np.allclose(line(axes, "bad").get_ydata(), [2e-7, 2e-6, 1.0])       # more than half of the seeds are lost
    assert np.allclose(line(axes, "good").get_ydata(), [1e-7, 1e-7, 5e-8])
    assert len(axes.lines) == 3 + 2 + 1 and "not finite" in written(figure)
    assert_readable(figure)
    assert "not finite" not in written(error_curves([1, 2], {"a": [1e-3, 1e-2]}, title="t", x_label="C"))


@pytest.mark.parametrize(("x", "errors", "error", "says"), [
    ([1, 2], {}, PlotError, "1 to"), ([1, 2], {"a": [1, 2, 3]}, ShapeError, "n = 2"),
    ([2, 1], {"a": [1, 2]}, PlotError, "rise"), ([1, 2], {"a": [0, np.inf]}, PlotError, "above 0")])
def test_errors_refuse(x, errors, error, says):
    with pytest.raises(error, match=says):
        error_curves(x, errors, title="t", x_label="x")


def test_ratios():
    rounds = np.array([[2.0, 0.5], [4.0, 0.7], [3.0, 0.6]])
    figure = time_ratios([512, 1024], {"loop": rounds}, title="t", x_label="T", y_label="r", even="as we")
    axes = figure.axes[0]
    median = [each for each in axes.lines if len(each.get_ydata()) == 2 and np.allclose(each.get_ydata(), [3.0, 0.6])]
    assert len(median) == 1 and any(np.allclose(each.get_ydata(), 1) for each in axes.lines)
    assert "as we" in written(figure) and "loop" in written(figure) and clipped(figure) == {}
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["512", "1k"]


@pytest.mark.parametrize(("ratios", "error", "says"), [
    ({}, PlotError, "1 to"), ({"a": [1, 2, 3]}, ShapeError, "n = 2"), ({"a": [1, 0]}, PlotError, "above 0")])
def test_ratios_refuse(ratios, error, says):
    with pytest.raises(error, match=says):
        time_ratios([1, 2], ratios, title="t", x_label="x", y_label="y")
