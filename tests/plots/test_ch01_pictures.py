"""The pictures of notebook 01: what they show, what they refuse, nothing clipped, no labels on top of each other."""

import numpy as np
import pytest
from picture_helpers import assert_readable, drawn_texts, line

from k3_scratch.plots.memory_film import memory_film
from k3_scratch.plots.seed_curves import seed_curves
from k3_scratch.plots.style import PlotError, to_bytes
from k3_scratch.plots.write_strength import write_strength
from k3_scratch.shapes import ShapeError

KEYS, VALUES = np.eye(3)[[0, 1, 0]], np.array([[2.0, 1.0], [-1.0, 3.0], [0.0, 4.0]])
DECAY = np.array([[1.0, 0.5, 0.25]] * 3)


def film(decay=None, **settings):
    states, recalled = [np.zeros((3, 2))], []
    for t in range(3):
        kept = states[-1] * (1 if decay is None else decay[t][:, None])
        recalled.append(KEYS[t] @ kept)
        states.append(kept + np.outer(KEYS[t], VALUES[t] - recalled[-1]))
    return memory_film(np.array(states), KEYS, VALUES, np.array(recalled), decay, **settings)


def curves(**settings):
    return seed_curves([1, 2, 4], {"one": [[0.1, 0.2, 0.3], [0.3, 0.4, 0.5]], "other": [0.9, 0.8, 0.31]},
                       title="A title", x_label="x", y_label="y", **settings)


def strength():
    x = np.linspace(0, 2, 21)
    return write_strength(x, (1 - x) ** 2, {0.0: "nothing", 1.0: "exact", 2.0: "turned"})


PICTURES = {"film": film, "film with decay": lambda: film(DECAY), "strength": strength, "curves": curves,
            "curves with marks": lambda: curves(marks={"K = 2": 2}, log=True, ticks=[1, 2, 4], limits=(0, 1))}


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_is_clipped_or_on_top_of_something_else(name):
    figure = PICTURES[name]()
    assert_readable(figure)
    assert to_bytes(figure) == to_bytes(PICTURES[name]())


def test_the_film_writes_the_numbers_of_the_states():
    words = [text.get_text() for text, _ in drawn_texts(film(titles=["a", "b", "c"]))]
    assert {"a", "b", "c", "−1", "−2", "4"} <= set(words)
    panels = film().axes
    assert len(panels) == 3 * 5
    assert np.array_equal(panels[-1].images[0].get_array(), [[0, 4], [-1, 3], [0, 0]])
    assert np.array_equal(panels[-2].images[0].get_array(), [[-2, 3], [0, 0], [0, 0]])         # the change


def test_the_film_shows_what_is_kept():
    bars = [axes for axes in film(DECAY).axes if axes.patches]
    assert len(bars) == 3
    assert [patch.get_width() for patch in bars[0].patches] == [1.0, 0.5, 0.25]


def test_the_film_refuses_what_does_not_fit():
    states = np.zeros((4, 3, 2))
    with pytest.raises(ShapeError, match="values must have shape"):
        memory_film(states, KEYS, VALUES[:2], VALUES)
    with pytest.raises(PlotError, match="states must be"):
        memory_film(states[:3], KEYS, VALUES, VALUES)
    with pytest.raises(PlotError, match="titles"):
        memory_film(states, KEYS, VALUES, VALUES, titles=["one"])
    with pytest.raises(PlotError, match="at most 8"):
        memory_film(np.zeros((2, 9, 2)), np.zeros((1, 9)), np.zeros((1, 2)), np.zeros((1, 2)))


def test_curves_show_means_and_every_seed():
    axes = curves().axes[0]
    assert np.allclose(line(axes, "one").get_ydata(), [0.2, 0.3, 0.4])
    assert len(axes.lines) == 2 + 2                    # two seeds and a mean, and a single run
    with pytest.raises(PlotError, match="curves must be a dict"):
        seed_curves([1, 2], {}, title="", x_label="", y_label="")
    with pytest.raises(PlotError, match="x must rise"):
        seed_curves([2, 1], {"a": [1, 2]}, title="", x_label="", y_label="")
    with pytest.raises(ShapeError, match=r"curves\['a'\]"):
        seed_curves([1, 2], {"a": [1, 2, 3]}, title="", x_label="", y_label="")


def test_write_strength_refuses_what_does_not_fit():
    with pytest.raises(PlotError, match="losses must have shape"):
        write_strength([0, 1], [0, 1, 2], {})
    with pytest.raises(PlotError, match="marks must lie between 0 and 1, but 3 came"):
        write_strength([0, 1], [0, 1], {3: "far"})
