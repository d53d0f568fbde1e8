"""What a prefix store keeps of a text: latents of every block, a state at some edges, and what a new prompt gets."""

from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import INK, PARTS, PlotError, styled

LEFT, WIDTH, ROW = 15.0, 62.0, 5.2


@styled
def prefix_blocks(blocks, states, prompts, *, block=16):
    """Look at the two bars of each prompt: what is shared, and how much less of it can be used.

    blocks    number of blocks of the kept text
    states    edges with a state, in blocks, rising, from 1 to blocks
    prompts   {label: shared tokens}, at most the tokens of the kept text
    block     tokens in a block
    Raises PlotError for what does not fit together.
    """
    if blocks < 1 or not states or list(states) != sorted(set(states)) or not 1 <= states[0] <= states[-1] <= blocks:
        raise PlotError(f"prefix_blocks: states must rise from 1 to blocks = {blocks}, but {list(states)} came")
    if not prompts or not all(0 <= shared <= blocks * block for shared in prompts.values()):
        raise PlotError(f"prefix_blocks: prompts must share 0 to {blocks * block} tokens, but {prompts} came")
    height = ROW * (len(prompts) + 3) + 3
    sheet, unit = Sheet(LEFT + WIDTH + 9, height), WIDTH / blocks
    for number in range(blocks):
        x = LEFT + number * unit
        span = f"{number * block}–{(number + 1) * block - 1}"
        sheet.box(x, height - 6.4, unit, 3.0, span, PARTS["plain"], size=7.5)
        sheet.box(x, height - 10.6, unit, 3.0, "latents", PARTS["MLA"], size=7.5)
    for text, y in (("tokens", height - 4.9), ("MLA", height - 9.1), ("KDA", height - 14.0)):
        sheet.text(LEFT - 1.2, y, text, across="right", bold=True)
    for edge in states:
        x = LEFT + edge * unit
        sheet.line([(x, height - 10.6), (x, 2.0)], colour=PARTS["KDA"], width=1.2, dashed=True)
        sheet.box(x - 3.4, height - 15.4, 6.8, 2.8, "state", PARTS["KDA"], size=7.5, strong=True)
    for row, (label, shared) in enumerate(prompts.items()):
        y = height - 20.6 - row * ROW
        usable = max([0, *(edge * block for edge in states if edge * block <= shared)])
        sheet.text(LEFT - 1.2, y + 1.3, label, across="right")
        for length, colour, low, text in ((shared, PARTS["plain"], 1.5, f"shared {shared}"),
                                          (usable, PARTS["KDA"], -0.3, f"used {usable}")):
            if length:
                sheet.frame(LEFT, y + low, length * unit / block, 1.4, face=colour, edge=colour, corner=0.1, order=3)
            sheet.text(LEFT + length * unit / block + 0.7, y + low + 0.7, text, size=7.5, across="left", colour=INK)
    return sheet.fit()
