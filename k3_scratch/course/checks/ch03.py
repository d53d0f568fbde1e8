"""Checks of chapter 03, chunks. One head: q, k, g [C, K], v [C, V], beta [C], state [K, V], G = cumsum of g."""

import numpy as np

from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.kda import kda_recurrent
from k3_scratch.reference.kda_chunk import forward_substitution


def _unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _tokens(seed, C, K, V, regime):
    """q, k, v, g, beta, state of one chunk; regime "gentle", "strong" or "one key" (the same at every token)."""
    rng = np.random.default_rng(seed)
    q, k, v = _unit(rng.normal(size=(C, K))), _unit(rng.normal(size=(C, K))), rng.normal(size=(C, V))
    k = np.broadcast_to(k[:1], k.shape).copy() if regime == "one key" else k
    low, high = {"gentle": (-0.2, 0.0), "strong": (-5.0, -0.5), "one key": (-0.1, 0.0)}[regime]
    beta = rng.uniform(0.8, 1.0, size=C) if regime == "one key" else rng.uniform(0.2, 0.9, size=C)
    return q, k, v, rng.uniform(low, high, size=(C, K)), beta, rng.normal(size=(K, V))


# ---- 3.2 the matrix L

def _between(G, causal=True):
    """e^(G_i - G_j) for j <= i.   [C, K] -> [C, C, K]"""
    mask = np.tril(np.ones((len(G), len(G)), dtype=bool))[:, :, None] if causal else True
    return np.exp(np.where(mask, G[:, None] - G[None, :], -np.inf))


def matrix_l(k, g, beta):
    """How much of an earlier write each later one meets again.               [C, K], [C, K], [C] -> L [C, C]"""
    return beta[:, None] * np.tril(np.einsum("ic,jc,ijc->ij", k, k, _between(np.cumsum(g, axis=0))), -1)


def _matrix_l(k, g, beta, *, diagonal=-1, column=False, factor=None):
    G, C = np.cumsum(g, axis=0), len(k)
    factor = _between(G) if factor is None else np.broadcast_to(factor(G, g), (C, C, k.shape[1]))
    L = np.einsum("ic,jc,ijc->ij", k, k, factor)
    return (beta[None, :] if column else beta[:, None]) * np.tril(L, diagonal)


def _triple(seed, C, K, regime):
    _, k, _, g, beta, _ = _tokens(seed, C, K, 2, regime)
    return k, g, beta


L_PAPER = (np.ones((2, 1)), np.log(np.full((2, 1), 0.5)), np.array([0.5, 0.8]))

MATRIX_L = Exercise(
    "3.2", "the matrix L of a chunk", matrix_l,
    "L_ij = beta_i times the sum over channels of k_ic k_jc e^(G_ic - G_jc), for j < i only; G = cumsum of g.",
    takes={"k": "C K", "g": "C K", "beta": "C"}, returns={"L": "C C"},
    cases=(Case("for paper (C = 2, K = 1, both keys 1, both alpha 0.5, beta = 0.5 and 0.8)", L_PAPER, paper=True),
           Case("with gentle decay (C = 6, K = 3)", _triple(0, 6, 3, "gentle")),
           Case("with strong decay (C = 5, K = 4)", _triple(1, 5, 4, "strong")),
           Case("with one key at every token (C = 7, K = 2)", _triple(2, 7, 2, "one key"))),
    properties=(Property("without decay (g = 0) and with keys at right angles L is zero",
                         lambda f: np.allclose(f(np.eye(3), np.zeros((3, 3)), np.full(3, 0.5)), 0)),
                Property("a token that writes nothing (beta = 0) has a row of zeros",
                         lambda f: np.allclose(f(*_triple(3, 4, 3, "gentle")[:2], np.array([.5, .5, 0, .5]))[2], 0))),
    mistakes=(
        Mistake("The diagonal is in: a token does not correct its own write, so j < i (np.tril(..., -1)).",
                lambda k, g, beta: _matrix_l(k, g, beta, diagonal=0)),
        Mistake("The mask is missing: a token must not know later ones, so set L_ij to 0 for j >= i.",
                lambda k, g, beta: beta[:, None] * np.einsum(
                    "ic,jc,ijc->ij", k, k, _between(np.cumsum(g, axis=0), causal=False))),
        Mistake("beta sits on the column: it is the strength of the token that corrects, i, so beta[:, None].",
                lambda k, g, beta: _matrix_l(k, g, beta, column=True)),
        Mistake("beta is missing: row i is multiplied by beta_i.",
                lambda k, g, beta: _matrix_l(k, g, np.ones_like(beta))),
        Mistake("The decay has the wrong sign: e^(G_i - G_j) is at most 1, because G falls from token to token.",
                lambda k, g, beta: _matrix_l(k, g, beta, factor=lambda G, g: np.exp(G[None, :] - G[:, None]))),
        Mistake("You decay from the start of the chunk, e^(G_i): what was written at j decays only since j.",
                lambda k, g, beta: _matrix_l(k, g, beta, factor=lambda G, g: np.exp(G)[:, None])),
        Mistake("There is no decay: the mask only says who may see whom; the sum needs e^(G_ic - G_jc) as well.",
                lambda k, g, beta: _matrix_l(k, g, beta, factor=lambda G, g: np.ones(1))),
        Mistake("The decay of token i itself is left out: first forget, then take the error, so G_i includes g_i.",
                lambda k, g, beta: _matrix_l(k, g, beta, factor=lambda G, g: np.exp(
                    np.minimum(0, (G - g)[:, None] - G[None, :])))),
        Mistake("You decay all channels by their mean: the factor belongs inside the sum over channels.",
                lambda k, g, beta: _matrix_l(k, g, beta, factor=lambda G, g: _between(
                    np.broadcast_to(G.mean(axis=1, keepdims=True), G.shape)))),
    ))


