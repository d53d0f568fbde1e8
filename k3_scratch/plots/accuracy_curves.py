"""Accuracy of each family of tasks over training."""

from k3_scratch.plots.style import (
    INK,
    PlotError,
    as_array,
    family_style,
    label_ends,
    need_named,
    need_rising,
    new_figure,
    styled,
)
from k3_scratch.shapes import check_shapes

GOAL = 0.9


@styled
def accuracy_curves(steps, accuracy):
    """Look at the order in which the families cross the dashed line: that is the order in which they are learned.

    steps [n], accuracy {family: [n]} from 0 to 1.
    Raises PlotError for an empty dict or values outside 0 ... 1, ShapeError for another length.
    """
    steps = as_array("accuracy_curves", "steps", steps)
    need_named("accuracy_curves", "accuracy", accuracy, "[n]")
    lines = {}
    for family, values in accuracy.items():
        lines[family] = as_array("accuracy_curves", f"accuracy[{family!r}]", values)
        check_shapes("accuracy_curves", steps=(steps, "n"), **{f"accuracy[{family!r}]": (lines[family], "n")})
        if lines[family].min() < 0 or lines[family].max() > 1:
            raise PlotError(f"accuracy_curves: accuracy[{family!r}] must lie between 0 and 1, but it runs from "
                            f"{lines[family].min():g} to {lines[family].max():g}")
    need_rising("accuracy_curves", "steps", steps)

    figure = new_figure(8, 4.6)
    axes = figure.add_subplot()
    colours = []
    every = max(1, len(steps) // 12)
    for position, (family, values) in enumerate(lines.items()):
        colour, marker = family_style(family, position)
        axes.plot(steps, values, color=colour, marker=marker, markevery=every, label=family)
        colours.append(colour)
    axes.axhline(GOAL, color=INK, linestyle=(0, (5, 3)), linewidth=1)
    axes.text(0.005, GOAL + 0.012, f"{GOAL:g}", transform=axes.get_yaxis_transform(), fontsize=9, va="bottom")
    axes.set_ylim(-0.02, 1.03)
    axes.margins(x=0.01)
    axes.grid(True, axis="y")
    axes.set_xlabel("training step")
    axes.set_ylabel("share of answers right")
    reached = sum(values[-1] >= GOAL for values in lines.values())
    axes.set_title(f"{reached} of {len(lines)} families end at {GOAL:g} or above")
    figure.get_layout_engine().execute(figure)
    label_ends(axes, [values[-1] for values in lines.values()],
               [f"{family} {values[-1]:.2f}" for family, values in lines.items()], colours)
    return figure
