"""Errors over a size, on a scale of factors, with a line for what is no number at all."""

import numpy as np

from k3_scratch.plots.seed_lines import draw_line, factor_axis, finish_lines, read_lines
from k3_scratch.plots.style import INK, PETROFF10, PlotError, new_figure, styled


@styled
def error_curves(x, errors, *, title, x_label, y_label="largest error over largest number"):
    """Look at which line stays flat and which one climbs to the top, where nothing finite is left.

    x       [n]                  rising, in factors of two
    errors  {label: [seeds, n]}  relative errors, inf or nan where a result is not finite; thin lines are seeds
    Raises ShapeError for other lengths, PlotError without lines or when no error is a number above 0.
    """
    x, lines = read_lines("error_curves", "errors", x, errors)
    numbers = np.concatenate([runs[np.isfinite(runs) & (runs > 0)] for runs in lines.values()])
    if not numbers.size:
        raise PlotError("error_curves: errors must hold at least one number above 0")
    lost, low = max(1.0, 10 * numbers.max()), numbers.min() / 2
    figure = new_figure(8.4, 4.3)
    axes = figure.add_subplot()
    ends, colours = [], PETROFF10[:len(lines)]
    for number, (label, runs) in enumerate(lines.items()):
        shown = np.where(np.isfinite(runs), np.maximum(runs, low), lost)
        draw_line(axes, x, shown, np.median(shown, axis=0), number, colours[number], label=label)
        ends.append(np.median(shown, axis=0)[-1])
    factor_axis(axes, x, [f"{tick:g}" for tick in x])
    axes.set_yscale("log")
    axes.set_ylim(low / 2, 5 * lost)
    if any(not np.isfinite(runs).all() for runs in lines.values()):
        axes.axhline(lost, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.text(0.01, 1.3 * lost, "not finite", transform=axes.get_yaxis_transform(), fontsize=9, va="bottom")
    finish_lines(figure, axes, ends, list(lines), colours, title=title, x_label=x_label, y_label=y_label)
    return figure
