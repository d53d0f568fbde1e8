"""Finished pictures on one sheet, one below the other."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg

from k3_scratch.plots.style import DPI, PlotError, new_figure, settings


def stacked(pictures):
    """One picture made of several, pixel for pixel, the first on top, all at the left; the rest is white.

    Each keeps its own layout, colour bars and labels.  Raises PlotError when there is none.
    """
    if not pictures:
        raise PlotError("stacked: pictures must hold at least one, but none came")
    sheets = [_pixels(picture) for picture in pictures]                  # [height, width, 4] each
    width, height = max(sheet.shape[1] for sheet in sheets), sum(len(sheet) for sheet in sheets)
    whole = np.full((height, width, 4), 255, np.uint8)
    top = 0
    for sheet in sheets:
        whole[top:top + len(sheet), :sheet.shape[1]] = sheet
        top += len(sheet)
    with settings():
        figure = new_figure(width / DPI, height / DPI, layout=None)
        figure.figimage(whole)
    return figure


def _pixels(picture):
    with settings():
        canvas = FigureCanvasAgg(picture)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba()).copy()
