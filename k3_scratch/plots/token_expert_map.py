"""Tokens against experts: who is chosen by whom, and how many tokens each expert gets."""

import numpy as np
from matplotlib.patches import Rectangle

from k3_scratch.plots.number_cells import number_cells
from k3_scratch.plots.style import FAINT, INK, PARTS, PETROFF10, PlotError, as_array, darker, new_figure, styled
from k3_scratch.shapes import check_shapes

READABLE = 12            # up to so many tokens the numbers are written into the cells


@styled
def token_expert_map(panels):
    """Look at the bars first (loads; dashed: the fair share), then at the framed cells below them: the choice.

    panels   [{"title": text, "scores": [m, E], "chosen": bool [m, E], "bias": [E] or None}, ...]
             `scores` decide the colour (and the number, for up to 12 tokens); `bias` is written below the columns;
             "load" [E], when the rows are a part of a batch: the loads of the whole batch
    Raises ShapeError for sizes that do not fit, PlotError without panels or for rows with another number chosen.
    """
    if not panels:
        raise PlotError("token_expert_map: panels must hold at least one panel, but none came")
    sizes = {}
    for number, panel in enumerate(panels):
        scores, chosen = as_array("token_expert_map", "scores", panel["scores"]), np.asarray(panel["chosen"])
        sizes = check_shapes("token_expert_map", first=(np.asarray(panels[0]["scores"]), "m E"),
                             scores=(scores, "m E"), chosen=(chosen, "m E"))
        if len(set(chosen.sum(axis=1))) != 1:
            raise PlotError(f"token_expert_map: panel {number} must choose equally many experts in each row, "
                            f"but {sorted(set(chosen.sum(axis=1).tolist()))} came")
    m, E = sizes["m"], sizes["E"]
    small = m <= READABLE
    figure = new_figure(min(10.0, max(2.9, (0.46 if small else 0.17) * E + 0.9) * len(panels)),
                        1.75 + (0.34 * m if small else min(4.2, 0.05 * m)))
    grid = figure.add_gridspec(2, len(panels), height_ratios=(1, 0.34 * m if small else 3.2))
    top = max(_load(panel).max() for panel in panels)
    for column, panel in enumerate(panels):
        above, axes = figure.add_subplot(grid[0, column]), figure.add_subplot(grid[1, column])
        _loads(above, panel, E, top, small)
        _cells(axes, panel, small)
        axes.set_xlabel("expert")
        if column == 0:
            axes.set_ylabel("token")
            above.set_ylabel("load")
    return figure


def _load(panel):
    """Tokens of each expert: of the rows shown, or as given for the whole batch."""
    return np.asarray(panel["chosen"]).sum(axis=0) if panel.get("load") is None else np.asarray(panel["load"])


def _loads(axes, panel, E, top, small):
    load = _load(panel)
    fair = load.sum() / E
    axes.bar(np.arange(E), load, color=PARTS["MoE"], width=0.72)
    axes.axhline(fair, color=INK, linewidth=1, linestyle=(0, (4, 2)))
    if small:
        for expert, count in enumerate(load):
            axes.text(expert, count + 0.04 * top, str(count), ha="center", va="bottom", fontsize=9,
                      color=darker(PARTS["MoE"]), fontweight="bold")
    axes.set_title(panel["title"], fontsize=10)
    axes.set_xlim(-0.5, E - 0.5)
    axes.set_ylim(0, 1.28 * top)
    axes.set_xticks([])
    axes.set_yticks([fair], [f"{fair:g}"])


def _cells(axes, panel, small):
    scores, chosen = np.asarray(panel["scores"], dtype=np.float64), np.asarray(panel["chosen"])
    m, E = scores.shape
    if small:
        texts = [[_two_digits(value) for value in row] for row in scores]
        number_cells(axes, scores, cmap="cividis", low=min(0.0, scores.min()), high=max(1.0, scores.max()),
                     texts=texts, size=8.5)
        for token, expert in np.argwhere(chosen):
            axes.add_patch(Rectangle((expert - 0.46, token - 0.46), 0.92, 0.92, fill=False, linewidth=2.4,
                                     edgecolor=PETROFF10[2], zorder=5))
        axes.set_yticks(np.arange(m), np.arange(1, m + 1), fontsize=8.5)
    else:
        axes.imshow(np.where(chosen, scores, np.nan), cmap="cividis", vmin=0, vmax=1, aspect="auto",
                    interpolation="nearest")
        axes.set_facecolor("#eef0f2")
        axes.spines[:].set_visible(True)
        axes.spines[:].set_color(FAINT)
    names = [str(expert + 1) for expert in range(E)]
    if panel.get("bias") is not None and small:
        names = [f"{name}\n{value:+.2f}".replace("-", "\N{MINUS SIGN}") for name, value
                 in zip(names, panel["bias"], strict=True)]
    every = 1 if small else max(1, E // 8)
    axes.set_xticks(np.arange(E)[::every], names[::every], fontsize=8.5)
    axes.tick_params(length=0)


def _two_digits(value):
    """0.50, with a real minus and without a minus zero."""
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "\N{MINUS SIGN}")
