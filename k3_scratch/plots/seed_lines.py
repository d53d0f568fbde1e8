"""What pictures of lines over one axis share: lines read and checked, seeds drawn thin, labels at the ends."""

import numpy as np

from k3_scratch.plots.style import DASHES, MARKERS, as_array, label_ends, need_named, need_rising
from k3_scratch.shapes import check_shapes


def read_lines(function, argument, x, lines, rows="seeds"):
    """x [n] rising and {label: [rows, n] or [n]} as arrays of two axes.                 -> x, {label: [rows, n]}

    Raises PlotError for no lines or more than there are markers, ShapeError for other lengths.
    """
    x = as_array(function, "x", x)
    need_rising(function, "x", x)
    need_named(function, argument, lines, f"[{rows}, n]", len(MARKERS))
    read = {label: np.atleast_2d(as_array(function, f"{argument}[{label!r}]", runs)) for label, runs in lines.items()}
    for label, runs in read.items():
        check_shapes(function, x=(x, "n"), **{f"{argument}[{label!r}]": (runs, f"{rows} n")})
    return x, read


def draw_line(axes, x, runs, middle, number, colour, **options):
    """Each row of `runs` thin, `middle` [n] thick with the dash and the marker of line `number`."""
    if len(runs) > 1:
        axes.plot(x, runs.T, color=colour, linewidth=0.7, alpha=0.4)
    axes.plot(x, middle, color=colour, linestyle=DASHES[number % len(DASHES)], marker=MARKERS[number % len(MARKERS)],
              linewidth=2.2, **options)


def factor_axis(axes, x, texts):
    """The x axis in factors of two, labelled at the given places only."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(x, texts)
    axes.minorticks_off()


def finish_lines(figure, axes, ends, labels, colours, *, title, x_label, y_label):
    """Grid, words, and each line's label behind its last value in `ends`."""
    axes.grid(True, axis="y")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title)
    axes.margins(x=0.02)
    figure.get_layout_engine().execute(figure)
    label_ends(axes, ends, labels, colours)
