"""The inside of one KDA layer on a sheet of its own."""

from k3_scratch.plots.architecture_kda import draw_kda
from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import styled


@styled
def kda_layer(config):
    """Look from below: six paths leave the input; five meet in the memory, the sixth gates what is read from it.

    config  K3Config: sizes and kind of the decay gate are written into the boxes.
    """
    sheet = Sheet(108, 64)
    draw_kda(sheet, config, 1, 1, 106, 62)
    return sheet.fit()
