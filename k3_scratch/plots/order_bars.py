"""Where the last token looks when the same words come in another order, for several kinds of attention."""

import numpy as np

from k3_scratch.plots.style import INK, PETROFF10, PlotError, as_array, darker, new_figure, styled
from k3_scratch.shapes import check_shapes

HATCHES = ("", "///", "...", "xx", "---", "\\\\")


@styled
def order_bars(texts, weights, outputs):
    """Look at one row: do the bars of a word keep their height when the word moves, and is the output the same?

    texts    [n][T]             the words of each text, the same words in n orders; at most 6 different ones
    weights  {kind: [n, T]}     attention of the last token to every token
    outputs  {kind: [n, V]}     what the last token gets, written over each panel
    Raises ShapeError for other sizes, PlotError without kinds, for other words or weights that do not sum to 1.
    """
    if not isinstance(weights, dict) or not weights or list(weights) != list(outputs):
        raise PlotError("order_bars: weights and outputs must be dicts with the same kinds, at least one, but "
                        f"{list(weights)} and {list(outputs)} came")
    words = list(dict.fromkeys(sorted(texts[0], key=texts[0].index)))
    if len(words) > len(HATCHES) or any(sorted(text) != sorted(texts[0]) for text in texts):
        raise PlotError(f"order_bars: texts must be orders of the same words, at most {len(HATCHES)} different ones, "
                        f"but {[' '.join(text) for text in texts]} came")
    n, T = len(texts), len(texts[0])
    top = 1.75 * max(np.max(w) for w in weights.values())
    figure = new_figure(1.3 + 3.6 * n, 0.3 + 1.75 * len(weights))
    grid = figure.subplots(len(weights), n, squeeze=False, sharey=True)
    for row, kind in zip(grid, weights, strict=True):
        w = as_array("order_bars", f"weights[{kind!r}]", weights[kind])
        o = as_array("order_bars", f"outputs[{kind!r}]", outputs[kind])
        check_shapes("order_bars", texts=(np.zeros((n, T)), "n T"), **{f"weights[{kind!r}]": (w, "n T"),
                                                                       f"outputs[{kind!r}]": (o, "n V")})
        if np.abs(w.sum(axis=1) - 1).max() > 1e-6:
            raise PlotError(f"order_bars: weights of a text must sum to 1, but {w.sum(axis=1).round(4)} came")
        for axes, text, heights, output in zip(row, texts, w, o, strict=True):
            for place, (word, height) in enumerate(zip(text, heights, strict=True)):
                colour = PETROFF10[words.index(word)]
                axes.bar(place, height, width=0.72, facecolor="white", edgecolor=colour, linewidth=1.6,
                         hatch=HATCHES[words.index(word)] or None)
                if not HATCHES[words.index(word)]:
                    axes.bar(place, height, width=0.72, color=colour)
                axes.text(place, height + 0.02 * top, f"{height:.2f}"[1:] if height < 0.995 else "1", ha="center",
                          va="bottom", fontsize=9.5, color=darker(colour), fontweight="bold")
            axes.set_xticks(range(T), text)
            axes.set_yticks([])
            axes.tick_params(length=0)
            axes.set_ylim(0, top)
            axes.spines["left"].set_visible(False)
            numbers = ", ".join(f"{value:.2f}".replace("-", "\N{MINUS SIGN}") for value in output)
            axes.text(0.0, 0.98, f"output  ({numbers})", transform=axes.transAxes, fontsize=9.5, va="top", color=INK)
        row[0].set_ylabel(kind, fontweight="bold")
    figure.get_layout_engine().set(wspace=0.06, hspace=0.06)
    return figure
