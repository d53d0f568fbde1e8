"""Attention over depth: which earlier vectors each sublayer reads."""

import numpy as np

from k3_scratch.plots.style import PlotError, as_array, ink_on, new_figure, styled
from k3_scratch.shapes import check_shapes

NUMBERS_UP_TO = 16     # more columns than this leave no room for a number in each cell


@styled
def depth_triangle(weights, query_names, source_names):
    """Look along a row: it says which vectors of the past one mix averages; bright cells far left are long jumps.

    weights [Q, N]    softmax weights of each mix, NaN where the source does not exist yet (white, upper right)
    query_names [Q]   the sublayers that read, first one on top;   source_names [N] the vectors that can be read
    Raises ShapeError for other lengths, PlotError when the weights that exist in a row do not sum to 1.
    """
    weights = as_array("depth_triangle", "weights", weights)
    check_shapes("depth_triangle", weights=(weights, "Q N"), query_names=(np.asarray(query_names, dtype=object), "Q"),
                 source_names=(np.asarray(source_names, dtype=object), "N"))
    totals = np.nansum(weights, axis=1)
    if np.any(np.abs(totals - 1) > 1e-3):
        row = int(np.argmax(np.abs(totals - 1)))
        raise PlotError(f"depth_triangle: weights in each row must sum to 1 (softmax over the sources that exist), "
                        f"but row {row} ({query_names[row]}) sums to {totals[row]:.4g}")

    queries, sources = weights.shape
    wide = sources <= NUMBERS_UP_TO and queries <= 40
    height = min(14.0, 1.9 + (0.36 if wide else 0.16) * queries)
    figure = new_figure(max(5.2, 2.6 + (0.85 if wide else 0.3) * sources), height)
    axes = figure.add_subplot()
    image = axes.imshow(np.ma.masked_invalid(weights), cmap="viridis", vmin=0, vmax=1, aspect="auto",
                        interpolation="nearest")
    if wide:
        for row, column in np.argwhere(np.isfinite(weights)):
            value = weights[row, column]
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=9,
                      color=ink_on(image.cmap(image.norm(value))))
    names = [str(name) for name in source_names]
    slanted = 0.095 * max(map(len, names)) > (0.85 if wide else 0.3)      # inches of text against inches of a column
    axes.set_xticks(range(sources), names, rotation=40 if slanted else 0, ha="right" if slanted else "center",
                    rotation_mode="anchor" if slanted else "default")
    every = max(1, queries // 40)
    axes.set_yticks(range(0, queries, every), [str(name) for name in query_names[::every]])
    axes.set_xlabel("vector that is read")
    axes.set_ylabel("sublayer that reads")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(sources + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(queries + 1) - 0.5, minor=True)
    if wide:
        axes.grid(True, which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    figure.suptitle("Which earlier vectors each sublayer reads", x=0.01, ha="left", fontsize=11, fontweight="bold")
    figure.colorbar(image, ax=axes, label="weight in the mix", shrink=0.8, aspect=25)
    return figure
