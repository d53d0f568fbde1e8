"""Errors of three ways to split a tile."""

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

COLOURS = (PETROFF10[2], PETROFF10[0], PETROFF10[4])


@styled
def chunk_errors(chunks, errors):
    """Look at where a line leaps to "not finite": split in its middle, a tile may be twice as long as at its start.

    chunks [n]              C, tokens per chunk
    errors {scheme: [n]}    relative error of the output, None or NaN where it is not finite
    Raises PlotError for an empty dict or a line without any number, ShapeError for another length.
    """
    chunks = as_array("chunk_errors", "chunks", chunks)
    check_shapes("chunk_errors", chunks=(chunks, "n"))
    need_rising("chunk_errors", "chunks", chunks)
    if not errors:
        raise PlotError("chunk_errors: errors must be {scheme: [n]} with at least one scheme, but none came")
    lines = {name: as_array("chunk_errors", f"errors[{name!r}]", [np.nan if e is None else e for e in values])
             for name, values in errors.items()}
    for name, line in lines.items():
        check_shapes("chunk_errors", chunks=(chunks, "n"), **{f"errors[{name!r}]": (line, "n")})
        if not (line > 0).any():
            raise PlotError(f"chunk_errors: errors[{name!r}] must hold at least one number above 0")
    positive = np.concatenate([line[line > 0] for line in lines.values()])
    overflow = max(1.0, 10 * positive.max())

    figure = new_figure(8.4, 4.4)
    axes = figure.add_subplot()
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(lines))]
    ends = []
    for i, (name, line) in enumerate(lines.items()):
        shown = np.where(np.isfinite(line), np.maximum(line, positive.min() / 2), overflow)
        axes.plot(chunks, shown, color=colours[i], marker=MARKERS[i], linestyle=DASHES[i % len(DASHES)], label=name)
        ends.append(shown[-1])
    axes.set_yscale("log")
    axes.set_xscale("log", base=2)
    axes.set_xticks(chunks, [f"{chunk:g}" for chunk in chunks])
    axes.minorticks_off()
    axes.set_ylim(positive.min() / 4, 4 * overflow)
    if any(not np.isfinite(line).all() for line in lines.values()):
        axes.axhline(overflow, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
        axes.text(0.01, overflow * 1.25, "not finite", transform=axes.get_yaxis_transform(), fontsize=9, va="bottom")
    axes.grid(True)
    axes.set_xlabel("C, tokens per chunk")
    axes.set_ylabel("largest error over largest output")
    axes.set_title("Float32 errors when every gate is -5")
    figure.get_layout_engine().execute(figure)
    label_ends(axes, ends, list(lines), colours)
    return figure
