"""How much of each earlier value is in each output: a triangle of weights for each kind of memory."""

import numpy as np
from matplotlib.patches import Rectangle

from k3_scratch.plots.number_grid import number_grid
from k3_scratch.plots.style import INK, PlotError, as_array, need_named, new_figure, styled
from k3_scratch.shapes import check_shapes

CELL = 0.44              # inches
LARGEST = 8


@styled
def token_weights(weights, labels):
    """Look along a row: the weights of all values in one output, its own on the diagonal.

    weights {title: [T, T]}  row t, column s: the weight of value s in output t; above the diagonal nothing is drawn
    labels  [T]              a word for each token
    Raises ShapeError for other sizes, PlotError without weights or for more tokens than can be read.
    """
    need_named("token_weights", "weights", weights, "[T, T]")
    weights = {title: as_array("token_weights", f"weights[{title!r}]", w) for title, w in weights.items()}
    T = len(labels)
    for title, w in weights.items():
        check_shapes("token_weights", labels=(np.zeros(T), "T"), **{f"weights[{title!r}]": (w, "T T")})
    if T > LARGEST:
        raise PlotError(f"token_weights: labels must be at most {LARGEST} tokens, but {T} came")
    limit = max(np.abs(w).max() for w in weights.values()) or 1.0
    side, left, gap, top = T * CELL, 0.75, 0.45, 0.35
    width, height = left + len(weights) * (side + gap) - gap + 0.1, top + side + 0.62
    figure = new_figure(width, height, layout=None)
    for position, (title, w) in enumerate(weights.items()):
        x = left + position * (side + gap)
        axes = figure.add_axes((x / width, 0.62 / height, side / width, side / height))
        number_grid(axes, w, limit, INK)
        for row in range(T):
            if row < T - 1:
                axes.add_patch(Rectangle((row + 0.5, row - 0.5), T - row - 1, 1, facecolor="white", zorder=5))
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_zorder(6)
        axes.set_title(title, fontsize=10, pad=6)
        for t, label in enumerate(labels):
            axes.text(t, T - 0.35, label, ha="center", va="top", fontsize=8.5)
            if position == 0:
                axes.text(-0.65, t, label, ha="right", va="center", fontsize=8.5)
        axes.text((T - 1) / 2, T + 0.3, "value of token", ha="center", va="top", fontsize=9)
    figure.text(0.16 / width, (0.62 + side / 2) / height, "output of token", rotation=90, ha="center", va="center",
                fontsize=9)
    return figure
