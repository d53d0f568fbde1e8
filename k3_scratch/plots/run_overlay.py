"""A run on top of earlier ones, a panel for each family of tasks."""

import numpy as np

from k3_scratch.plots.style import (
    FAINT,
    INK,
    PlotError,
    as_array,
    darker,
    family_style,
    need_rising,
    new_figure,
    styled,
)
from k3_scratch.shapes import check_shapes


@styled
def run_overlay(steps, accuracy, full_steps, full, title):
    """Look at each panel: is the coloured line on its way to where the grey ones end?

    steps [n], accuracy {family: [n]}                 the run that is shown
    full_steps [m], full {family: [seeds, m]}         earlier, longer runs: thin grey lines
    Raises PlotError when the families differ or steps do not rise, ShapeError for other lengths.
    """
    if not accuracy or set(accuracy) != set(full):
        raise PlotError(f"run_overlay: accuracy and full must have the same families, but {sorted(accuracy)} and "
                        f"{sorted(full)} came")
    steps, full_steps = as_array("run_overlay", "steps", steps), as_array("run_overlay", "full_steps", full_steps)
    need_rising("run_overlay", "steps", steps)
    need_rising("run_overlay", "full_steps", full_steps)
    columns = min(3, len(accuracy))
    rows = -(-len(accuracy) // columns)
    figure = new_figure(1.0 + 3.2 * columns, 0.5 + 2.45 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(accuracy):]:
        axes.set_visible(False)
    for place, (axes, (family, line)) in enumerate(zip(grid.flat, accuracy.items(), strict=False)):
        line, runs = as_array("run_overlay", family, line), as_array("run_overlay", family, full[family])
        check_shapes("run_overlay", steps=(steps, "n"), full_steps=(full_steps, "m"),
                     **{f"accuracy[{family!r}]": (line, "n"), f"full[{family!r}]": (runs, "seeds m")})
        colour, marker = family_style(family, place)
        axes.plot(full_steps, runs.T, color="#94a4a2", linewidth=1.1)
        axes.plot(steps, line, color=colour, marker=marker, markevery=max(1, len(steps) // 8), linewidth=2.2)
        axes.axvline(steps[-1], color=FAINT, linewidth=1, linestyle=(0, (5, 3)))
        axes.annotate(f"here {line[-1]:.2f}", (steps[-1], line[-1]), (7, -9 if line[-1] > 0.2 else 5),
                      textcoords="offset points", color=darker(colour), fontsize=9, fontweight="bold", va="center")
        ends = runs[:, -1]
        axes.set_title(f"{family}   (full runs end at {ends.min():.2f} to {ends.max():.2f})", fontsize=9.5)
        axes.set_ylim(-0.03, 1.05)
        axes.grid(True, axis="y")
        if place >= len(accuracy) - columns:
            axes.set_xlabel("update")
            axes.tick_params(labelbottom=True)
        if place % columns == 0:
            axes.set_ylabel("characters right")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    grid.flat[0].set_xlim(0, 1.02 * max(steps[-1], np.max(full_steps)))
    return figure
