"""The wiring of one mixture of experts alone, at a size for a page."""

from k3_scratch.config import K3Config
from k3_scratch.plots.architecture_moe import draw_moe
from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import PlotError, styled


@styled
def latent_moe_panel(config):
    """Read upwards: the router and the shared experts read the full width, the routed experts the latent.

    config   a K3Config with a mixture of experts.  Raises PlotError when config is something else.
    """
    if not isinstance(config, K3Config):
        raise PlotError(f"latent_moe_panel: config must be a K3Config, but a {type(config).__name__} came")
    sheet = Sheet(76, 52)
    draw_moe(sheet, config, 1.5, 1.5, 73, 49)
    return sheet.fit()
