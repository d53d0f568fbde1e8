"""Which rule balances a batch, and in how many updates?"""

import numpy as np

from k3_scratch.plots.style import (
    DASHES,
    INK,
    MARKERS,
    PETROFF10,
    PlotError,
    as_array,
    label_ends,
    need_named,
    new_figure,
    styled,
)


@styled
def balance_race(deviations, goal):
    """Follow each line from the left to the dashed one: there no expert is further than the goal from its share.

    Lines are geometric means, bands reach from the smallest to the largest; late passes are drawn some at a time.
    deviations   {label: [batches, n]} largest |load / fair share - 1| before update 1, before update 2, ..., above 0
    goal         the deviation that counts as balanced
    Raises PlotError for other shapes, too many lines, or deviations of 0 or less.
    """
    need_named("balance_race", "deviations", deviations, "[batches, n]", len(DASHES))
    figure = new_figure(8.4, 4.3)
    axes = figure.add_subplot()
    ends, longest = [], 1
    for position, (label, runs) in enumerate(deviations.items()):
        runs = as_array("balance_race", f"deviations[{label!r}]", runs)
        if runs.ndim != 2 or runs.min() <= 0:
            raise PlotError(f"balance_race: deviations[{label!r}] must be [batches, n] and above 0, "
                            f"but {list(runs.shape)} with the smallest {runs.min():g} came")
        longest = max(longest, runs.shape[1])
        passes, low, middle, high = _binned(runs)
        axes.fill_between(passes, low, high, color=PETROFF10[position], alpha=0.18, linewidth=0)
        axes.plot(passes, middle, color=PETROFF10[position], linestyle=DASHES[position], marker=MARKERS[position],
                  markevery=max(1, len(passes) // 8), linewidth=2.2, label=label)
        ends.append(middle[-1])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.axhline(goal, color=INK, linewidth=1.2, linestyle=(0, (5, 3)))
    axes.annotate(f"within {goal:.0%}", (1, goal), (2, -4), textcoords="offset points", va="top", fontsize=9)
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500) if tick <= longest]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    levels = [level for level in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
              if min(map(np.min, deviations.values())) < level * 1.5]
    axes.set_yticks(levels, [f"{level:.0%}" for level in levels])
    axes.set_xlabel("pass over the batch (one update of the bias after each)")
    axes.set_ylabel("worst expert: |load / fair share − 1|")
    axes.set_title("Sign rule and Quantile Balancing on one batch")
    axes.grid(True, axis="y")
    figure.get_layout_engine().execute(figure)
    label_ends(axes, ends, list(deviations), PETROFF10[:len(ends)])
    return figure


def _binned(runs):
    """Passes [bins], smallest, geometric mean and largest deviation in each: few bins where the axis is dense."""
    count = runs.shape[1]
    starts = np.unique(np.geomspace(1, count, min(count, 40)).round().astype(int)) - 1
    parts = np.split(runs, starts[1:], axis=1)
    passes = [np.exp(np.log(part + 1.0).mean()) for part in np.split(np.arange(count), starts[1:])]
    return (passes, [part.min() for part in parts], [np.exp(np.log(part).mean()) for part in parts],
            [part.max() for part in parts])
