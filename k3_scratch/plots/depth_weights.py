"""Ways to join sublayers, as triangles of numbers: how much of each earlier output every sublayer reads."""

import numpy as np

from k3_scratch.plots.style import PlotError, as_array, ink_on, need_named, new_figure, styled
from k3_scratch.shapes import check_shapes

NUMBERS_UP_TO = 7        # more columns than this leave no room for a number in each cell


@styled
def depth_weights(panels, readers, outputs, *, label="weight", limit=None):
    """Compare the triangles: a row is one reader, a column one earlier output, and what is above is not written yet.

    panels    {title: [Q, N]}  weights, NaN where an output does not exist yet; 1 to 4 of them
    readers   [Q] names of the rows;   outputs [N] names of the columns
    label     of the colour bar;   limit  its upper end, None: the largest weight
    Raises ShapeError for other lengths, PlotError for too many panels or weights below 0.
    """
    need_named("depth_weights", "panels", panels, "[Q, N]", 4)
    arrays = {title: as_array("depth_weights", f"panels[{title!r}]", panel) for title, panel in panels.items()}
    names = {"readers": (np.asarray(list(readers), dtype=object), "Q"),
             "outputs": (np.asarray(list(outputs), dtype=object), "N")}
    sizes = check_shapes("depth_weights", **names,
                         **{f"panels[{title!r}]": (panel, "Q N") for title, panel in arrays.items()})
    if any(np.nanmin(panel) < 0 for panel in arrays.values()):
        raise PlotError("depth_weights: weights must be 0 or more, but one below 0 came")
    written = sizes["N"] <= NUMBERS_UP_TO
    side = (0.46 if written else 0.2) * sizes["N"]
    columns = len(arrays) if written or len(arrays) < 4 else 2
    rows = -(-len(arrays) // columns)
    figure = new_figure(1.5 + columns * (side + 0.45), 0.9 + rows * (0.46 if written else 0.2) * sizes["Q"]
                        + 0.62 * (rows - 1))
    axes = np.atleast_1d(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)).ravel()
    limit = limit or max(np.nanmax(panel) for panel in arrays.values())
    for place, (title, panel) in zip(axes, arrays.items(), strict=False):
        image = place.imshow(np.ma.masked_invalid(panel), cmap="viridis", vmin=0, vmax=limit, interpolation="nearest")
        place.set_title(title, fontsize=10)
        for row, column in np.argwhere(np.isfinite(panel)) if written else ():
            value = panel[row, column]
            place.text(column, row, f"{value:.2f}".removeprefix("0").removesuffix(".00"), ha="center", va="center",
                       fontsize=9, color=ink_on(image.cmap(image.norm(value))))
        _ticks(place, readers, outputs, written)
    for place in axes[len(arrays):]:
        place.set_axis_off()
    figure.supylabel("vector that is handed over", fontsize=10)
    figure.supxlabel("vector that is in it", fontsize=10)
    figure.colorbar(image, ax=list(axes), label=label, shrink=0.85, aspect=22)
    return figure


def _ticks(axes, readers, outputs, written):
    """Names at the sides, white lines between the cells."""
    every = 1 if written else 2
    axes.set_xticks(range(0, len(outputs), every), [str(name) for name in outputs][::every], rotation=0 if written
                    else 90, fontsize=9)
    axes.set_yticks(range(0, len(readers), every), [str(name) for name in readers][::every], fontsize=9)
    axes.set_xticks(np.arange(1, len(outputs)) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, len(readers)) - 0.5, minor=True)
    axes.tick_params(which="both", length=0)
    axes.grid(True, which="minor", color="white", linewidth=1.2 if written else 0.5)
    axes.spines[:].set_visible(False)
