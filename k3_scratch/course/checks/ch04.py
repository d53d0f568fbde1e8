"""Checks of chapter 04, multi-head latent attention.

q [T, H, Q] with Q = n + r, cached rows [S, R+r] (normed latent, then the shared slice), w_kvb [H, n+v, R].
"""

import numpy as np

from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.mla import mla_absorbed, mla_naive, visible_pairs
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.reference.softmax import softmax


def _normal(seed, *shapes):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape) for shape in shapes)


# ---- 4.2 what one token leaves in the cache

def cached_rows(x, w_kva, weight):
    """What MLA caches for each token: the normed latent and the shared key.      [T, D], [R+r, D], [R] -> [T, R+r]"""
    rows, R = x @ w_kva.T, len(weight)
    return np.concatenate([rms_norm(rows[:, :R], weight, 1e-6), rows[:, R:]], axis=-1)


def _rows(x, w_kva, weight, *, latent=None, shared=None, eps=1e-6, slice_first=False):
    rows, R = x @ w_kva.T, len(weight)
    c, k = (rows[:, -R:], rows[:, :-R]) if slice_first else (rows[:, :R], rows[:, R:])
    c = rms_norm(c, weight, eps) if latent is None else latent(c)
    return np.concatenate([c, k if shared is None else shared(k)], axis=-1)


def _ones(k):
    return np.ones(k.shape[-1])


ROWS = Exercise(
    "4.2", "what a token leaves in the cache", cached_rows,
    "rows = x @ w_kva.T; its first R = len(weight) columns through rms_norm(..., weight, 1e-6), the others unchanged.",
    takes={"x": "T D", "w_kva": "R+r D", "weight": "R"}, returns={"rows": "T R+r"},
    cases=(Case("for paper (T = D = R = r = 1, x = 2: the latent 6 becomes 1, the slice is 10)",
                (np.array([[2.0]]), np.array([[3.0], [5.0]]), np.ones(1)), paper=True),
           Case("with random weights (T = 4, D = 7, R = 3, r = 2)", _normal(0, (4, 7), (5, 7), (3,))),
           Case("with large inputs (T = 3, D = 5, R = 8, r = 1)",
                tuple(scale * a for scale, a in zip((30.0, 1.0, 0.5), _normal(1, (3, 5), (9, 5), (8,)), strict=True))),
           Case("with tiny inputs (T = 2, D = 6, R = 3, r = 4)",
                tuple(scale * a for scale, a in zip((1e-3, 1.0, 2.0), _normal(2, (2, 6), (7, 6), (3,)), strict=True)))),
    properties=(Property("ten times the token gives ten times the slice",
                         lambda f: np.allclose(f(10 * _normal(3, (3, 4))[0], *_normal(4, (5, 4), (2,)))[:, 2:],
                                               10 * f(_normal(3, (3, 4))[0], *_normal(4, (5, 4), (2,)))[:, 2:])),),
    mistakes=(
        Mistake("The norm of the latent is missing: the first R numbers go through rms_norm.",
                lambda x, w_kva, weight: _rows(x, w_kva, weight, latent=lambda c: c)),
        Mistake("The norm runs over all R + r numbers: the shared slice takes no part in it.",
                lambda x, w_kva, weight: rms_norm(x @ w_kva.T, np.concatenate(
                    [weight, np.ones(len(w_kva) - len(weight))]), 1e-6)),
        Mistake("You normed the shared slice as well: it is cached as it comes out of the product.",
                lambda x, w_kva, weight: _rows(x, w_kva, weight, shared=lambda k: rms_norm(k, _ones(k), 1e-6))),
        Mistake("The weight of the norm is missing: rms_norm(latent, weight, 1e-6).",
                lambda x, w_kva, weight: _rows(x, w_kva, weight, latent=lambda c: rms_norm(c, _ones(c), 1e-6))),
        Mistake("A mean has been subtracted: RMSNorm only divides.",
                lambda x, w_kva, weight: _rows(x, w_kva, weight, latent=lambda c: rms_norm(
                    c - c.mean(axis=-1, keepdims=True), weight, 1e-6))),
        Mistake("The eps of the latent norm is 1e-6; 1e-5 is that of the other norms of K3.",
                lambda x, w_kva, weight: _rows(x, w_kva, weight, eps=1e-5)),
        Mistake("The slice has been taken from the front: the latent comes first, the slice last.",
                lambda x, w_kva, weight: _rows(x, w_kva, weight, slice_first=True)),
    ))


# ---- 4.3 attention that expands what is cached

def latent_attention(q, rows, w_kvb):
    """[T, H, Q], [S, R+r], [H, n+v, R] -> [T, H, v]"""
    R = w_kvb.shape[-1]
    return mla_naive(q, rows[:, :R], rows[:, R:], w_kvb)


