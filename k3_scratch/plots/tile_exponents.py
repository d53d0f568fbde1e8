"""The largest exponent that each entry of a tile needs, for several ways to split e^(G_i - G_j)."""

import numpy as np

from k3_scratch.plots.style import INK, PlotError, as_array, new_figure, styled
from k3_scratch.shapes import check_shapes


@styled
def tile_exponents(exponents, limit):
    """Look for black: there a factor is larger than the largest number, and the tile is lost.

    exponents {title: [C, C]}  for row i and column j <= i the larger of the two exponents; above the diagonal unused
    limit                      exponent at which the numbers end (88.7 in float32)
    Raises PlotError for an empty dict or a limit not above 0, ShapeError for a tile that is not square.
    """
    if not isinstance(exponents, dict) or not exponents or not limit > 0:
        raise PlotError("tile_exponents: exponents must be {title: [C, C]} with at least one tile and limit above 0, "
                        f"but {type(exponents).__name__} of length {len(exponents)} and limit = {limit} came")
    tiles = {title: as_array("tile_exponents", f"exponents[{title!r}]", tile) for title, tile in exponents.items()}
    figure = new_figure(3.1 * len(tiles) + 0.9, 3.7)
    panels = figure.subplots(1, len(tiles), squeeze=False)[0]
    image = None
    for axes, (title, tile) in zip(panels, tiles.items(), strict=True):
        C = check_shapes("tile_exponents", **{f"exponents[{title!r}]": (tile, "C C")})["C"]
        shown = np.ma.array(tile, mask=np.triu(np.ones((C, C), dtype=bool), 1) | (tile > limit))
        lost = np.argwhere(np.tril(tile) > limit)
        image = axes.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit, extent=(0.5, C + 0.5, C + 0.5, 0.5),
                            interpolation="nearest")
        if len(lost):
            black = np.ma.masked_equal((np.tril(tile) > limit).astype(float), 0)
            axes.imshow(black, cmap="gray", vmin=1, vmax=2, extent=(0.5, C + 0.5, C + 0.5, 0.5),
                        interpolation="nearest")
            axes.plot(lost[:, 1] + 1, lost[:, 0] + 1, "x", color="white", markersize=2.6, markeredgewidth=0.6)
        top = np.tril(tile).max() if C == 1 else tile[np.tril_indices(C)].max()
        axes.set_title(title, fontsize=10)
        words = f"largest {top:.1f}".rstrip("0").rstrip(".").replace("-", "−")
        axes.text(0.97, 0.95, f"{words}\n{len(lost)} of {C * (C + 1) // 2} lost", transform=axes.transAxes, ha="right",
                  va="top", fontsize=9, color=INK)
        ticks = [1, *range(C // 4, C + 1, C // 4)] if C >= 8 else range(1, C + 1)
        axes.set_xticks(ticks)
        axes.set_yticks(ticks)
        axes.set_xlabel("column j")
    panels[0].set_ylabel("row i")
    figure.colorbar(image, ax=list(panels), label="exponent", shrink=0.85, aspect=22)
    return figure
