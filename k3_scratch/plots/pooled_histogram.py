"""Where a quantile lies when several machines count together, and where the mean of their own quantiles lies."""

import numpy as np

from k3_scratch.plots.style import INK, PETROFF10, PlotError, as_array, new_figure, styled
from k3_scratch.shapes import check_shapes


@styled
def pooled_histogram(edges, counts, quantiles, pooled, *, x_label, limits=None):
    """Compare the two upright lines: the solid one cuts the right share off the whole heap, the dashed one does not.

    edges [bins + 1] rising;  counts [machines, bins];  quantiles [machines] of each alone;  pooled  of the sum
    limits   (low, high) of the x axis
    Raises ShapeError for sizes that do not fit, PlotError for more machines than colours or counts below 0.
    """
    name = "pooled_histogram"
    edges, counts, quantiles = (as_array(name, word, array) for word, array in (
        ("edges", edges), ("counts", counts), ("quantiles", quantiles)))
    machines, bins = (check_shapes(name, counts=(counts, "machines bins"), quantiles=(quantiles, "machines"))[letter]
                      for letter in ("machines", "bins"))
    check_shapes(name, edges=(edges, f"{bins + 1}"))
    if machines > 8 or counts.min() < 0:
        raise PlotError(f"{name}: counts must be those of at most 8 machines and at least 0, "
                        f"but {machines} machines and {counts.min():g} came")
    figure = new_figure(8.6, 4.2)
    axes = figure.add_subplot()
    below = np.zeros(bins)
    marks = ("o", "s", "^", "D", "v", "P", "X", "<")
    for machine in range(machines):
        colour = PETROFF10[machine]
        axes.bar(edges[:-1], counts[machine], np.diff(edges), bottom=below, align="edge", color=colour,
                 edgecolor="white", linewidth=0.4, label=f"machine {machine}")
        below = below + counts[machine]
    top = 1.5 * below.max()
    axes.set_ylim(0, top)
    for machine, place in enumerate(quantiles):
        axes.plot([place], [0.94 * top], marks[machine], color=PETROFF10[machine], markeredgecolor=INK, markersize=8)
    mean = quantiles.mean()
    axes.axvline(mean, ymax=0.87, color=INK, linestyle=(0, (4, 2)), linewidth=2)
    axes.axvline(pooled, ymax=0.87, color=INK, linewidth=2.4)
    for place, text, other in ((mean, "mean of the\nmachines' own", pooled), (pooled, "read from\nthe sum", mean)):
        side = "left" if place > other else "right"
        axes.annotate(text, (place, 0.86 * top), xytext=(5 if side == "left" else -5, 0), textcoords="offset points",
                      ha=side, va="top", fontsize=9, fontweight="bold")
    axes.annotate("each machine alone", (0.99, 0.94), xycoords="axes fraction", ha="right", va="center", fontsize=9)
    axes.set_xlim(*(limits or (edges[0], edges[-1])))
    axes.set_xlabel(x_label)
    axes.set_ylabel("tokens")
    figure.legend(loc="outside upper right", ncols=min(machines, 4), frameon=False, fontsize=9)
    return figure
