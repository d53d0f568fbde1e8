"""The pictures of notebook 00: what they show, what they refuse, nothing clipped, no labels on top of each other."""

import io

import matplotlib.image
import numpy as np
import pytest
from picture_helpers import assert_readable, words

from k3_scratch.course.display import fewer_colours
from k3_scratch.plots.causal_steps import causal_steps
from k3_scratch.plots.einsum_axes import einsum_axes
from k3_scratch.plots.parameter_square import parameter_square
from k3_scratch.plots.style import PlotError, to_bytes
from k3_scratch.plots.token_way import token_way
from k3_scratch.shapes import ShapeError

WEIGHTS = np.array([[1.0, 0, 0], [0.25, 0.75, 0], [0.2, 0.3, 0.5]])
SCORES, VALUES = np.arange(9.0).reshape(3, 3) - 4, np.array([[1.0, -2], [3, 0], [0, 4]])
WAY = [("first", 1, 10, "plain", "[D]"), ("second", 3, 20, "KDA", "3 × [F]"), ("third", 1, 500, "MoE", "[V], cut off")]
PARTS = {"experts": (60, "MoE"), "attention": (39, "KDA"), "norms": (1, "mix")}


def axes_of_products():
    return einsum_axes({"a product": "td,de->te", "scores of heads": "bthk,bshk->bhts", "outer": "k,v->kv"})


def steps(**settings):
    return causal_steps(SCORES, WEIGHTS, VALUES, WEIGHTS @ VALUES, **settings)


PICTURES = {"einsum": axes_of_products, "a number": lambda: einsum_axes({"all summed": "k,k->"}), "causal": steps,
            "named": lambda: steps(names=["one", "two", "three"]), "way": lambda: token_way(WAY, "A way", 100),
            "square": lambda: parameter_square(PARTS, 10_000, 100, ("experts", 9_800))}


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_is_clipped_or_on_top_of_something_else(name):
    figure = PICTURES[name]()
    assert_readable(figure)
    assert to_bytes(figure) == to_bytes(PICTURES[name]())


def test_einsum_sums_what_is_not_in_the_result():
    seen = words(axes_of_products())
    assert seen.count("Σ") == 2                                          # d once, k once; the outer product has none
    assert seen.count("b") == 3 and seen.count("d") == 2
    assert '"bthk,bshk->bhts"' in seen
    assert "a number" in words(PICTURES["a number"]())


@pytest.mark.parametrize("examples", [{}, "td,de->te", {"a": "td,de"}, {"a": "tt->t"}, {"a": "td->tx"}, {"a": 3}])
def test_einsum_refuses(examples):
    with pytest.raises(PlotError, match="einsum_axes: "):
        einsum_axes(examples)


def test_causal_steps_hide_the_future():
    seen = words(steps())
    assert {"0.25", "0.75", "−4", "2.5"} <= set(seen)
    assert "−3" not in seen and "1" in seen                              # the score above the diagonal is not shown
    assert [len(axes.collections) for axes in steps().axes] == [3, 3, 0, 0]  # hatched cells


@pytest.mark.parametrize(("weights", "values", "error", "says"), [
    (np.full((3, 3), 1 / 3), VALUES, PlotError, "0 above the diagonal"), (WEIGHTS[:2], VALUES, ShapeError, "weights"),
    (WEIGHTS, VALUES[:2], ShapeError, "values"), (WEIGHTS, np.ones((3, 9)), PlotError, "at most 8"),
])
def test_causal_steps_refuse(weights, values, error, says):
    with pytest.raises(error, match=says):
        causal_steps(SCORES, weights, values, np.ones(values.shape))


def test_token_way_has_bars_as_long_as_the_vectors():
    axes = token_way(WAY, "A way", 100).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [10, 60, 100]    # the last one is cut off
    assert {"10", "60", "500", "A way"} <= set(words(token_way(WAY, "A way", 100)))
    assert [len(line.get_xdata()) for line in axes.lines] == [2, 2, 4]   # two cuts between three vectors, one zigzag


@pytest.mark.parametrize("way", [[], [("a", 1, 2, "KDA")], [("a", 1, 2, "nothing", "")], [("a", 0, 2, "KDA", "")]])
def test_token_way_refuses(way):
    with pytest.raises(PlotError, match="token_way"):
        token_way(way, "A way", 100)


def test_parameter_square_is_to_scale():
    square, bars = PICTURES["square"]().axes
    small = [patch for patch in square.patches if patch.get_facecolor()[:3] == (1, 1, 1) and patch.get_width() < 1]
    assert np.isclose(small[0].get_width() ** 2, 100 / 10_000)
    assert [bar.get_width() for bar in bars.patches] == [60, 39, 1]      # largest first
    assert "experts\n98.0 %" in words(PICTURES["square"]()) and "1.0 %" in words(PICTURES["square"]())


@pytest.mark.parametrize(("total", "active", "largest"), [(10_000, 99, 98), (50, 100, 40), (1000, 100, 1001)])
def test_parameter_square_refuses(total, active, largest):
    with pytest.raises(PlotError, match="parameter_square"):
        parameter_square(PARTS, total, active, ("experts", largest))


def test_fewer_colours_look_the_same():
    whole = to_bytes(token_way(WAY, "A way", 100))
    less = fewer_colours(whole)
    before, after = (matplotlib.image.imread(io.BytesIO(png))[..., :3] for png in (whole, less))
    assert len(less) < len(whole) and before.shape == after.shape
    assert np.abs(before - after).max() < 0.1
