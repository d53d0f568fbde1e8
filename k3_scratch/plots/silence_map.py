"""A trained model with one part at a time silent: what is still right."""

import numpy as np

from k3_scratch.plots.style import PARTS, PlotError, as_array, darker, ink_on, new_figure, styled
from k3_scratch.shapes import check_shapes


@styled
def silence_map(right, silent, families, whole, *, title):
    """Look for dark cells: there a family of tasks cannot do without this part.

    right     [n, F]  share of right answers while part n is silent;   whole  [F]  with nothing silent
    silent    [n]     (name, key of style.PARTS), the first at the bottom, as in the drawing of the model
    families  [F]     names
    Raises ShapeError for other lengths, PlotError for unknown parts or shares outside 0 ... 1.
    """
    right, whole = as_array("silence_map", "right", right), as_array("silence_map", "whole", whole)
    check_shapes("silence_map", right=(right, "n F"), silent=(np.empty(len(silent)), "n"),
                 families=(np.empty(len(families)), "F"), whole=(whole, "F"))
    if min(right.min(), whole.min()) < 0 or max(right.max(), whole.max()) > 1:
        raise PlotError("silence_map: shares must lie in 0 ... 1, but others came")
    if not all(part in PARTS for _, part in silent):
        raise PlotError(f"silence_map: parts must be among {', '.join(PARTS)}, but {silent!r} came")
    rows = np.vstack([whole, right])
    figure = new_figure(2.4 + 1.05 * len(families), 1.35 + 0.42 * len(rows))
    axes = figure.add_subplot()
    places = np.array([-0.25, *np.arange(1, len(rows))])             # a gap behind the row of the whole model
    edges = np.concatenate([[-0.75, 0.25], np.arange(len(silent)) + 1.5])
    image = axes.pcolormesh(np.arange(len(families) + 1) - 0.5, [edges[0], edges[1]], rows[:1], cmap="viridis",
                            vmin=0, vmax=1, edgecolor="white", linewidth=1.5)
    axes.pcolormesh(np.arange(len(families) + 1) - 0.5, np.arange(len(silent) + 1) + 0.5, right, cmap="viridis",
                    vmin=0, vmax=1, edgecolor="white", linewidth=1.5)
    for row, column in np.ndindex(rows.shape):
        value = rows[row, column]
        axes.text(column, places[row], f"{value:.2f}".removeprefix("0"), ha="center", va="center", fontsize=10,
                  color=ink_on(image.cmap(image.norm(value))))
    axes.set_yticks(places, ["nothing silent", *(f"{name} silent" for name, _ in silent)])
    for label, (_, part) in zip(axes.get_yticklabels()[1:], silent, strict=True):
        label.set_color(darker(PARTS[part]))
        label.set_fontweight("bold")
    axes.set_xticks(range(len(families)), families)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_ylim(-0.75, len(silent) + 0.5)
    axes.set_title(title, pad=8)
    figure.colorbar(image, ax=axes, label="answers right", shrink=0.9, aspect=22)
    return figure
