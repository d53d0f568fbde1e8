"""Errors over a size, on a scale of factors, with a line for what is no number at all."""

import numpy as np

from k3_scratch.plots.style import (
    DASHES,
    INK,
    MARKERS,
    PETROFF10,
    PlotError,
    as_array,
    label_ends,
    need_rising,
    new_figure,
    styled,
)
from k3_scratch.shapes import check_shapes


@styled
def error_curves(x, errors, *, title, x_label, y_label="largest error over largest number"):
    """Look at which line stays flat and which one climbs to the top, where nothing finite is left.

    x       [n]                  rising, in factors of two
    errors  {label: [seeds, n]}  relative errors, inf or nan where a result is not finite; thin lines are seeds
    Raises ShapeError for other lengths, PlotError without lines or when no error is a number above 0.
    """
    x = as_array("error_curves", "x", x)
    need_rising("error_curves", "x", x)
    if not isinstance(errors, dict) or not errors or len(errors) > len(MARKERS):
        raise PlotError(f"error_curves: errors must be a dict {{label: [seeds, n]}} with 1 to {len(MARKERS)} entries, "
                        f"but {type(errors).__name__} of length {len(errors)} came")
    lines = {label: np.atleast_2d(as_array("error_curves", f"errors[{label!r}]", runs))
             for label, runs in errors.items()}
    for label, runs in lines.items():
        check_shapes("error_curves", x=(x, "n"), **{f"errors[{label!r}]": (runs, "seeds n")})
    numbers = np.concatenate([runs[np.isfinite(runs) & (runs > 0)] for runs in lines.values()])
    if not numbers.size:
        raise PlotError("error_curves: errors must hold at least one number above 0")
    lost, low = max(1.0, 10 * numbers.max()), numbers.min() / 2
    figure = new_figure(8.4, 4.3)
    axes = figure.add_subplot()
    ends, colours = [], []
    for place, (label, runs) in enumerate(lines.items()):
        shown = np.where(np.isfinite(runs), np.maximum(runs, low), lost)
        colour = PETROFF10[place]
        if len(shown) > 1:
            axes.plot(x, shown.T, color=colour, linewidth=0.7, alpha=0.4)
        axes.plot(x, np.median(shown, axis=0), color=colour, linestyle=DASHES[place % len(DASHES)],
                  marker=MARKERS[place], linewidth=2.2, label=label)
        ends.append(np.median(shown, axis=0)[-1])
        colours.append(colour)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(x, [f"{tick:g}" for tick in x])
    axes.minorticks_off()
    axes.set_ylim(low / 2, 5 * lost)
    if any(not np.isfinite(runs).all() for runs in lines.values()):
        axes.axhline(lost, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.text(0.01, 1.3 * lost, "not finite", transform=axes.get_yaxis_transform(), fontsize=9, va="bottom")
    axes.grid(True, axis="y")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(title)
    axes.margins(x=0.02)
    figure.get_layout_engine().execute(figure)
    label_ends(axes, ends, list(lines), colours)
    return figure
