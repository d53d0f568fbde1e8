"""One dot a seed, one line for their mean: the lab's plainest picture."""

import numpy as np
from matplotlib.ticker import LogLocator

from k3_scratch.plots.style import INK, MARKERS, PETROFF10, PlotError, as_array, darker, new_figure, styled


@styled
def lab_dots(panels, *, title, x_label, limits=None, chance=None, log=False, columns=3):
    """Look whether the dots of two rows overlap: where they do, their means say little.

    panels   {panel title: {row label: [seeds]}}, rows in the order in which they are to stand
    limits   (low, high) of the x axis, shared by all panels; None: what the numbers need
    chance   place of a dashed upright line: what guessing gives, or a goal
    log      x on a scale of factors;  columns  panels in a line
    Raises PlotError for no panels, no rows, or a value that is not above 0 on a scale of factors.
    """
    if not panels or not all(panels.values()):
        raise PlotError("lab_dots: panels must hold at least one panel with at least one row each")
    rows = list(dict.fromkeys(label for panel in panels.values() for label in panel))
    values = {name: {label: np.atleast_1d(as_array("lab_dots", f"panels[{name!r}][{label!r}]", runs))
                     for label, runs in panel.items()} for name, panel in panels.items()}
    everything = np.concatenate([runs for panel in values.values() for runs in panel.values()])
    if log and everything.min() <= 0:
        raise PlotError(f"lab_dots: a scale of factors needs values above 0, but {everything.min():g} came")
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    figure = new_figure(min(13.0, 2.6 + 3.6 * columns), 0.9 + lines * (0.75 + 0.42 * len(rows)))
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(panels):]:
        axes.set_visible(False)
    for place, (axes, (name, panel)) in enumerate(zip(grid.flat, values.items(), strict=False)):
        for label, runs in panel.items():
            y, colour = rows.index(label), PETROFF10[rows.index(label) % len(PETROFF10)]
            shift = np.linspace(-0.16, 0.16, len(runs)) if len(runs) > 1 else np.zeros(1)
            axes.plot(runs, y + shift, linestyle="none", marker=MARKERS[y % len(MARKERS)], color=colour, alpha=0.75,
                      markersize=5, markeredgewidth=0)
            axes.plot([runs.mean()] * 2, [y - 0.3, y + 0.3], color=darker(colour), linewidth=2.4)
            axes.annotate(short(runs.mean()), (1.0, y), xycoords=axes.get_yaxis_transform(), xytext=(4, 0),
                          textcoords="offset points", va="center", fontsize=9, color=darker(colour), fontweight="bold")
        if chance is not None:
            axes.axvline(chance, color=INK, linestyle=(0, (5, 3)), linewidth=1)
        if name:
            axes.set_title(name, fontsize=10)
        axes.grid(True, axis="x")
        if place >= len(panels) - columns:
            axes.set_xlabel(x_label)
            axes.tick_params(labelbottom=True)
    first = grid[0, 0]
    if log:
        first.set_xscale("log")
        first.xaxis.set_major_locator(LogLocator(10, numticks=6))
    if limits is not None:
        first.set_xlim(*limits)
    first.set_yticks(range(len(rows)), rows)
    first.set_ylim(len(rows) - 0.5, -0.5)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def short(value):
    """A number beside a mark.

    >>> short(0.98765), short(1234.5), short(0.0000123), short(12.34)
    ('0.99', '1,234', '1.2e-05', '12.3')
    """
    if value != 0 and abs(value) < 5e-3:
        return f"{value:.1e}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"
