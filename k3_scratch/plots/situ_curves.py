"""SiTU beside SwiGLU: the two factors, the slope, and the largest output there is."""

from k3_scratch.plots.style import DASHES, INK, PETROFF10, as_array, darker, need_rising, new_figure, styled
from k3_scratch.shapes import check_shapes

COLOURS = {"SwiGLU": PETROFF10[1], "SiTU": PETROFF10[0]}


@styled
def situ_curves(gate, gates, slopes, up, ups, scales, largest, bound):
    """Look from left to right: near zero both agree, then SiTU flattens, and its product stays below the bound.

    gate [n] rising, gates and slopes {"SwiGLU": [n], "SiTU": [n]}   the gate's factor and its derivative
    up [p] rising, ups {name: [p]}                                   the other factor
    scales [s] rising, largest {name: [s]}                           largest |output| for inputs of that size; bound
    Raises ShapeError for other lengths.
    """
    name = "situ_curves"
    for letter, x, *groups in (("n", gate, gates, slopes), ("p", up, ups), ("s", scales, largest)):
        x = as_array(name, letter, x)
        need_rising(name, letter, x)
        for group in groups:
            check_shapes(name, x=(x, letter), **{key: (as_array(name, key, line), letter)
                                                 for key, line in group.items()})
    figure = new_figure(9.4, 3.5)
    first, second, third = figure.subplots(1, 3)
    for position, (label, colour) in enumerate(COLOURS.items()):
        thick = {"color": colour, "linewidth": 2.2, "linestyle": DASHES[1 - position]}
        first.plot(gate, gates[label], label=label, **thick)
        first.plot(gate, slopes[label], color=colour, linewidth=1, linestyle=(0, (1, 1.5)))
        second.plot(up, ups[label], label=label, **thick)
        third.plot(scales, largest[label], label=label, marker="so"[position], markersize=4, **thick)
        third.annotate(label, (scales[-1], largest[label][-1]), (-6, 7 if label == "SwiGLU" else -13), ha="right",
                       textcoords="offset points", color=darker(colour), fontsize=9, fontweight="bold")
    first.legend(frameon=False, fontsize=8.5, loc="upper left", title="dotted: its slope", title_fontsize=8.5)
    second.legend(frameon=False, fontsize=8.5, loc="upper left")
    third.set_xscale("log", base=2)
    third.set_yscale("log")
    third.axhline(bound, color=INK, linewidth=1, linestyle=(0, (5, 3)))
    third.annotate(f"bound {bound:g}", (scales[0], bound), (0, 3), textcoords="offset points", fontsize=9)
    for axes, title, label in ((first, "The gate's factor", "gate g"), (second, "The other factor", "up u"),
                               (third, "Largest |output|", "size of gate and up")):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(label)
        axes.grid(True, axis="y")
    return figure
