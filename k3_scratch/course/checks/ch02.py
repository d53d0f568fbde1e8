"""Checks of chapter 02, Kimi Delta Attention. One head unless H is named: q, k, g [K], v [V], state [K, V]."""

import numpy as np

from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.decay_gates import bounded_decay
from k3_scratch.reference.kda import kda_step
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.short_convolution import short_convolution
from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.reference.silu import silu


def _unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


# ---- 2.2 what a token does to the old memory

def transition(k, g, beta):
    """(I - beta k k^T) diag(e^g).   k [K], g [K], beta a number -> M [K, K]"""
    return (np.eye(len(k)) - beta * np.outer(k, k)) @ np.diag(np.exp(g))


def _turn(seed, K, beta, decay):
    rng = np.random.default_rng(seed)
    return _unit(rng.normal(size=K)), -decay * rng.uniform(0.2, 2, size=K), beta


TRANSITION = Exercise(
    "2.2", "what a token does to the old memory", transition,
    "M is a product of two K x K matrices; the one that acts on S first stands on the right.",
    takes={"k": "K", "g": "K", "beta": None}, returns={"M": "K K"},
    cases=(Case("for paper (K = 2, k = (0.6, 0.8), beta = 0.5, alpha = (1, 0.5))",
                (np.array([0.6, 0.8]), np.log([1.0, 0.5]), 0.5), paper=True),
           Case("with gentle decay (K = 3, beta = 0.9)", _turn(0, 3, 0.9, 0.05)),
           Case("with strong decay (K = 5, beta = 0.4)", _turn(1, 5, 0.4, 2.5))),
    properties=(Property("M @ state + beta * outer(k, v) is the memory after the token",
                         lambda f: _moves(f, *_step_arguments(5, 4, 3, 0.7, 0.8))),
                Property("without decay and with beta = 1, M removes the key: M @ k = 0",
                         lambda f: np.allclose(f(np.array([0.6, 0.8]), np.zeros(2), 1.0) @ [0.6, 0.8], 0))),
    mistakes=(
        Mistake("The two matrices are the wrong way round: what happens first, forgetting, stands on the right.",
                lambda k, g, b: np.diag(np.exp(g)) @ (np.eye(len(k)) - b * np.outer(k, k))),
        Mistake("g is the log-decay: the diagonal holds alpha = exp(g).",
                lambda k, g, b: (np.eye(len(k)) - b * np.outer(k, k)) @ np.diag(g)),
        Mistake("beta is missing: only the share beta of what is recalled is erased.",
                lambda k, g, b: transition(k, g, 1.0)),
        Mistake("The sign of the erasure is turned: it is I minus beta k k^T.",
                lambda k, g, b: transition(k, g, -b)),
        Mistake("The decay acts on the identity alone: it must also act on what is erased, (I - beta k k^T) diag.",
                lambda k, g, b: np.diag(np.exp(g)) - b * np.outer(k, k)),
        Mistake("k k^T is a matrix, an outer product; k @ k is a number.",
                lambda k, g, b: (np.eye(len(k)) - b * (k @ k)) @ np.diag(np.exp(g))),
    ))


def _moves(f, state, q, k, v, g, beta):
    return np.allclose(f(k, g, beta) @ state + beta * np.outer(k, v), one_step(state, q, k, v, g, beta)[1])


# ---- 2.3 one KDA step

def one_step(state, q, k, v, g, beta):
    """One token of one head: forget, erase and write, read.   -> o [V], state [K, V]"""
    o, after = kda_step(state[None], q[None], k[None], v[None], g[None], np.array([beta]))
    return o[0], after[0]


