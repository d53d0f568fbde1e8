"""Which technique sees which planted fault."""

import numpy as np
from matplotlib.patches import Rectangle

from k3_scratch.plots.style import FAINT, INK, PETROFF10, PlotError, darker, new_figure, styled, tint
from k3_scratch.shapes import check_shapes

LEVELS = (PETROFF10[0], PETROFF10[1], PETROFF10[5], PETROFF10[6], PETROFF10[2])


@styled
def fault_matrix(seen, levels, parts, techniques):
    """Look at the first column, which is empty, and then along a row: most faults show in one or two places only.

    seen        bool [n, m]   row: fault, column: technique, the weak tests first
    levels [n]  1 to 5, rising;   parts [n]  names of the parts the faults are in;   techniques [m]  names
    Raises ShapeError for other lengths, PlotError for levels that fall or lie outside.
    """
    seen, levels = np.asarray(seen, dtype=bool), np.asarray(levels)
    check_shapes("fault_matrix", seen=(seen, "n m"), levels=(levels, "n"), parts=(np.asarray(parts, dtype=object), "n"),
                 techniques=(np.asarray(techniques, dtype=object), "m"))
    if len(levels) == 0 or levels.min() < 1 or levels.max() > len(LEVELS) or np.any(np.diff(levels) < 0):
        raise PlotError(f"fault_matrix: levels must rise from 1 to {len(LEVELS)}, but {levels.tolist()} came")
    n, m = seen.shape
    figure = new_figure(8.6, 1.9 + 0.27 * n)
    axes = figure.add_subplot()
    for row, column in np.ndindex(n, m):
        colour = LEVELS[levels[row] - 1]
        if seen[row, column]:
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=tint(colour, 0.55), edgecolor="white"))
            axes.text(column, row, "●", ha="center", va="center_baseline", fontsize=9, color=darker(colour))
        else:
            axes.text(column, row, "·", ha="center", va="center_baseline", fontsize=9, color=FAINT)
    for row in np.flatnonzero(np.diff(levels)):
        axes.axhline(row + 0.5, color=INK, linewidth=0.8)
    axes.axvline(0.5, color=INK, linewidth=1.4)
    axes.set_xlim(-0.5, m - 0.5)
    axes.set_ylim(n - 0.5, -0.5)
    axes.set_xticks(np.arange(m), techniques, rotation=40, ha="left", rotation_mode="anchor", fontsize=9)
    axes.xaxis.tick_top()
    axes.set_yticks(np.arange(n), [f"{part}  {level}" for part, level in zip(parts, levels, strict=True)], fontsize=9)
    for label, level in zip(axes.get_yticklabels(), levels, strict=True):
        label.set_color(darker(LEVELS[level - 1]))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("one fault a row, with its part and level; ● seen by this technique")
    return figure