def _rotated(x):
    """RoPE over the first axis, [S, ..., r]: channel pairs (i, i + r/2) turn by position times 10000^(-2i/r)."""
    half = x.shape[-1] // 2
    if half == 0:
        return x
    angle = np.arange(len(x))[:, None] / 10_000.0 ** (np.arange(half) / half)
    angle = angle.reshape(len(x), *(1,) * (x.ndim - 2), half)
    one, two, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return np.concatenate([one * np.cos(angle) - two * np.sin(angle), one * np.sin(angle) + two * np.cos(angle), rest],
                          axis=-1)


def _naive(q, rows, w_kvb, *, drop=False, width="Q", mask="causal", values_first=False, slice_first=False,
           rope=False, average=False):
    T, H, Q = q.shape
    S, R = len(rows), w_kvb.shape[-1]
    r = rows.shape[1] - R
    n = Q - r
    made = np.einsum("sr,hmr->shm", rows[:, :R], w_kvb)
    k, v = (made[..., -n:], made[..., :-n]) if values_first else (made[..., :n], made[..., n:])
    shared = rows[:, R:]
    if rope:
        shared = _rotated(shared)
        turned = np.concatenate([np.zeros((S - T, H, r)), q[..., n:]])
        q = np.concatenate([q[..., :n], _rotated(turned)[S - T:]], axis=-1)
    shared = np.repeat(shared[:, None], H, axis=1)
    if drop:
        q = q[..., :n]
    else:
        k = np.concatenate([shared, k] if slice_first else [k, shared], axis=-1)
    scale = {"Q": Q, "n": n, "R+r": R + r, "1": 1}[width] ** -0.5
    scores = scale * np.einsum("thq,shq->hts", q, k)
    if mask != "none":
        seen = visible_pairs(T, S) if mask == "causal" else np.tril(np.ones((T, S), dtype=bool))
        scores = np.where(seen, scores, -np.inf)
    weights = softmax(scores)
    if average:
        weights = np.broadcast_to(weights.mean(axis=0), weights.shape)
    return np.einsum("hts,shv->thv", weights, v)


def _attention(seed, T, S, H, n, r, v, R, size=1.0):
    q, rows, w_kvb = _normal(seed, (T, H, n + r), (S, R + r), (H, n + v, R))
    return size * q, rows, w_kvb


PAPER_ROWS = np.array([[1.0, 4.0], [2.0, 7.0]])                  # latents 1 and 2, slices 4 and 7

