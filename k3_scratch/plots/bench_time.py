"""Time against the length of the sequence."""

from k3_scratch.plots.bench_axes import label_panels, log_lengths, plain_log
from k3_scratch.plots.style import DASHES, MARKERS, PETROFF10, PlotError, as_array, need_rising, new_figure, styled
from k3_scratch.shapes import check_shapes


@styled
def time_against_length(lengths, milliseconds, slopes):
    """Look at how steep the lines are: twice the tokens cost KDA twice the time, softmax attention up to four times.

    lengths [n]                         T in tokens
    milliseconds {panel: {name: [n]}}   one panel a kind of work
    slopes {panel: {name: float}}       exponent p of time ~ T^p, written at the end of each line
    Raises PlotError for an empty dict or times that are not above 0, ShapeError for another length.
    """
    lengths = as_array("time_against_length", "lengths", lengths)
    check_shapes("time_against_length", lengths=(lengths, "n"))
    need_rising("time_against_length", "lengths", lengths)
    if not milliseconds or not all(milliseconds.values()):
        raise PlotError("time_against_length: milliseconds must be {panel: {name: [n]}} with at least one line each")
    names = list(dict.fromkeys(name for lines in milliseconds.values() for name in lines))

    figure = new_figure(6.4 * len(milliseconds), 4.8)
    panels = []
    for axes, (panel, lines) in zip(figure.subplots(1, len(milliseconds), squeeze=False)[0], milliseconds.items(),
                                    strict=True):
        ends, labels, colours = [], [], []
        for name, values in lines.items():
            values, place = as_array("time_against_length", f"milliseconds[{name!r}]", values), names.index(name)
            check_shapes("time_against_length", lengths=(lengths, "n"), **{f"milliseconds[{name!r}]": (values, "n")})
            if values.min() <= 0:
                raise PlotError(f"time_against_length: milliseconds[{name!r}] must be above 0, "
                                f"but {values.min():g} came")
            colour = PETROFF10[place % len(PETROFF10)]
            axes.plot(lengths, values, color=colour, marker=MARKERS[place % len(MARKERS)], label=name,
                      linestyle=DASHES[place % len(DASHES)], linewidth=2.6 if place == 0 else 1.6)
            ends.append(values[-1])
            labels.append(f"{name}, T^{slopes[panel][name]:.2f}")
            colours.append(colour)
        log_lengths(axes, lengths)
        plain_log(axes)
        axes.grid(True)
        axes.set_xlabel("T, tokens")
        axes.set_ylabel("milliseconds, one thread")
        axes.set_title(panel)
        panels.append((axes, ends, labels, colours))
    label_panels(figure, panels)
    return figure
