"""Checks of chapter 01, the delta-rule RNN. One head: q, k [T, K], v [T, V], state [K, V]."""

import numpy as np

from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.delta_rule import delta_step
from k3_scratch.reference.delta_rule_backward import delta_recurrent_backward
from k3_scratch.reference.linear_attention import linear_attention_recurrent


def _unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _normal(seed, *shapes):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape) for shape in shapes)


# ---- 1.2 the memory that only adds

def additive(q, k, v):
    """[T, K], [T, K], [T, V] -> o [T, V], state [K, V]"""
    o, state = linear_attention_recurrent(q[:, None], k[:, None], v[:, None])
    return o[:, 0], state[0]


def _additive(q, k, v, *, read_first=False, scale=None, replace=False, softmax=False, scale_k=False):
    T, K = q.shape
    scale, S, o = K ** -0.5 if scale is None else scale, np.zeros((K, v.shape[1])), np.zeros(v.shape)
    for t in range(T):
        before = S
        S = (0 if replace else S) + np.outer(k[t] * (scale if scale_k else 1), v[t])
        o[t] = scale * q[t] @ (before if read_first else S)
    return o, S


def _sequence(seed, T, K, V, repeated=False):
    q, k, v = _normal(seed, (T, K), (T, K), (T, V))
    k = np.broadcast_to(k[:1], k.shape).copy() if repeated else k
    return _unit(q), _unit(k), v


ADDITIVE = Exercise(
    "1.2", "a memory that only adds", additive,
    "Two lines a token: S = S + outer(k, v), then o = scale * q @ S with scale = K ** -0.5.",
    takes={"q": "T K", "k": "T K", "v": "T V"}, returns={"o": "T V", "state": "K V"},
    cases=(Case("for paper (T = 2, K = V = 1, q = k = 1, v = 2 and 5)",
                (np.ones((2, 1)), np.ones((2, 1)), np.array([[2.0], [5.0]])), paper=True),
           Case("with random keys (T = 6, K = 3, V = 4)", _sequence(0, 6, 3, 4)),
           Case("with the same key at every token (T = 5, K = 7, V = 2)", _sequence(1, 5, 7, 2, repeated=True))),
    properties=(Property("the first output is scale * (q . k) * v of the first token",
                         lambda f: np.allclose(f(*_sequence(2, 3, 4, 2))[0][0],
                                               additive(*_sequence(2, 3, 4, 2))[0][0])),),
    mistakes=(
        Mistake("You read before you write: a token must also see its own pair, so write first.",
                lambda q, k, v: _additive(q, k, v, read_first=True)),
        Mistake("The scale is missing: the query is multiplied by K ** -0.5.",
                lambda q, k, v: _additive(q, k, v, scale=1.0)),
        Mistake("The scale is that of the values: it is K ** -0.5 with K the number of key channels.",
                lambda q, k, v: _additive(q, k, v, scale=v.shape[1] ** -0.5)),
        Mistake("The scale sits on the key as well: then it is in the state; it belongs to q alone.",
                lambda q, k, v: _additive(q, k, v, scale_k=True)),
        Mistake("The state holds the last pair only: add to what is there, do not replace it.",
                lambda q, k, v: _additive(q, k, v, replace=True)),
    ))


# ---- 1.3 one write of the delta rule

def _write(seed, K, V, beta, length=1.0):
    state, k, v = _normal(seed, (K, V), (K,), (V,))
    return state, length * _unit(k), v, beta


