"""Checks of chapter 12, up to 2.8 T."""

import importlib.util
import tempfile
from pathlib import Path

import numpy as np

from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.export.gguf import to_gguf
from k3_scratch.export.llama_cpp import LlamaCpp
from k3_scratch.generate import generate
from k3_scratch.reference.mxfp4 import MAGNITUDES, mxfp4_pack, mxfp4_unpack
from k3_scratch.tasks.vocabulary import decode, encode

# Prompts, and the 24 characters that llama.cpp (xllamacpp 2026.10.11549) wrote after each in the exported miniature.
WRITTEN = [("flip mpady>", "ydapm\nidy\n)odd\n)odd\n)do\n"), ("94+86=", "180\n7\n\n100\n\n\n2\n2\n2\n2\n2\n2"),
           ("w6 s6 k8 u2?k", "8\n4\n0\n1\n1\n>31\n4\n\n\n\n\n\n\n\n\n")]


def side_by_side(model):
    """[(held-out prompt, how `model` goes on, how llama.cpp went on when `WRITTEN` was kept)]"""
    return [(prompt, decode(generate(model, encode(prompt), len(text))), text) for prompt, text in WRITTEN]


def llama_cpp(model):
    """How llama.cpp goes on now, a text a prompt; None where it is not installed."""
    if not (importlib.util.find_spec("xllamacpp") and importlib.util.find_spec("gguf")):
        return None
    with tempfile.TemporaryDirectory() as folder:
        to_gguf(model, Path(folder) / "model.gguf")
        with LlamaCpp(Path(folder) / "model.gguf", context=64) as llama:
            return [decode(llama.greedy(llama.tokenize(prompt), len(text))) for prompt, text in WRITTEN]


# ---- 12.1 one round of the prefix scan


def scan_round(M, N, d):
    """Machine p >= d puts the map of machine p - d in front of its own.   [P, K, K], [P, K, V] -> the same"""
    new_M, new_N = M.copy(), N.copy()
    new_M[d:] = M[d:] @ M[:-d]
    new_N[d:] = M[d:] @ N[:-d] + N[d:]
    return new_M, new_N


def _swapped(M, N, d):
    new_M, new_N = M.copy(), N.copy()
    new_M[d:], new_N[d:] = M[:-d] @ M[d:], M[:-d] @ N[d:] + N[:-d]
    return new_M, new_N


def _one_after_the_other(M, N, d):
    M, N = M.copy(), N.copy()
    for p in range(d, len(M)):
        M[p], N[p] = M[p] @ M[p - d], M[p] @ N[p - d] + N[p]
    return M, N


def _stale(M, N, d):
    new_M, new_N = M.copy(), N.copy()
    new_M[d:] = M[d:] @ M[:-d]
    new_N[d:] = new_M[d:] @ N[:-d] + N[d:]
    return new_M, new_N


def _without_own_map(M, N, d):
    new_M, new_N = scan_round(M, N, d)
    new_N[d:] = N[:-d] + N[d:]
    return new_M, new_N


def _around(M, N, d):
    before_M, before_N = np.roll(M, d, axis=0), np.roll(N, d, axis=0)
    return M @ before_M, M @ before_N + N


def _maps(seed, P, K, V):
    rng = np.random.default_rng(seed)
    return np.eye(K) + 0.4 * rng.normal(size=(P, K, K)), rng.normal(size=(P, K, V))


def _all_prefixes(f):
    M, N = _maps(5, 6, 3, 2)
    state = np.zeros((3, 2))
    for one_M, one_N in zip(M, N, strict=True):
        state = one_M @ state + one_N
    for d in (1, 2, 4):
        M, N = f(M, N, d)
    return np.allclose(N[-1], state)


