"""Where the time of a training step goes."""

from k3_scratch.plots.style import PARTS, PlotError, as_array, new_figure, styled, tint

COLOURS = {"KDA": PARTS["KDA"], "MLA": PARTS["MLA"], "MoE": PARTS["MoE"], "dense": PARTS["dense"],
           "depth mixes": PARTS["mix"]}


@styled
def step_parts(milliseconds, whole):
    """Look at the longest bars: that is where a faster part would help the whole step.

    milliseconds {part: float}   each kind of part measured alone, forward and backward
    whole                        milliseconds of the whole step; if the parts leave something it is drawn as the rest
    Raises PlotError for an empty dict, numbers below 0 or a step that takes no time.
    """
    if not milliseconds:
        raise PlotError("step_parts: milliseconds must hold at least one part, but an empty dict came")
    values = as_array("step_parts", "milliseconds", list(milliseconds.values()))
    if values.min() < 0 or not whole > 0:
        raise PlotError(f"step_parts: milliseconds must be 0 or more and whole above 0, but {values.min():g} "
                        f"and {whole:g} came")
    bars = sorted(milliseconds.items(), key=lambda bar: -bar[1])
    if whole > values.sum():
        bars.append(("rest", whole - values.sum()))

    figure = new_figure(8.4, 1.3 + 0.34 * len(bars))
    axes = figure.add_subplot()
    for place, (name, value) in enumerate(bars):
        colour = COLOURS.get(name, PARTS["plain"])
        axes.barh(place, value, 0.72, color=tint(colour, 0.45), edgecolor=colour)
        axes.annotate(f"{value:.1f} ms, {100 * value / whole:.0f} %", (value, place), (4, 0),
                      textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.25 * max(value for _, value in bars))
    axes.set_xlabel("milliseconds, forward and backward, one thread")
    axes.set_title(f"One training step of the miniature: {whole:.0f} ms")
    return figure
