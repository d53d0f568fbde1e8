"""Pictures with what was asked about each and what was answered."""

import numpy as np

from k3_scratch.plots.style import PETROFF10, PlotError, darker, new_figure, styled
from k3_scratch.shapes import check_shapes

RIGHT, WRONG = darker(PETROFF10[0]), darker(PETROFF10[2])


@styled
def picture_answers(images, lines, *, columns=4):
    """Look under each picture: a tick is a right answer; a wrong one has the right one in brackets behind it.

    images   [n, Y, X, 3] 0 to 255
    lines    n lists of (question, answer given, right answer), as many a picture as you like
    Raises ShapeError for other lengths, PlotError without lines.
    """
    images = np.asarray(images)
    check_shapes("picture_answers", images=(images, "n Y X 3"), lines=(np.zeros(len(lines)), "n"))
    most = max((len(told) for told in lines), default=0)
    if not most:
        raise PlotError("picture_answers: lines must have at least one question, but none came")
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    below = 0.21 * most + 0.12
    figure = new_figure(2.4 * columns, rows * (1.75 + below), layout=None)
    height = rows * (1.75 + below)
    for number, (image, told) in enumerate(zip(images, lines, strict=True)):
        row, column = divmod(number, columns)
        bottom = height - (row + 1) * (1.75 + below) + below
        axes = figure.add_axes(((column + 0.14) / columns, bottom / height, 0.72 / columns, 1.65 / height))
        axes.imshow(image, interpolation="nearest")
        axes.set_axis_off()
        for line, (question, given, right) in enumerate(told):
            good = given == right
            words = f"{question} {given} ✓" if good else f"{question} {given} ✗ ({right})"
            axes.text(0.5, -0.04 - 0.21 * line / 1.65, words, transform=axes.transAxes, ha="center", va="top",
                      fontsize=8.5, color=RIGHT if good else WRONG, fontweight="normal" if good else "bold")
    return figure
