"""One MLA layer on a sheet of its own: what goes into the cache, and what is made of it."""

from k3_scratch.plots.architecture_mla import draw_mla
from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import styled


@styled
def mla_layer(config):
    """Look at the two filled boxes in the middle: they are all that the layer keeps of a token.

    config   a K3Config; all sizes in the picture are read from it
    """
    sheet = Sheet(88, 52)
    draw_mla(sheet, config, 1, 1, 86, 50)
    return sheet.fit()
