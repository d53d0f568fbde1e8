"""Times of the ways to send tokens to their experts."""

import numpy as np

from k3_scratch.plots.style import PETROFF10, PlotError, as_array, new_figure, styled, tint
from k3_scratch.shapes import check_shapes


@styled
def dispatch_times(experts, milliseconds):
    """Look at what four times the experts cost: nothing, where only the visits are computed and no loop runs.

    experts [n]                  numbers of experts, a bar of each form for every one
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

    figure = new_figure(8.4, 1.4 + 0.3 * len(bars) * (len(experts) + 0.6))
    axes = figure.add_subplot()
    height = 0.8 / len(experts)
    for i, number in enumerate(experts):
        places = np.arange(len(bars)) + (i - (len(experts) - 1) / 2) * height
        values = [line[i] for line in bars.values()]
        colour = tint(PETROFF10[4], 0.62 * (1 - i / max(1, len(experts) - 1)) if len(experts) > 1 else 0.2)
        axes.barh(places, values, 0.92 * height, color=colour, edgecolor=PETROFF10[4], label=f"{number:g} experts")
        for place, value in zip(places, values, strict=True):
            axes.annotate(f"{value:.3g}", (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.set_yticks(np.arange(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.set_xscale("log")
    low, high = min(line.min() for line in bars.values()), max(line.max() for line in bars.values())
    axes.set_xlim(low / 2, high * 2)
    axes.grid(True, axis="x")
    axes.set_xlabel("milliseconds, forward and backward, one thread")
    axes.set_title("Sending tokens to their experts")
    axes.legend(frameon=False, loc="upper right")
    return figure
