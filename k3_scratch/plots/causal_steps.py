"""Causal attention on one page: scores, the mask, weights, and the mixture of the values."""

import numpy as np

from k3_scratch.plots.style import FAINT, INK, PlotError, as_array, ink_on, new_figure, styled
from k3_scratch.shapes import check_shapes

CELL = 0.56              # inches
LARGEST = 8              # tokens whose numbers are still readable


@styled
def causal_steps(scores, weights, values, outputs, names=None):
    """Look along a row: what is not hatched is visible, the weights sum to 1, and the output is that mixture of values.

    scores, weights  [T, T]   row: the token that looks; column: the token that is looked at
    values, outputs  [T, V]
    names            [T]      a short word for each token; None: t = 0, 1, ...
    Raises ShapeError for sizes that do not fit, PlotError for too many tokens or weights that see the future.
    """
    name = "causal_steps"
    scores, weights = as_array(name, "scores", scores), as_array(name, "weights", weights)
    values, outputs = as_array(name, "values", values), as_array(name, "outputs", outputs)
    sizes = check_shapes(name, scores=(scores, "T T"), weights=(weights, "T T"), values=(values, "T V"),
                         outputs=(outputs, "T V"))
    T, V = sizes["T"], sizes["V"]
    names = [f"t = {t}" for t in range(T)] if names is None else list(names)
    if max(T, V) > LARGEST or len(names) != T:
        raise PlotError(f"{name}: at most {LARGEST} tokens and channels can be read and each token needs a name, "
                        f"but T = {T}, V = {V} and {len(names)} names came")
    if np.any(np.triu(weights, 1) != 0):
        raise PlotError(f"{name}: weights must be 0 above the diagonal, where the future is")
    hidden = np.triu(np.ones((T, T), dtype=bool), 1)
    panels = [("1  scores", scores, hidden, "RdBu_r", True),
              ("2  mask, softmax: weights", weights, hidden, "Purples", True),
              ("values", values, None, "RdBu_r", False), ("3  outputs", outputs, None, "RdBu_r", False)]
    left, gap, top, below = 0.8, (0.8, 0.8, 0.45, 0.15), 0.42, 0.36
    width = left + (2 * T + 2 * V) * CELL + sum(gap)
    height = top + T * CELL + below
    figure = new_figure(width, height, layout=None)
    x = left
    for number, (title, matrix, mask, colours, looks) in enumerate(panels):
        wide = matrix.shape[1] * CELL
        axes = figure.add_axes((x / width, below / height, wide / width, T * CELL / height))
        _grid(axes, matrix, mask, colours)
        figure.text(x / width, 1 - 0.22 / height, title, fontweight="bold", va="center")
        axes.set_yticks(np.arange(T), [""] * T if number == 3 else names)
        axes.set_xticks(np.arange(matrix.shape[1]), names if looks else [""] * V)
        axes.tick_params(length=0, labelsize=9)
        x += wide + gap[number]
    return figure


def _grid(axes, matrix, mask, colours):
    """A small matrix with its numbers; hidden cells are hatched and hold none."""
    limit = np.abs(matrix if mask is None else matrix[~mask]).max() or 1.0
    low = -1.25 * limit if colours == "RdBu_r" else 0.0
    high = 1.25 * limit if colours == "RdBu_r" else 1.3
    image = axes.imshow(np.ma.array(matrix, mask=np.zeros(matrix.shape, dtype=bool) if mask is None else mask),
                        cmap=colours, vmin=low, vmax=high, aspect="auto")
    for (row, column), value in np.ndenumerate(matrix):
        if mask is not None and mask[row, column]:
            axes.fill_between([column - 0.5, column + 0.5], row - 0.5, row + 0.5, facecolor="white", hatch="////",
                              edgecolor="#9aa1a8", linewidth=0)
            continue
        text = "0" if abs(value) < 5e-3 else f"{value:.2f}".rstrip("0").rstrip(".").replace("-", "−")
        axes.text(column, row, text, ha="center", va="center", fontsize=9.5,
                  color=ink_on(image.cmap(image.norm(value))[:3]))
    for edge in range(1, matrix.shape[1]):
        axes.axvline(edge - 0.5, color=FAINT, linewidth=0.8)
    for edge in range(1, matrix.shape[0]):
        axes.axhline(edge - 0.5, color=FAINT, linewidth=0.8)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(INK)
    axes.set_xlim(-0.5, matrix.shape[1] - 0.5)
    axes.set_ylim(matrix.shape[0] - 0.5, -0.5)
