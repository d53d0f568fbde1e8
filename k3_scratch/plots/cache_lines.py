"""What a model keeps for one text against the length of the text, both on scales of factors."""

import numpy as np

from k3_scratch.plots.style import (
    DASHES,
    INK,
    MARKERS,
    PARTS,
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

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
OTHERS = (PETROFF10[2], PETROFF10[4], PETROFF10[5], PETROFF10[3])


@styled
def cache_lines(contexts, size, *, crossing=None, limit=None):
    """Look how far apart the lines are: each step of the grid is a factor of 32, and only one line does not rise.

    contexts   [n] rising          tokens
    size       {label: [n]}        bytes; labels with KDA or MLA in them take the colours of these parts
    crossing   (tokens, bytes, text)   a marked point; None: no mark
    limit      (bytes, text)       a dashed level line; None: no line
    Raises ShapeError for other lengths, PlotError for sizes that are not above 0 or more than 8 lines.
    """
    contexts = as_array("cache_lines", "contexts", contexts)
    check_shapes("cache_lines", contexts=(contexts, "n"))
    need_rising("cache_lines", "contexts", contexts)
    need_named("cache_lines", "size", size, "[n]", len(MARKERS) - 2)
    figure = new_figure(8.6, 4.8)
    axes = figure.add_subplot()
    others, ends, colours = iter(OTHERS), [], []
    for position, (label, values) in enumerate(size.items()):
        values = as_array("cache_lines", f"size[{label!r}]", values)
        check_shapes("cache_lines", contexts=(contexts, "n"), **{f"size[{label!r}]": (values, "n")})
        if values.min() <= 0:
            raise PlotError(f"cache_lines: size[{label!r}] must hold bytes above 0, but {values.min():g} came")
        part = next((part for part in ("KDA", "MLA") if part in label), None)
        colour = PARTS[part] if part else next(others)
        axes.plot(contexts, values, color=colour, linestyle=DASHES[position % len(DASHES)], marker=MARKERS[position],
                  linewidth=2.8 if part else 1.8, label=label)
        ends.append(values[-1])
        colours.append(colour)
    axes.set_xscale("log", base=2)
    axes.set_xticks(contexts, [length_name(length) for length in contexts])
    axes.set_yscale("log", base=2)
    low, high = (np.floor(np.log2(min(axes.get_ylim()[0], *ends)) / 5), np.ceil(np.log2(max(ends)) / 5))
    steps = 2.0 ** (5 * np.arange(low, high + 1))
    axes.set_yticks(steps, [bytes_name(step) for step in steps])
    axes.minorticks_off()
    axes.grid(True)
    axes.set_xlabel("tokens in the text")
    axes.set_ylabel("kept for this text")
    if limit is not None:
        axes.axhline(limit[0], color=INK, linestyle=(0, (5, 3)), linewidth=1)
        axes.annotate(limit[1], (0.012, limit[0]), xycoords=axes.get_yaxis_transform(), xytext=(0, 4),
                      textcoords="offset points", va="bottom", fontsize=9)
    if crossing is not None:
        axes.plot(*crossing[:2], "o", color="white", markeredgecolor=INK, markersize=9, markeredgewidth=1.6, zorder=6)
        axes.annotate(crossing[2], crossing[:2], xytext=(10, -9), textcoords="offset points", va="top", fontsize=9)
    figure.get_layout_engine().execute(figure)
    label_ends(axes, ends, list(size), colours)
    return figure


def bytes_name(size):
    """
    >>> bytes_name(27 * 2 ** 30), bytes_name(512)
    ('27 GiB', '512 B')
    """
    power = int(np.clip(np.log2(max(size, 1)) // 10, 0, len(UNITS) - 1))
    return f"{size / 1024 ** power:.4g} {UNITS[power]}"


def length_name(tokens):
    """
    >>> length_name(512), length_name(4096), length_name(2 ** 20)
    ('512', '4k', '1M')
    """
    for power, letter in ((20, "M"), (10, "k")):
        if tokens >= 2 ** power and tokens % 2 ** power == 0:
            return f"{tokens / 2 ** power:g}{letter}"
    return f"{tokens:g}"
