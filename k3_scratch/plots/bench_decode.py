"""What one more token costs after a context: time and memory."""

import numpy as np

from k3_scratch.plots.bench_axes import label_panels, log_lengths, plain_log, tokens
from k3_scratch.plots.style import MARKERS, PARTS, PETROFF10, PlotError, as_array, need_rising, new_figure, styled
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
            ("Time of one step", "Kept between two steps"), ("microseconds, one thread", "KiB"), strict=True):
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
            shown = values[there] / (1024 if lines is size else 1)
            axes.plot(contexts[there], shown, color=colour, marker=MARKERS[place % len(MARKERS)], label=name)
            ends.append(shown[-1])
            labels.append(name if there[-1] else f"{name} (to {tokens(contexts[there][-1])})")
            colours.append(colour)
        log_lengths(axes, contexts)
        plain_log(axes)
        axes.grid(True)
        axes.set_xlabel("context, tokens")
        axes.set_ylabel(unit)
        axes.set_title(title)
        panels.append((axes, ends, labels, colours))
    label_panels(figure, panels)
    return figure