STEP = Exercise(
    "1.3", "one delta-rule write", delta_step,
    "First recalled = k @ state, then state + beta * outer(k, v - recalled).",
    takes={"state": "K V", "k": "K", "v": "V", "beta": None}, returns={"state": "K V"},
    cases=(Case("for paper (K = 2, V = 1, the memory holds 1 under the key, v = 5, beta = 1)",
                (np.array([[1.0], [3.0]]), np.array([1.0, 0.0]), np.array([5.0]), 1.0), paper=True),
           Case("with a weak write (K = 3, V = 5, beta = 0.3)", _write(0, 3, 5, 0.3)),
           Case("with a strong write (K = 6, V = 2, beta = 0.95)", _write(1, 6, 2, 0.95)),
           Case("with a key of length 2 (K = 4, V = 3, beta = 0.2)", _write(2, 4, 3, 0.2, length=2.0))),
    properties=(Property("with beta = 0 nothing changes",
                         lambda f: np.allclose(f(*_write(3, 3, 2, 0.0)), _write(3, 3, 2, 0.0)[0])),
                Property("with beta = 1 and a key of length 1 the memory then returns v",
                         lambda f: np.allclose(_write(4, 3, 2, 1.0)[1] @ f(*_write(4, 3, 2, 1.0)),
                                               _write(4, 3, 2, 1.0)[2]))),
    mistakes=(
        Mistake("Nothing is erased: you add beta k v^T; write the error v - recalled in place of v.",
                lambda S, k, v, b: S + b * np.outer(k, v)),
        Mistake("The sign of the error is turned: it is v - recalled, not recalled - v.",
                lambda S, k, v, b: S + b * np.outer(k, k @ S - v)),
        Mistake("beta is missing: only the share beta of the error is written.",
                lambda S, k, v, b: S + np.outer(k, v - k @ S)),
        Mistake("You erase all of the old value and write only beta of the new: beta multiplies both.",
                lambda S, k, v, b: S + np.outer(k, b * v - k @ S)),
        Mistake("You erase beta of the old value and write all of the new: beta multiplies both.",
                lambda S, k, v, b: S + np.outer(k, v - b * (k @ S))),
        Mistake("You fade the whole memory by 1 - beta: erase only along the key, the other rows stay.",
                lambda S, k, v, b: (1 - b) * S + b * np.outer(k, v)),
    ))


# ---- 1.5 the best that a state can do

def best_state(k, v):
    """The state with the least sum of squared errors of recall.   [n, K], [n, V] -> [K, V]"""
    return np.linalg.lstsq(k, v, rcond=None)[0]


def _pairs(seed, n, K, V):
    k, v = _normal(seed, (n, K), (n, V))
    return _unit(k), v


def _one_pass(k, v):
    state = np.zeros((k.shape[1], v.shape[1]))
    for k_t, v_t in zip(k, v, strict=True):
        state = delta_step(state, k_t, v_t, 1.0)
    return state


BEST = Exercise(
    "1.5", "the best state for given pairs", best_state,
    "keys @ S = values, in the sense of least squares: np.linalg.lstsq or np.linalg.pinv.",
    takes={"k": "n K", "v": "n V"}, returns={"state": "K V"}, tolerance=1e-7,
    cases=(Case("for paper (two equal keys of K = 1 with the values 2 and 4: their mean is best)",
                (np.ones((2, 1)), np.array([[2.0], [4.0]])), paper=True),
           Case("with fewer pairs than channels (n = 3, K = 6, V = 2)", _pairs(0, 3, 6, 2)),
           Case("with more pairs than channels (n = 9, K = 4, V = 3)", _pairs(1, 9, 4, 3))),
    properties=(Property("three pairs in a memory of K = 5 are recalled exactly",
                         lambda f: np.allclose(_pairs(2, 3, 5, 2)[0] @ f(*_pairs(2, 3, 5, 2)),
                                               _pairs(2, 3, 5, 2)[1])),),
    mistakes=(
        Mistake("That is the memory that only adds, K^T V: right only when the keys are at right angles.",
                lambda k, v: k.T @ v),
        Mistake("That is one pass of the delta rule: it spoils earlier pairs, the best state takes all at once.",
                _one_pass),
        Mistake("K^T V divided by the number of pairs is a mean of outer products, not a solution of K S = V.",
                lambda k, v: k.T @ v / len(k)),
        Mistake("A small number added to K^T K moves the result: pinv and lstsq need none.",
                lambda k, v: np.linalg.inv(k.T @ k + 1e-3 * np.eye(k.shape[1])) @ k.T @ v),
    ))


