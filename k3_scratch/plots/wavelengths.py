"""How many tokens each pair of RoPE's channels needs for a full turn, against lengths of texts."""

import numpy as np

from k3_scratch.plots.style import (
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
from k3_scratch.shapes import check_shapes


@styled
def wavelengths(turns, trained, lengths):
    """Look at the hollow points: these pairs have not gone round once in training, a longer text shows them new angles.

    turns     {label: [n]}    tokens for a full turn of each pair, first to last
    trained   tokens of a text in training: points above it are hollow
    lengths   {text: tokens}  dashed level lines
    Raises ShapeError for other lengths, PlotError without lines or for numbers that are not above 0.
    """
    need_named("wavelengths", "turns", turns, "[n]", len(MARKERS))
    figure = new_figure(8, 4.4)
    axes = figure.add_subplot()
    ends = []
    for position, (label, values) in enumerate(turns.items()):
        values = as_array("wavelengths", f"turns[{label!r}]", values)
        check_shapes("wavelengths", **{f"turns[{label!r}]": (values, "n")})
        if values.min() <= 0 or trained <= 0 or any(length <= 0 for length in lengths.values()):
            raise PlotError("wavelengths: turns, trained and lengths must be above 0")
        colour, pairs = PETROFF10[position], np.arange(len(values))
        axes.plot(pairs, values, color=colour, linewidth=1.2)
        for chosen, face in ((values <= trained, colour), (values > trained, "white")):
            axes.plot(pairs[chosen], values[chosen], linestyle="none", marker=MARKERS[position], markersize=6,
                      markerfacecolor=face, markeredgecolor=colour, markeredgewidth=1.5)
        ends.append(values[-1])
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_ylim(top=max([*ends, *lengths.values()]) * 3)
    for text, length in lengths.items():
        axes.axhline(length, color=INK, linestyle=(0, (5, 3)), linewidth=1)
        axes.annotate(text, (0.012, length), xycoords=axes.get_yaxis_transform(), xytext=(0, 3),
                      textcoords="offset points", va="bottom", fontsize=9)
    axes.grid(True, axis="y")
    axes.set_xlabel("pair of channels, quickest first")
    axes.set_ylabel("tokens for a full turn")
    figure.get_layout_engine().execute(figure)
    label_ends(axes, ends, list(turns), PETROFF10[:len(ends)])
    return figure
