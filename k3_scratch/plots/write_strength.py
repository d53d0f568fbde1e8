"""One write of the delta rule as one step downhill: the loss of recall against the strength of the write."""

import numpy as np

from k3_scratch.plots.style import INK, PETROFF10, PlotError, new_figure, styled


@styled
def write_strength(strengths, losses, marks):
    """Follow the marked points down the slope: a strength of 1 ends at the bottom, 2 as high on the other side.

    strengths [n] rising, losses [n]: the parabola;   marks {strength: text}: points on it
    Raises PlotError for other lengths or marks outside.
    """
    strengths, losses = np.asarray(strengths, dtype=np.float64), np.asarray(losses, dtype=np.float64)
    if strengths.ndim != 1 or strengths.shape != losses.shape:
        raise PlotError(f"write_strength: losses must have shape [n] like strengths, {list(strengths.shape)}, "
                        f"but {list(losses.shape)} came")
    outside = [mark for mark in marks if not strengths[0] <= mark <= strengths[-1]]
    if outside:
        raise PlotError(f"write_strength: marks must lie between {strengths[0]:g} and {strengths[-1]:g}, "
                        f"but {outside[0]:g} came")
    figure = new_figure(7, 3.3)
    axes = figure.add_subplot()
    axes.plot(strengths, losses, color=PETROFF10[0])
    middle = (strengths[0] + strengths[-1]) / 2
    for mark, text in marks.items():
        height = float(np.interp(mark, strengths, losses))
        axes.plot([mark], [height], "o", color=PETROFF10[2], markersize=8, zorder=5)
        right = mark <= middle
        axes.annotate(text, (mark, height), xytext=(11 if right else -11, 7), textcoords="offset points", fontsize=9,
                      ha="left" if right else "right", va="bottom", color=INK)
    axes.set_ylim(bottom=-0.04 * losses.max())
    axes.set_xlabel(r"strength of the write, $\beta\,|k|^2$")
    axes.set_ylabel(r"$\frac{1}{2}\,|S^{\top} k - v|^2$ after the write")
    axes.grid(True, axis="y")
    return figure
