"""The film strip of a matrix memory: token by token, what came, what was recalled, what changed, what is kept."""

import numpy as np

from k3_scratch.plots.number_grid import kept_bars, number_grid, titles_of_states
from k3_scratch.plots.style import FAINT, INK, as_array, new_figure, styled
from k3_scratch.shapes import check_shapes

CELL = 0.42              # inches


@styled
def memory_film(states, keys, values, recalled, decay=None, titles=None, limit=None):
    """Look down a column: the key marks rows, the error of the recalled value is what changes in them.

    states    [n, K, V]  the memory before the first token and after each one (n = T + 1)
    keys      [T, K]     values, recalled [T, V]: what is to be stored, and what the memory said for the key before
    decay     [T, K]     share of each row that is kept, drawn as bars; None: nothing is forgotten
    titles    [T]        a few words over each token
    limit     largest number of the colour scale; None: the largest there is
    Raises ShapeError for sizes that do not fit, PlotError for more rows or columns than can be read.
    """
    name = "memory_film"
    states, keys = as_array(name, "states", states), as_array(name, "keys", keys)
    values, recalled = as_array(name, "values", values), as_array(name, "recalled", recalled)
    decay = np.ones(keys.shape) if decay is None else as_array(name, "decay", decay)
    sizes = check_shapes(name, keys=(keys, "T K"), values=(values, "T V"), recalled=(recalled, "T V"),
                         decay=(decay, "T K"), states=(states, "n K V"))
    T, K, V = sizes["T"], sizes["K"], sizes["V"]
    titles = titles_of_states(name, states, T, titles)

    changes = states[1:] - decay[:, :, None] * states[:-1]
    limit = limit or max(np.abs(a).max() for a in (states, keys, values, recalled, changes)) or 1.0
    bars = bool(np.any(decay < 1))
    pitch = (1 + V + (1.3 if bars else 0) + 1.0) * CELL                # width of one token
    left, top = 1.45, 0.42
    heights = [1, 1, K, K]
    tops = top + np.concatenate([[0], np.cumsum([(rows + 0.75) * CELL for rows in heights[:-1]])])
    width, height = left + T * pitch, tops[-1] + K * CELL + 0.16
    figure = new_figure(width, height, layout=None)

    def panel(matrix, x, y, edge=FAINT):
        rows, columns = matrix.shape
        axes = figure.add_axes((x / width, 1 - (y + rows * CELL) / height,
                                columns * CELL / width, rows * CELL / height))
        number_grid(axes, matrix, limit, edge)
        return axes

    for text, y, rows in zip(("value $v$", "recalled\n$S^{\\top} k$", "key $k$,\nchange", "memory $S$\nafterwards"),
                             tops, heights, strict=True):
        figure.text(0.08 / width, 1 - (y + rows * CELL / 2) / height, text, va="center", ha="left")
    for t in range(T):
        x = left + t * pitch
        figure.text((x + CELL) / width, 1 - 0.2 / height, titles[t], va="center", ha="left", fontweight="bold")
        panel(values[t][None], x + CELL, tops[0])
        panel(recalled[t][None], x + CELL, tops[1])
        panel(keys[t][:, None], x - 0.12, tops[2], edge=INK)
        panel(changes[t], x + CELL, tops[2])
        panel(states[t + 1], x + CELL, tops[3], edge=INK)
        if bars:
            kept_bars(figure, decay[t], ((x + (V + 1.15) * CELL) / width, 1 - (tops[3] + K * CELL) / height,
                                         1.1 * CELL / width, K * CELL / height))
    return figure
