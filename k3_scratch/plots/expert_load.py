"""How evenly the router spreads tokens over the experts, during training."""

import numpy as np
from matplotlib.ticker import MaxNLocator

from k3_scratch.plots.style import INK, PARTS, PlotError, as_array, edges, need_rising, new_figure, styled
from k3_scratch.shapes import check_shapes

COLUMNS = 4


@styled
def expert_load(steps, load, layer_names):
    """Look at whether each map turns one even grey-green, and whether the two lines below it close in on 1.

    steps [n], load [n, layers, E] tokens (or shares) each expert received, layer_names [layers].
    Drawn relative to the layer's mean at that step: 1 is a fair share, 0 an expert that nobody asked.
    Raises ShapeError or PlotError for other shapes, loads below 0, or a layer that received nothing.
    """
    steps, load = as_array("expert_load", "steps", steps), as_array("expert_load", "load", load)
    check_shapes("expert_load", steps=(steps, "n"), load=(load, "n layers E"),
                 layer_names=(np.asarray(layer_names, dtype=object), "layers"))
    need_rising("expert_load", "steps", steps)
    mean = load.mean(axis=2, keepdims=True)
    if load.min() < 0 or mean.min() <= 0:
        raise PlotError("expert_load: load must be 0 or more, and above 0 somewhere in each layer at each step, "
                        f"but the smallest entry is {load.min():g} and the smallest mean {mean.min():g}")
    share = load / mean
    top = max(2.0, 1.08 * share.max())

    layers = len(layer_names)
    columns = min(layers, COLUMNS)
    lines = -(-layers // columns)
    figure = new_figure(max(5.0, 3.1 * columns + 1.2), 4.4 * lines + 0.4)
    grid = figure.add_gridspec(2 * lines, columns, height_ratios=(2.2, 1) * lines)
    maps = []
    for layer, name in enumerate(layer_names):
        row, column = 2 * (layer // columns), layer % columns
        axes = figure.add_subplot(grid[row, column])
        mesh = axes.pcolormesh(edges(steps), np.arange(share.shape[2] + 1) - 0.5, share[:, layer].T, cmap="cividis",
                               vmin=0, vmax=2, shading="flat")
        axes.set_title(str(name), fontsize=10)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.tick_params(labelbottom=False)
        below = figure.add_subplot(grid[row + 1, column], sharex=axes)
        for pick, marker, word in ((np.max, "^", "busiest"), (np.min, "v", "idlest")):
            values = pick(share[:, layer], axis=1)
            below.plot(steps, values, color=PARTS["MoE"], marker=marker, markevery=max(1, len(steps) // 6), label=word)
            below.annotate(word, (0.97, values[-1]), (0, 4 if pick is np.max else -4), textcoords="offset points",
                           xycoords=below.get_yaxis_transform(), ha="right", va="bottom" if pick is np.max else "top",
                           fontsize=8.5, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6})
        below.axhline(1, color=INK, linestyle=(0, (5, 3)), linewidth=1)
        below.set_ylim(-0.55, top + 0.35)
        below.xaxis.set_major_locator(MaxNLocator(nbins=4))
        below.grid(True, axis="y")
        below.set_xlabel("training step")
        if column == 0:
            axes.set_ylabel("expert")
            below.set_ylabel("load / fair share")
        maps.append(axes)
    bar = figure.colorbar(mesh, ax=maps, extend="max" if share.max() > 2 else "neither", shrink=0.9, pad=0.02)
    bar.set_ticks([0, 0.5, 1, 1.5, 2], labels=["0 idle", "0.5", "1 fair", "1.5", "2 double"])
    figure.suptitle("Load of every expert: an even colour means that the work is shared", x=0.01, ha="left",
                    fontsize=11, fontweight="bold")
    return figure
