"""A prefix scan: after each round every machine holds the map of twice as many segments."""

from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import PARTS, PETROFF10, PlotError, darker, styled

PITCH, STOREY = 9.2, 9.5                        # tenths of an inch: from machine to machine, from round to round


@styled
def scan_rounds(segments=8):
    """Follow one column down: what it holds reaches twice as far back after each round, until it reaches segment 1.

    segments   2 to 9.  Raises PlotError for others.
    """
    if not 2 <= segments <= 9:
        raise PlotError(f"scan_rounds: segments must be 2 to 9, but {segments} came")
    rounds, blue, red = (segments - 1).bit_length(), PARTS["KDA"], darker(PETROFF10[2])
    sheet = Sheet(12.5 + segments * PITCH, 7.5 + rounds * STOREY)
    base = 2.0 + rounds * STOREY                                        # lower edge of the first row
    for step in range(rounds + 1):
        y, reach = base - step * STOREY, 2 ** step
        sheet.text(1, y + 1.8, "at first" if step == 0 else f"round {step}", size=9.5, bold=True, across="left")
        for p in range(segments):
            x, first = 12.5 + p * PITCH, max(0, p - reach + 1)
            done = first == 0
            text = f"{p + 1}" if first == p else f"{first + 1}–{p + 1}"
            sheet.box(x, y, PITCH - 1.8, 3.6, text, blue, size=9.5, strong=done, bold=done)
            if step < rounds:
                centre = x + (PITCH - 1.8) / 2
                sheet.arrow([(centre, y), (centre, y - STOREY + 3.6)], colour=blue, width=1.2)
                if p + reach < segments:
                    other = centre + reach * PITCH - 1.2
                    sheet.line([(centre + 1.2, y), (other, y - STOREY + 5.2)], colour=red, width=1.3)
                    sheet.arrow([(other, y - STOREY + 5.2), (other, y - STOREY + 3.6)], colour=red, width=1.3)
    return sheet.fit()