# ---- 3.3 the triangular system

def solve(L, right):
    """X with (I + L) X = right.   [C, C], [C, N] -> [C, N]"""
    return forward_substitution(L, right)


def _system(seed, C, N, size):
    rng = np.random.default_rng(seed)
    return size * np.tril(rng.normal(size=(C, C)), -1), rng.normal(size=(C, N))


def _series(L, right, terms):
    X, term = np.zeros(right.shape), right
    for _ in range(terms):
        X, term = X + term, -L @ term
    return X


def _plus(L, right):
    X = np.array(right)
    for i in range(len(L)):
        X[i] = right[i] + L[i, :i] @ X[:i]
    return X


SOLVE = Exercise(
    "3.3", "forward substitution", solve,
    "From the first row to the last: X_i = right_i - L[i, :i] @ X[:i], with the rows of X found so far.",
    takes={"L": "C C", "right": "C N"}, returns={"X": "C N"},
    cases=(Case("for paper (C = 3, N = 1)", (np.array([[0.0, 0, 0], [0.5, 0, 0], [1, 0.5, 0]]),
                                             np.array([[2.0], [3.0], [4.0]])), paper=True),
           Case("with small numbers in L (C = 6, N = 4)", _system(0, 6, 4, 0.2)),
           Case("with large numbers in L (C = 7, N = 3)", _system(1, 7, 3, 1.0))),
    properties=(Property("with L = 0 the right side comes back",
                         lambda f: np.allclose(f(np.zeros((3, 3)), np.ones((3, 2))), 1)),
                Property("(I + L) X gives the right side again",
                         lambda f: np.allclose((np.eye(5) + _system(2, 5, 2, 0.5)[0]) @ f(*_system(2, 5, 2, 0.5)),
                                               _system(2, 5, 2, 0.5)[1]))),
    mistakes=(
        Mistake("You subtract L times the right side: take the rows of X that are found already.",
                lambda L, right: right - L @ right),
        Mistake("The sign is wrong: what stands on the left as + L_ij X_j goes to the right with a minus.", _plus),
        Mistake("Nothing has changed: going from the last row upwards, the rows that L asks for are not there yet.",
                lambda L, right: np.array(right)),
        Mistake("You solve with L transposed: row i of L meets the rows of X above it.",
                lambda L, right: np.linalg.solve(np.eye(len(L)) + L.T, right)),
        Mistake("The I is missing: the matrix of the system is I + L, with ones on the diagonal.",
                lambda L, right: np.linalg.pinv(L) @ right),
        Mistake("The series I - L + L^2 - ... ends only with the power C - 1; you stopped after the square.",
                lambda L, right: _series(L, right, 3)),
        Mistake("(I - L)(I + L^2) ends with the third power: C tokens need all powers up to C - 1.",
                lambda L, right: _series(L, right, 4)),
    ))


# ---- 3.4 a whole chunk

def one_chunk(q, k, v, g, beta, S):
    """KDA on one chunk after a state.      [C, K] x 2, [C, V], [C, K], [C], [K, V] -> o [C, V], state [K, V]"""
    o, state = kda_recurrent(*(x[:, None] for x in (q, k, v, g, beta)), S[None])
    return o[:, 0], state[0]


