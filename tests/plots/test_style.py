import os
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from picture_helpers import run_arrays

from k3_scratch.plots import style
from k3_scratch.plots.magnitudes import magnitudes


def picture():
    return magnitudes(["a", "b", "c"], {"input": [1, 2, 3], "output": [2, 1, 2]})


def test_save_is_atomic(tmp_path, monkeypatch):
    figure = picture()
    path = style.save(figure, tmp_path / "new" / "one.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [entry.name for entry in path.parent.iterdir()] == ["one.png"]
    before = path.read_bytes()

    def broken(*_):
        raise OSError("disk full")
    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        style.save(figure, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["one.png"]


def test_save_refuses_other_endings(tmp_path):
    with pytest.raises(style.PlotError, match=r"\.png or \.svg"):
        style.save(style.new_figure(1, 1), tmp_path / "one.jpg")
    with pytest.raises(style.PlotError, match="kind"):
        style.to_bytes(style.new_figure(1, 1), "pdf")


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_same_arrays_same_bytes_whatever_the_settings(kind):
    first = style.to_bytes(picture(), kind)
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "figure.dpi": 50}):
        assert style.to_bytes(picture(), kind) == first
        assert matplotlib.rcParams["font.size"] == 20


def test_picture_shows_itself_in_a_notebook():
    figure = picture()
    assert figure._repr_png_() == style.to_bytes(figure)
    assert figure.get_facecolor() == (1.0, 1.0, 1.0, 1.0)


def test_no_display_no_pyplot_no_torch():
    code = ("import sys, pkgutil, importlib, k3_scratch.plots as p\n"
            "for m in pkgutil.iter_modules(p.__path__): importlib.import_module('k3_scratch.plots.' + m.name)\n"
            "from k3_scratch.plots.magnitudes import magnitudes\n"
            "from k3_scratch.plots.style import to_bytes\n"
            "to_bytes(magnitudes(['a', 'b'], [1, 2]))\n"
            "print([name for name in ('torch', 'matplotlib.pyplot') if name in sys.modules])")
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MPLBACKEND")}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_spread_keeps_distance_and_order():
    wanted = np.array([0.5, 0.1, 0.52, 0.51, 0.9])
    places = style.spread(wanted, 0.05, 0, 1)
    assert np.all(np.diff(np.sort(places)) >= 0.05 - 1e-12)
    assert np.array_equal(np.argsort(places, kind="stable"), np.argsort(wanted, kind="stable"))
    assert places[1] == pytest.approx(0.1) and places[4] == pytest.approx(0.9)
    assert places[[0, 2, 3]].mean() == pytest.approx(0.51)


def test_spread_stays_inside_and_shares_a_tight_room():
    assert style.spread([1.0, 1.0, 1.0], 0.1, 0, 1) == pytest.approx([0.8, 0.9, 1.0])
    assert style.spread([0.5] * 5, 0.9, 0, 1) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert style.spread([], 0.1).size == 0


def test_edges_of_uneven_steps():
    assert style.edges([0, 1, 3]) == pytest.approx([-0.5, 0.5, 2, 4])
    assert style.edges([7]) == pytest.approx([6.5, 7.5])


def test_parts_and_families_each_have_their_own_look():
    assert set(style.PARTS) >= {"KDA", "MLA", "MoE", "dense", "mix"}
    assert len(set(style.PARTS.values())) == len(style.PARTS)
    assert set(style.FAMILIES) == set(run_arrays()["accuracy"])
    assert len({colour for colour, _ in style.FAMILIES.values()}) == 6
    assert len({marker for _, marker in style.FAMILIES.values()}) == 6
    assert style.family_style("something new", 0) not in style.FAMILIES.values()


def test_arrays_that_are_none():
    with pytest.raises(style.PlotError, match="loss must be an array of numbers"):
        style.as_array("f", "loss", ["a"])
    with pytest.raises(style.PlotError, match="at least one number"):
        style.as_array("f", "loss", [])