SCAN = Exercise(
    "12.1", "one round of the scan", scan_round,
    "new_M[d:] = M[d:] @ M[:-d] and new_N[d:] = M[d:] @ N[:-d] + N[d:], both from the old M and N; the first d stay.",
    takes={"M": "P K K", "N": "P K V", "d": None}, returns={"M": "P K K", "N": "P K V"},
    cases=(Case("for paper (three machines, K = V = 1, maps 2 S + 1, 3 S + 5, 7 S + 4, d = 1)",
                (np.array([2.0, 3, 7]).reshape(3, 1, 1), np.array([1.0, 5, 4]).reshape(3, 1, 1), 1), paper=True),
           Case("with neighbours (P = 5, K = 3, V = 4, d = 1)", (*_maps(0, 5, 3, 4), 1)),
           Case("at a distance (P = 7, K = 4, V = 2, d = 2)", (*_maps(1, 7, 4, 2), 2)),
           Case("in the last round (P = 6, K = 2, V = 3, d = 4)", (*_maps(2, 6, 2, 3), 4))),
    properties=(Property("after d = 1, 2, 4 the last of six machines holds the map of all six", _all_prefixes),
                Property("the first d machines keep their maps",
                         lambda f: np.array_equal(f(*_maps(3, 5, 3, 2), 2)[0][:2], _maps(3, 5, 3, 2)[0][:2]))),
    mistakes=(
        Mistake("The order is turned: the fetched segment comes first in the text, so its map stands on the right.",
                _swapped),
        Mistake("You fetched maps that this round has already changed: all machines fetch what was there before it.",
                _one_after_the_other),
        Mistake("N uses the new M: only the machine's own old M stands between the fetched N and the end.", _stale),
        Mistake("What was fetched must still go through the machine's own map: M[d:] @ N[:-d] + N[d:].",
                _without_own_map),
        Mistake("The first d machines have nobody before them: fetching goes to the left and not around in a circle.",
                _around),
        Mistake("Only N was composed; the next rounds need the composed M too.",
                lambda M, N, d: (M.copy(), scan_round(M, N, d)[1])),
        Mistake("You fetched from the right neighbour; what comes before a segment lies to its left.",
                lambda M, N, d: (np.concatenate([M[:-d] @ M[d:], M[-d:]]),
                                 np.concatenate([M[:-d] @ N[d:] + N[:-d], N[-d:]]))),
    ))


# ---- 12.2 the gradient of the whole batch

def whole_gradient(gradients, rows):
    """Means over parts, weighted by the parts' rows.   [P, n], [P] -> [n]"""
    return (rows / rows.sum()) @ gradients


def _parts(seed, P, n, most):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(P, n)), rng.integers(1, most, P)


GRADIENT = Exercise(
    "12.2", "the gradient of the whole batch", whole_gradient,
    "Weigh each machine's gradient with rows[p] / rows.sum() and add.",
    takes={"gradients": "P n", "rows": "P"}, returns={"gradient": "n"},
    cases=(Case("for paper (one machine with 3 rows and gradient 4, one with 1 row and gradient 8)",
                (np.array([[4.0], [8.0]]), np.array([3, 1])), paper=True),
           Case("with unequal parts (P = 4, n = 6)", _parts(0, 4, 6, 30)),
           Case("with equal parts (P = 3, n = 5)", (_parts(1, 3, 5, 9)[0], np.array([7, 7, 7]))),
           Case("with a machine that has no rows", (np.array([[1.0, 2.0, 7.0], [5.0, 9.0, -3.0]]), np.array([0, 4])))),
    mistakes=(
        Mistake("That is the plain mean over machines: a machine with more rows counts for more.",
                lambda gradients, rows: gradients.mean(axis=0)),
        Mistake("You added without dividing by all rows: the loss is a mean.",
                lambda gradients, rows: rows @ gradients),
        Mistake("Each gradient is already the mean of its rows: weigh it with its rows, do not divide by them.",
                lambda gradients, rows: (gradients / np.maximum(rows, 1)[:, None]).sum(axis=0)),
        Mistake("That is the sum over machines; with two equal machines it is twice the gradient.",
                lambda gradients, rows: gradients.sum(axis=0)),
        Mistake("You divided by the number of machines as well: the shares of the rows already sum to 1.",
                lambda gradients, rows: (rows / rows.sum()) @ gradients / len(rows)),
    ))


# ---- 12.3 a quantile from summed counts

def pooled_quantile(counts, low, high, share):
    """Below it lies the fraction `share` of all that was counted, linear inside the bin.   [P, bins] -> a number"""
    return _quantile(counts.sum(axis=0), low, high, share)


