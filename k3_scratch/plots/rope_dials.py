"""One dial for each pair of channels of RoPE: the angles seen in training, and those that a longer text adds."""

import numpy as np
from matplotlib.patches import Circle, Wedge

from k3_scratch.plots.style import FAINT, INK, PETROFF10, PlotError, as_array, new_figure, styled, tint

SEEN, NEW = PETROFF10[0], PETROFF10[2]
COLUMNS = 4


@styled
def rope_dials(speeds, trained, longer, marks=None):
    """Look for red: angles between query and key that occur only in texts longer than those of training.

    speeds   [n]    radians a token, one for each pair of channels
    trained, longer distances (tokens) that occur in training and in the longer text
    marks    [n]    a word under each dial; None: the length of a full turn in tokens
    Raises PlotError unless the speeds are above 0 and 0 < trained < longer.
    """
    speeds = as_array("rope_dials", "speeds", speeds)
    if speeds.ndim != 1 or speeds.min() <= 0 or not 0 < trained < longer:
        raise PlotError("rope_dials: speeds must be [n] above 0 and 0 < trained < longer, but shape "
                        f"{list(speeds.shape)}, least {speeds.min():g}, {trained} and {longer} came")
    marks = [f"full turn: {turn_text(2 * np.pi / speed)} tokens" for speed in speeds] if marks is None else list(marks)
    if len(marks) != len(speeds):
        raise PlotError(f"rope_dials: marks must be [n] with n = {len(speeds)}, but {len(marks)} came")
    columns = min(COLUMNS, len(speeds))
    lines = -(-len(speeds) // columns)
    width, height = 2.1 * columns, 2.15 * lines + 0.45
    figure = new_figure(width, height, layout=None)
    for i, speed in enumerate(speeds):
        left, top = (i % columns) * 2.1, 0.45 + (i // columns) * 2.15
        axes = figure.add_axes(((left + 0.35) / width, 1 - (top + 1.72) / height, 1.4 / width, 1.4 / height))
        axes.set_xlim(-1.06, 1.06)
        axes.set_ylim(-1.06, 1.06)
        axes.set_axis_off()
        axes.add_patch(Circle((0, 0), 1, facecolor="white", edgecolor=FAINT, linewidth=1))
        seen, all_of_it = (min(360.0, np.degrees(length * speed)) for length in (trained, longer))
        axes.add_patch(Wedge((0, 0), 1, 0, seen, facecolor=tint(SEEN, 0.35), edgecolor=SEEN, linewidth=1.2))
        if all_of_it > seen:
            axes.add_patch(Wedge((0, 0), 1, seen, all_of_it, facecolor=tint(NEW, 0.55), edgecolor=NEW, linewidth=1.2,
                                 hatch="///"))
        axes.plot([0, 1], [0, 0], color=INK, linewidth=1.4)
        figure.text((left + 1.05) / width, 1 - (top + 0.18) / height, f"pair {i}", ha="center", va="center",
                    fontweight="bold", fontsize=10)
        figure.text((left + 1.05) / width, 1 - (top + 1.87) / height, marks[i], ha="center", va="center", fontsize=8.5)
    for x, face, edge, hatch, text in ((0.35, tint(SEEN, 0.35), SEEN, None, f"seen at distances up to {trained:,}"),
                                       (width / 2 + 0.1, tint(NEW, 0.55), NEW, "///", f"new up to {longer:,}")):
        box = figure.add_axes((x / width, 1 - 0.31 / height, 0.26 / width, 0.19 / height))
        box.set_xlim(0, 1)
        box.set_ylim(0, 1)
        box.set_axis_off()
        box.fill_between([0, 1], 0, 1, facecolor=face, edgecolor=edge, hatch=hatch, linewidth=1.2)
        figure.text((x + 0.36) / width, 1 - 0.215 / height, text, va="center", fontsize=9.5)
    return figure


def turn_text(tokens):
    """
    >>> turn_text(6.28), turn_text(62.8), turn_text(198692.4)
    ('6.3', '63', '198,692')
    """
    return f"{tokens:.1f}" if tokens < 10 else f"{tokens:,.0f}"
