"""What one more token costs after a context: time and memory."""

import numpy as np

from k3_scratch.plots.style import (
    MARKERS,
    PARTS,
    PETROFF10,
    PlotError,
    as_array,
    label_ends,
    need_rising,
    new_figure,
    styled,
)
from k3_scratch.shapes import check_shapes

PLACES = (PARTS["KDA"], PARTS["MLA"], PETROFF10[2], PETROFF10[4])


@styled
def decode_cost(contexts, microseconds, size):
    """Look at the flat lines of KDA: its state neither grows nor gets slower, while every cache of tokens does both.

    contexts [n]                 tokens before this one
    microseconds {name: [n]}     time of one step; None where it was not measured
    size {name: [n]}             bytes that are kept between two tokens
    Raises PlotError for values that are not above 0, ShapeError for another length.
    """
    contexts = as_array("decode_cost", "contexts", contexts)
    check_shapes("decode_cost", contexts=(contexts, "n"))
    need_rising("decode_cost", "contexts", contexts)
    names = list(dict.fromkeys([*microseconds, *size]))
    figure = new_figure(12.6, 4.6)
    panels = []
    for axes, argument, lines, title, unit in zip(
            figure.subplots(1, 2), ("microseconds", "size"), (microseconds, size),
            ("Time of one step", "Kept between two steps"), ("microseconds, one thread", "bytes"), strict=True):
        ends, labels, colours = [], [], []
        for name, values in lines.items():
            values = as_array("decode_cost", f"{argument}[{name!r}]",
                              [np.nan if value is None else value for value in values])
            check_shapes("decode_cost", contexts=(contexts, "n"), **{f"{argument}[{name!r}]": (values, "n")})
            there = np.isfinite(values)
            if not there.any() or values[there].min() <= 0:
                raise PlotError(f"decode_cost: {argument}[{name!r}] must hold numbers above 0")
            place = names.index(name)
            colour = PLACES[place % len(PLACES)]
            axes.plot(contexts[there], values[there], color=colour, marker=MARKERS[place % len(MARKERS)], label=name)
            ends.append(values[there][-1])
            labels.append(name)
            colours.append(colour)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(contexts, [_tokens(context) for context in contexts])
        axes.grid(True)
        axes.set_xlabel("context, tokens")
        axes.set_ylabel(unit)
        axes.set_title(title)
        panels.append((axes, ends, labels, colours))
    figure.get_layout_engine().execute(figure)
    for axes, ends, labels, colours in panels:
        label_ends(axes, ends, labels, colours)
    return figure


def _tokens(context):
    return f"{context / 1024:g}k" if context >= 1024 else f"{context:g}"
