"""One step of one token in slow motion: the memory before, what is done to it, the memory after."""

import numpy as np

from k3_scratch.plots.number_grid import kept_bars, number_grid
from k3_scratch.plots.style import FAINT, INK, as_array, new_figure, styled
from k3_scratch.shapes import check_shapes

CELL = 0.46              # inches


@styled
def memory_step(before, after, title, formula, *, kept=None, column=None, row=None, names=("key", "value"), limit=1.0):
    """Look from left to right: before, change, after. Only one thing happens in a step.

    before [K, V]; after [K, V], or [V] for a read
    kept   [K]     bars in the middle: each row is multiplied by its share
    column [K]     with row [V]: their outer product is added. Without row, `column` reads: after = before^T column
    names          what to call column and row;   limit  of the colour scale
    Raises ShapeError for sizes that do not fit.
    """
    before, after = as_array("memory_step", "before", before), as_array("memory_step", "after", after)
    contracts = {"kept": (kept, "K"), "column": (column, "K"), "row": (row, "V"),
                 "after": (after, "V" if after.ndim == 1 else "K V")}
    contracts = {name: (np.asarray(a), letters) for name, (a, letters) in contracts.items() if a is not None}
    K, V = (check_shapes("memory_step", before=(before, "K V"), **contracts)[letter] for letter in "KV")
    reads = row is None and kept is None
    gap, top = 0.95, 1.45
    width, height = max(2 * 0.25 + (3 * V + 1.2) * CELL + 3 * gap, 6.6), top + K * CELL + 0.55
    figure = new_figure(width, height, layout=None)
    figure.text(0.25 / width, 1 - 0.22 / height, title, fontweight="bold", va="center", fontsize=11)
    figure.text((width - 0.25) / width, 1 - 0.22 / height, formula, va="center", ha="right", fontsize=11)

    def panel(matrix, x, y, label="", edge=FAINT, below=True):
        rows, columns = matrix.shape
        place = (x / width, 1 - (y + rows * CELL) / height, columns * CELL / width, rows * CELL / height)
        number_grid(figure.add_axes(place), matrix, limit, edge)
        figure.text((x + columns * CELL / 2) / width, 1 - (y + (rows * CELL + 0.2 if below else -0.13)) / height, label,
                    ha="center", va="center", fontsize=9)

    def sign(text, x):
        figure.text(x / width, 1 - (top + K * CELL / 2) / height, text, ha="center", va="center", fontsize=15)

    first = 0.25 + 1.2 * CELL
    panel(before, first, top, "memory" if reads else "memory before", INK)
    middle = first + V * CELL + gap
    last = middle + (V + 1.2) * CELL + gap
    if reads:
        panel(np.asarray(column)[:, None], first - 1.2 * CELL, top, names[0], below=False)
        sign("→", middle - gap / 2)
        panel(after[None], middle, top + (K - 1) * CELL / 2, "what is read", INK)
        return figure
    if kept is not None:
        sign("×", middle - gap / 2)
        kept_bars(figure, np.asarray(kept), (middle / width, 1 - (top + K * CELL) / height, 1.6 * CELL / width,
                                             K * CELL / height))
        for i, share in enumerate(kept):
            figure.text((middle + 1.75 * CELL) / width, 1 - (top + (i + 0.5) * CELL) / height, f"{share:g}",
                        va="center", fontsize=9)
    else:
        sign("+", middle - gap / 2 + 0.05)
        middle += 1.2 * CELL
        panel(np.asarray(column)[:, None], middle - 1.2 * CELL, top, names[0], below=False)
        panel(np.asarray(row)[None], middle, top - 1.2 * CELL, names[1], below=False)
        panel(np.outer(column, row), middle, top, "what is added")
    sign("=", last - gap / 2)
    panel(after, last, top, "memory after", INK)
    return figure
