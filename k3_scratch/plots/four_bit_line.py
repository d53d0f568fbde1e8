"""A block of numbers, and the few places that four bits and one shared power of two leave to them."""

import numpy as np

from k3_scratch.plots.style import FAINT, INK, PARTS, PETROFF10, as_array, darker, new_figure, styled
from k3_scratch.shapes import check_shapes


@styled
def four_bit_line(values, stored, grid):
    """Look how the places crowd around 0 and thin out: a small number moves little, a large one may move far.

    values, stored [n]   the numbers of one block before and after;   grid [g]   all places there are, rising
    Raises ShapeError for sizes that do not fit.
    """
    name = "four_bit_line"
    values, stored, grid = (as_array(name, word, array) for word, array in (
        ("values", values), ("stored", stored), ("grid", grid)))
    check_shapes(name, values=(values, "n"), stored=(stored, "n"), grid=(grid, "g"))
    figure = new_figure(8.8, 3.2)
    axes = figure.add_subplot()
    for place in grid:
        axes.plot([place, place], [-0.12, 0.12], color=INK, linewidth=1.6)
    axes.plot([grid[0], grid[-1]], [0, 0], color=FAINT, linewidth=1)
    for before, after in zip(values, stored, strict=True):
        axes.plot([before, after], [1, 0.12], color=PARTS["MoE"], linewidth=0.8, alpha=0.6)
    axes.plot(values, np.ones_like(values), "o", color=PETROFF10[0], markeredgecolor=darker(PETROFF10[0]), markersize=5)
    axes.text(grid[0], 1.16, "weights of the block", fontsize=9, fontweight="bold", color=darker(PETROFF10[0]))
    unit = grid[-1] / 6
    for place in grid:
        text = f"{place / unit:g}".replace("-", "−")
        row = -0.24 if abs(place / unit) in (0, 1, 2, 3, 4, 6) else -0.44
        axes.text(place, row, text, ha="center", va="top", fontsize=8.5)
    axes.text(0, -0.72, f"in units of the block's own power of two, here $2^{{{round(np.log2(unit))}}}$", ha="center",
              va="top", fontsize=9)
    reach = max(abs(values).max(), grid[-1]) * 1.06
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-0.98, 1.36)
    axes.set_yticks([])
    axes.spines[["left"]].set_visible(False)
    axes.set_xlabel("value")
    return figure