# ---- 1.6 the backward pass of one write

def write_backward(state, k, v, beta, dafter):
    """Gradients of one write.   -> dstate [K, V], dk [K], dv [V], dbeta"""
    zero = np.zeros((1, 1, len(k)))
    _, dk, dv, dbeta, dstate = delta_recurrent_backward(
        zero, k[None, None], v[None, None], np.array([[beta]]), state[None], np.zeros((1, 1, len(v))), dafter[None])
    return dstate[0], dk[0, 0], dv[0, 0], float(dbeta[0, 0])


def _backward(S, k, v, beta, dS, *, erase=True, second_k=True, sign=1, dbeta_of="error"):
    error, dwrite = v - k @ S, k @ dS
    derror = beta * dwrite
    dk = beta * dS @ error - (S @ derror if second_k else 0)
    dbeta = dwrite @ (error if dbeta_of == "error" else v)
    return dS - (np.outer(k, derror) if erase else 0), dk, sign * derror, float(dbeta)


def _back(seed, K, V, beta):
    state, k, v, dafter = _normal(seed, (K, V), (K,), (V,), (K, V))
    return state, _unit(k), v, beta, dafter


BACKWARD = Exercise(
    "1.6", "the backward pass of one write", write_backward,
    "Go through the two lines e = v - S^T k and S' = S + beta k e^T from the last to the first; S and k occur in both.",
    takes={"state": "K V", "k": "K", "v": "V", "beta": None, "dafter": "K V"},
    returns={"dstate": "K V", "dk": "K", "dv": "V", "dbeta": ""},
    cases=(Case("for paper (K = V = 1: S = 2, k = 1, v = 5, beta = 0.5, dafter = 1)",
                (np.array([[2.0]]), np.ones(1), np.array([5.0]), 0.5, np.ones((1, 1))), paper=True),
           Case("with a weak write (K = 3, V = 5, beta = 0.1)", _back(0, 3, 5, 0.1)),
           Case("with a strong write (K = 6, V = 2, beta = 0.9)", _back(1, 6, 2, 0.9))),
    properties=(Property("with beta = 0 the gradient in the state passes unchanged",
                         lambda f: np.allclose(f(*_back(2, 3, 4, 0.0))[0], _back(2, 3, 4, 0.0)[4])),),
    mistakes=(
        Mistake("dstate misses the second way: S is also in the error e, which takes k de^T away again.",
                lambda *a: _backward(*a, erase=False)),
        Mistake("dk misses its second way: k is also in the error e, which gives - S de.",
                lambda *a: _backward(*a, second_k=False)),
        Mistake("dv has the wrong sign: v stands in e with a plus.", lambda *a: _backward(*a, sign=-1)),
        Mistake("dbeta must be taken with the error e, not with v: beta multiplies k e^T.",
                lambda *a: _backward(*a, dbeta_of="v")),
    ))


EXERCISES = (
    Exercise("1.1", "from when on the state is smaller", 65,
             "K * V numbers against T * (K + V): for which whole T is the first smaller than the second?",
             mistakes=(Mistake("At T = 64 both are equally large; smaller is the state only at the next T.", 64),
                       Mistake("A token has a key and a value: K + V numbers, not K.", 129),
                       Mistake("That is the size of the state itself; divide by the K + V numbers of one token.",
                               16384))),
    ADDITIVE, STEP,
    Exercise("1.4", "a key that is too long", -1.0,
             "Put S' into the error: v - S'^T k = (1 - beta |k|^2) (v - S^T k).",
             mistakes=(Mistake("The length enters squared, k . k = 4, not 2.", 0.0),
                       Mistake("The length has been left out: k meets k twice, once in the write, once in the read.",
                               0.5),
                       Mistake("The size is right, the sign is not: the write goes beyond v to the other side.", 1.0),
                       Mistake("That is what is written, beta |k|^2; asked is what is left of the error.", 2.0))),
    BEST, BACKWARD)
