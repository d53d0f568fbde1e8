"""One forward pass over depth: what each sublayer reads, in which shares, and how large its output is."""

import numpy as np
from matplotlib.patches import Patch

from k3_scratch.plots.style import INK, PARTS, PETROFF10, PlotError, as_array, darker, new_figure, styled, tint
from k3_scratch.shapes import check_shapes

SOURCES = ((PETROFF10[8], ""), (PETROFF10[0], "///"), (PETROFF10[1], "\\\\\\"), (PETROFF10[5], "..."),
           (PETROFF10[4], "xx"))
WRITTEN = 0.09           # a smaller share has no room for its number
ROW = 0.43               # inches


@styled
def pass_trace(readers, sources, panels, written, *, title):
    """Read upwards as the model is evaluated: each bar is one mix, cut into the shares of the vectors that it reads.

    readers   [Q]             (name, key of style.PARTS) in order of evaluation; drawn from the bottom to the top
    sources   [N]             names, oldest first: the embedding and the sums of blocks;  2 to 5
    panels    {token: [Q, N]} shares of each mix, NaN where a source does not exist; 1 to 3 tokens
    written   [Q]             root mean square of what the reader writes; NaN: it writes nothing
    Raises ShapeError for other lengths, PlotError for an unknown part, too many panels or shares that do not sum to 1.
    """
    if not isinstance(panels, dict) or not 1 <= len(panels) <= 3 or not 2 <= len(sources) <= len(SOURCES):
        raise PlotError(f"pass_trace: 1 to 3 panels and 2 to {len(SOURCES)} sources are wanted, "
                        f"but {len(panels)} and {len(sources)} came")
    if not all(part in PARTS for _, part in readers):
        raise PlotError(f"pass_trace: parts of readers must be among {', '.join(PARTS)}, but {readers!r} came")
    written = as_array("pass_trace", "written", written)
    names = {"readers": (np.empty(len(readers)), "Q"), "sources": (np.empty(len(sources)), "N")}
    check_shapes("pass_trace", **names, written=(written, "Q"))
    colours, hatches = zip(*SOURCES[:len(sources)], strict=True)
    width, height = 3.1 + 3.1 * len(panels), 1.08 + ROW * len(readers)
    figure = new_figure(width, height, layout=None)
    room = (width - 1.2 - 1.55) / len(panels)                        # inches of a panel with the gap behind it
    for number, (token, shares) in enumerate(panels.items()):
        shares = as_array("pass_trace", f"panels[{token!r}]", shares)
        check_shapes("pass_trace", **names, **{f"panels[{token!r}]": (shares, "Q N")})
        if np.abs(np.nansum(shares, axis=1) - 1).max() > 1e-6:
            raise PlotError(f"pass_trace: shares of each reader must sum to 1, but {np.nansum(shares, axis=1)} came")
        axes = _axes(figure, 1.2 + number * room, room - 0.18, len(readers))
        axes.set_xlim(0, 1)
        axes.set_title(token, fontsize=10)
        _bars(axes, shares, colours, hatches)
        if number == 0:
            axes.set_yticks(range(len(readers)), [name for name, _ in readers])
            for label, (_, part) in zip(axes.get_yticklabels(), readers, strict=True):
                label.set_color(darker(PARTS[part]))
                label.set_fontweight("bold")
    _sizes(_axes(figure, width - 1.5, 1.4, len(readers)), written, readers)
    figure.text(0.1 / width, 1 - 0.2 / height, title, fontsize=12, fontweight="bold", va="center")
    figure.legend(handles=[Patch(facecolor=tint(colour, 0.45), edgecolor=colour, hatch=hatch, label=name)
                           for colour, hatch, name in zip(colours, hatches, sources, strict=True)],
                  loc="center left", bbox_to_anchor=(0.06 / width, 1 - 0.53 / height), ncols=len(sources),
                  frameon=False, fontsize=9.5, handlelength=2.2, borderpad=0)
    return figure


def _axes(figure, left, wide, rows):
    """An empty panel from `left`, `wide` inches, with one unit a row and the first row at the bottom."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes((left / width, 0.08 / height, wide / width, ROW * rows / height))
    axes.set_ylim(-0.5, rows - 0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return axes


def _bars(axes, shares, colours, hatches):
    """One bar of length 1 a reader."""
    for row, reader in enumerate(shares):
        start = 0.0
        for column, share in enumerate(reader):
            if not np.isfinite(share):
                continue
            axes.barh(row, share, left=start, height=0.68, facecolor=tint(colours[column], 0.45),
                      edgecolor=colours[column], hatch=hatches[column], linewidth=1.0)
            if share >= WRITTEN:
                text = "1" if share > 0.995 else f"{share:.2f}"[1:]
                axes.text(start + share / 2, row, text, ha="center", va="center", fontsize=9, fontweight="bold",
                          color=INK, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2})
            start += share


def _sizes(axes, written, readers):
    """Right: how large each output is."""
    axes.set_title("output, RMS", fontsize=10)
    axes.set_xlim(0, 1.35 * np.nanmax(written))
    for row, (size, (_, part)) in enumerate(zip(written, readers, strict=True)):
        if np.isfinite(size):
            axes.barh(row, size, height=0.5, facecolor=tint(PARTS[part], 0.35), edgecolor=PARTS[part])
            axes.text(size + 0.03 * np.nanmax(written), row, f"{size:.2f}", va="center", fontsize=9)
