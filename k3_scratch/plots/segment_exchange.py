"""One text over several machines: what each computes alone, and what crosses to the machines on its right."""

from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import PARTS, PETROFF10, PlotError, darker, styled

LEFT, WIDE, GAP = 15, 16.5, 11                  # tenths of an inch: row names, one machine, the space between two
ROWS = (("short\nconvolution", "KDA", "last 3 inputs"), ("KDA", "KDA", "$M$ and $N$"), ("MLA", "MLA", "all latents"),
        ("experts, norms,\nmix over depth", "MoE", ""))


@styled
def segment_exchange(lengths):
    """Look at the arrows: the first two carry the same little, however long the segments are; the last row has none.

    lengths   tokens of each segment, 2 to 4 of them.  Raises PlotError for others.
    """
    if not 2 <= len(lengths) <= 4 or min(lengths) < 1:
        raise PlotError(f"segment_exchange: lengths must be 2 to 4 numbers of tokens, at least 1 each, "
                        f"but {list(lengths)} came")
    machines = len(lengths)
    sheet = Sheet(LEFT + machines * WIDE + (machines - 1) * GAP + 1.5, 34)
    start, top = 0, 27.4
    for number, length in enumerate(lengths):
        x = LEFT + number * (WIDE + GAP)
        sheet.frame(x - 0.8, 1, WIDE + 1.6, 32, edge=PARTS["plain"], line=1.2)
        sheet.text(x + WIDE / 2, 31.3, f"machine {number}", bold=True, size=10)
        sheet.text(x + WIDE / 2, 28.9, f"tokens {start}–{start + length - 1}", size=9)
        start += length
        for row, (_, part, sent) in enumerate(ROWS):
            y = top - 6.4 * (row + 1)
            sheet.box(x, y, WIDE, 4.4, _work(row, number), PARTS[part], size=8.5)
            if sent and number + 1 < machines:
                sheet.arrow([(x + WIDE, y + 2.2), (x + WIDE + GAP, y + 2.2)], colour=darker(PETROFF10[2]), width=1.8)
                sheet.text(x + WIDE + GAP / 2, y + 3.6, sent, size=8.5, colour=darker(PETROFF10[2]), bold=True)
    for row, (name, _, _) in enumerate(ROWS):
        sheet.text(1, top - 6.4 * (row + 1) + 2.2, name, size=9, across="left", bold=True)
    return sheet.fit()


def _work(row, number):
    """What a machine does in a row."""
    if row == 0:
        return "zeros before the text" if number == 0 else "its 3 left neighbours"
    if row == 1:
        return "starts from $S = 0$" if number == 0 else "starts from $S_{\\mathrm{in}}$"
    if row == 2:
        return "looks at its own" if number == 0 else "looks at all before"
    return "token by token, alone"
