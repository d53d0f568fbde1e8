"""The two ways through one head's score and output: expand the cache, or move the matrices to the query's side."""

from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import PARTS, PETROFF10, PlotError, styled

ONE, MANY, MATRIX = PETROFF10[0], PARTS["MLA"], PETROFF10[8]


@styled
def absorption(R, n, v):
    """Compare the widest boxes: on the left things as long as the text are made for every head, on the right never.

    R, n, v   widths of the latent, of a head's key made from it, and of a head's value; raises PlotError below 1
    """
    for name, size in (("R", R), ("n", n), ("v", v)):
        if size < 1:
            raise PlotError(f"absorption: {name} must be at least 1, but {size} came")
    sheet = Sheet(96, 50)
    for x, title, each in ((2, "naive: expand the cache", (R + 1) * (n + v)),
                           (51, "absorbed: leave the cache as it is", 2 * R)):
        sheet.text(x, 47.0, title, size=12, bold=True, across="left", up="baseline")
        sheet.text(x, 10.6, "for each cached token and head", size=8.5, across="left", up="baseline")
        sheet.text(x, 8.2, f"{each:,} multiplications", size=10, bold=True, across="left", up="baseline")
    sheet.line([(48.5, 4), (48.5, 48.5)], colour=MATRIX, width=0.8, dashed=True)
    _naive(sheet, 2, R, n, v)
    _absorbed(sheet, 51, R, n, v)
    for x, colour, strong, text in ((2, ONE, False, "one vector for the new token"),
                                    (34, MANY, True, "one row for each of S tokens"),
                                    (66, MATRIX, False, "weights, always the same")):
        sheet.box(x, 0.9, 2.6, 1.8, "", colour, strong=strong)
        sheet.text(x + 3.4, 1.35, text, size=8.5, across="left", up="baseline")
    return sheet.fit()


def _naive(sheet, x, R, n, v):
    wide = 44
    sheet.box(x, 39.5, wide, 4.2, f"cached latents  c   S × {R}", MANY, strong=True, bold=True)
    for left, matrix, made, width in ((x, "$W_k$", "keys", n), (x + 23, "$W_v$", "values", v)):
        sheet.arrow([(left + 6, 39.5), (left + 6, 35.2)])
        sheet.box(left + 9, 35.4, 12, 3.4, f"{matrix}   {width} × {R}", MATRIX)
        sheet.box(left, 30.5, 21, 4.7, f"{made}   S × {width}\nmade again for each head", MANY, strong=True)
    sheet.box(x, 22.6, 8, 4.2, f"query\n{n}", ONE)
    sheet.arrow([(x + 14, 30.5), (x + 14, 26.8)])
    sheet.arrow([(x + 8, 24.7), (x + 10, 24.7)])
    sheet.box(x + 10, 22.6, 11, 4.2, "scores   S", MANY, strong=True)
    sheet.line([(x + 15.5, 22.6), (x + 15.5, 19.6)])
    sheet.arrow([(x + 15.5, 19.6), (x + 23, 19.6)])
    sheet.text(x + 18.6, 20.9, "softmax", size=8.5)
    sheet.arrow([(x + 33.5, 30.5), (x + 33.5, 21.7)])
    sheet.box(x + 23, 17.5, 21, 4.2, f"mix of values = output   {v}", ONE, bold=True)


def _absorbed(sheet, x, R, n, v):
    wide = 43
    sheet.box(x, 39.5, wide, 4.2, f"cached latents  c   S × {R}", MANY, strong=True, bold=True)
    sheet.box(x, 33.0, 5.5, 4.2, f"query\n{n}", ONE)
    sheet.arrow([(x + 2.75, 33.0), (x + 2.75, 29.4)])
    sheet.box(x + 6.5, 29.5, 10.5, 3.4, rf"$W_k^\top$   {R} × {n}", MATRIX)
    sheet.box(x, 25.2, 17, 4.2, f"absorbed query   {R}", ONE)
    sheet.arrow([(x + 8.5, 25.2), (x + 8.5, 21.7)])
    sheet.arrow([(x + 19, 39.5), (x + 19, 21.7)])
    sheet.box(x, 17.5, 21, 4.2, "scores   S", MANY, strong=True)
    sheet.arrow([(x + 21, 19.6), (x + 27.5, 19.6)])
    sheet.text(x + 24, 20.9, "softmax", size=8.5)
    sheet.arrow([(x + 35, 39.5), (x + 35, 21.7)])
    sheet.box(x + 27.5, 17.5, 15.5, 4.2, f"mix of latents   {R}", ONE)
    sheet.arrow([(x + 31, 17.5), (x + 31, 11.2)])
    sheet.box(x + 32.5, 12.7, 10.5, 3.4, f"$W_v$   {v} × {R}", MATRIX)
    sheet.box(x + 27.5, 7.0, 15.5, 4.2, f"output   {v}", ONE, bold=True)
