"""Who waits for whom: the states of a token loop, and the few that are left when tokens are taken in chunks."""

from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import PARTS, PETROFF10, PlotError, darker, styled

PITCH = 6.4                                    # tenths of an inch from token to token


@styled
def chunk_chain(tokens=12, chunk=4):
    """Count the arrows between states: each is a step that must wait. The states at the circles are never formed.

    tokens  T, a multiple of chunk and at most 16;   chunk  C.  Raises PlotError for other numbers.
    """
    if not 2 <= tokens <= 16 or chunk < 1 or tokens % chunk:
        raise PlotError(f"chunk_chain: tokens must be 2 to 16 and a multiple of chunk, "
                        f"but tokens = {tokens} and chunk = {chunk} came")
    left, blue, amber = 8.5, PARTS["KDA"], PETROFF10[1]
    sheet = Sheet(max(left + tokens * PITCH + 4, 65), 37)
    sheet.text(1, 34.8, f"token by token: {tokens} steps, each waits for the one before", bold=True, size=10.5,
               across="left")
    for t in range(tokens + 1):
        x = left + t * PITCH
        if t < tokens:
            sheet.arrow([(x + 1.9, 29.5), (x + PITCH - 1.9, 29.5)], colour=darker(amber), width=1.6)
            sheet.box(x + 1.1, 22.6, PITCH - 2.2, 3.2, f"{t + 1}", blue, size=9)
            sheet.arrow([(x + PITCH / 2, 25.8), (x + PITCH / 2, 29.1)], colour=blue, width=1.1)
        _state(sheet, x, 29.5, t, amber)
    sheet.text(1, 24.2, "tokens", size=9, across="left")
    sheet.text(1, 29.5, "states", size=9, across="left")

    steps = tokens // chunk
    sheet.text(1, 16.8, f"in chunks of {chunk}: {steps} steps; inside a chunk all tokens are worked on at once",
               bold=True, size=10.5, across="left")
    sheet.text(1, 4.2, "tokens", size=9, across="left")
    sheet.text(1, 11.5, "states", size=9, across="left")
    for n in range(steps + 1):
        x, wide = left + n * chunk * PITCH, chunk * PITCH
        if n < steps:
            sheet.frame(x + 0.7, 1.6, wide - 1.4, 5.2, face="white", edge=blue, line=1.8)
            for t in range(chunk):
                sheet.box(x + t * PITCH + 1.3, 2.6, PITCH - 2.6, 3.2, f"{n * chunk + t + 1}", blue, size=9)
            sheet.arrow([(x + 1.9, 11.5), (x + wide - 1.9, 11.5)], colour=darker(amber), width=2.2)
            sheet.arrow([(x + wide / 2, 6.8), (x + wide / 2, 10.3)], colour=blue, width=1.6)
            for t in range(1, chunk):
                sheet.dot(x + t * PITCH, 11.5, colour=darker(amber), radius=0.75, hollow=True)
        _state(sheet, x, 11.5, n * chunk, amber)
    return sheet.fit()


def _state(sheet, x, y, number, colour):
    sheet.box(x - 1.9, y - 1.7, 3.8, 3.4, f"$S_{{{number}}}$", colour, size=9, strong=True)
