"""What Newton and Schulz's steps do to the singular values of a matrix."""

import numpy as np

from k3_scratch.plots.bench_axes import plain_log
from k3_scratch.plots.style import DASHES, INK, MARKERS, PETROFF10, PlotError, as_array, label_ends, new_figure, styled
from k3_scratch.shapes import check_shapes

BAND = (0.7, 1.2)


@styled
def singular_values(sizes, curves, values):
    """Left: follow a value from below to where the steps take it. Right: the same for a whole matrix.

    sizes [n] rising, curves {label: [n]}     what a singular value of this size has become
    values {label: [r]}                       the singular values of one matrix, largest first, each with its label
    The grey band is .7 to 1.2. Raises ShapeError for other lengths, PlotError without lines.
    """
    if not curves or not values or max(len(curves), len(values)) > len(MARKERS):
        raise PlotError(f"singular_values: curves and values must hold 1 to {len(MARKERS)} lines each, but "
                        f"{len(curves)} and {len(values)} came")
    sizes = as_array("singular_values", "sizes", sizes)
    names = list(dict.fromkeys([*curves, *values]))
    figure = new_figure(11.5, 4.3)
    left, right = figure.subplots(1, 2)
    pending = []
    for axes, lines in ((left, curves), (right, values)):
        ends, colours = [], []
        for label, line in lines.items():
            line = as_array("singular_values", label, line)
            number = names.index(label)
            x = sizes if axes is left else np.arange(1, len(line) + 1)
            check_shapes("singular_values", x=(x, "n"), **{f"lines[{label!r}]": (line, "n")})
            line = np.maximum(line, 1e-4)                                # where the axis ends
            axes.plot(x, line, color=PETROFF10[number], linestyle=DASHES[number % len(DASHES)],
                      marker=MARKERS[number], markevery=max(1, len(x) // 10), linewidth=2)
            ends.append(line[-1])
            colours.append(PETROFF10[number])
        axes.axhspan(*BAND, color=INK, alpha=0.08, linewidth=0)
        axes.set_ylim(1e-4, 2)
        plain_log(axes)
        axes.grid(True, axis="y")
        pending.append((axes, ends, list(lines), colours))
    plain_log(left, "x")
    left.set_xlim(sizes[0], sizes[-1])
    left.set_xlabel("singular value before")
    left.set_ylabel("singular value after")
    left.set_title("The polynomial, once and again")
    right.set_xlabel("singular values of one matrix, largest first")
    right.set_title("A momentum of the miniature")
    figure.get_layout_engine().execute(figure)
    for entry in pending:
        label_ends(*entry)
    return figure
