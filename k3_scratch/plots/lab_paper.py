"""The numbers of a paper, as a picture to stand beside ours."""

import numpy as np

from k3_scratch.plots.lab_dots import short
from k3_scratch.plots.style import INK, PlotError, as_array, new_figure, styled, tint
from k3_scratch.shapes import check_shapes

COLOUR = "#717581"       # grey: not measured here


@styled
def lab_paper(names, values, x_label, source):
    """Look at the order of the rows, and whether it is the order that we measured.

    names [n], values [n]: what the paper printed; x_label what the numbers are; source the paper, written below
    Raises ShapeError for other lengths, PlotError without rows.
    """
    values = as_array("lab_paper", "values", values)
    check_shapes("lab_paper", names=(np.asarray(names, dtype=object), "n"), values=(values, "n"))
    if len(values) == 0:
        raise PlotError("lab_paper: values must hold at least one number, but none came")
    figure = new_figure(6.2, 1.3 + 0.42 * len(values))
    axes = figure.add_subplot()
    room = max(np.ptp(values), 0.02 * abs(values).max(), 1e-9)
    axes.hlines(range(len(values)), values.min() - 0.15 * room, values, color=tint(COLOUR, 0.5), linewidth=1.2)
    axes.plot(values, range(len(values)), linestyle="none", marker="o", color=COLOUR, markersize=7)
    for place, value in enumerate(values):
        text = f"{value:g}" if value < 1000 else short(value)
        axes.annotate(text, (value, place), xytext=(8, 0), textcoords="offset points", va="center", fontsize=9,
                      fontweight="bold", color=INK)
    axes.set_yticks(range(len(values)), names)
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_xlim(values.min() - 0.15 * room, values.max() + 0.3 * room)
    axes.grid(True, axis="x")
    axes.set_xlabel(f"{x_label}\n{source}")
    axes.set_title("In the paper")
    return figure
