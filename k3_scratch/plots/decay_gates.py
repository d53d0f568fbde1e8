"""Curves that turn a number z into a log-decay g, and what they mean as half-lives."""

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from k3_scratch.plots.decay_spectrum import half_life
from k3_scratch.plots.style import (
    DASHES,
    INK,
    PETROFF10,
    PlotError,
    as_array,
    label_ends,
    need_named,
    need_rising,
    new_figure,
    styled,
)
from k3_scratch.shapes import check_shapes


@styled
def decay_gates(z, curves, bound):
    """Look at the right ends: one curve flattens towards the bound, one falls on, one is cut off with a corner.

    z       [n]            rising: what a linear map makes of the token
    curves  {label: [n]}   log-decay g <= 0 in nats a token
    bound   a number       drawn as a dashed line in the left panel
    Raises ShapeError for other lengths, PlotError without curves or for g above 0.
    """
    z = as_array("decay_gates", "z", z)
    need_rising("decay_gates", "z", z)
    need_named("decay_gates", "curves", curves, "g [n]")
    figure = new_figure(9.6, 3.7)
    left, right = figure.subplots(1, 2)
    for position, (label, g) in enumerate(curves.items()):
        g = as_array("decay_gates", f"curves[{label!r}]", g)
        check_shapes("decay_gates", z=(z, "n"), **{f"curves[{label!r}]": (g, "n")})
        if g.max() > 0:
            raise PlotError(f"decay_gates: curves[{label!r}] must be at most 0 (g = log alpha), but {g.max():g} came")
        look = {"color": PETROFF10[position % 10], "linestyle": DASHES[position % len(DASHES)], "label": label,
                "linewidth": 2.2}
        left.plot(z, g, **look)
        right.plot(z, half_life(np.exp(g)), **look)
    left.axhline(bound, color=INK, linestyle=(0, (5, 3)), linewidth=1)
    left.annotate(f"bound {bound:g}".replace("-", "−"), (z[0], bound), xytext=(2, 4), textcoords="offset points",
                  fontsize=9)
    right.set_yscale("log")
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.9g}"))
    right.yaxis.set_minor_formatter(NullFormatter())
    for axes, title, words in ((left, "log-decay", "g, nats a token"), (right, "half-life", "tokens")):
        axes.set_title(title)
        axes.set_ylabel(words)
        axes.set_xlabel("z")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9, steps=[1, 2, 5, 10]))
        axes.grid(True, axis="y")
        axes.margins(x=0.01)
    figure.get_layout_engine().execute(figure)
    colours = [PETROFF10[position % 10] for position in range(len(curves))]
    label_ends(right, [half_life(np.exp(np.asarray(g)[-1:]))[0] for g in curves.values()], list(curves), colours)
    return figure
