"""The size of the hidden vectors over depth."""

import numpy as np

from k3_scratch.plots.style import MARKERS, PETROFF10, PlotError, as_array, label_ends, new_figure, styled
from k3_scratch.shapes import check_shapes

PLACES = (PETROFF10[0], PETROFF10[2], PETROFF10[4], PETROFF10[1], PETROFF10[5], PETROFF10[8])


@styled
def magnitudes(names, rms):
    """Look at the trend: a plain residual grows with depth, attention over depth starts small again in each block.

    names [n]   the sublayers from the first to the last
    rms         [n], or {label: [n]}, e.g. {"input": [n], "output": [n]}: root mean square of the vectors there
    Raises ShapeError for another length, PlotError for an empty dict or values below 0.
    """
    lines = rms if isinstance(rms, dict) else {"": rms}
    if not lines:
        raise PlotError("magnitudes: rms must hold at least one line, but an empty dict came")
    values = {label: as_array("magnitudes", f"rms[{label!r}]" if label else "rms", line)
              for label, line in lines.items()}
    for label, line in values.items():
        check_shapes("magnitudes", names=(np.asarray(names, dtype=object), "n"),
                     **{f"rms[{label!r}]" if label else "rms": (line, "n")})
        if line.min() < 0:
            raise PlotError(f"magnitudes: a root mean square is 0 or more, but {line.min():g} came in {label or 'rms'}")

    figure = new_figure(min(14.0, max(6.5, 2.6 + 0.42 * len(names))), 4.4)
    axes = figure.add_subplot()
    places = np.arange(len(names))
    colours = [PLACES[i % len(PLACES)] for i in range(len(values))]
    for i, (label, line) in enumerate(values.items()):
        axes.plot(places, line, color=colours[i], marker=MARKERS[i % len(MARKERS)], label=label or "rms")
    axes.set_ylim(0, 1.1 * max(max(line.max() for line in values.values()), 1e-12))
    axes.set_xlim(-0.4, len(names) - 0.6)
    every = -(-len(names) // 32)
    axes.set_xticks(places[::every], [str(name) for name in names[::every]], rotation=50, ha="right",
                    rotation_mode="anchor")
    axes.set_ylabel("root mean square")
    axes.set_xlabel("sublayer, first to last")
    axes.grid(True, axis="y")
    axes.set_title("Size of the hidden vectors from the first sublayer to the last")
    if any(values):
        figure.get_layout_engine().execute(figure)
        label_ends(axes, [line[-1] for line in values.values()], list(values), colours)
    return figure
