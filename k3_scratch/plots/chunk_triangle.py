"""The matrix that KDA never forms, cut into chunks: what is computed inside a tile, what goes through the state."""

import numpy as np
from matplotlib.patches import Polygon, Rectangle

from k3_scratch.plots.style import INK, PETROFF10, PlotError, as_array, darker, new_figure, styled, tint
from k3_scratch.shapes import check_shapes

LARGEST = 16                                   # tokens whose numbers are still readable
WITHIN, ACROSS = PETROFF10[0], PETROFF10[1]


@styled
def chunk_triangle(weights, chunk):
    """Look at the outlined triangles: these numbers are computed as tiles, all others travel in a state.

    weights [T, T]  how much of the value of token j (column) is in the output of token i (row); 0 above the diagonal
    chunk           C, tokens a chunk; the last one may be shorter
    Raises ShapeError for another shape, PlotError for more tokens than can be read or numbers above the diagonal.
    """
    weights = as_array("chunk_triangle", "weights", weights)
    T = check_shapes("chunk_triangle", weights=(weights, "T T"))["T"]
    if T > LARGEST or not 1 <= chunk <= T:
        raise PlotError(f"chunk_triangle: weights must have at most {LARGEST} tokens and chunk must be 1 to T, "
                        f"but T = {T} and chunk = {chunk} came")
    if np.abs(np.triu(weights, 1)).max() > 1e-9:
        raise PlotError("chunk_triangle: weights must be 0 above the diagonal (no token sees a later one), but "
                        f"{np.abs(np.triu(weights, 1)).max():g} came")
    cell = 0.44 if T > 8 else 0.52                                       # inches
    side, left, top, text = T * cell, 0.75, 0.62, 2.75
    width, height = left + side + 0.3 + text, top + side + 0.15
    figure = new_figure(width, height, layout=None)
    axes = figure.add_axes((left / width, 0.15 / height, side / width, side / height))
    axes.set_xlim(0, T)
    axes.set_ylim(T, 0)
    limit = np.abs(weights).max() or 1.0
    for i in range(T):
        for j in range(i + 1):
            within = i // chunk == j // chunk
            strength = abs(weights[i, j]) / limit
            axes.add_patch(Rectangle((j, i), 1, 1, edgecolor="white", linewidth=1.0,
                                     facecolor=tint(WITHIN if within else ACROSS, 0.88 - 0.68 * strength ** 0.5)))
            axes.text(j + 0.5, i + 0.53, _short(weights[i, j]), ha="center", va="center", fontsize=7.5,
                      fontweight="bold" if within else "normal", style="normal" if within else "italic")
    for start in range(0, T, chunk):
        end = min(start + chunk, T)
        steps = [(start, start)] + [point for n in range(start, end) for point in ((n + 1, n), (n + 1, n + 1))]
        axes.add_patch(Polygon([*steps, (start, end)], closed=True, facecolor="none", edgecolor=darker(WITHIN),
                               linewidth=2.2, joinstyle="miter", zorder=5))
        if start:
            axes.plot([0, start], [start, start], color=darker(ACROSS), linewidth=1.6, linestyle=(0, (4, 2)), zorder=4)
    axes.set_xticks(np.arange(T) + 0.5, np.arange(1, T + 1))
    axes.set_yticks(np.arange(T) + 0.5, np.arange(1, T + 1))
    axes.tick_params(length=0, labelsize=8.5, top=False, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.set_ylabel("token i, which reads")
    axes.set_xlabel("token j, which has written")
    axes.xaxis.set_label_position("top")
    _words(figure, weights.shape[0], chunk, (left + side + 0.3) / width, height)
    return figure


def _words(figure, T, chunk, x, height):
    """The legend, and what this cut costs."""
    chunks = -(-T // chunk)
    lengths = [min(chunk, T - start) for start in range(0, T, chunk)]
    within = sum(n * (n + 1) // 2 for n in lengths)
    across = T * (T + 1) // 2 - within
    rows = [(0.30, f"chunks of C = {chunk}", INK, "bold", 12),
            (0.78, "within a chunk", darker(WITHIN), "bold", 10),
            (1.02, f"{within} numbers in {chunks} {'tile' if chunks == 1 else 'tiles'},", INK, "normal", 9),
            (1.22, "computed as matrix products", INK, "normal", 9),
            (1.64, "across chunks", darker(ACROSS), "bold", 10),
            (1.88, f"{across} numbers, none of them", INK, "normal", 9),
            (2.08, f"computed: {_states(chunks)}", INK, "normal", 9),
            (2.50, f"{chunks} {'step' if chunks == 1 else 'steps'} one after the other", INK, "bold", 10)]
    for down, words, colour, weight, size in rows:
        figure.text(x, 1 - (down + 0.4) / height, words, color=colour, fontweight=weight, fontsize=size, va="center")
    for down, colour in ((0.78, WITHIN), (1.64, ACROSS)):
        figure.text(x - 0.012, 1 - (down + 0.4) / height, "■", color=colour, fontsize=10, va="center", ha="right")


def _states(chunks):
    if chunks == 1:
        return "there are none"
    return f"{chunks - 1} {'state carries' if chunks == 2 else 'states carry'} them"


def _short(value):
    """
    >>> _short(0.254), _short(-0.06), _short(1.0), _short(0.001)
    ('.25', '−.06', '1.0', '0')
    """
    if abs(value) < 5e-3:
        return "0"
    text = f"{abs(value):.2f}".removeprefix("0") if abs(value) < 0.995 else f"{abs(value):.1f}"
    return ("−" if value < 0 else "") + text
