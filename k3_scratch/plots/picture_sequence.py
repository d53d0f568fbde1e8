"""How a picture enters a text: cut into patches, four patches a token, the tokens in a row before the letters."""

import numpy as np
from matplotlib.patches import Rectangle

from k3_scratch.plots.style import FAINT, INK, PARTS, PETROFF10, PlotError, new_figure, styled, tint
from k3_scratch.shapes import check_shapes


@styled
def picture_sequence(image, patch, merge, text):
    """Look at the numbers: token n of the row below is square n of the picture, read line by line.

    image [Y, X, C] 0 to 255 (C = 3);  patch pixels and merge patches a side;  text the characters after the picture
    Raises ShapeError for another shape, PlotError when the sides cannot be cut.
    """
    image = np.asarray(image)
    sizes = check_shapes("picture_sequence", image=(image, "Y X 3"))
    unit = patch * merge
    if sizes["Y"] % unit or sizes["X"] % unit:
        raise PlotError(f"picture_sequence: image must have sides that are multiples of {unit}, but "
                        f"{sizes['Y']} x {sizes['X']} came")
    rows, columns = sizes["Y"] // unit, sizes["X"] // unit
    count = rows * columns
    figure = new_figure(9.6, 5.4, layout=None)
    top = figure.add_axes((0.04, 0.33, 0.36, 0.60))
    top.imshow(image, interpolation="nearest")
    for length, step, colour, width in ((sizes["X"], patch, "white", 0.5), (sizes["X"], unit, INK, 1.8)):
        places = np.arange(0, length + 1, step) - 0.5
        top.vlines(places, -0.5, sizes["Y"] - 0.5, color=colour, linewidth=width)
        top.hlines(np.arange(0, sizes["Y"] + 1, step) - 0.5, -0.5, sizes["X"] - 0.5, color=colour, linewidth=width)
    for number in range(count):
        y, x = divmod(number, columns)
        top.text(x * unit - 0.2, y * unit - 0.2, str(number), fontsize=8, fontweight="bold", va="top", ha="left",
                 bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
    top.set_axis_off()
    top.set_title(f"{sizes['Y']} × {sizes['X']} pixels", fontsize=10)
    words = figure.add_axes((0.43, 0.33, 0.55, 0.60))
    words.set_axis_off()
    words.set_xlim(0, 1)
    words.set_ylim(0, 1)
    for place, (line, size) in enumerate((
            (f"thin lines: patches of {patch} × {patch} pixels, {patch * patch * 3} numbers each", "patch"),
            ("encoder: every patch sees every other one", "encode"),
            (f"thick lines: {merge} × {merge} patches become one vector", "merge"),
            ("projector: as wide as the embedding of a letter", "project"))):
        y = 0.86 - 0.22 * place
        words.add_patch(Rectangle((0.0, y - 0.07), 0.17, 0.14, facecolor=tint(PETROFF10[0], 0.85),
                                  edgecolor=PETROFF10[0], linewidth=1.3))
        words.text(0.085, y, size, ha="center", va="center", fontsize=9, fontweight="bold")
        words.text(0.20, y, line, ha="left", va="center", fontsize=9)
    row = figure.add_axes((0.04, 0.05, 0.94, 0.20))
    total = count + len(text)
    row.set_xlim(-0.1, total + 0.1)
    row.set_ylim(-0.55, 1.05)
    row.set_axis_off()
    for number in range(count):
        y, x = divmod(number, columns)
        row.imshow(image[y * unit:(y + 1) * unit, x * unit:(x + 1) * unit], interpolation="nearest", aspect="auto",
                   extent=(number + 0.06, number + 0.94, 0.02, 0.98))
        row.text(number + 0.5, -0.1, str(number), ha="center", va="top", fontsize=8, fontweight="bold")
    for number, letter in enumerate(text):
        place = count + number
        row.add_patch(Rectangle((place + 0.06, 0.02), 0.88, 0.96, facecolor=tint(PARTS["plain"], 0.85),
                                edgecolor=FAINT))
        row.text(place + 0.5, 0.5, "␣" if letter == " " else letter, ha="center", va="center", fontsize=12)
    row.set_xlim(-0.1, total + 0.1)
    row.set_ylim(-0.55, 1.05)
    row.text(0.06, 1.1, "one sequence", fontsize=10, fontweight="bold", va="bottom")
    return figure
