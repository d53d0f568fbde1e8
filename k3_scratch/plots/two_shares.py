"""Two accounts of one model beside each other: where its parameters are, and where its work is."""

import numpy as np

from k3_scratch.plots.style import INK, PARTS, PlotError, as_array, new_figure, styled, tint
from k3_scratch.shapes import check_shapes


@styled
def two_shares(models, parts, *, first, second):
    """Compare the two bars of a part: a long one above a short one is a part that rests most of the time.

    models         {title: (shares [n], shares [n])}, each of them with sum 1
    parts          [n]  (name, key of style.PARTS), the first on top
    first, second  what the upper and the lower bar of a pair count
    Raises ShapeError for other lengths, PlotError for unknown parts or shares that do not sum to 1.
    """
    if not all(part in PARTS for _, part in parts) or not isinstance(models, dict) or not 1 <= len(models) <= 3:
        raise PlotError(f"two_shares: 1 to 3 models and parts among {', '.join(PARTS)} are wanted, "
                        f"but {len(models)} models and {parts!r} came")
    names, height = (np.empty(len(parts)), "n"), 0.9 + 0.5 * len(parts)
    figure = new_figure(2.0 + 3.7 * len(models), height)
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axes, (title, pair) in zip(panels, models.items(), strict=True):
        pair = [as_array("two_shares", f"models[{title!r}]", shares) for shares in pair]
        check_shapes("two_shares", parts=names, **{f"models[{title!r}][{i}]": (s, "n") for i, s in enumerate(pair)})
        if max(abs(shares.sum() - 1) for shares in pair) > 1e-6 or min(shares.min() for shares in pair) < 0:
            raise PlotError(f"two_shares: shares of {title!r} must be 0 or more with sum 1, but the sums are "
                            f"{pair[0].sum():g} and {pair[1].sum():g}")
        longest = max(shares.max() for shares in pair)
        for row, (one, other) in enumerate(zip(*pair, strict=True)):
            colour = PARTS[parts[row][1]]
            axes.barh(row - 0.2, one, height=0.36, facecolor=tint(colour, 0.35), edgecolor=colour)
            axes.barh(row + 0.2, other, height=0.36, facecolor="white", edgecolor=colour, hatch="////")
            for place, share in ((-0.2, one), (0.2, other)):
                axes.text(share + 0.02 * longest, row + place, _percent(share), va="center", fontsize=9, color=INK)
        axes.set_xlim(0, 1.2 * longest)
        axes.set_ylim(len(parts) - 0.45, -0.55)
        axes.set_xticks([])
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_title(title, fontsize=11)
    panels[0].set_yticks(range(len(parts)), [name for name, _ in parts], fontsize=9.5)
    grey = PARTS["plain"]
    handles = [panels[0].barh(-9, 0, facecolor=tint(grey, 0.35), edgecolor=grey, label=first),
               panels[0].barh(-9, 0, facecolor="white", edgecolor=grey, hatch="////", label=second)]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=10)
    return figure


def _percent(share):
    """.0002 -> "0.02 %": two digits that say something."""
    percent = 100 * share
    if percent == 0:
        return "0"
    return f"{percent:.0f} %" if percent >= 9.95 else f"{percent:.1f} %" if percent >= 0.095 else f"{percent:.2g} %"
