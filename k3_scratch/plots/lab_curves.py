"""Curves in panels, every seed shown: thin lines are runs, thick ones their means."""

import numpy as np

from k3_scratch.plots.bench_axes import label_panels
from k3_scratch.plots.lab_dots import short
from k3_scratch.plots.seed_lines import draw_line
from k3_scratch.plots.style import INK, PETROFF10, PlotError, as_array, new_figure, styled
from k3_scratch.shapes import check_shapes


@styled
def lab_curves(panels, *, title, x_label, y_label, limits=None, level=None, log_x=False, log_y=False, ticks=None,
               columns=2, numbers=True):
    """Look at the thick lines, then at how far thin ones of a colour lie apart: less than that says nothing.

    panels   {panel title: {label: (x [n], runs [seeds, n])}}; a label has one colour and marker in all panels
    limits   (low, high) of the y axis;  level  height of a dashed line;  ticks  where the x axis is labelled
    log_x, log_y   scales of factors;  numbers  write each line's last mean behind its label
    Raises ShapeError for other lengths, PlotError without panels or lines.
    """
    if not panels or not all(panels.values()):
        raise PlotError("lab_curves: panels must hold at least one panel with at least one line each")
    names = list(dict.fromkeys(label for panel in panels.values() for label in panel))
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    figure = new_figure(min(13.5, 1.4 + 5.6 * columns), 0.5 + 3.7 * lines)
    grid = figure.subplots(lines, columns, squeeze=False, sharey=limits is not None)
    for axes in grid.flat[len(panels):]:
        axes.set_visible(False)
    labelled = []
    for place, (axes, (name, panel)) in enumerate(zip(grid.flat, panels.items(), strict=False)):
        ends, labels, colours = [], [], []
        for label, (x, runs) in panel.items():
            x = as_array("lab_curves", f"x of {label!r}", x)
            runs = np.atleast_2d(as_array("lab_curves", f"runs of {label!r}", runs))
            check_shapes("lab_curves", x=(x, "n"), runs=(runs, "seeds n"))
            number = names.index(label)
            colour = PETROFF10[number % len(PETROFF10)]
            mean = runs.mean(axis=0)
            draw_line(axes, x, runs, mean, number, colour, markevery=max(1, len(x) // 10))
            ends.append(mean[-1])
            labels.append(f"{label} {short(mean[-1])}" if numbers else label)
            colours.append(colour)
        if level is not None:
            axes.axhline(level, color=INK, linestyle=(0, (5, 3)), linewidth=1)
        if log_x:
            axes.set_xscale("log")
        if log_y:
            axes.set_yscale("log")
        if ticks is not None:
            axes.set_xticks(ticks, [f"{tick:,g}" for tick in ticks])
            axes.minorticks_off()
        if limits is not None:
            axes.set_ylim(*limits)
        axes.grid(True, axis="y")
        axes.margins(x=0.03)
        axes.set_xlabel(x_label)
        if place % columns == 0:
            axes.set_ylabel(y_label)
        if name:
            axes.set_title(name, fontsize=10)
        labelled.append((axes, ends, labels, colours))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    label_panels(figure, labelled)
    return figure
