"""What a model sees of each task, and which characters it is asked for."""

from matplotlib.patches import Rectangle

from k3_scratch.plots.style import FAINT, INK, PARTS, PlotError, darker, new_figure, styled, tint

LOOK = {".": ("white", FAINT, "given"), "^": (PARTS["KDA"], PARTS["KDA"], "answer: learnt and scored"),
        "$": (PARTS["MLA"], PARTS["MLA"], "end: learnt")}


@styled
def task_rows(examples):
    """Look at the filled cells: only there is something to be learnt.

    examples   {name: (text, marks)}; a mark "." is given, "^" an answer, "$" the end of the line
    Raises PlotError for no examples, for marks of another length than the text, or others than these three.
    """
    if not examples:
        raise PlotError("task_rows: examples must hold at least one, but none came")
    for name, (text, marks) in examples.items():
        if len(text) != len(marks) or not set(marks) <= set(LOOK):
            raise PlotError(f"task_rows: marks of {name!r} must be {len(text)} of {' '.join(LOOK)}, but {marks!r} came")
    longest = max(len(text) for text, _ in examples.values())
    width = max(longest, 60)
    figure = new_figure(1.2 + 0.127 * width, 0.8 + 0.36 * len(examples), layout=None)
    axes = figure.add_axes((1.0 / (1.2 + 0.127 * width), 0.02, 0.127 * width / (1.2 + 0.127 * width), 0.96))
    axes.set_xlim(0, width)
    axes.set_ylim(len(examples) + 0.95, -0.05)
    axes.set_axis_off()
    for row, (name, (text, marks)) in enumerate(examples.items()):
        axes.text(-0.6, row + 0.5, name, ha="right", va="center", fontweight="bold")
        for column, (character, mark) in enumerate(zip(text, marks, strict=True)):
            face, edge, _ = LOOK[mark]
            axes.add_patch(Rectangle((column + 0.05, row + 0.1), 0.9, 0.8, facecolor=tint(face, 0.55), edgecolor=edge,
                                     linewidth=1.2 if mark != "." else 0.6))
            axes.text(column + 0.5, row + 0.52, character.replace("\n", "⏎"), ha="center", va="center", fontsize=8.5,
                      family="DejaVu Sans Mono", color=INK if mark == "." else darker(face),
                      fontweight="normal" if mark == "." else "bold")
    for place, (face, edge, word) in zip((0, 9, 36), LOOK.values(), strict=True):
        axes.add_patch(Rectangle((place + 0.05, len(examples) + 0.2), 0.9, 0.6, facecolor=tint(face, 0.55),
                                 edgecolor=edge))
        axes.text(place + 1.5, len(examples) + 0.52, word, va="center", fontsize=9)
    return figure
