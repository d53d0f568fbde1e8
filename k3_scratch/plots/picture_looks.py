"""Where an answer comes from in its picture: a number on each token of the picture, drawn over it."""

import numpy as np
from matplotlib.patches import Rectangle

from k3_scratch.plots.style import INK, PETROFF10, PlotError, as_array, ink_on, new_figure, styled
from k3_scratch.shapes import check_shapes

WRITTEN = 0.05         # of the largest: smaller values are shown by colour alone


@styled
def picture_looks(images, maps, titles, wanted, *, label, columns=4):
    """Look at the framed square, which the question is about: does it carry the largest number?

    images  [n, Y, X, 3] 0 to 255;   maps [n, y, x] not negative, one number for each token of the picture
    titles  [n] question and answer;  wanted [n] the (row, column) of the token asked about, or None
    label   what the numbers are
    Raises ShapeError for other lengths, PlotError for negative numbers.
    """
    images, maps = np.asarray(images), as_array("picture_looks", "maps", maps)
    sizes = check_shapes("picture_looks", images=(images, "n Y X 3"), maps=(maps, "n y x"),
                         titles=(np.asarray(titles, dtype=object), "n"), wanted=(np.zeros(len(wanted)), "n"))
    if maps.min() < 0:
        raise PlotError(f"picture_looks: maps must not be negative, but {maps.min():.3g} came")
    n, columns = sizes["n"], min(columns, sizes["n"])
    rows = -(-n // columns)
    figure = new_figure(2.3 * columns, 4.9 * rows + 0.2)
    grid = figure.subplots(2 * rows, columns, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    limit, step_y, step_x = max(maps.max(), 1e-12), sizes["Y"] / sizes["y"], sizes["X"] / sizes["x"]
    for number in range(n):
        row, column = divmod(number, columns)
        above, below = grid[2 * row, column], grid[2 * row + 1, column]
        above.imshow(images[number], interpolation="nearest")
        above.set_title(titles[number], fontsize=9.5)
        drawn = below.imshow(maps[number], cmap="cividis", vmin=0, vmax=limit)
        for (y, x), value in np.ndenumerate(maps[number]):
            if value >= WRITTEN * limit:
                below.text(x, y, f"{value:.2f}".lstrip("0") if value < 9.995 else f"{value:.0f}", ha="center",
                           va="center", fontsize=9, color=ink_on(drawn.cmap(drawn.norm(value))))
        if wanted[number] is not None:
            y, x = wanted[number]
            above.add_artist(Rectangle((x * step_x - 0.5, y * step_y - 0.5), step_x, step_y, fill=False,
                                       edgecolor=INK, linewidth=2))
            below.add_artist(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, edgecolor=PETROFF10[6], linewidth=2.5))
    figure.colorbar(drawn, ax=grid[1::2, :].ravel().tolist(), location="bottom", shrink=0.5, aspect=30, label=label)
    return figure
