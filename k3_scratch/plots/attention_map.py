"""Where the questions of one text look: a row for each question, a column for each token."""

import numpy as np
from matplotlib.patches import Rectangle

from k3_scratch.plots.style import INK, PETROFF10, PlotError, as_array, ink_on, new_figure, styled
from k3_scratch.shapes import check_shapes

WRITTEN = 0.095        # smaller weights are shown by colour alone


@styled
def attention_map(weights, rows, columns, wanted, *, title):
    """Look at the framed cells, where the answer stands: are they brighter than the rest of their row?

    weights   [n, S]   attention of each question to each token, NaN where it may not look (white)
    rows      [n]      names of the questions;   columns [S] the characters of the text
    wanted    [n]      the column in which the answer of each question stands
    Raises ShapeError for other lengths, PlotError for a row that does not sum to 1 or a wanted column outside.
    """
    weights = as_array("attention_map", "weights", weights)
    check_shapes("attention_map", weights=(weights, "n S"), rows=(np.asarray(rows, dtype=object), "n"),
                 columns=(np.asarray(columns, dtype=object), "S"), wanted=(np.asarray(wanted), "n"))
    count, width = weights.shape
    totals = np.nansum(weights, axis=1)
    if np.abs(totals - 1).max() > 1e-3:
        row = int(np.argmax(np.abs(totals - 1)))
        raise PlotError(f"attention_map: weights of a row must sum to 1, but row {row} sums to {totals[row]:.4g}")
    if min(wanted) < 0 or max(wanted) >= width:
        raise PlotError(f"attention_map: wanted must be columns from 0 to {width - 1}, but {list(wanted)} came")
    figure = new_figure(min(11.0, 1.9 + 0.27 * width), 1.35 + 0.32 * count)
    axes = figure.add_subplot()
    image = axes.imshow(np.ma.masked_invalid(weights), cmap="viridis", vmin=0, vmax=1, aspect="auto",
                        interpolation="nearest")
    for row, column in np.argwhere(weights >= WRITTEN):
        value = weights[row, column]
        axes.text(column, row, "1" if value > 0.995 else f"{value:.2f}"[1:], ha="center", va="center", fontsize=7.5,
                  color=ink_on(image.cmap(image.norm(value))))
    for row, column in enumerate(wanted):
        axes.add_artist(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=PETROFF10[6], linewidth=2,
                                  zorder=5))
    axes.set_xticks(range(width), [str(name) for name in columns])
    axes.set_yticks(range(count), [str(name) for name in rows])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xticks(np.arange(width + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(count + 1) - 0.5, minor=True)
    axes.grid(True, which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="minor", length=0)
    axes.set_xlabel("token that is looked at")
    axes.set_ylabel("question")
    axes.set_title(title, color=INK)
    figure.colorbar(image, ax=axes, label="attention", aspect=12, ticks=(0, 0.5, 1))
    return figure
