"""The pictures of notebook 09: what they show, what they refuse, nothing clipped, no labels on top of each other."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from picture_helpers import assert_readable, clipped, words

from k3_scratch.plots.clinic_chart import INSTRUMENTS, clinic_chart
from k3_scratch.plots.run_overlay import run_overlay
from k3_scratch.plots.singular_values import singular_values
from k3_scratch.plots.style import PARTS, PlotError, to_bytes
from k3_scratch.plots.task_rows import task_rows
from k3_scratch.shapes import ShapeError

ROWS = {"recall": ("a4 k7?k7a4\n", ".......^.^$"), "copy": ("copy abc>abc\n", ".........^^^$")}
SIZES = np.geomspace(1e-3, 1, 7)
STEPS, VISITS = np.arange(1, 7), [3, 6]


def patient(seed, *, length=1.0):
    random = np.random.default_rng(seed)
    return {"loss": random.uniform(1, 4, (3, 6)), "norm": random.uniform(0.2, 40, (3, 6)),
            "load": random.integers(1, 30, (2, 5)), "half_life": random.uniform(0.2, 500, (3, 8)),
            "keys": np.array([[length, length], [length, 2 * length - 1]])}


def chart(**tell):
    return clinic_chart(STEPS, VISITS, {"healthy": patient(0), "ill": patient(1, length=3.0)}, tell)


def overlay(families=("recall", "copy", "new", "stories")):
    full = {name: np.linspace([0.1, 0.2], [0.9, 0.99 - 0.1 * i], 5).T for i, name in enumerate(families)}
    return run_overlay([10, 20, 30], {name: [0.1, 0.3, 0.6] for name in families}, [10, 20, 40, 60, 80], full, "A run")


PICTURES = {
    "rows": lambda: task_rows(ROWS),
    "values": lambda: singular_values(SIZES, {"before": SIZES, "5 steps": np.full(7, 1.1)},
                                      {"before": [0.9, 0.1, 0.0], "5 steps": [1.1, 1.0, 0.7]}),
    "overlay": overlay, "chart": lambda: chart(ill="keys"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_is_clipped_or_on_top_of_something_else(name):
    figure = PICTURES[name]()
    assert_readable(figure)
    assert to_bytes(figure) == to_bytes(PICTURES[name]())


def test_only_answers_are_filled():
    figure = task_rows(ROWS)
    cells = [patch for patch in figure.axes[0].patches if patch.get_width() == 0.9]
    filled = [to_hex(patch.get_edgecolor()) for patch in cells if patch.get_facecolor()[:3] != (1, 1, 1)]
    assert len(cells) == 11 + 13 + 3                                     # the texts, and one of each kind below
    assert filled.count(PARTS["KDA"]) == 2 + 3 + 1 and filled.count(PARTS["MLA"]) == 2 + 1
    assert words(figure).count("⏎") == 2


@pytest.mark.parametrize(("examples", "says"), [
    ({}, "at least one"), ({"a": ("xy", ".")}, "marks of 'a' must be 2"), ({"a": ("xy", ".?")}, "marks of 'a'")])
def test_rows_refuse(examples, says):
    with pytest.raises(PlotError, match=says):
        task_rows(examples)


def test_singular_values_have_one_colour_for_one_word():
    left, right = PICTURES["values"]().axes
    assert [line.get_color() for line in left.lines] == [line.get_color() for line in right.lines]
    assert right.lines[0].get_ydata()[-1] == 1e-4                        # 0 has no place on a scale of factors
    assert words(PICTURES["values"]()).count("5 steps") == 2


def test_singular_values_refuse():
    with pytest.raises(PlotError, match="1 to 10 lines each, but 0 and 1"):
        singular_values(SIZES, {}, {"a": [1.0]})
    with pytest.raises(ShapeError, match="lines"):
        singular_values(SIZES, {"a": [1.0, 2.0]}, {"a": [1.0]})


def test_overlay_shows_both_runs():
    figure = overlay()
    axes = [axes for axes in figure.axes if axes.get_visible()]
    assert len(axes) == 4 and [len(each.lines) for each in axes] == [4] * 4  # two full runs, this one, its end
    assert axes[0].get_title(loc="left") == "recall   (full runs end at 0.90 to 0.99)"
    assert words(figure).count("here 0.60") == 4


def test_overlay_refuses():
    with pytest.raises(PlotError, match="the same families"):
        run_overlay([1], {"a": [0.5]}, [1], {"b": [[0.5]]}, "")
    with pytest.raises(ShapeError, match="accuracy"):
        run_overlay([1, 2], {"a": [0.5]}, [1], {"a": [[0.5]]}, "")


def test_a_chart_has_a_panel_for_each_instrument_and_frames_the_one_that_tells():
    figure = chart(ill="keys")
    assert len(figure.axes) == 2 * len(INSTRUMENTS)
    framed = [axes for axes in figure.axes if axes.spines["top"].get_linewidth() == 3]
    assert framed == [figure.axes[9]]
    assert words(figure).count("longest") == 1                           # the healthy keys have length 1: no words
    assert [axes.get_ylabel() for axes in figure.axes if axes.get_ylabel()] == ["healthy", "ill"]
    assert figure.axes[0].get_ylim() == figure.axes[5].get_ylim()
    assert [axes for axes in chart().axes if axes.spines["top"].get_linewidth() == 3] == []


def test_a_chart_bears_a_run_that_blew_up():
    broken = patient(2)
    for name in ("loss", "norm", "half_life", "keys"):
        broken[name][:, -1] = np.nan
    figure = clinic_chart(STEPS, VISITS, {"healthy": patient(0), "ill": broken})
    assert np.isfinite(figure.axes[0].get_ylim()).all() and clipped(figure) == {}


@pytest.mark.parametrize(("change", "tell", "error", "says"), [
    ({"more": [1]}, {}, PlotError, "must have loss, norm"), ({}, {"healthy": "pulse"}, PlotError, "'pulse' came"),
    ({"loss": np.ones((3, 5))}, {}, ShapeError, "loss"), ({"keys": np.ones((2, 3))}, {}, ShapeError, "keys")])
def test_chart_refuses(change, tell, error, says):
    with pytest.raises(error, match=says):
        clinic_chart(STEPS, VISITS, {"healthy": patient(0) | change}, tell)


def test_chart_needs_a_patient():
    with pytest.raises(PlotError, match="at least the healthy one"):
        clinic_chart(STEPS, VISITS, {})
