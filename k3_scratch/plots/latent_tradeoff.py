"""What a latent space saves, and what the saving can be spent on."""

import numpy as np

from k3_scratch.plots.style import (
    DASHES,
    INK,
    MARKERS,
    PARTS,
    PETROFF10,
    as_array,
    darker,
    label_ends,
    need_named,
    need_rising,
    new_figure,
    styled,
)
from k3_scratch.shapes import check_shapes


@styled
def latent_tradeoff(ratios, savings, digits, teams):
    """Left: with the same experts all costs fall. Right: with the costs held, the number of teams explodes.

    ratios   [n] how many times narrower than the model the experts work, rising; 1: no latent
    savings  {label: [n]} costs relative to no latent
    digits   [n] decimal digits of the number of ways to choose the experts of a token, at equal cost
    teams    [n] texts under the bars, such as "8 of 448"
    Raises ShapeError for other lengths, PlotError without savings.
    """
    ratios, digits = as_array("latent_tradeoff", "ratios", ratios), as_array("latent_tradeoff", "digits", digits)
    need_rising("latent_tradeoff", "ratios", ratios)
    need_named("latent_tradeoff", "savings", savings, "[n]")
    check_shapes("latent_tradeoff", ratios=(ratios, "n"), digits=(digits, "n"),
                 teams=(np.asarray(teams, dtype=object), "n"),
                 **{f"savings[{label!r}]": (as_array("latent_tradeoff", label, line), "n")
                    for label, line in savings.items()})
    figure = new_figure(9, 3.9)
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (1, 1)})
    for position, (label, line) in enumerate(savings.items()):
        left.plot(ratios, line, color=PETROFF10[position], linestyle=DASHES[position % 4], marker=MARKERS[position],
                  label=label, linewidth=2.2)
    left.set_xscale("log", base=2)
    left.set_xticks(ratios, [f"{ratio:g}" for ratio in ratios])
    left.minorticks_off()
    left.set_ylim(0, 1.08)
    left.set_ylabel("cost / cost without a latent")
    left.set_title("The same experts: cheaper", fontsize=10)
    bars = right.bar(np.arange(len(ratios)), digits, color=PARTS["MoE"], width=0.6)
    for bar, count in zip(bars, digits, strict=True):
        right.annotate(f"$10^{{{count:.0f}}}$", (bar.get_x() + bar.get_width() / 2, count), (0, 3), ha="center",
                       textcoords="offset points", color=darker(PARTS["MoE"]), fontweight="bold")
    right.set_xticks(np.arange(len(ratios)), [f"{ratio:g}\n{team}" for ratio, team in zip(ratios, teams, strict=True)],
                     fontsize=8.5)
    right.set_ylim(0, 1.15 * digits.max())
    right.set_ylabel("digits of the number of teams")
    right.set_title("Equal cost: more teams", fontsize=10)
    for axes in (left, right):
        axes.grid(True, axis="y", color="#dfe2e6")
        axes.set_xlabel("compression D / L", color=INK)
    left.margins(x=0.04)
    figure.get_layout_engine().execute(figure)
    label_ends(left, [line[-1] for line in savings.values()], list(savings), PETROFF10[:len(savings)], size=8.5)
    return figure
