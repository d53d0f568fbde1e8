"""Which kinds of text visit which experts of a trained model."""

import numpy as np

from k3_scratch.plots.number_cells import number_cells
from k3_scratch.plots.style import PlotError, as_array, new_figure, styled
from k3_scratch.shapes import check_shapes

TOP = 4.0                # times the fair share at which the colour scale ends


@styled
def expert_families(counts, families, layers):
    """Look along a row: bright cells are experts that this family of texts asks for far more often than its share.

    counts [n, families, E] visits in each of n layers; families [families], layers [n] names
    Drawn: a family's share of visits to an expert, times E; 1 is what a choice without regard to the text would give.
    Cells below a half stay without a number.
    Raises ShapeError for other shapes, PlotError for a family without visits.
    """
    counts = as_array("expert_families", "counts", counts)
    check_shapes("expert_families", counts=(counts, "n families E"), layers=(np.asarray(layers, dtype=object), "n"),
                 families=(np.asarray(families, dtype=object), "families"))
    visits = counts.sum(axis=2, keepdims=True)
    if counts.min() < 0 or visits.min() <= 0:
        raise PlotError("expert_families: every family must have visits in every layer and none below 0, but the "
                        f"smallest count is {counts.min():g} and the smallest sum {visits.min():g}")
    share = counts / visits * counts.shape[2]
    figure = new_figure(8, 0.3 + len(layers) * (0.62 + 0.27 * len(families)))
    grid = figure.subplots(len(layers), 1, squeeze=False)[:, 0]
    for axes, matrix, name in zip(grid, share, layers, strict=True):
        image = number_cells(axes, matrix, cmap="cividis", low=0, high=TOP, size=7.5,
                             texts=[[f"{value:.1f}" if value >= 0.45 else "" for value in row] for row in matrix])
        axes.set_yticks(np.arange(len(families)), families, fontsize=9)
        axes.set_xticks(np.arange(matrix.shape[1]), np.arange(1, matrix.shape[1] + 1), fontsize=8)
        axes.set_title(str(name), fontsize=10)
    grid[-1].set_xlabel("expert, sorted by the family that asks it most")
    bar = figure.colorbar(image, ax=list(grid), shrink=0.8, pad=0.015, extend="max")
    bar.set_ticks([0, 1, 2, 3, 4], labels=["0", "1 even", "2", "3", "4"])
    bar.set_label("visits / even share")
    return figure
