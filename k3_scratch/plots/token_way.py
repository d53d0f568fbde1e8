"""One token through a layer: at each step, how many numbers describe it."""

from k3_scratch.plots.style import INK, PARTS, PlotError, new_figure, styled, tint

ROW = 0.36                # inches


@styled
def token_way(steps, title, limit):
    """Read downwards: a bar is as long as the token's vectors together, cut where one vector ends and the next begins.

    steps  [(what happens, pieces, numbers in a piece, part, shape)]; part is a key of style.PARTS, shape a text
    title  the headline;   limit  bars with more numbers than this are cut off and say so
    Raises PlotError for an unknown part, or pieces and sizes that are not at least 1.
    """
    steps = list(steps)
    for step in steps:
        if len(step) != 5 or step[3] not in PARTS or min(step[1], step[2]) < 1:
            raise PlotError(f"token_way: steps must be (text, pieces, numbers in a piece, one of {', '.join(PARTS)}, "
                            f"shape), but {step!r} came")
    if not steps or limit <= 0:
        raise PlotError(f"token_way: at least one step and a limit above 0 are wanted, but {len(steps)} steps and "
                        f"{limit!r} came")
    width, height = 9.6, 0.52 + ROW * len(steps)
    figure = new_figure(width, height, layout=None)
    axes = figure.add_axes((2.75 / width, 0.08 / height, 3.65 / width, ROW * len(steps) / height))
    axes.set_xlim(0, limit)
    axes.set_ylim(len(steps) - 0.5, -0.5)
    axes.set_axis_off()
    figure.text(0.1 / width, 1 - 0.26 / height, title, fontsize=12, fontweight="bold", va="center")
    for row, (text, pieces, size, part, shape) in enumerate(steps):
        y = (0.08 + ROW * (len(steps) - row - 0.5)) / height
        whole, shown = pieces * size, min(pieces * size, limit)
        axes.barh(row, shown, height=0.62, color=tint(PARTS[part], 0.35), edgecolor=PARTS[part], linewidth=1.2)
        for cut in range(1, pieces):
            if cut * size < limit:
                axes.plot([cut * size] * 2, [row - 0.31, row + 0.31], color="white", linewidth=1.4)
        if whole > limit:
            axes.plot([0.93 * limit, 0.95 * limit, 0.93 * limit, 0.95 * limit],
                      [row - 0.36, row - 0.12, row + 0.12, row + 0.36], color="white", linewidth=4)
        figure.text(2.62 / width, y, text, ha="right", va="center", fontsize=9.5)
        figure.text(6.5 / width, y, f"{whole:,}", ha="left", va="center", fontsize=9.5, fontweight="bold", color=INK)
        figure.text(7.32 / width, y, shape, ha="left", va="center", fontsize=9)
    return figure
