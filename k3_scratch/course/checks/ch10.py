"""Checks of chapter 10, native vision. Pictures [Y, X, C], patches [y, x, h]."""

import numpy as np

from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference import patches as reference_patches
from k3_scratch.reference import pixel_shuffle as reference_shuffle
from k3_scratch.reference.rope_2d import rope_2d as reference_rope


def _normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


# ---- 10.1 a picture in patches

def cut(image, size):
    """[Y, X, C] -> [Y/size, X/size, size * size * C]"""
    return reference_patches.patches(image[None], size)[0]


def _cut(image, size, *, order=(0, 2, 1, 3, 4), turned=False):
    Y, X, C = image.shape
    if turned:                                                           # the axes of the grid changed places
        return np.swapaxes(_cut(image, size), 0, 1).reshape(Y // size, X // size, -1)
    grid = image.reshape(Y // size, size, X // size, size, C).transpose(order)
    return grid.reshape(Y // size, X // size, size * size * C)


PATCHES = Exercise(
    "10.1", "a picture in patches", cut,
    "Split both sides, [y, size, x, size, C], bring the two short axes together, then join the last three.",
    takes={"image": "Y X C", "size": None}, returns={"patches": "y x n"},
    cases=(Case("for paper (2 x 4 pixels of one channel, numbered 0 to 7, size 2)",
                (np.arange(8.0).reshape(2, 4, 1), 2), paper=True),
           Case("with colours (6 x 9 pixels, size 3)", (_normal(0, 6, 9, 3), 3)),
           Case("with a high picture (8 x 4 pixels, 2 channels, size 2)", (_normal(1, 8, 4, 2), 2)),
           Case("with patches of one pixel (3 x 5)", (_normal(2, 3, 5, 2), 1))),
    properties=(Property("the first patch is the upper left corner of the picture",
                         lambda f: np.allclose(f(_normal(3, 4, 6, 2), 2)[0, 0], _normal(3, 4, 6, 2)[:2, :2].ravel())),),
    mistakes=(
        Mistake("A patch of yours is a piece of one long line of pixels: a reshape alone does not cut squares.",
                lambda a, n: a.reshape(len(a) // n, a.shape[1] // n, -1)),
        Mistake("Inside a patch you go down the columns: the order is row, then column, then channel.",
                lambda a, n: _cut(a, n, order=(0, 2, 3, 1, 4))),
        Mistake("Inside a patch the channels come first: the colours of one pixel stand together, at the end.",
                lambda a, n: _cut(a, n, order=(0, 2, 4, 1, 3))),
        Mistake("Patches that lie apart: pixel (0, 0) of a patch is followed by its neighbour, not by the next patch.",
                lambda a, n: a.reshape(n, len(a) // n, n, a.shape[1] // n, -1).transpose(1, 3, 0, 2, 4)
                              .reshape(len(a) // n, a.shape[1] // n, -1)),
        Mistake("The grid runs the wrong way: the first axis is the row of the patch, the second its column.",
                lambda a, n: _cut(a, n, turned=True)),
    ))


# ---- 10.2 positions in two directions

def turn(x, row, column, theta=10_000.0):
    """One vector of a patch, turned.   [K], row, column -> [K]"""
    grid = np.broadcast_to(x, (1, row + 1, column + 1, 1, len(x)))
    return reference_rope(grid, theta)[0, row, column, 0]


def _turn(x, row, column, *, power=4, swap=False, sign=1, neighbours=False, once=False, rows_only=False):
    K = len(x)
    speed = 10_000.0 ** (-power * np.arange(K // 4) / K)
    places = (column, row) if swap else (row + column,) * 2 if once else (row, 0) if rows_only else (row, column)
    out = []
    for half, place in zip((x[:K // 2], x[K // 2:]), places, strict=True):
        z = half[::2] + 1j * half[1::2] if neighbours else half[:K // 4] + 1j * half[K // 4:]
        z = z * np.exp(sign * 1j * place * speed)
        out.append(np.stack([z.real, z.imag], -1).ravel() if neighbours else np.concatenate([z.real, z.imag]))
    return np.concatenate(out)


def _moved(f):
    """The product of two turned vectors does not change when both move by the same rows and columns."""
    q, k = _normal(4, 8), _normal(5, 8)
    one, other = f(q, 1, 2) @ f(k, 3, 1), f(q, 5, 3) @ f(k, 7, 2)
    return np.allclose(one, other)


TURN = Exercise(
    "10.2", "turned by row and column", turn,
    "The first half of the channels turns by the row, the second by the column; pairs are (i, i + K/4) in each half.",
    takes={"x": "K", "row": None, "column": None}, returns={"turned": "K"},
    cases=(Case("for paper (K = 4, x = (1, 0, 1, 0), row 0, column 1: the second pair turns by one radian)",
                (np.array([1.0, 0.0, 1.0, 0.0]), 0, 1), paper=True),
           Case("in another row (K = 8, row 3, column 0)", (_normal(0, 8), 3, 0)),
           Case("with more channels (K = 12, row 2, column 5)", (_normal(1, 12), 2, 5)),
           Case("in the corner (K = 16, row 0, column 0)", (_normal(2, 16), 0, 0))),
    properties=(Property("the length of the vector stays", lambda f: np.isclose(
                    np.linalg.norm(f(_normal(3, 8), 2, 3)), np.linalg.norm(_normal(3, 8)))),
                Property("q . k depends on how far the patches lie apart alone", _moved)),
    mistakes=(
        Mistake("Rows and columns have changed places: the first half turns by the row.",
                lambda x, r, c: _turn(x, r, c, swap=True)),
        Mistake("Both halves turn by row + column: then (0, 1) and (1, 0) are the same place.",
                lambda x, r, c: _turn(x, r, c, once=True)),
        Mistake("The second half does not turn: columns are lost.", lambda x, r, c: _turn(x, r, c, rows_only=True)),
        Mistake("The angles fall too slowly: a half has K/4 pairs, so the exponent is -4i/K.",
                lambda x, r, c: _turn(x, r, c, power=2)),
        Mistake("You pair neighbours (2i, 2i + 1): here channel i of a half goes with i + K/4.",
                lambda x, r, c: _turn(x, r, c, neighbours=True)),
        Mistake("You turn the other way: (a, b) becomes (a cos - b sin, b cos + a sin).",
                lambda x, r, c: _turn(x, r, c, sign=-1)),
    ))


# ---- 10.3 four patches, one token

def shuffle(x, merge):
    """[y, x, h] -> [y/merge, x/merge, merge * merge * h]"""
    return reference_shuffle.pixel_shuffle(x[None], merge)[0]


def _inner(x, m):
    """[y, x, h] -> [y/m, x/m, m, m, h]"""
    return x.reshape(len(x) // m, m, x.shape[1] // m, m, -1).swapaxes(1, 2)


SHUFFLE = Exercise(
    "10.3", "four patches, one token", shuffle,
    "It is exercise 10.1 once more, with vectors of h numbers in the place of pixels.",
    takes={"x": "y x h", "merge": None}, returns={"merged": "Y X n"},
    cases=(Case("for paper (2 x 2 patches of two numbers, 0 to 7, merge 2)", (np.arange(8.0).reshape(2, 2, 2), 2),
                paper=True),
           Case("with six tokens (4 x 6 patches of 5 numbers, merge 2)", (_normal(0, 4, 6, 5), 2)),
           Case("with squares of nine (6 x 3 patches of 4 numbers, merge 3)", (_normal(1, 6, 3, 4), 3))),
    properties=(Property("nothing is lost: all numbers are still there, each once",
                         lambda f: np.array_equal(np.sort(f(_normal(2, 4, 6, 3), 2), axis=None),
                                                  np.sort(_normal(2, 4, 6, 3), axis=None))),),
    mistakes=(
        Mistake("Four patches that follow each other in a row are no square: split both axes first.",
                lambda x, m: x.reshape(len(x) // m, x.shape[1] // m, -1)),
        Mistake("Inside the square you go down the columns: upper left, upper right, lower left, lower right.",
                lambda x, m: _inner(x, m).swapaxes(2, 3).reshape(len(x) // m, x.shape[1] // m, -1)),
        Mistake("The channels have been woven together: the vector of one patch stays in one piece.",
                lambda x, m: np.moveaxis(_inner(x, m), -1, 2).reshape(len(x) // m, x.shape[1] // m, -1)),
        Mistake("You took patches that lie far apart: a token is made of neighbours.",
                lambda x, m: x.reshape(m, len(x) // m, m, x.shape[1] // m, -1).transpose(1, 3, 0, 2, 4)
                              .reshape(len(x) // m, x.shape[1] // m, -1)),
        Mistake("The mean of four patches forgets which was where: put them side by side, merge * merge * h numbers.",
                lambda x, m: np.tile(_inner(x, m).mean((2, 3)), m * m)),
    ))


# ---- 10.4 in the place of the markers

MARKER = 9                                       # the marker token of the exercise


def place(embeddings, tokens, vectors):
    """Embeddings with the markers' rows replaced.   [T, D], [T], [N, D] -> [T, D]"""
    placed = embeddings.copy()
    placed[tokens == MARKER] = vectors
    return placed


def _place(embeddings, tokens, vectors, *, add=False, order=slice(None), where=None):
    placed, at = embeddings.copy(), np.flatnonzero(tokens == MARKER) if where is None else where
    placed[at] = vectors[order] + (placed[at] if add else 0)
    return placed


def _row(seed, tokens, D):
    tokens = np.array(tokens)
    return _normal(seed, len(tokens), D), tokens, _normal(seed + 50, int((tokens == MARKER).sum()), D)


PLACE = Exercise(
    "10.4", "in the place of the markers", place,
    "A copy of the embeddings, and one assignment with the mask tokens == 9.",
    takes={"embeddings": "T D", "tokens": "T", "vectors": "N D"}, returns={"placed": "T D"},
    cases=(Case("for paper (the tokens 4, 9, 9, 5 and D = 1)",
                (np.array([[1.0], [2.0], [2.0], [3.0]]), np.array([4, 9, 9, 5]), np.array([[10.0], [20.0]])),
                paper=True),
           Case("with text before the picture (T = 7, D = 4)", _row(0, [1, 2, 9, 9, 9, 4, 4], 4)),
           Case("with two pictures (T = 9, D = 2)", _row(1, [9, 9, 3, 3, 1, 9, 9, 0, 8], 2))),
    properties=(Property("without markers nothing changes", lambda f: np.array_equal(
                    f(*_row(2, [1, 2, 3], 4)), _row(2, [1, 2, 3], 4)[0])),),
    mistakes=(
        Mistake("The marker's own embedding is still in there: it is replaced, not added to.",
                lambda e, t, v: _place(e, t, v, add=True)),
        Mistake("The vectors go in from the last to the first: the picture is upside down.",
                lambda e, t, v: _place(e, t, v, order=slice(None, None, -1))),
        Mistake("You put the pictures at the start of the text: their place is where the markers stand.",
                lambda e, t, v: _place(e, t, v, where=np.arange(len(v)))),
        Mistake("One place too late: row t of the embeddings belongs to token t.",
                lambda e, t, v: _place(e, t, v, where=(np.flatnonzero(t == MARKER) + 1) % len(t))),
        Mistake("Every marker got the first vector: each has one of its own.",
                lambda e, t, v: _place(e, t, np.repeat(v[:1], len(v), axis=0))),
    ))


# ---- 10.5 what is learnt

def learnt(tokens, marks):
    """Targets and where they count.   tokens [T + 1], marks [T + 1] 0 or 1 -> targets [T], counts [T]"""
    return tokens[1:].copy(), (marks[1:] == 1) & (tokens[1:] != MARKER)


TARGETS = Exercise(
    "10.5", "what the loss counts", learnt,
    "The target at place t is token t + 1; it counts when *that* token is part of an answer and no marker.",
    takes={"tokens": "n", "marks": "n"}, returns={"targets": "T", "counts": "T"},
    cases=(Case("for paper (the tokens 9, 9, 5, 7, 3, of which 7 is the answer)",
                (np.array([9, 9, 5, 7, 3]), np.array([0, 0, 0, 1, 0])), paper=True),
           Case("with an answer of three tokens and one of one", (np.array([9, 9, 9, 1, 2, 3, 4, 1, 6, 0]),
                                                                   np.array([0, 0, 0, 0, 1, 1, 1, 0, 1, 0]))),
           Case("with all text marked, the markers by mistake as well", (np.array([5, 9, 9, 2, 3, 9, 9, 7]),
                                                                       np.ones(8, dtype=int)))),
    properties=(Property("no marker is ever predicted", lambda f: not (
                    f(np.array([1, 9, 9, 2]), np.ones(4, dtype=int))[1][:2]).any()),),
    mistakes=(
        Mistake("The targets are the tokens themselves: the model would learn to repeat; shift them by one.",
                lambda t, a: (t[:-1].copy(), (a[1:] == 1) & (t[1:] != MARKER))),
        Mistake("You asked whether token t is an answer; it is token t + 1 that is predicted at place t.",
                lambda t, a: (t[1:].copy(), (a[:-1] == 1) & (t[1:] != MARKER))),
        Mistake("You leave out what comes after a marker; what must be left out is the marker as a target.",
                lambda t, a: (t[1:].copy(), (a[1:] == 1) & (t[:-1] != MARKER))),
        Mistake("The markers count: a picture's vectors are numbers without end, and there is no token to predict.",
                lambda t, a: (t[1:].copy(), a[1:] == 1)),
        Mistake("All text counts: a question cannot be foreseen, so only answers are learnt here.",
                lambda t, a: (t[1:].copy(), t[1:] != MARKER)),
    ))


EXERCISES = (
    PATCHES, TURN, SHUFFLE, PLACE, TARGETS,
    Exercise("10.6", "tokens of a photograph", 640,
             "560 and 896 pixels are how many patches of 14? And how many squares of 2 x 2 patches?",
             mistakes=(Mistake("Those are the patches; pixel shuffle makes one token of four.", 2560),
                       Mistake("Only one side has been merged: a token is 28 pixels high and 28 wide.", 1280),
                       Mistake("Colours take no tokens of their own: all three channels are in one patch.", 1920),
                       Mistake("You have merged twice: a token is 2 x 2 patches, 28 x 28 pixels.", 160))),
)
