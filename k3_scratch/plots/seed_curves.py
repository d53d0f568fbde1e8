"""Curves over anything, with every seed shown: thin lines are runs, thick lines their means."""

import numpy as np

from k3_scratch.plots.style import (
    DASHES,
    INK,
    MARKERS,
    PETROFF10,
    PlotError,
    as_array,
    label_ends,
    need_rising,
    new_figure,
    styled,
)
from k3_scratch.shapes import check_shapes


@styled
def seed_curves(x, curves, *, title, x_label, y_label, marks=None, limits=None, log=False, ticks=None):
    """Look at the thick lines, then at how far the thin ones of one colour lie apart: less than that says nothing.

    x         [n]                 rising
    curves    {label: [seeds, n]} one row a seed (or [n]: one run)
    marks     {label: x}          dashed upright lines, such as "K" for the number of channels
    limits    (low, high) of the y axis;   log  x on a scale of factors;   ticks  where the x axis is labelled
    Raises ShapeError for other lengths, PlotError without curves.
    """
    x = as_array("seed_curves", "x", x)
    need_rising("seed_curves", "x", x)
    if not isinstance(curves, dict) or not curves or len(curves) > len(MARKERS):
        raise PlotError(f"seed_curves: curves must be a dict {{label: [seeds, n]}} with 1 to {len(MARKERS)} entries, "
                        f"but {type(curves).__name__} of length {len(curves)} came")
    figure = new_figure(8, 4.3)
    axes = figure.add_subplot()
    ends, colours = [], []
    every = max(1, len(x) // 12)
    for position, (label, runs) in enumerate(curves.items()):
        runs = np.atleast_2d(as_array("seed_curves", f"curves[{label!r}]", runs))
        check_shapes("seed_curves", x=(x, "n"), **{f"curves[{label!r}]": (runs, "seeds n")})
        colour, dash = PETROFF10[position % len(PETROFF10)], DASHES[position % len(DASHES)]
        if len(runs) > 1:
            axes.plot(x, runs.T, color=colour, linewidth=0.7, alpha=0.35)
        axes.plot(x, runs.mean(axis=0), color=colour, linestyle=dash, marker=MARKERS[position], markevery=every,
                  linewidth=2.2, label=label)
        ends.append(runs.mean(axis=0)[-1])
        colours.append(colour)
    if log:
        axes.set_xscale("log")
    if ticks is not None:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    if limits is not None:
        axes.set_ylim(*limits)
    for text, place in (marks or {}).items():
        axes.axvline(place, color=INK, linestyle=(0, (5, 3)), linewidth=1)
        axes.annotate(text, (place, 0.0), xycoords=axes.get_xaxis_transform(), xytext=(4, 4),
                      textcoords="offset points", va="bottom", fontsize=9)
    axes.grid(True, axis="y")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title)
    axes.margins(x=0.02)
    figure.get_layout_engine().execute(figure)
    label_ends(axes, ends, list(curves), colours)
    return figure
