"""A matrix as a map of cells, with the numbers written in: what several pictures of small matrices are made of."""

import numpy as np

from k3_scratch.plots.style import FAINT, ink_on


def number_cells(axes, matrix, *, cmap, low, high, texts=None, size=9, edge=FAINT):
    """Draw `matrix` [rows, columns] into `axes`, cell by cell, and return the image.

    cmap, low, high   colours and their range;   texts [rows, columns] written into the cells (None: nothing)
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    image = axes.imshow(matrix, cmap=cmap, vmin=low, vmax=high, aspect="auto")
    if texts is not None:
        for (row, column), value in np.ndenumerate(matrix):
            axes.text(column, row, texts[row][column], ha="center", va="center", fontsize=size,
                      color=ink_on(image.cmap(image.norm(value))))
    axes.set_xticks(np.arange(1, matrix.shape[1]) - 0.5, minor=True)
    axes.set_yticks(np.arange(1, matrix.shape[0]) - 0.5, minor=True)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.tick_params(which="both", length=0)
    axes.grid(True, which="minor", color="white", linewidth=1)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_color(edge)
    return image


def plain_number(value):
    """"0", "-1" with a real minus, "0.25": as few characters as the number needs."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("", "-0", "0") else text.replace("-", "\N{MINUS SIGN}")
