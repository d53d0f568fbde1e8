"""Checks of chapter 07, NoPE. Tokens x [T, D]; one head: q, k [T, K], v [T, V]; positions count from 0."""

import numpy as np

from k3_scratch.course.checks.ch07_wrong import (
    constant_decay,
    interleaved,
    moved,
    outputs_shuffled,
    recency_but,
    rotary_but,
    turned_step_but,
    window_but,
    without_last,
)
from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.softmax import softmax


def _normal(seed, *shapes):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape) for shape in shapes)


# ---- 7.1 the permutation test

def order_seen(layer, x, order):
    """How far the last output moves when the tokens before it are put into another order, relative to its size.

    layer a function [T, D] -> [T, D], x [T, D], order [T-1]: place i of the new text holds token order[i] -> a number
    """
    before = layer(x)[-1]
    after = layer(np.concatenate([x[order], x[-1:]]))[-1]
    return np.linalg.norm(after - before) / np.linalg.norm(before)


def fading_sum(keep):
    """A layer that adds up its inputs and keeps the share `keep` of the sum at each token.        [T, D] -> [T, D]"""
    def layer(x):
        total, rows = np.zeros(x.shape[1]), []
        for row in x:
            total = keep * total + row
            rows.append(total)
        return np.array(rows)
    return layer


def running_mean(x):
    """The mean of all inputs so far: blind to order.                                              [T, D] -> [T, D]"""
    return np.cumsum(x, axis=0) / np.arange(1, len(x) + 1)[:, None]


def _text(seed, T, D):
    return _normal(seed, (T, D))[0], np.random.default_rng([seed, 1]).permutation(T - 1)


TEST = Exercise(
    "7.1", "a permutation test", order_seen,
    "Run the layer on x and on the reordered x; compare the two last rows, divided by the size of the first.",
    takes={"layer": None, "x": "T D", "order": "n"}, returns={"change": ""},
    cases=(Case("for paper (a sum that halves at each token, x = 1, 2, 4, order = 1, 0: 5.25 becomes 5)",
                (fading_sum(0.5), np.array([[1.0], [2.0], [4.0]]), np.array([1, 0])), paper=True),
           Case("with a sum that fades slowly (T = 7, D = 3)", (fading_sum(0.9), *_text(0, 7, 3))),
           Case("with a sum that fades quickly (T = 5, D = 2)", (fading_sum(0.3), *_text(1, 5, 2)))),
    properties=(Property("nothing moves for a layer that takes the mean of what came so far",
                         lambda f: f(running_mean, *_text(2, 6, 4)) < 1e-12),
                Property("nothing moves when the order is the old one",
                         lambda f: f(fading_sum(0.5), _text(3, 6, 2)[0], np.arange(5)) == 0)),
    mistakes=(
        Mistake("You left the last token out: it must still come last, only those before it change places.",
                without_last),
        Mistake("You compared all outputs: earlier ones see other tokens now; only the last sees the same ones.",
                lambda layer, x, order: moved(layer, x, order, rows=slice(None))),
        Mistake("The change must be relative: divide by the size of the last output.",
                lambda layer, x, order: moved(layer, x, order, by="nothing")),
        Mistake("You divided by the size of the new output; divide by that of the old one.",
                lambda layer, x, order: moved(layer, x, order, by="after")),
        Mistake("You shuffled the outputs: shuffle the inputs, then run the layer again.", outputs_shuffled),
        Mistake("You put token i to place order[i]: place i must hold token order[i], which is x[order].",
                lambda layer, x, order: order_seen(layer, x, np.argsort(order))),
    ))


# ---- 7.3 recency from a decay

def recency(g):
    """Weight that the write of token s still has after token t: exp of the log-decays of s+1 ... t.   [T] -> [T, T]"""
    total = np.cumsum(g)
    return np.tril(np.exp(np.minimum(total[:, None] - total[None, :], 0.0)))


def _decays(seed, T, low, high):
    return (-np.random.default_rng(seed).uniform(low, high, T),)


RECENCY = Exercise(
    "7.3", "recency from a decay", recency,
    "Row t, column s: exp(g[s+1] + ... + g[t]), which is exp(total[t] - total[s]); 1 on the diagonal, 0 above it.",
    takes={"g": "T"}, returns={"weights": "T T"},
    cases=(Case("for paper (three tokens that keep 1/2, 1/4 and 1/8)", (np.log([0.5, 0.25, 0.125]),), paper=True),
           Case("with gentle decays (T = 6)", _decays(0, 6, 0.01, 0.2)),
           Case("with strong decays (T = 5)", _decays(1, 5, 1.0, 5.0))),
    properties=(Property("without decay every earlier token has the weight 1",
                         lambda f: np.array_equal(f(np.zeros(4)), np.tri(4))),
                Property("with one decay for all tokens the weight depends on the age t - s alone",
                         lambda f: np.allclose(np.diagonal(f(np.full(5, -0.3)), -2), np.exp(-0.6)))),
    mistakes=(
        Mistake("A token's own decay does not touch its own write: the sum begins at s + 1.",
                lambda g: recency_but(g, first=0)),
        Mistake("The decay of token t is missing: it acts before token t writes, on all older writes.",
                lambda g: np.where(np.eye(len(g), dtype=bool), 1.0, recency_but(g, first=1, last=1))),
        Mistake("Above the diagonal lie tokens that have not come yet: their weight is 0.",
                lambda g: recency_but(g, future=True)),
        Mistake("Rows and columns are swapped: row t looks back at the columns s <= t.", lambda g: recency(g).T),
        Mistake("You took the decay of token t for all steps back: each step has the decay of its own token.",
                constant_decay),
        Mistake("That is the logarithm of the weights: take exp, then put 0 above the diagonal.",
                lambda g: np.tril(np.cumsum(g)[:, None] - np.cumsum(g)[None, :])),
    ))


