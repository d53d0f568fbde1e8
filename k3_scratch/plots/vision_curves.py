"""A training in the notebook over the committed runs: one panel for each kind of question."""

import numpy as np

from k3_scratch.plots.style import PETROFF10, PlotError, as_array, need_rising, new_figure, styled
from k3_scratch.shapes import check_shapes


@styled
def vision_curves(families, steps, runs, here_steps, here, *, here_label="this notebook"):
    """Look at the thick line against the thin ones: the same data and model, fewer updates.

    families   [f] names
    steps      [n], runs [seeds, n, f]    the committed runs: share of characters right, 0 to 1
    here_steps [m], here [m, f]           the run of the notebook
    Raises ShapeError for other sizes, PlotError for steps that do not rise or shares outside 0 ... 1.
    """
    steps, here_steps = as_array("vision_curves", "steps", steps), as_array("vision_curves", "here_steps", here_steps)
    for name, values in (("steps", steps), ("here_steps", here_steps)):
        need_rising("vision_curves", name, values)
    runs, here = as_array("vision_curves", "runs", runs), as_array("vision_curves", "here", here)
    sizes = check_shapes("vision_curves", steps=(steps, "n"), runs=(runs, "s n f"), here_steps=(here_steps, "m"),
                         here=(here, "m f"), families=(np.asarray(families, dtype=object), "f"))
    if min(runs.min(), here.min()) < 0 or max(runs.max(), here.max()) > 1:
        raise PlotError("vision_curves: shares must lie between 0 and 1, but they run from "
                        f"{min(runs.min(), here.min()):g} to {max(runs.max(), here.max()):g}")
    figure = new_figure(9.6, 3.1)
    panels = figure.subplots(1, sizes["f"], sharey=True, squeeze=False)[0]
    for number, (axes, family) in enumerate(zip(panels, families, strict=True)):
        axes.plot(steps, runs[:, :, number].T, color=PETROFF10[3], linewidth=1.1)
        axes.plot([], [], color=PETROFF10[3], linewidth=1.1, label=f"{sizes['s']} committed runs")
        axes.plot(here_steps, here[:, number], color=PETROFF10[0], linewidth=2.4, marker="o", label=here_label)
        axes.set_title(family)
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("update")
        axes.grid(True, axis="y")
    panels[0].set_ylabel("characters right")
    panels[-1].legend(frameon=True, framealpha=0.9, edgecolor="none", fontsize=8, loc="lower right")
    return figure