def _step(S, q, k, v, g, beta, *, fault="", scale=None, key_scale=1.0):
    """The step with one fault; the same order of lines as the package's."""
    alpha, k = g if fault == "g itself" else np.exp(g), key_scale * k
    if fault == "one decay":
        alpha = np.full(len(g), np.exp(g.mean()))
    faded = alpha[:, None] * S
    if fault == "value axis":
        faded = S * np.resize(alpha, S.shape[1])
    if fault == "after the write":
        faded = S
    error = v - k @ (S if fault == "undecayed" else faded)
    after = faded + beta * np.outer(k, v if fault == "no erase" else error)
    if fault == "after the write":
        after = alpha[:, None] * after
    scale = len(k) ** -0.5 if scale is None else scale
    return scale * q @ (faded if fault == "read first" else after), after


def _faulty(fault):
    return lambda S, q, k, v, g, b: _step(S, q, k, v, g, b, fault=fault)


def _step_arguments(seed, K, V, beta, decay, same=False):
    rng = np.random.default_rng(seed)
    state, q, k, v = (rng.normal(size=size) for size in ((K, V), K, K, V))
    k, q = _unit(k), _unit(q)
    if same:                                                       # what four earlier writes under this key have left
        state = np.outer(k, rng.normal(size=V)) * 4
    return state, q, k, v, -decay * rng.uniform(0.2, 1.8, size=K), beta


STEP = Exercise(
    "2.3", "one KDA step", one_step,
    "In this order: fade the rows of S by exp(g), take the error v - k @ S of the faded S, write, then read.",
    takes={"state": "K V", "q": "K", "k": "K", "v": "V", "g": "K", "beta": None}, returns={"o": "V", "state": "K V"},
    cases=(Case("for paper (K = 2, V = 1, S = (4, 2), q = k = (1, 0), v = 8, alpha = (0.5, 1), beta = 0.5)",
                (np.array([[4.0], [2.0]]), np.array([1.0, 0.0]), np.array([1.0, 0.0]), np.array([8.0]),
                 np.log([0.5, 1.0]), 0.5), paper=True),
           Case("with strong decay (K = 3, V = 5)", _step_arguments(0, 3, 5, 0.6, 2.5)),
           Case("with gentle decay (K = 6, V = 2)", _step_arguments(1, 6, 2, 0.3, 0.05)),
           Case("with a key that comes again and beta near 1 (K = 4, V = 3)",
                _step_arguments(2, 4, 3, 0.97, 0.05, same=True))),
    properties=(Property("with beta = 0 the memory only fades",
                         lambda f: np.allclose(f(*_step_arguments(3, 3, 2, 0.0, 0.5))[1],
                                               one_step(*_step_arguments(3, 3, 2, 0.0, 0.5))[1])),
                Property("with beta = 1 the memory then returns v for k, however strong the decay",
                         lambda f: np.allclose(_step_arguments(4, 4, 3, 1.0, 2.0)[2]
                                               @ f(*_step_arguments(4, 4, 3, 1.0, 2.0))[1],
                                               _step_arguments(4, 4, 3, 1.0, 2.0)[3]))),
    mistakes=(
        Mistake("You decayed after the write.", _faulty("after the write")),
        Mistake("The error is taken from the undecayed memory: recall from the faded one, which you write into.",
                _faulty("undecayed")),
        Mistake("Nothing is erased: you add beta k v^T; write the error v - recalled in place of v.",
                _faulty("no erase")),
        Mistake("The decay sits on the value axis: alpha belongs to the rows of S, the key channels (alpha[:, None]).",
                _faulty("value axis")),
        Mistake("You read before the write: a token also sees what it has just stored.", _faulty("read first")),
        Mistake("One decay for the whole head: every key channel has its own exp(g[c]), no mean.",
                _faulty("one decay")),
        Mistake("The scale sits on the key as well: then the write is too weak; it belongs to q alone.",
                lambda S, q, k, v, g, b: _step(S, q, k, v, g, b, key_scale=len(k) ** -0.5)),
        Mistake("The scale on q is missing: o = K ** -0.5 * q @ S.",
                lambda S, q, k, v, g, b: _step(S, q, k, v, g, b, scale=1.0)),
        Mistake("The memory is multiplied by g itself: g is the logarithm, the share that stays is exp(g).",
                _faulty("g itself")),
    ))


