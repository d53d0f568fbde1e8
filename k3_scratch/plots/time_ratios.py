"""Times as multiples of one contender's, measured in interleaved rounds: medians and quartiles."""

import numpy as np

from k3_scratch.plots.bench_axes import plain_log, tokens
from k3_scratch.plots.seed_lines import factor_axis, finish_lines, read_lines
from k3_scratch.plots.style import DASHES, INK, MARKERS, PETROFF10, PlotError, new_figure, styled


@styled
def time_ratios(x, ratios, *, title, x_label, y_label, even=None):
    """Look at where a line crosses 1: left of it one is quicker, right of it the other.

    x       [n]                   rising, in factors of two
    ratios  {label: [rounds, n]}  time over the time of what is compared with, round by round; bars are quartiles
    even    what is written on the line at 1; None: no line
    Raises ShapeError for other lengths, PlotError without lines or for ratios not above 0.
    """
    x, ratios = read_lines("time_ratios", "ratios", x, ratios, "rounds")
    figure = new_figure(8.4, 4.3)
    axes = figure.add_subplot()
    ends, colours = [], []
    for place, (label, rounds) in enumerate(ratios.items()):
        if not rounds.min() > 0:
            raise PlotError(f"time_ratios: ratios[{label!r}] must be above 0, but {rounds.min():g} came")
        low, middle, high = np.percentile(rounds, (25, 50, 75), axis=0)
        colour = PETROFF10[(place + 1) % len(PETROFF10)]                 # the first colour is what is compared with
        axes.errorbar(x, middle, yerr=(middle - low, high - middle), color=colour, marker=MARKERS[place], capsize=3,
                      linestyle=DASHES[place % len(DASHES)], linewidth=2.2, elinewidth=1.2, label=label)
        ends.append(middle[-1])
        colours.append(colour)
    factor_axis(axes, x, [tokens(tick) for tick in x])
    plain_log(axes)
    if even is not None:
        axes.axhline(1, color=PETROFF10[0], linewidth=2.2)
        axes.text(0.01, 1.04, even, transform=axes.get_yaxis_transform(), fontsize=9, va="bottom", color=INK)
    finish_lines(figure, axes, ends, list(ratios), colours, title=title, x_label=x_label, y_label=y_label)
    return figure
