"""The film strip of a memory that forgets: token by token, what is kept, recalled, erased, written."""

import numpy as np

from k3_scratch.plots.number_grid import kept_bars, number_grid, titles_of_states
from k3_scratch.plots.style import FAINT, INK, as_array, new_figure, styled
from k3_scratch.shapes import check_shapes

CELL = 0.42              # inches
ROWS = ("forget\n$\\mathrm{diag}(\\alpha)\\,S$", "recalled\nfor $k$", "erase\n$-\\beta k\\,$recalled$^{\\top}$",
        "value $v$", "write\n$\\beta k v^{\\top}$", "memory $S$\nafterwards")


@styled
def state_film(states, keys, values, decay, beta, titles=None):
    """Look down a column: bars shrink rows, the key marks the rows that are erased and written; the rest only fades.

    states    [n, K, V]  the memory before the first token and after each one (n = T + 1)
    keys      [T, K]     values [T, V], beta [T]: what is written under which key, and how strongly
    decay     [T, K]     alpha, the share of each row that is kept before the write, drawn as bars
    titles    [T]        a few words over each token
    The rows between two states follow from these: decayed, recalled, erased, written.
    Raises ShapeError for sizes that do not fit, PlotError for more rows or columns than can be read.
    """
    name = "state_film"
    states, keys, values, decay, beta = (as_array(name, word, array) for word, array in (
        ("states", states), ("keys", keys), ("values", values), ("decay", decay), ("beta", beta)))
    sizes = check_shapes(name, keys=(keys, "T K"), values=(values, "T V"), decay=(decay, "T K"), beta=(beta, "T"),
                         states=(states, "n K V"))
    T, K, V = sizes["T"], sizes["K"], sizes["V"]
    titles = titles_of_states(name, states, T, titles)

    faded = decay[:, :, None] * states[:-1]                             # [T, K, V]
    recalled = np.einsum("tk,tkv->tv", keys, faded)
    erased = -np.einsum("t,tk,tv->tkv", beta, keys, recalled)
    written = np.einsum("t,tk,tv->tkv", beta, keys, values)
    limit = max(np.abs(a).max() for a in (states, keys, values, recalled, written)) or 1.0

    pitch, left, top = (V + 3.35) * CELL, 1.35, 0.62                    # width of one token, of the words; of titles
    heights = np.array([K, 1, K, 1, K, K])
    tops = top + np.concatenate([[0], np.cumsum((heights[:-1] + 0.62) * CELL)])
    width, height = left + T * pitch - 0.25, tops[-1] + K * CELL + 0.12
    figure = new_figure(width, height, layout=None)

    def panel(matrix, x, y, edge=FAINT):
        rows, columns = matrix.shape
        place = (x / width, 1 - (y + rows * CELL) / height, columns * CELL / width, rows * CELL / height)
        number_grid(figure.add_axes(place), matrix, limit, edge)

    for text, y, rows in zip(ROWS, tops, heights, strict=True):
        figure.text(0.08 / width, 1 - (y + rows * CELL / 2) / height, text, va="center", ha="left")
    for t in range(T):
        x = left + t * pitch + 1.15 * CELL                              # left edge of the matrices
        figure.text((x - 1.15 * CELL) / width, 1 - 0.17 / height, titles[t], va="center", ha="left", fontweight="bold")
        for matrix, y, edge in ((faded[t], tops[0], FAINT), (recalled[t][None], tops[1], FAINT),
                                (erased[t], tops[2], FAINT), (values[t][None], tops[3], FAINT),
                                (written[t], tops[4], FAINT), (states[t + 1], tops[5], INK)):
            panel(matrix, x, y, edge)
        for y in (tops[2], tops[4]):
            panel(keys[t][:, None], x - 1.15 * CELL, y, INK)
        kept_bars(figure, decay[t], ((x + (V + 0.15) * CELL) / width, 1 - (tops[0] + K * CELL) / height,
                                     1.1 * CELL / width, K * CELL / height))
        figure.text((x + (V + 0.15) * CELL) / width, 1 - (tops[4] + K * CELL / 2) / height, f"$\\beta$ = {beta[t]:g}",
                    va="center", fontsize=9)
    return figure
