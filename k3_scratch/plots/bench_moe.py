"""Times of the ways to send tokens to their experts."""

import numpy as np

from k3_scratch.plots.bench_axes import plain_log
from k3_scratch.plots.style import FAINT, MARKERS, PETROFF10, PlotError, as_array, new_figure, styled
from k3_scratch.shapes import check_shapes


@styled
def dispatch_times(experts, milliseconds):
    """Look at the length of the lines, the price of more experts: short where only the visits are computed.

    experts [n]                  numbers of experts, a mark of each form for every one
    milliseconds {form: [n]}     forward and backward
    Raises PlotError for an empty dict or times that are not above 0, ShapeError for another length.
    """
    experts = as_array("dispatch_times", "experts", experts)
    if not milliseconds:
        raise PlotError("dispatch_times: milliseconds must be {form: [n]} with at least one form, but none came")
    bars = {form: as_array("dispatch_times", f"milliseconds[{form!r}]", values)
            for form, values in milliseconds.items()}
    for form, values in bars.items():
        check_shapes("dispatch_times", experts=(experts, "n"), **{f"milliseconds[{form!r}]": (values, "n")})
        if values.min() <= 0:
            raise PlotError(f"dispatch_times: milliseconds[{form!r}] must be above 0, but {values.min():g} came")

    figure = new_figure(8.4, 1.8 + 0.5 * len(bars))
    axes = figure.add_subplot()
    places = np.arange(len(bars))
    axes.hlines(places, [line.min() for line in bars.values()], [line.max() for line in bars.values()], color=FAINT,
                linewidth=3)
    for i, number in enumerate(experts):
        axes.plot([line[i] for line in bars.values()], places, linestyle="none", marker=MARKERS[i % len(MARKERS)],
                  markersize=8, color=PETROFF10[(4, 1, 0)[i % 3]], label=f"{number:g} experts")
    for place, line in zip(places, bars.values(), strict=True):
        for rank, value in enumerate(sorted(line)):                      # smallest to the left, largest to the right
            last = rank == len(line) - 1
            where = (8, 0, "left") if last else (-8, 0, "right") if rank == 0 else (0, 9, "center")
            axes.annotate(f"{value:,.0f}", (value, place), where[:2], textcoords="offset points", va="center",
                          ha=where[2], fontsize=9)
    axes.set_yticks(places, list(bars))
    axes.set_ylim(len(bars) - 0.5, -0.5)
    low, high = min(line.min() for line in bars.values()), max(line.max() for line in bars.values())
    axes.set_xlim(low / 1.6, high * 1.6)
    plain_log(axes, "x")
    axes.grid(True, axis="x")
    axes.set_xlabel("milliseconds, forward and backward, one thread")
    axes.set_title("Sending tokens to their experts", pad=22)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(experts), borderaxespad=0.2)
    return figure