def _quantile(total, low, high, share, *, inside=True, edge=0):
    up_to, q = np.cumsum(total), share * total.sum()
    place = int(np.argmax(up_to >= q))
    part = (q - (up_to[place] - total[place])) / max(total[place], 1) if inside else edge
    return float(low + (place + part) * (high - low) / len(total))


def _mean_of_quantiles(counts, low, high, share):
    return float(np.mean([_quantile(mine, low, high, share) for mine in counts]))


def _middle_bin(counts, low, high, share):
    total = counts.sum(axis=0)
    return float(low + np.sum(total * (np.arange(len(total)) + 0.5)) / total.sum() * (high - low) / len(total))


def _share_of_one(counts, low, high, share):
    total = counts.sum(axis=0)
    return _quantile(total, low, high, share * counts[0].sum() / total.sum())


def _counts(seed, P, bins):
    rng = np.random.default_rng(seed)
    places = rng.normal(size=(P, 1)) * 0.8 + rng.normal(size=(P, 60))
    return np.stack([np.histogram(mine.clip(-2.9, 2.9), np.linspace(-3, 3, bins + 1))[0] for mine in places])


def _any_order(f):
    counts = _counts(3, 4, 15)
    return np.isclose(f(counts, -3.0, 3.0, 0.3), f(counts[::-1].copy(), -3.0, 3.0, 0.3))


def _any_machines(f):
    counts = _counts(4, 4, 15)
    fewer = np.stack([counts[0] + counts[1], counts[2] + counts[3]])
    return np.isclose(f(counts, -3.0, 3.0, 0.4), f(fewer, -3.0, 3.0, 0.4))


QUANTILE = Exercise(
    "12.3", "a quantile from summed counts", pooled_quantile,
    "Sum over machines, cumsum, the first bin that reaches q = share * total, then (q - before) / inside of its width.",
    takes={"counts": "P bins", "low": None, "high": None, "share": None}, returns={"quantile": ""},
    cases=(Case("for paper (two machines, four bins from 0 to 4, 4 and 6 tokens; half of all: q = 5)",
                (np.array([[3, 1, 0, 0], [0, 2, 0, 4]]), 0.0, 4.0, 0.5), paper=True),
           Case("with a small share (P = 3, 12 bins)", (_counts(0, 3, 12), -3.0, 3.0, 0.125)),
           Case("with a large share (P = 5, 20 bins)", (_counts(1, 5, 20), -3.0, 3.0, 0.8)),
           Case("with one machine that has few tokens",
                (np.array([[0, 0, 9, 1, 30], [4, 1, 0, 0, 0]]), -1.0, 4.0, 0.25)),
           Case("with a machine alone", (_counts(2, 1, 9), -3.0, 3.0, 0.4))),
    properties=(Property("the order of the machines does not matter", _any_order),
                Property("two machines that join their counts change nothing", _any_machines)),
    mistakes=(
        Mistake("That is the mean of the machines' own quantiles: add the counts first, then read one quantile.",
                _mean_of_quantiles),
        Mistake("That is the lower edge of the bin; go into it by (q - before) / inside.",
                lambda counts, low, high, share: _quantile(counts.sum(axis=0), low, high, share, inside=False)),
        Mistake("That is the upper edge of the bin; go into it by (q - before) / inside.",
                lambda counts, low, high, share: _quantile(counts.sum(axis=0), low, high, share, inside=False, edge=1)),
        Mistake("q is the share of one machine's tokens; take that of all machines together.", _share_of_one),
        Mistake("You count from the upper end: below the value lies the fraction `share`, not above it.",
                lambda counts, low, high, share: _quantile(counts.sum(axis=0), low, high, 1 - share)),
        Mistake("That is the mean of what was counted, and not a quantile.", _middle_bin),
        Mistake("The result is in bins; turn it into a value: low + bins * (high - low) / number of bins.",
                lambda counts, low, high, share: (pooled_quantile(counts, low, high, share) - low)
                / (high - low) * counts.shape[1]),
    ))


# ---- 12.4 a block in four bits

def four_bits(w):
    """What a block of weights becomes in MXFP4.   [n], n at most 32 -> [n]"""
    packed, scales = mxfp4_pack(w[None])
    return mxfp4_unpack(packed, scales, columns=len(w))[0]