def _chunk(q, k, v, g, beta, S, *, scale=None, diagonal=0, mask_only=False, read="decayed", recall="decayed",
           end="decayed", passed="decayed", cross=True, enters=True):
    G, scale = np.cumsum(g, axis=0), k.shape[1] ** -0.5 if scale is None else scale
    start, C = np.exp(G), len(k)
    L, factor = matrix_l(k, g, beta), np.ones((C, C, k.shape[1])) if mask_only else _between(G)
    A = np.tril(np.einsum("ic,jc,ijc->ij", scale * q, k, factor), diagonal)
    U = forward_substitution(L, beta[:, None] * v)
    W = forward_substitution(L, beta[:, None] * k * (start if recall == "decayed" else 1))
    written = U - W @ S if cross else U
    o = (scale * q * (start if read == "decayed" else 1)) @ S * enters + A @ written
    to_end = {"decayed": np.exp(G[-1] - G), "not": 1.0, "too far": np.exp(G[-1] - G + g)}[end]
    return o, (start[-1][:, None] if passed == "decayed" else 1) * S + (to_end * k).T @ written


C_PAPER = (np.ones((2, 1)), np.ones((2, 1)), np.array([[4.0], [5.0]]), np.log(np.full((2, 1), 0.5)),
           np.array([0.5, 0.8]), np.array([[2.0]]))

CHUNK = Exercise(
    "3.4", "a whole chunk", one_chunk,
    "Four lines: solve for W and U, written = U - W S, o = (e^G q) S + A written, S = e^(G_C) S + (e^(G_C - G) k)^T "
    "written; the scale K^(-1/2) sits on q.",
    takes={"q": "C K", "k": "C K", "v": "C V", "g": "C K", "beta": "C", "S": "K V"},
    returns={"o": "C V", "state": "K V"},
    cases=(Case("for paper (C = 2, K = V = 1, q = k = 1, v = 4 and 5, alpha = 0.5, beta = 0.5 and 0.8, S = 2)",
                C_PAPER, paper=True),
           Case("with gentle decay (C = 6, K = 3, V = 4)", _tokens(0, 6, 3, 4, "gentle")),
           Case("with strong decay (C = 5, K = 4, V = 2)", _tokens(1, 5, 4, 2, "strong")),
           Case("with one key at every token (C = 7, K = 2, V = 3)", _tokens(2, 7, 2, 3, "one key"))),
    properties=(Property("two chunks, one after the other, give the same state as one chunk of both",
                         lambda f: _cut_anywhere(f, *_tokens(3, 7, 3, 2, "gentle"))),),
    mistakes=(
        Mistake("A has lost its diagonal: a token reads after its own write, so keep j = i in A (not in L).",
                lambda *a: _chunk(*a, diagonal=-1)),
        Mistake("A is only masked: its sum over channels needs e^(G_ic - G_jc) like that of L.",
                lambda *a: _chunk(*a, mask_only=True)),
        Mistake("You read the state as it entered: at token i it has decayed by e^(G_i), so read with e^(G_i) q_i.",
                lambda *a: _chunk(*a, read="not")),
        Mistake("The error is taken from the undecayed state: W needs e^(G_i) k_i on its right side.",
                lambda *a: _chunk(*a, recall="not")),
        Mistake("You write U, as if the state that enters were empty: written = U - W S.",
                lambda *a: _chunk(*a, cross=False)),
        Mistake("You never read the state that enters: o has a second part, (e^G q) S.",
                lambda *a: _chunk(*a, enters=False)),
        Mistake("The writes reach the end undecayed: token j is kept by e^(G_C - G_j) until the chunk ends.",
                lambda *a: _chunk(*a, end="not")),
        Mistake("You decayed after the write: token j has decayed by its own g_j before it writes.",
                lambda *a: _chunk(*a, end="too far")),
        Mistake("The state that enters does not decay: channel c keeps e^(G_Cc) of it.",
                lambda *a: _chunk(*a, passed="not")),
        Mistake("The scale is missing: q is multiplied by K ** -0.5, in both parts of o.",
                lambda *a: _chunk(*a, scale=1.0)),
    ))


def _cut_anywhere(f, q, k, v, g, beta, S):
    first, middle = f(*(x[:3] for x in (q, k, v, g, beta)), S)
    second, state = f(*(x[3:] for x in (q, k, v, g, beta)), middle)
    whole, want = one_chunk(q, k, v, g, beta, S)
    return np.allclose(np.concatenate([first, second]), whole) and np.allclose(state, want)


# ---- 3.6 two segments

def compose(M1, N1, M2, N2):
    """First segment S -> M1 S + N1, then S -> M2 S + N2.   [K, K], [K, V], [K, K], [K, V] -> M [K, K], N [K, V]"""
    return M2 @ M1, M2 @ N1 + N2