# ---- 2.4 the decay gate

def decay_gate(x, w_a, w_b, dt_bias, A_log):
    """g = -5 sigmoid(e^A (W_b W_a x + dt_bias)).   -> [T, H, K]"""
    H, K = dt_bias.shape
    return bounded_decay((x @ w_a.T @ w_b.T).reshape(len(x), H, K) + dt_bias, A_log)


def _logits(x, w_a, w_b, dt_bias):
    return (x @ w_a.T @ w_b.T).reshape(len(x), *dt_bias.shape) + dt_bias


def _gate(seed, T, D, R, H, K):
    """w_b [H K, R]: its rows are the channels of all heads."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(T, D)), rng.normal(size=(R, D)) * 0.5, rng.normal(size=(H * K, R)) * 0.7,
            rng.normal(size=(H, K)), rng.normal(size=H) * 0.5)


GATE = Exercise(
    "2.4", "the bounded decay gate", decay_gate,
    "z = W_b W_a x, reshaped to [T, H, K], plus dt_bias; then -5 * sigmoid(exp(A_log)[:, None] * z).",
    takes={"x": "T D", "w_a": "R D", "w_b": "P R", "dt_bias": "H K", "A_log": "H"}, returns={"g": "T H K"},
    cases=(Case("for paper (all sizes 1, W_a = W_b = 1, x = 0.5, dt_bias = 0.5, A_log = log 2; so z = 1)",
                (np.array([[0.5]]), np.ones((1, 1)), np.ones((1, 1)), np.array([[0.5]]), np.log([2.0])), paper=True),
           Case("with random weights (T = 5, D = 4, R = 7, H = 2, K = 3)", _gate(0, 5, 4, 7, 2, 3)),
           Case("with large inputs (T = 3, D = 6, R = 2, H = 4, K = 5)",
                (_gate(1, 3, 6, 2, 4, 5)[0] * 40, *_gate(1, 3, 6, 2, 4, 5)[1:]))),
    properties=(Property("g lies between -5 and 0",
                         lambda f: np.all((f(*_gate(2, 4, 3, 5, 2, 6)) <= 0) & (f(*_gate(2, 4, 3, 5, 2, 6)) >= -5))),),
    mistakes=(
        Mistake("That is Kimi Linear's older gate, -exp(A) softplus(z): K3 has a sigmoid in its place.",
                lambda x, a, b, d, A: -np.exp(A)[:, None] * np.logaddexp(0, _logits(x, a, b, d))),
        Mistake("The bound is no clamp of the softplus: it is a sigmoid times -5, smooth everywhere.",
                lambda x, a, b, d, A: np.maximum(-5, -np.exp(A)[:, None] * np.logaddexp(0, _logits(x, a, b, d)))),
        Mistake("dt_bias comes after the product with exp(A): it belongs inside, exp(A) multiplies the sum.",
                lambda x, a, b, d, A: -5 * sigmoid(np.exp(A)[:, None] * _logits(x, a, b, 0 * d) + d)),
        Mistake("A_log is a logarithm: multiply z by exp(A_log).",
                lambda x, a, b, d, A: -5 * sigmoid(A[:, None] * _logits(x, a, b, d))),
        Mistake("exp(A) multiplies the result: it belongs inside the sigmoid, or the bound is no bound.",
                lambda x, a, b, d, A: -5 * np.exp(A)[:, None] * sigmoid(_logits(x, a, b, d))),
        Mistake("That is alpha, the share that stays: return its logarithm g.",
                lambda x, a, b, d, A: np.exp(decay_gate(x, a, b, d, A))),
        Mistake("The activation between the two matrices is too much: W_b W_a x has nothing in between.",
                lambda x, a, b, d, A: decay_gate(silu(x @ a.T), np.eye(len(a)), b, d, A)),
    ))


# ---- 2.5 the short convolution

def convolution(x, weight, tail):
    """Causal, one filter a channel, SiLU behind it.   x [T, P], weight [P, taps], tail [O, P] -> y, new tail"""
    y, after = short_convolution(x, weight, tail)
    return silu(y), after


def _convolved(x, weight, tail, *, activation=silu, ahead=False):
    y, after = short_convolution(x, weight, tail)
    if ahead:
        seen = np.concatenate([x, np.zeros(tail.shape)])
        y = sum(weight[:, j] * seen[j:j + len(x)] for j in range(len(tail) + 1))
    return activation(y), after


def _taps(seed, T, P, taps):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(T, P)), rng.normal(size=(P, taps)), rng.normal(size=(taps - 1, P))


CONVOLUTION = Exercise(
    "2.5", "the short convolution with its tail", convolution,
    "Put the tail before x; token t sees rows t ... t + taps - 1 of that; the last tap meets the current token; SiLU.",
    takes={"x": "T P", "weight": "P taps", "tail": "O P"}, returns={"y": "T P", "tail": "O P"},
    cases=(Case("for paper (T = 2, P = 1, taps 2, weight (10, 1), tail 3, x = 1 and 2: before SiLU 31 and 12)",
                (np.array([[1.0], [2.0]]), np.array([[10.0, 1.0]]), np.array([[3.0]])), paper=True),
           Case("with four taps (T = 7, P = 2)", _taps(0, 7, 2, 4)),
           Case("with fewer new tokens than taps (T = 2, P = 6)", _taps(1, 2, 6, 4))),
    properties=(Property("two calls with the tail in between give the same as one long call", lambda f: _split(f)),),
    mistakes=(
        Mistake("The taps are reversed: the last tap, weight[:, -1], belongs to the current token (np.convolve flips).",
                lambda x, w, tail: _convolved(x, w[:, ::-1], tail)),
        Mistake("SiLU is missing behind the convolution: y * sigmoid(y).",
                lambda x, w, tail: _convolved(x, w, tail, activation=lambda y: y)),
        Mistake("It looks ahead: token t may see t and earlier tokens only.",
                lambda x, w, tail: _convolved(x, w, tail, ahead=True)),
        Mistake("A sigmoid alone is no SiLU: that is y * sigmoid(y).",
                lambda x, w, tail: _convolved(x, w, tail, activation=sigmoid)),
        Mistake("The given tail is not used: before the first token stand its rows, not zeros.",
                lambda x, w, tail: (convolution(x, w, 0 * tail)[0], convolution(x, w, tail)[1])),
        Mistake("The new tail holds values after SiLU: it keeps what goes into the convolution.",
                lambda x, w, t: (convolution(x, w, t)[0], np.concatenate([t, convolution(x, w, t)[0]])[len(x):])),
        Mistake("The new tail is the wrong way round: oldest row first.",
                lambda x, w, tail: (convolution(x, w, tail)[0], convolution(x, w, tail)[1][::-1])),
        Mistake("With few new tokens rows of the old tail must stay: take the last rows of tail and x together.",
                lambda x, w, tail: (convolution(x, w, tail)[0], np.concatenate([0 * tail, x])[len(x):])),
    ))


def _split(f):
    x, weight, tail = _taps(2, 9, 3, 4)
    whole, last = f(x, weight, tail)
    first, middle = f(x[:2], weight, tail)
    second, end = f(x[2:], weight, middle)
    return np.allclose(np.concatenate([first, second]), whole) and np.allclose(end, last)


# ---- 2.6 norm and output gate

def gated_output(o, gate, weight):
    """RMSNorm over each head, then the gate.   o [T, H, V], gate logits [T, H, V], weight [V] -> [T, H, V]"""
    return rms_norm(o, weight) * sigmoid(gate)


def _heads(seed, T, H, V, size=1.0):
    rng = np.random.default_rng(seed)
    o = rng.normal(size=(T, H, V)) * size * rng.uniform(0.2, 4, size=(T, H, 1))
    return o, rng.normal(size=(T, H, V)), rng.uniform(0.5, 1.5, size=V)


OUTPUT = Exercise(
    "2.6", "head norm, then gate", gated_output,
    "o / sqrt(mean of o^2 over the last axis + 1e-5) * weight * sigmoid(gate).",
    takes={"o": "T H V", "gate": "T H V", "weight": "V"}, returns={"y": "T H V"},
    cases=(Case("for paper (one head, V = 2, o = (3, 4), gate 0 and log 3, weight 1)",
                (np.array([[[3.0, 4.0]]]), np.array([[[0.0, np.log(3.0)]]]), np.ones(2)), paper=True),
           Case("with random heads (T = 5, H = 2, V = 3)", _heads(0, 5, 2, 3)),
           Case("with very small outputs (T = 2, H = 4, V = 6)", _heads(1, 2, 4, 6, size=0.003))),
    properties=(Property("a gate of 0 everywhere halves the normed output",
                         lambda f: np.allclose(f(_heads(2, 3, 2, 4)[0], np.zeros((3, 2, 4)), np.ones(4)),
                                               0.5 * rms_norm(_heads(2, 3, 2, 4)[0], np.ones(4)))),),
    mistakes=(
        Mistake("The gate comes before the norm, which takes its size away again: norm first, then gate.",
                lambda o, z, w: rms_norm(o * sigmoid(z), w)),
        Mistake("The norm goes over all heads together: each head has its own mean of squares, over V.",
                lambda o, z, w: sigmoid(z) * w * o / np.sqrt(np.mean(o * o, axis=(1, 2), keepdims=True) + 1e-5)),
        Mistake("That divides by the length, the root of the sum: RMSNorm takes the mean of squares.",
                lambda o, z, w: sigmoid(z) * w * o / np.sqrt(np.sum(o * o, axis=-1, keepdims=True) + 1e-5)),
        Mistake("That multiplies by SiLU of the logits, z * sigmoid(z): the gate is the sigmoid alone.",
                lambda o, z, w: rms_norm(o, w) * silu(z)),
        Mistake("The sigmoid is missing: the gate must lie between 0 and 1.",
                lambda o, z, w: rms_norm(o, w) * z),
        Mistake("eps is missing under the root: very small outputs are then blown up, 1e-5 keeps them small.",
                lambda o, z, w: rms_norm(o, w, 0.0) * sigmoid(z)),
        Mistake("The norm's weight is missing: V numbers, shared by all heads.",
                lambda o, z, w: rms_norm(o, np.ones_like(w)) * sigmoid(z)),
        Mistake("RMSNorm subtracts no mean: it only divides by the root of the mean of squares.",
                lambda o, z, w: rms_norm(o - o.mean(axis=-1, keepdims=True), w) * sigmoid(z)),
    ))


EXERCISES = (
    Exercise("2.1", "half-life of a channel", float(np.log(2) / 0.01),
             "e^(-0.01 t) = 1/2: take the logarithm of both sides.", tolerance=0.01,
             mistakes=(Mistake("That is 1/0.01, when 1/e = .37 is left: for a half multiply by log 2.", 100.0),
                       Mistake("That takes 0.01 off the start at each token; a decay takes it off what is left.", 50.0),
                       Mistake("The logarithm is to base 10 there: use the natural one, np.log.",
                               float(np.log10(2) / 0.01)),
                       Mistake("g is not alpha: alpha = e^(-0.01), not 0.01.", float(np.log(0.5) / np.log(0.01))),
                       Mistake("A half-life is positive: log(1/2) and g are both negative.",
                               float(np.log(0.5) / 0.01)))),
    TRANSITION, STEP, GATE, CONVOLUTION, OUTPUT)
