"""Curves over anything, with every seed shown: thin lines are runs, thick lines their means."""

from k3_scratch.plots.seed_lines import draw_line, finish_lines, read_lines
from k3_scratch.plots.style import INK, PETROFF10, new_figure, styled


@styled
def seed_curves(x, curves, *, title, x_label, y_label, marks=None, limits=None, log=False, ticks=None):
    """Look at the thick lines, then at how far the thin ones of one colour lie apart: less than that says nothing.

    x         [n]                 rising
    curves    {label: [seeds, n]} one row a seed (or [n]: one run)
    marks     {label: x}          dashed upright lines, such as "K" for the number of channels
    limits    (low, high) of the y axis;   log  x on a scale of factors;   ticks  where the x axis is labelled
    Raises ShapeError for other lengths, PlotError without curves.
    """
    x, curves = read_lines("seed_curves", "curves", x, curves)
    figure = new_figure(8, 4.3)
    axes = figure.add_subplot()
    means = [runs.mean(axis=0) for runs in curves.values()]
    colours = [PETROFF10[number % len(PETROFF10)] for number in range(len(curves))]
    for number, (label, runs) in enumerate(curves.items()):
        draw_line(axes, x, runs, means[number], number, colours[number], label=label, markevery=max(1, len(x) // 12))
    if log:
        axes.set_xscale("log")
    if ticks is not None:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    if limits is not None:
        axes.set_ylim(*limits)
    for text, place in (marks or {}).items():
        axes.axvline(place, color=INK, linestyle=(0, (5, 3)), linewidth=1)
        axes.annotate(text, (place, 0.0), xycoords=axes.get_xaxis_transform(), xytext=(4, 4),
                      textcoords="offset points", va="bottom", fontsize=9)
    finish_lines(figure, axes, [mean[-1] for mean in means], list(curves), colours, title=title, x_label=x_label,
                 y_label=y_label)
    return figure