def _maps(seed, K, V):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=size) for size in ((K, K), (K, V), (K, K), (K, V)))


COMPOSE = Exercise(
    "3.6", "two segments as one", compose,
    "Put S_1 = M1 S + N1 into S_2 = M2 S_1 + N2 and multiply out.",
    takes={"M1": "K K", "N1": "K V", "M2": "K K", "N2": "K V"}, returns={"M": "K K", "N": "K V"},
    cases=(Case("for paper (K = V = 1: S -> 0.5 S + 1, then S -> 0.25 S + 3)",
                tuple(np.array([[x]]) for x in (0.5, 1.0, 0.25, 3.0)), paper=True),
           Case("with K = 4, V = 3", _maps(0, 4, 3)), Case("with K = 2, V = 5", _maps(1, 2, 5))),
    properties=(Property("a segment without tokens (M2 = I, N2 = 0) changes nothing",
                         lambda f: np.allclose(f(*_maps(2, 3, 2)[:2], np.eye(3), np.zeros((3, 2)))[1],
                                               _maps(2, 3, 2)[1])),
                Property("three segments give the same however they are bracketed", lambda f: _associative(f))),
    mistakes=(
        Mistake("The order is turned: the later segment acts on what the first has made, so M = M2 M1.",
                lambda M1, N1, M2, N2: (M1 @ M2, M2 @ N1 + N2)),
        Mistake("What the first segment wrote goes through the second: it arrives as M2 N1, not as N1.",
                lambda M1, N1, M2, N2: (M2 @ M1, N1 + N2)),
        Mistake("You sent the later segment's writes through the first: N = M2 N1 + N2, not M1 N2 + N1.",
                lambda M1, N1, M2, N2: (M2 @ M1, M1 @ N2 + N1)),
        Mistake("You put the second segment first: both M and N are of the order 2, 1.",
                lambda M1, N1, M2, N2: (M1 @ M2, M1 @ N2 + N1)),
        Mistake("The maps are applied one after the other, so their matrices are multiplied, not added.",
                lambda M1, N1, M2, N2: (M1 + M2, M2 @ N1 + N2)),
        Mistake("The writes of the second segment are lost: N = M2 N1 + N2.",
                lambda M1, N1, M2, N2: (M2 @ M1, M2 @ N1)),
    ))


def _associative(f):
    one, two, three = (_maps(seed, 3, 2)[:2] for seed in (3, 4, 5))
    left, right = f(*f(*one, *two), *three), f(*one, *f(*two, *three))
    return all(np.allclose(a, b) for a, b in zip(left, right, strict=True))


EXERCISES = (
    Exercise("3.1", "two tokens by hand", np.array([0.4, 3.2, 4.2]),
             "L_21 = beta_2 alpha_2, then the second equation for what token 2 writes, then o_2 = alpha_2 written_1 + "
             "written_2.",
             mistakes=(Mistake("The read is not decayed: what token 1 wrote has lost half when token 2 reads, a mask "
                               "alone (1) is not enough.", np.array([0.4, 3.2, 5.2])),
                       Mistake("Neither the correction nor the read is decayed: the factor alpha_2 belongs into both.",
                               np.array([0.8, 2.4, 4.4])),
                       Mistake("The correction is not decayed: token 2 meets what token 1 wrote after forgetting half.",
                               np.array([0.8, 2.4, 3.4])),
                       Mistake("Nothing is corrected: token 2 writes beta_2 times its error, not beta_2 v_2.",
                               np.array([0.4, 4.0, 5.0])),
                       Mistake("That is beta of the first token: the strength is that of the token that corrects.",
                               np.array([0.25, 3.5, 4.5])),
                       Mistake("Token 2 reads after its own write: what it wrote is in o_2 undiminished.",
                               np.array([0.4, 3.2, 1.0])))),
    MATRIX_L, SOLVE, CHUNK,
    Exercise("3.5", "how long a tile may be", 23,
             "The first token lies 8 (C - 1) / 2 above r, and this must not exceed 88.7.",
             mistakes=(Mistake("C tokens have C - 1 steps between them: one token more fits in.", 22),
                       Mistake("That is with the reference at the start of the tile: halve the exponents.", 11),
                       Mistake("That is with the reference at the first or the last token: r lies half-way.", 12),
                       Mistake("That is for a bound of -5; here every token may forget by 8.", 36),
                       Mistake("That is float64, whose numbers end at e^709; the limit of float32 is 88.7.", 178))),
    COMPOSE)
