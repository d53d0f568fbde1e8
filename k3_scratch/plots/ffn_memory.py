"""A feed-forward network as a memory: each hidden unit is a slot with a key, and its value is read by the match."""

import numpy as np

from k3_scratch.plots.number_cells import number_cells, plain_number
from k3_scratch.plots.style import FAINT, INK, PARTS, PlotError, as_array, darker, new_figure, styled
from k3_scratch.shapes import check_shapes

CELL = 0.42              # inches
LARGEST = 8              # rows and columns that can still be read


@styled
def ffn_memory(x, keys, values, weights, y):
    """Look along a row: how well the key fits the input decides how much of the value reaches the output.

    x [D] input, keys [F, D], values [F, D], weights [F] what each slot answers with (0 or more), y [D] output
    Raises ShapeError for sizes that do not fit, PlotError for more than can be read or weights below 0.
    """
    name = "ffn_memory"
    x, keys, values = as_array(name, "x", x), as_array(name, "keys", keys), as_array(name, "values", values)
    weights, y = as_array(name, "weights", weights), as_array(name, "y", y)
    sizes = check_shapes(name, x=(x, "D"), keys=(keys, "F D"), values=(values, "F D"), weights=(weights, "F"),
                         y=(y, "D"))
    F, D = sizes["F"], sizes["D"]
    if max(F, D) > LARGEST or weights.min() < 0:
        raise PlotError(f"{name}: at most {LARGEST} slots and channels and weights of at least 0 are wanted, "
                        f"but [{F}, {D}] came with the smallest weight {weights.min():g}")
    limit = max(np.abs(a).max() for a in (x, keys, values, y)) or 1.0
    bar, left, top = 5 * CELL, 1.25, 1.32
    lefts = left, left + (D + 0.8) * CELL, left + (D + 1.6) * CELL + bar
    width, height = lefts[2] + D * CELL + 0.75, top + (F + 1.9) * CELL + 0.1
    figure = new_figure(width, height, layout=None)

    def place(from_left, from_top, columns, rows):
        return figure.add_axes((from_left / width, 1 - (from_top + rows * CELL) / height,
                                columns * CELL / width, rows * CELL / height))

    def panel(matrix, from_left, from_top, edge=FAINT):
        matrix = np.atleast_2d(matrix)
        number_cells(place(from_left, from_top, D, len(matrix)), matrix, cmap="RdBu_r", low=-1.25 * limit,
                     high=1.25 * limit, texts=[[plain_number(v) for v in row] for row in matrix], edge=edge)

    def words(from_left, from_top, text, across="left", **more):
        figure.text(from_left / width, 1 - from_top / height, text, va="center", ha=across, **more)

    panel(x, lefts[0], 0.15, edge=INK)
    words(lefts[0] - 0.15, 0.15 + CELL / 2, "input $x$", "right")
    panel(keys, lefts[0], top)
    panel(values, lefts[2], top)
    panel(y, lefts[2], top + (F + 0.9) * CELL, edge=INK)
    words(lefts[2] - 0.15, top + (F + 1.4) * CELL, "output: sum of match × value", "right")
    for row in range(F):
        words(lefts[0] - 0.15, top + (row + 0.5) * CELL, f"slot {row + 1}", "right", fontsize=9)
    for at, text in zip(lefts, ("keys: rows of $W_{up}$", "match: act$(k \\cdot x)$", "values: columns of $W_{down}$"),
                        strict=True):
        words(at, top - 0.24, text, fontweight="bold", fontsize=9)
    axes = place(lefts[1], top, bar / CELL, F)
    axes.barh(np.arange(F), weights, color=PARTS["MoE"], height=0.55)
    for row, weight in enumerate(weights):
        axes.text(weight + 0.04 * (weights.max() or 1), row, plain_number(weight), va="center", fontsize=9,
                  color=darker(PARTS["MoE"]))
    axes.set_xlim(0, 1.3 * (weights.max() or 1))
    axes.set_ylim(F - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
    return figure