def _four_bits(w, *, less=2, round_up=False, scale=None, grid=MAGNITUDES, tie="even", signed=True, wrap=False):
    largest = np.abs(w).max()
    if largest == 0:
        return np.zeros_like(w)
    power = np.ceil(np.log2(largest)) if round_up else np.floor(np.log2(largest))
    unit = 2.0 ** (power - less) if scale is None else largest / scale
    distance = np.abs(np.abs(w[:, None]) / unit - grid)
    order = {"even": [0, 2, 4, 6, 1, 3, 5, 7], "down": range(8), "up": range(7, -1, -1)}[tie]
    nearest = np.array(list(order))[distance[:, list(order)].argmin(axis=1)]
    if wrap:                                                             # what does not fit is cut away downwards
        nearest = np.array([np.searchsorted(grid, abs(x) / unit, side="right") - 1 for x in w])
    return (np.sign(w) if signed else 1.0) * grid[nearest] * unit


def _block(seed, n, size, heavy=False):
    rng = np.random.default_rng(seed)
    return size * (rng.standard_t(2, n) if heavy else rng.normal(size=n))


FOUR = Exercise(
    "12.4", "a block in four bits", four_bits,
    "scale = 2 ** (floor(log2(max |w|)) - 2); nearest of 0 .5 1 1.5 2 3 4 6, ties to even places; sign and scale back.",
    takes={"w": "n"}, returns={"stored": "n"},
    cases=(Case("for paper (largest 7, so the scale is 1: 7 saturates, 2.5 and 5 are ties)",
                (np.array([7.0, -2.5, 5.0, 0.7, -0.1, 0.25, 1.75]),), paper=True),
           Case("with small weights (32 of them, about .02)", (_block(0, 32, 0.02),)),
           Case("with rare large ones (29 weights)", (_block(1, 29, 0.3, heavy=True),)),
           Case("with large numbers (11 of them, about 500)", (_block(2, 11, 500.0),)),
           Case("with zeros alone", (np.zeros(5),))),
    properties=(Property("stored values stay where they are when they are stored again",
                         lambda f: np.array_equal(f(f(_block(3, 32, 0.1))), f(_block(3, 32, 0.1)))),
                Property("the block times a power of two gives the result times that power",
                         lambda f: np.array_equal(f(_block(4, 32, 1.0) / 64), f(_block(4, 32, 1.0)) / 64))),
    mistakes=(
        Mistake("The exponent of the scale is too large by 2: the largest weight must come out between 4 and 8.",
                lambda w: _four_bits(w, less=0)),
        Mistake("The exponent is rounded up: floor(log2(max)), so that only what lies above 6 saturates.",
                lambda w: _four_bits(w, round_up=True)),
        Mistake("The scale is max / 6 and not a power of two: one byte holds only an exponent.",
                lambda w: _four_bits(w, scale=6.0)),
        Mistake("Those are eight equal steps, 0 to 7; E2M1 has 0, .5, 1, 1.5, 2, 3, 4, 6.",
                lambda w: _four_bits(w, grid=np.arange(8.0))),
        Mistake("A tie goes to the even code and not always down.", lambda w: _four_bits(w, tie="down")),
        Mistake("A tie goes to the even code and not always up.", lambda w: _four_bits(w, tie="up")),
        Mistake("The sign is lost: one of the four bits is for it.", lambda w: _four_bits(w, signed=False)),
        Mistake("You cut off towards zero; the nearest magnitude is wanted.", lambda w: _four_bits(w, wrap=True)),
    ))


EXERCISES = (
    SCAN, GRADIENT, QUANTILE, FOUR,
    Exercise("12.5", "bytes of K3's routed experts", 2_722_740_830_208 // 32 * 17,
             "32 numbers take 16 bytes of codes and one byte of scale: 17 bytes.",
             mistakes=(
                 Mistake("The scales are missing: one byte more for every 32 numbers.", 2_722_740_830_208 // 2),
                 Mistake("Four bits are half a byte: two codes share one.", 2_722_740_830_208 // 32 * 33),
                 Mistake("The scale is one byte for 32 numbers, not two.", 2_722_740_830_208 // 32 * 18),
                 Mistake("That is bfloat16, two bytes a number.", 2_722_740_830_208 * 2),
                 Mistake("Those are bits; a byte has eight.", 2_722_740_830_208 // 32 * 17 * 8))))
