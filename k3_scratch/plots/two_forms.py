"""Time of the two forms of latent attention against the number of new tokens, measured and counted."""

import numpy as np

from k3_scratch.plots.bench_axes import label_panels, log_lengths, plain_log
from k3_scratch.plots.style import (
    INK,
    MARKERS,
    PARTS,
    PETROFF10,
    PlotError,
    as_array,
    need_rising,
    new_figure,
    styled,
)
from k3_scratch.shapes import check_shapes

COLOURS = (PETROFF10[2], PARTS["MLA"])


@styled
def two_forms(new_tokens, multiplications, milliseconds, crossing):
    """Look where the two lines of a panel cross: left of it absorbing is cheaper, right of it expanding.

    new_tokens       [n] rising       tokens that are computed at once
    multiplications  {form: [n]}      counted by hand
    milliseconds     {form: [m, n]}   measured m times; thin lines are single measurements, thick ones medians
    crossing         new tokens at which the counts are equal, a dashed upright line
    Raises ShapeError for other lengths, PlotError for numbers that are not above 0 or other forms than two.
    """
    new_tokens = as_array("two_forms", "new_tokens", new_tokens)
    check_shapes("two_forms", new_tokens=(new_tokens, "n"))
    need_rising("two_forms", "new_tokens", new_tokens)
    if len(multiplications) != 2 or set(multiplications) != set(milliseconds):
        raise PlotError(f"two_forms: multiplications and milliseconds must have the same two forms, but "
                        f"{sorted(multiplications)} and {sorted(milliseconds)} came")
    figure = new_figure(10.4, 4.2)
    panels = []
    for axes, argument, lines, title, unit in zip(
            figure.subplots(1, 2), ("multiplications", "milliseconds"), (multiplications, milliseconds),
            ("Counted", "Measured in this run"), ("million multiplications", "milliseconds, one thread"), strict=True):
        ends = []
        for (form, values), colour, marker in zip(lines.items(), COLOURS, MARKERS, strict=False):
            values = np.atleast_2d(as_array("two_forms", f"{argument}[{form!r}]", values))
            check_shapes("two_forms", new_tokens=(new_tokens, "n"), **{f"{argument}[{form!r}]": (values, "m n")})
            if values.min() <= 0:
                raise PlotError(f"two_forms: {argument}[{form!r}] must hold numbers above 0, but {values.min():g} came")
            values = values / 1e6 if argument == "multiplications" else values
            if len(values) > 1:
                axes.plot(new_tokens, values.T, color=colour, linewidth=0.7, alpha=0.4)
            middle = np.median(values, axis=0)
            axes.plot(new_tokens, middle, color=colour, marker=marker, linewidth=2.2, label=form)
            ends.append(middle[-1])
        log_lengths(axes, new_tokens)
        plain_log(axes)
        axes.axvline(crossing, color=INK, linestyle=(0, (5, 3)), linewidth=1)
        axes.annotate(f"equal counts: {crossing:.0f}", (crossing, 0.0), xycoords=axes.get_xaxis_transform(),
                      xytext=(-4, 4), textcoords="offset points", va="bottom", ha="right", fontsize=9)
        axes.grid(True, axis="y")
        axes.set_xlabel("new tokens at once")
        axes.set_ylabel(unit)
        axes.set_title(title)
        panels.append((axes, ends, list(lines), list(COLOURS)))
    label_panels(figure, panels)
    return figure
