"""The block form of attention residuals, written out: which vectors each mix reads, and what is in them."""

import numpy as np

from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import FAINT, PARTS, PETROFF10, PlotError, styled
from k3_scratch.shapes import check_shapes

ROW, NAME, COLUMN, RUNNING, WRITES = 3.4, 13.0, 12.5, 17.5, 13.0      # tenths of an inch
LARGEST = 5                                                          # columns of a bank that fit


@styled
def source_trace(readers, banks, running, writes, sealed):
    """Read from top to bottom: the running sum (right) grows, and where a block starts it moves into the bank (left).

    readers  [Q]     who reads, in order of evaluation
    banks    [Q]     list of texts for each reader: what is in each banked vector
    running  [Q]     text: what is in the running sum
    writes   [Q]     text: what the reader writes
    sealed   [Q]     True where the running sum is banked after this reader has read
    Raises ShapeError for other lengths, PlotError for a bank that is too wide or shrinks.
    """
    check_shapes("source_trace", **{name: (np.empty(len(value)), "Q") for name, value in (
        ("readers", readers), ("banks", banks), ("running", running), ("writes", writes), ("sealed", sealed))})
    widths = [len(bank) for bank in banks]
    if max(widths) > LARGEST or widths != sorted(widths):
        raise PlotError(f"source_trace: banks must never shrink and hold at most {LARGEST} vectors, "
                        f"but lengths {widths} came")
    columns = max(1, *widths)
    right = NAME + columns * COLUMN
    sheet = Sheet(right + RUNNING + WRITES + 2.5, (len(readers) + 1) * ROW + 1.2)
    top = sheet.height - 0.6
    for number in range(columns):
        sheet.text(NAME + (number + 0.5) * COLUMN, top - ROW / 2, f"bank, vector {number}", bold=True, size=9)
    sheet.text(right + RUNNING / 2, top - ROW / 2, "running sum $h$", bold=True, size=9)
    sheet.text(right + RUNNING + 2.6, top - ROW / 2, "writes", bold=True, size=9, across="left")
    for row, reader in enumerate(readers):
        y = top - (row + 2) * ROW
        sheet.text(0.8, y + ROW / 2, reader, across="left", bold=row == len(readers) - 1, size=9)
        for number, text in enumerate(banks[row]):
            sheet.box(NAME + number * COLUMN + 0.3, y + 0.35, COLUMN - 0.6, ROW - 0.7, text, PETROFF10[0], size=9,
                      strong=True)
        sheet.box(right + 0.3, y + 0.35, RUNNING - 0.6, ROW - 0.7, running[row], PETROFF10[1], size=9, strong=True)
        if writes[row]:
            sheet.text(right + RUNNING + 2.6, y + ROW / 2, writes[row], across="left", size=9)
        if sealed[row]:                                              # the sum moves into the next bank column
            target = NAME + (len(banks[row]) + 0.5) * COLUMN
            sheet.arrow([(right + 1.2, y + 0.35), (right + 1.2, y), (target, y), (target, y - 0.35)],
                        colour=PARTS["mix"], width=1.6, order=9)
            sheet.line([(0.5, y), (sheet.width - 0.5, y)], colour=FAINT, width=0.8, order=0)
    return sheet.fit()