NAIVE = Exercise(
    "4.3", "attention that expands the cache", latent_attention,
    "For each head: keys [W_k c, slice], values W_v c, scores times Q ** -0.5, causal softmax, mixture of the values.",
    takes={"q": "T H Q", "rows": "S R+r", "w_kvb": "H n+v R"}, returns={"o": "T H v"},
    cases=(Case("for paper (T = S = 2, all else 1, q = 0: a plain mean of the values 2 and 4)",
                (np.zeros((2, 1, 2)), PAPER_ROWS, np.array([[[3.0], [2.0]]])), paper=True),
           Case("with six new tokens after one cached one (T = 6, S = 7, H = 3, n = 3, r = 2, v = 6, R = 8)",
                _attention(0, 6, 7, 3, 3, 2, 6, 8)),
           Case("with three new tokens after four cached ones (T = 3, S = 7, H = 2, n = 4, r = 4, v = 1, R = 6)",
                _attention(1, 3, 7, 2, 4, 4, 1, 6)),
           Case("with sharp attention (T = 2, S = 6, H = 3, n = 5, r = 6, v = 2, R = 4)",
                _attention(2, 2, 6, 3, 5, 6, 2, 4, size=3.0))),
    properties=(Property("the first token of a text gets its own value",
                         lambda f: np.allclose(f(*_attention(3, 3, 3, 2, 4, 2, 5, 6))[0],
                                               latent_attention(*_attention(3, 3, 3, 2, 4, 2, 5, 6))[0])),
                Property("the last output stays when the earlier rows of the cache change places",
                         lambda f: _same_after_shuffle(f, *_attention(4, 1, 5, 2, 3, 4, 2, 6)))),
    mistakes=(
        Mistake("The shared slice has been dropped and the scale is n ** -0.5 (128 in K3): the slice is the last part "
                "of every head's key, and all Q channels count.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, drop=True, width="n")),
        Mistake("The shared slice has been dropped: append it to every head's key.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, drop=True)),
        Mistake("The scale is n ** -0.5: the dot product runs over all Q = n + r channels.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, width="n")),
        Mistake("The scale is that of the cached row, (R + r) ** -0.5: a head's key has Q channels.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, width="R+r")),
        Mistake("The scale is missing: scores are multiplied by Q ** -0.5.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, width="1")),
        Mistake("RoPE turns the shared slice: K3 has no positions, the slice is never rotated.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, rope=True)),
        Mistake("The causal mask is missing: a token must not see later ones.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, mask="none")),
        Mistake("The mask forgets the cached tokens: query t stands at position S - T + t.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, mask="top left")),
        Mistake("Keys and values are exchanged: the first n rows of w_kvb make the key, the others the value.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, values_first=True)),
        Mistake("The slice has been put in front of the key: it comes last, as in the query.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, slice_first=True)),
        Mistake("All heads share one attention: each head has a softmax of its own.",
                lambda q, rows, w_kvb: _naive(q, rows, w_kvb, average=True)),
    ))


def _same_after_shuffle(f, q, rows, w_kvb):
    order = np.concatenate([np.random.default_rng(9).permutation(len(rows) - 1), [len(rows) - 1]])
    return np.allclose(f(q, rows, w_kvb), f(q, rows[order], w_kvb))


# ---- 4.4 the matrix moves to the query

def absorbed_query(q, w_k):
    """[T, H, n], [H, n, R] -> [T, H, R]"""
    return np.einsum("thn,hnr->thr", q, w_k)


def _heads_together(q, w_k):
    return np.einsum("thn,gnr->thr", q, w_k)


QUERY = Exercise(
    "4.4", "the absorbed query", absorbed_query,
    "For each token and head q' = W_k^T q: sum over the n channels, keep T, H and R.",
    takes={"q": "T H n", "w_k": "H n R"}, returns={"q": "T H R"},
    cases=(Case("for paper (T = 1, H = 2, n = R = 1)",
                (np.array([[[3.0], [5.0]]]), np.array([[[2.0]], [[-1.0]]])), paper=True),
           Case("with a wide latent (T = 4, H = 3, n = 2, R = 7)", _normal(0, (4, 3, 2), (3, 2, 7))),
           Case("with a narrow latent (T = 2, H = 5, n = 6, R = 3)", _normal(1, (2, 5, 6), (5, 6, 3)))),
    properties=(Property("q' . c is q . (W_k c) for every latent c",
                         lambda f: np.allclose(
                             f(*_normal(2, (3, 2, 4), (2, 4, 5))) @ _normal(3, (5,))[0],
                             np.einsum("thn,hnr,r->th", *_normal(2, (3, 2, 4), (2, 4, 5)), *_normal(3, (5,))))),),
    mistakes=(
        Mistake("The sum runs over all heads' matrices: head h takes its own W_k alone.", _heads_together),
        Mistake("Every head uses the matrix of the first one: index w_k by the head.",
                lambda q, w_k: q @ w_k[0]),
        Mistake("That is the inverse of W_k: absorbing needs its transpose, nothing is undone.",
                lambda q, w_k: np.einsum("thn,hrn->thr", q, np.linalg.pinv(w_k))),
        Mistake("A scale has got in: the scores are scaled later, once, by Q ** -0.5.",
                lambda q, w_k: w_k.shape[1] ** -0.5 * absorbed_query(q, w_k)),
        Mistake("The matrices meet the wrong heads: they are in the reverse order.",
                lambda q, w_k: absorbed_query(q, w_k[::-1])),
    ))


# ---- 4.6 one decode step

def decode_step(q, rows, w_kvb, gate):
    """One new token against the cache, absorbed and gated.     [H, Q], [S, R+r], [H, n+v, R], [H, v] -> [H, v]"""
    R = w_kvb.shape[-1]
    return sigmoid(gate) * mla_absorbed(q[None], rows[:, :R], rows[:, R:], w_kvb)[0]


def _decode(q, rows, w_kvb, gate, *, width="Q", slice_scores=True, gating=None, axis=-1, w_v="own"):
    H, Q = q.shape
    R = w_kvb.shape[-1]
    r = rows.shape[1] - R
    n = Q - r
    scores = np.einsum("hn,hnr,sr->hs", q[:, :n], w_kvb[:, :n], rows[:, :R])
    scores = scores + (q[:, n:] @ rows[:, R:].T if slice_scores else 0)
    weights = softmax(scores * {"Q": Q, "n": n, "R+r": R + r, "1": 1}[width] ** -0.5, axis=axis)
    matrices = w_kvb[:, n:]
    if w_v == "mean":
        matrices = np.broadcast_to(matrices.mean(axis=0), matrices.shape)
    mixed = weights @ rows[:, :R]
    if w_v == "first":
        matrices = w_kvb[:, :w_kvb.shape[1] - n]
    o = np.einsum("hr,hvr->hv", mixed, matrices)
    return (sigmoid if gating is None else gating)(gate) * o


def _new_token(seed, H, S, n, r, v, R, gate=1.0):
    q, rows, w_kvb, z = _normal(seed, (H, n + r), (S, R + r), (H, n + v, R), (H, v))
    return q, rows, w_kvb, gate * z


DECODE = Exercise(
    "4.6", "one decode step", decode_step,
    "Absorb the query, add the slice's scores, scale by Q ** -0.5, softmax, mix the latents, W_v, sigmoid gate.",
    takes={"q": "H Q", "rows": "S R+r", "w_kvb": "H n+v R", "gate": "H v"}, returns={"o": "H v"},
    cases=(Case("for paper (S = 2, all else 1, q = 0, gate = 0: half of W_v times the mean of the latents 1 and 2)",
                (np.zeros((1, 2)), PAPER_ROWS, np.array([[[3.0], [2.0]]]), np.zeros((1, 1))), paper=True),
           Case("with more heads than tokens (H = 6, S = 4, n = 3, r = 2, v = 7, R = 9)",
                _new_token(0, 6, 4, 3, 2, 7, 9)),
           Case("with gates that are nearly open or shut (H = 2, S = 7, n = 4, r = 5, v = 1, R = 3)",
                _new_token(1, 2, 7, 4, 5, 1, 3, gate=6.0))),
    properties=(Property("a gate of minus infinity shuts a channel",
                         lambda f: np.allclose(f(*_new_token(2, 3, 5, 4, 2, 6, 7)[:3], np.full((3, 6), -1e4)), 0)),),
    mistakes=(
        Mistake("The scale is that of the absorbed query, (R + r) ** -0.5: it stays Q ** -0.5.",
                lambda *a: _decode(*a, width="R+r")),
        Mistake("The scale is n ** -0.5: all Q = n + r channels of the query count.",
                lambda *a: _decode(*a, width="n")),
        Mistake("The scale is missing: scores are multiplied by Q ** -0.5.", lambda *a: _decode(*a, width="1")),
        Mistake("The slice's part of the scores is missing: add q[:, n:] times the cached slices.",
                lambda *a: _decode(*a, slice_scores=False)),
        Mistake("The gate is missing: multiply by sigmoid(gate).", lambda *a: _decode(*a, gating=np.ones_like)),
        Mistake("The gate is not a sigmoid: you multiply by the numbers themselves.",
                lambda *a: _decode(*a, gating=lambda z: z)),
        Mistake("The gate is a SiLU: K3 gates with the sigmoid alone.",
                lambda *a: _decode(*a, gating=lambda z: z * sigmoid(z))),
        Mistake("The softmax runs over the heads: it runs over the cached tokens.", lambda *a: _decode(*a, axis=0)),
        Mistake("All heads use the same W_v: each head expands its mixture with its own.",
                lambda *a: _decode(*a, w_v="mean")),
        Mistake("You took the first v rows of w_kvb for the values: those after the n key rows are W_v.",
                lambda *a: _decode(*a, w_v="first")),
    ))


EXERCISES = (
    Exercise("4.1", "bytes that one token leaves behind", 27648,
             "24 layers, in each R + r numbers that all heads share, 2 bytes a number.",
             mistakes=(
                 Mistake("Those are the keys and values of 96 heads: MLA caches the latent in their place.", 1474560),
                 Mistake("Those are numbers, not bytes: bfloat16 has two bytes a number.", 13824),
                 Mistake("The shared slice is missing: 512 + 64 numbers are cached.", 24576),
                 Mistake("The slice has been counted once a head: one slice serves all 96.", 319488),
                 Mistake("All 93 layers have been counted: only 24 of them are MLA.", 107136),
                 Mistake("That is one layer: K3 has 24 of them.", 1152),
                 Mistake("The latent has been counted twice: keys and values come from the same one.", 52224))),
    ROWS, NAIVE, QUERY,
    Exercise("4.5", "from when on expanding is cheaper", 171,
             "Per cached token and head: expanding costs R (n + v) + T (n + r + v), absorbing T (2 R + r).",
             mistakes=(
                 Mistake("At 170 absorbing is still a little cheaper; asked is the first T at which it is not.",
                         170),
                 Mistake("The mixing of the values is missing: a weight meets v numbers, or R when absorbed.", 342),
                 Mistake("Only the keys have been expanded: R (n + v), the values are made from the latent as well.",
                         86),
                 Mistake("You set the expansion against all of absorption; scores and mixture must be paid too.", 121),
                 Mistake("That is all the work for one new token: divide by the difference per token.", 131072))),
    DECODE)