# ---- 7.4 rotary positions

def rotary(x, positions, theta):
    """Turn the pair of channels i and i + K/2 by the angle positions * theta^(-2i/K).   [T, K], [T] -> [T, K]"""
    K = x.shape[1]
    angle = positions[:, None] * theta ** (-2 * np.arange(K // 2) / K)   # [T, K/2]
    a, b = x[:, :K // 2], x[:, K // 2:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)], axis=1)


def _vectors(seed, T, K, theta, start=0):
    return _normal(seed, (T, K))[0], np.arange(start, start + T), theta


def _scores(f, shift):
    q, k = _normal(5, (4, 6), (4, 6))
    return f(q, np.arange(4) + shift, 100.0) @ f(k, np.arange(4) + shift, 100.0).T


ROTARY = Exercise(
    "7.4", "rotary positions", rotary,
    "First half a, second half b: a cos - b sin and a sin + b cos, with angle = position * theta^(-2i/K), i < K/2.",
    takes={"x": "T K", "positions": "T", "theta": None}, returns={"turned": "T K"},
    cases=(Case("for paper (two channels, x = (1, 0) at the positions 0 and 1: the angle is 0, then 1)",
                (np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]), 10_000.0), paper=True),
           Case("with four pairs (T = 5, K = 8, theta = 100)", _vectors(0, 5, 8, 100.0)),
           Case("with three pairs, far into a text (T = 4, K = 6, theta = 10000, positions from 300)",
                _vectors(1, 4, 6, 10_000.0, start=300))),
    properties=(Property("position 0 changes nothing",
                         lambda f: np.allclose(f(_vectors(2, 3, 4, 10.0)[0], np.zeros(3), 10.0),
                                               _vectors(2, 3, 4, 10.0)[0])),
                Property("scores of turned queries and keys stay the same when all positions grow by 7",
                         lambda f: np.allclose(_scores(f, 0), _scores(f, 7)))),
    mistakes=(
        Mistake("You paired neighbours, 0 with 1, 2 with 3: here channel i goes with channel i + K/2.", interleaved),
        Mistake("You turned the other way round: a cos - b sin and a sin + b cos.",
                lambda x, p, theta: rotary_but(x, p, theta, sign=-1)),
        Mistake("All pairs turn by the same angle: pair i is slower by the factor theta^(-2i/K).",
                lambda x, p, theta: rotary_but(x, p, theta, one_angle=True)),
        Mistake("The exponent is 2i/K, not i/K: your slowest pairs turn much too quickly.",
                lambda x, p, theta: rotary_but(x, p, theta, power=1)),
        Mistake("Your positions begin at 1: the angle is position times speed, and position 0 turns nothing.",
                lambda x, p, theta: rotary_but(x, p, theta, start=1)),
        Mistake("The second half misses a sin: without it the length of the vector changes.",
                lambda x, p, theta: rotary_but(x, p, theta, lose=True)),
    ))


# ---- 7.5 one new token against a cache of turned keys

def turned_step(turn, q, k, v, old_keys, old_values):
    """Attention of the token at position S to the S before it and itself.   -> o [V], keys [S+1, K]

    turn(x [n, K], positions [n]) -> [n, K];  q, k [K], v [V] of the new token, not turned yet;
    old_keys [S, K] turned already, old_values [S, V]
    """
    return turned_step_but(turn, q, k, v, old_keys, old_values)


def _turn(x, positions):
    return rotary(x, positions, 100.0)


def _cache(seed, S, K, V):
    q, k, v, keys, values = _normal(seed, (K,), (K,), (V,), (S, K), (S, V))
    return _turn, 1.5 * q, k, v, _turn(keys, np.arange(S)), values


def _as_at_once(f):
    """Token by token through f, against all tokens at once."""
    q, k, v = _normal(9, (5, 4), (5, 4), (5, 6))
    keys, values, rows = np.zeros((0, 4)), np.zeros((0, 6)), []
    for t in range(5):
        o, keys = f(_turn, q[t], k[t], v[t], keys, values)
        values = v[:t + 1]
        rows.append(o)
    scores = _turn(q, np.arange(5)) @ _turn(k, np.arange(5)).T / 2
    return np.allclose(rows, softmax(np.where(np.tri(5, dtype=bool), scores, -np.inf)) @ v)


STEP = Exercise(
    "7.5", "one new token against a cache of turned keys", turned_step,
    "The new token stands at S = len(old_keys): turn q and k there, add k to the keys, softmax, mix the values.",
    takes={"turn": None, "q": "K", "k": "K", "v": "V", "old_keys": "S K", "old_values": "S V"},
    returns={"o": "V", "keys": "n K"},
    cases=(Case("for paper (an empty cache: only the token itself, o = v)",
                (_turn, np.array([1.0, 0.0]), np.array([1.0, 0.0]), np.array([3.0, 5.0]), np.zeros((0, 2)),
                 np.zeros((0, 2))), paper=True),
           Case("with three cached tokens (S = 3, K = 4, V = 2)", _cache(0, 3, 4, 2)),
           Case("with seven cached tokens (S = 7, K = 2, V = 4)", _cache(1, 7, 2, 4))),
    properties=(Property("token by token gives the same as all tokens at once", _as_at_once),),
    mistakes=(
        Mistake("You turn the values as well: positions belong into the scores, the values are mixed as they are.",
                lambda *a: turned_step_but(*a, values=True)),
        Mistake("Your new token stands at S + 1: the cached ones have the positions 0 ... S - 1, so it has S.",
                lambda *a: turned_step_but(*a, q_at=1, k_at=1)),
        Mistake("Your new token stands at S - 1, where the last cached one is: it has the position S.",
                lambda *a: turned_step_but(*a, q_at=-1, k_at=-1)),
        Mistake("The cached keys are turned a second time: they were turned when they were cached.",
                lambda *a: turned_step_but(*a, again=True)),
        Mistake("The query is not turned: then the score depends on the key's place, not on the distance.",
                lambda *a: turned_step_but(*a, turn_q=False)),
        Mistake("The new key goes into the cache as it is: turn it by its own position first.",
                lambda *a: turned_step_but(*a, turn_k=False)),
        Mistake("The new token does not see itself: its own key and value belong to the sum.",
                lambda *a: turned_step_but(*a, own=False)),
        Mistake("The scale K ** -0.5 is missing from the scores.", lambda *a: turned_step_but(*a, scale=False)),
    ))


# ---- 7.6 the mask of a sliding window

def window_mask(places, S, window):
    """Who sees whom: tokens at `places` [T] see their own position and the window - 1 before it.   -> bool [T, S]"""
    age = places[:, None] - np.arange(S)[None, :]
    return (age >= 0) & (age < window)


WINDOW = Exercise(
    "7.6", "the mask of a sliding window", window_mask,
    "The age of position s, seen from place t, is t - s; it is visible when 0 <= age < window.",
    takes={"places": "T", "S": None, "window": None}, returns={"visible": "T S"},
    cases=(Case("for paper (four tokens, window = 2)", (np.arange(4), 4, 2), paper=True),
           Case("with one new token (place 6, S = 7, window = 3)", (np.array([6]), 7, 3)),
           Case("with five cached tokens (places 5, 6, 7, S = 8, window = 4)", (np.arange(5, 8), 8, 4)),
           Case("with a window wider than the text (places 1 ... 5, S = 6, window = 9)", (np.arange(1, 6), 6, 9))),
    properties=(Property("with window = 1 every token sees only itself",
                         lambda f: np.array_equal(f(np.arange(4), 4, 1), np.eye(4, dtype=bool))),),
    mistakes=(
        Mistake("One token too wide: the token itself counts, so it sees window - 1 before it.",
                lambda p, S, w: window_but(p, S, w, width=1)),
        Mistake("One token too narrow: it sees window tokens, itself among them.",
                lambda p, S, w: window_but(p, S, w, width=-1)),
        Mistake("It looks ahead: positions after its own have a negative age and must be hidden.",
                lambda p, S, w: window_but(p, S, w, least=1 - w)),
        Mistake("The window has no far end: that is plain causal attention.",
                lambda p, S, w: window_but(p, S, S)),
        Mistake("The cached positions are forgotten: token t of the new ones stands at places[t], not at t.",
                lambda p, S, w: window_but(np.arange(len(p)), S, w)),
        Mistake("Turned round: True must mean that a position may be seen.",
                lambda p, S, w: ~window_mask(p, S, w)),
    ))


EXERCISES = (
    TEST,
    Exercise("7.2", "which layers are blind to order", "ABF",
             "Ask for each: is the last output a sum (or a ratio of sums) over the tokens, each term on its own?",
             mistakes=(Mistake("B is missing: without its softmax attention is still a sum over tokens, k v^T of each.",
                               "AF"),
                       Mistake("F is missing: a mean does not know an order either.", "AB"),
                       Mistake("C sees order: what was written earlier has faded more.", "ABCF"),
                       Mistake("D sees order: of two writes to one key the later one counts.", "ABDF"),
                       Mistake("E sees order: the first layer's output at an inner token depends on which came before.",
                               "ABEF"),
                       Mistake("G sees order: a convolution mixes each token with those just before it.", "ABFG"),
                       Mistake("You named those that see order; asked are those that are blind.", "CDEG"))),
    RECENCY, ROTARY, STEP, WINDOW)
