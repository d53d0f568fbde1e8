"""Where the parameters are: all of them as a square to scale, and what one token uses of them."""

from matplotlib.patches import Rectangle

from k3_scratch.plots.style import INK, PARTS, PlotError, ink_on, new_figure, styled, tint


@styled
def parameter_square(parts, total, active, largest):
    """Left, compare the areas: the small square is all that one token uses. Right: what is in the small square.

    parts    {name: (active parameters, part)}, part a key of style.PARTS; they add up to `active`
    total    all parameters;   active  those one token multiplies with
    largest  (name, parameters): the one part that fills most of the large square
    Raises PlotError when the numbers do not add up.
    """
    if sum(number for number, _ in parts.values()) != active:
        raise PlotError(f"parameter_square: the parts must add up to active = {active:,}, "
                        f"but {sum(number for number, _ in parts.values()):,} came")
    if not 0 < active <= total or not 0 < largest[1] <= total:
        raise PlotError(f"parameter_square: active and largest must lie between 0 and total = {total:,}, "
                        f"but {active:,} and {largest[1]:,} came")
    figure = new_figure(9.6, 4.3, layout=None)
    square = figure.add_axes((0.012, 0.03, 4.3 * 0.94 * 0.90 / 9.6, 0.94 * 0.90))
    square.set_xlim(-0.005, 1.005)
    square.set_ylim(-0.005, 1.005)
    square.set_axis_off()
    figure.text(0.012, 0.945, f"All: {total / 1e12:.2f} trillion", fontsize=12, fontweight="bold", va="center")
    share, side = largest[1] / total, (active / total) ** 0.5
    purple, edge = tint(PARTS["MoE"], 0.45), PARTS["MoE"]
    square.add_artist(Rectangle((0, 0), 1, share, facecolor=purple, edgecolor="none"))
    square.add_artist(Rectangle((0, share), 1, 1 - share, facecolor=tint(PARTS["KDA"], 0.1), edgecolor="none"))
    square.add_artist(Rectangle((0, 0), 1, 1, fill=False, edgecolor=edge, linewidth=1.6))
    square.text(0.5, 0.62, f"{largest[0]}\n{100 * share:.1f} %", ha="center", va="center", fontsize=13,
                color=ink_on(purple), fontweight="bold")
    square.annotate("all the rest", (0.12, (1 + share) / 2), xytext=(0.12, 0.88), ha="center", va="center", fontsize=9,
                    arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.9})
    square.add_artist(Rectangle((0, 0), side, side, facecolor="white", edgecolor=INK, linewidth=1.6))
    square.text(side / 2, side / 2, f"{100 * active / total:.1f} %", ha="center", va="center", fontsize=10,
                fontweight="bold")
    square.annotate("used for one token", (side, 0.6 * side), xytext=(side + 0.06, 0.6 * side), va="center",
                    fontsize=10, arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.9})
    axes = figure.add_axes((0.625, 0.03, 0.24, 0.94 * 0.90))
    _bars(axes, parts, active)
    figure.text(0.46, 0.945, f"Used for one token: {active / 1e9:.1f} billion (10⁹)", fontsize=12, fontweight="bold",
                va="center")
    return figure


def _bars(axes, parts, active):
    """One bar a part, the largest on top, with its number of billions and its share."""
    ordered = sorted(parts.items(), key=lambda item: -item[1][0])
    for row, (_, (number, part)) in enumerate(ordered):
        axes.barh(row, number, color=tint(PARTS[part], 0.35), edgecolor=PARTS[part], height=0.66, linewidth=1.2)
        words = f"{number / 1e9:.2f}  ({100 * number / active:.1f} %)" if number > 5e-4 * active else f"{number:,}"
        axes.text(number + 0.02 * ordered[0][1][0], row, words, va="center", fontsize=9)
    axes.set_yticks(range(len(ordered)), [name for name, _ in ordered])
    axes.set_ylim(len(ordered) - 0.5, -0.5)
    axes.set_xlim(0, ordered[0][1][0] * 1.05)
    axes.tick_params(length=0)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
