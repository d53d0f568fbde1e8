"""From a small model to a large one, one group of sizes after the other."""

import numpy as np

from k3_scratch.plots.style import PARTS, PlotError, as_array, need_rising, new_figure, styled, tint
from k3_scratch.shapes import check_shapes


@styled
def growth_steps(names, counts):
    """Look for the longest dark piece: that is the change that makes the model large (the axis counts factors).

    names [n] of the steps, the first is where it starts;   counts [n] rising, above 0, after each step
    Raises ShapeError for other lengths, PlotError for counts that do not rise.
    """
    counts = as_array("growth_steps", "counts", counts)
    check_shapes("growth_steps", counts=(counts, "n"), names=(np.asarray(list(names), dtype=object), "n"))
    if counts.min() <= 0:
        raise PlotError(f"growth_steps: counts must be above 0, but {counts.min():g} came")
    need_rising("growth_steps", "counts", counts)
    figure = new_figure(8.8, 0.46 * len(counts) + 1.0)
    axes = figure.add_subplot()
    floor = 10 ** np.floor(np.log10(counts[0]) - 0.3)
    for row, (count, before) in enumerate(zip(counts, [floor, *counts[:-1]], strict=True)):
        axes.barh(row, before - floor, left=floor, color=tint(PARTS["MoE"], 0.8), height=0.62)
        axes.barh(row, count - before, left=before, color=PARTS["MoE"], height=0.62)
        times = "" if row == 0 else f"   × {count / before:.3g}"
        axes.annotate(f"{short(count)}{times}", (count, row), xytext=(6, 0), textcoords="offset points", va="center",
                      fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(floor, counts[-1] * 10 ** (0.22 * np.log10(counts[-1] / floor)))
    axes.set_yticks(range(len(counts)), names)
    axes.set_ylim(len(counts) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.minorticks_off()
    axes.set_xlabel("parameters")
    return figure


def short(number):
    """
    >>> short(567_000), short(2_779_484_476_000)
    ('567 k', '2.78 T')
    """
    for size, letter in ((1e12, " T"), (1e9, " B"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:g}"
