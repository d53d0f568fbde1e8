"""Answers with the pictures beside answers without them: bars for each kind of question, a dot for each seed."""

import numpy as np

from k3_scratch.plots.style import INK, PETROFF10, as_array, new_figure, styled
from k3_scratch.shapes import check_shapes

HATCHES = ("", "///", "...", "xx")


@styled
def control_bars(families, scores, *, goals=None, title):
    """Look at the first bar of each group against the rest: what the pictures bring.

    families  [f] names;   scores {condition: [seeds, f]} from 0 to 1, at most four conditions
    goals     {family: height of a dashed line over its group}
    Raises ShapeError for other sizes.
    """
    figure = new_figure(8.6, 4.0)
    axes = figure.add_subplot()
    width = 0.8 / len(scores)
    for number, (label, values) in enumerate(scores.items()):
        values = np.atleast_2d(as_array("control_bars", f"scores[{label!r}]", values))
        check_shapes("control_bars", families=(np.asarray(families, dtype=object), "f"),
                     **{f"scores[{label!r}]": (values, "s f")})
        places = np.arange(len(families)) - 0.4 + (number + 0.5) * width
        colour = PETROFF10[number]
        axes.bar(places, values.mean(0), width * 0.9, facecolor="white" if number else colour, edgecolor=colour,
                 hatch=HATCHES[number], linewidth=1.3, label=label)
        for seed in values:
            axes.plot(places, seed, "o", color=INK, markersize=3, zorder=5)
        for place, mean, top in zip(places, values.mean(0), values.max(0), strict=True):
            text = "1" if mean > 0.995 else f"{mean:.2f}"[1:]
            axes.text(place, top + 0.025, text, ha="center", va="bottom", fontsize=8)
    for place, family in enumerate(families):
        if family in (goals or {}):
            axes.plot([place - 0.45, place + 0.45], [goals[family]] * 2, color=INK, linestyle=(0, (4, 2)), linewidth=1)
    axes.set_xticks(range(len(families)), families)
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(0, 1.3)
    axes.set_yticks(np.arange(0, 1.01, 0.2))
    axes.set_ylabel("share of whole answers right")
    axes.grid(True, axis="y")
    axes.set_title(title)
    axes.legend(frameon=False, ncols=len(scores), loc="upper center", fontsize=9)
    return figure
