"""Checks of chapter 05, Stable LatentMoE (5.5 and 5.6 are in balancing.py). m tokens, E experts, k a token; x [m, D],
the experts at the width L."""

import numpy as np

from k3_scratch.course.checks.balancing import QUANTILE, SIGN
from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.ffn import gated_ffn
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.router import route
from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.reference.situ import situ_glu


def _normal(seed, *shapes):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape) for shape in shapes)


# ---- 5.1 what a token works with in one layer of K3

D, L, F, E, K, SHARED = 7168, 3584, 3072, 896, 16, 6144
_AROUND = E * D + E + 2 * D * L + L + 3 * D * SHARED     # router and bias, W_down, W_up, norm, shared experts
_ACTIVE = K * 3 * L * F + _AROUND

ACTIVE = Exercise(
    "5.1", "active parameters of one layer", _ACTIVE,
    "Add up: 16 experts of 3 L F, the router E D with E biases, W_down and W_up, the norm's L, the shared 3 D S.",
    mistakes=(
        Mistake("The experts work at the width L = 3584, not at D: three matrices of L times F each.",
                K * 3 * D * F + _AROUND),
        Mistake("An expert has three matrices, gate, up and down, not two.", K * 2 * L * F + _AROUND),
        Mistake("W_down and W_up are missing: every token passes both, D times L each.",
                K * 3 * L * F + _AROUND - 2 * D * L),
        Mistake("The router scores all 896 experts for each token, not only the 16 that win.",
                _ACTIVE - (E - K) * (D + 1)),
        Mistake("That is all of the layer; of the routed experts a token works with 16.", E * 3 * L * F + _AROUND),
        Mistake("The shared experts are missing: they work for every token.", _ACTIVE - 3 * D * SHARED),
        Mistake("The shared experts read and write the full width D, not the latent L.",
                _ACTIVE - 3 * (D - L) * SHARED),
    ))


# ---- 5.2 the router

def mixing_weights(x, w_router, bias, k):
    """[m, D], [E, D], [E] -> weights [m, E], 0 for the experts that a token does not take"""
    experts, weights, scores = route(x, w_router, bias, k)
    mixing = np.zeros(scores.shape)
    np.put_along_axis(mixing, experts, weights, axis=1)
    return mixing


def _mixing(x, w_router, bias, k, *, softmax=False, choose="score + bias", mix="score", normal="chosen"):
    logits = x @ w_router.T
    scores = sigmoid(logits)
    if softmax:
        scores = np.exp(logits - logits.max(axis=1, keepdims=True))
        scores = scores / scores.sum(axis=1, keepdims=True)
    if choose == "logit + bias":
        scores = sigmoid(logits + bias)
    by = {"score + bias": scores + bias, "logit + bias": scores, "score": scores, "smallest": -scores - bias}[choose]
    experts = np.argsort(-by, axis=1, kind="stable")[:, :k]
    mixing = np.zeros(scores.shape)
    np.put_along_axis(mixing, experts, np.take_along_axis(scores + bias if mix == "biased" else scores, experts, 1), 1)
    total = {"chosen": mixing, "all": scores}.get(normal)
    return mixing if total is None else mixing / total.sum(axis=1, keepdims=True)


def _routing(seed, m, D, E, k, size=0.3):
    x, w, bias = _normal(seed, (m, D), (E, D), (E,))
    return x, w, size * bias, k


ROUTE = Exercise(
    "5.2", "choose and mix", mixing_weights,
    "scores = sigmoid(x @ w_router.T); the k largest of scores + bias; their scores alone, divided by their sum.",
    takes={"x": "m D", "w_router": "E D", "bias": "E", "k": None}, returns={"weights": "m E"},
    cases=(Case("for paper (one token, logits 0, 2, 1, bias .5, 0, 0, k = 2: scores .5, .881, .731)",
                (np.ones((1, 1)), np.array([[0.0], [2.0], [1.0]]), np.array([0.5, 0, 0]), 2), paper=True),
           Case("with a weak bias (m = 6, D = 3, E = 5, k = 2)", _routing(0, 6, 3, 5, 2)),
           Case("with a bias that decides (m = 9, D = 4, E = 7, k = 3)", _routing(1, 9, 4, 7, 3, size=2.0))),
    properties=(Property("each token's weights sum to 1",
                         lambda f: np.allclose(f(*_routing(2, 5, 3, 6, 2)).sum(axis=1), 1)),
                Property("each token has exactly k weights above 0",
                         lambda f: np.all((f(*_routing(3, 5, 3, 6, 2)) > 0).sum(axis=1) == 2)),
                Property("a bias common to all experts changes nothing",
                         lambda f: np.allclose(f(*_routing(4, 5, 3, 6, 2)), f(
                             *_routing(4, 5, 3, 6, 2)[:2], _routing(4, 5, 3, 6, 2)[2] + 0.7, 2)))),
    mistakes=(
        Mistake("The bias has got into the mixing weights: it takes part in the choice and in nothing else.",
                lambda x, w, b, k: _mixing(x, w, b, k, mix="biased")),
        Mistake("That is a softmax over the experts; each score is a sigmoid of its own logit.",
                lambda x, w, b, k: _mixing(x, w, b, k, softmax=True)),
        Mistake("The weights are not renormalised: divide by the sum of the chosen scores.",
                lambda x, w, b, k: _mixing(x, w, b, k, normal="no")),
        Mistake("You divide by the sum over all experts; divide by the sum over the chosen ones.",
                lambda x, w, b, k: _mixing(x, w, b, k, normal="all")),
        Mistake("You choose by the score alone: the k largest of scores + bias are wanted.",
                lambda x, w, b, k: _mixing(x, w, b, k, choose="score")),
        Mistake("The bias is added to the logits, before the sigmoid; it belongs to the scores, after it.",
                lambda x, w, b, k: _mixing(x, w, b, k, choose="logit + bias")),
        Mistake("You took the k smallest: argsort sorts upwards.",
                lambda x, w, b, k: _mixing(x, w, b, k, choose="smallest")),
    ))


# ---- 5.3 the activation

def _situ(gate, up, beta, linear_beta, *, slope=1.0, capped_sigmoid=False, cap_gate=True, cap_up=True, inside=True):
    capped_gate = beta * np.tanh(gate / (beta if inside else 1)) if cap_gate else gate
    capped_up = linear_beta * np.tanh(up / (linear_beta if inside else 1)) if cap_up else up
    return capped_gate * sigmoid(slope * (capped_gate if capped_sigmoid else gate)) * capped_up


def _branches(seed, F, size, beta, linear_beta):
    gate, up = _normal(seed, (F,), (F,))
    return size * gate, 3 * size * up, beta, linear_beta


SITU = Exercise(
    "5.3", "SiTU", situ_glu,
    "Three factors: beta tanh(gate / beta), sigmoid(gate), linear_beta tanh(up / linear_beta).",
    takes={"gate": "F", "up": "F", "beta": None, "linear_beta": None}, returns={"hidden": "F"},
    cases=(Case("for paper (gate = 4, up = 25, bounds 4 and 25)", (np.array([4.0]), np.array([25.0]), 4.0, 25.0),
                paper=True),
           Case("with small inputs (F = 5, bounds 4 and 25)", _branches(0, 5, 1.5, 4.0, 25.0)),
           Case("with large inputs (F = 8, bounds 2 and 9)", _branches(1, 8, 6.0, 2.0, 9.0))),
    properties=(Property("no output is larger than beta * linear_beta",
                         lambda f: np.all(np.abs(f(*_branches(2, 50, 1e4, 4.0, 25.0))) <= 100)),
                Property("tiny inputs give what SwiGLU gives, gate * sigmoid(gate) * up",
                         lambda f: np.allclose(f(np.array([1e-4]), np.array([2e-4]), 4.0, 25.0), 1e-8, rtol=1e-3,
                                               atol=0))),
    mistakes=(
        Mistake("beta is not the slope of the sigmoid: it bounds the gate, and the sigmoid takes the gate itself.",
                lambda g, u, b, c: g * sigmoid(b * g) * c * np.tanh(u / c)),
        Mistake("beta bounds the gate, but it does not also multiply inside the sigmoid.",
                lambda g, u, b, c: _situ(g, u, b, c, slope=b)),
        Mistake("The sigmoid takes the gate before the cap: sigmoid(gate), not sigmoid of beta tanh(gate / beta).",
                lambda g, u, b, c: _situ(g, u, b, c, capped_sigmoid=True)),
        Mistake("Only the gate is capped: the other branch has its own bound, linear_beta.",
                lambda g, u, b, c: _situ(g, u, b, c, cap_up=False)),
        Mistake("Only the up branch is capped: the gate has a bound too, beta.",
                lambda g, u, b, c: _situ(g, u, b, c, cap_gate=False)),
        Mistake("The bounds are swapped: beta belongs to the gate, linear_beta to the up branch.",
                lambda g, u, b, c: _situ(g, u, c, b)),
        Mistake("Divide by the bound inside tanh too; otherwise small inputs are multiplied by it.",
                lambda g, u, b, c: _situ(g, u, b, c, inside=False)),
        Mistake("That is SwiGLU: nothing is bounded yet.",
                lambda g, u, b, c: _situ(g, u, b, c, cap_gate=False, cap_up=False)),
    ))


# ---- 5.4 the whole layer

def latent_moe(x, w_router, bias, k, w_down, w1, w3, w2, norm, w_up, shared):
    """x [m, D] and the weights -> y [m, D]; shared [m, D]: what the shared experts give"""
    return _layer(x, w_router, bias, k, w_down, w1, w3, w2, norm, w_up, shared)


def _layer(x, w_router, bias, k, w_down, w1, w3, w2, norm, w_up, shared, *, norm_at="sum", router_on="x",
           experts_on="z", add="shared", weighted=True):
    z = x @ w_down.T
    if norm_at == "latent":
        z = rms_norm(z, norm)
    experts, weights, _ = route(z if router_on == "z" else x, w_router, bias, k)
    u = np.zeros(z.shape)
    for e in range(len(w1)):
        token, place = np.nonzero(experts == e)
        out = gated_ffn((x if experts_on == "x" else z)[token], w1[e], w3[e], w2[e])
        out = rms_norm(out, norm) if norm_at == "each" else out
        u[token] += (weights[token, place, None] if weighted else 1) * out
    u = rms_norm(u, norm) if norm_at == "sum" else u
    y = u @ w_up.T
    y = rms_norm(y, np.ones(y.shape[1])) if norm_at == "after" else y
    return y + {"shared": shared, "nothing": 0, "half": 0.5 * (shared - y)}[add]


def _moe(seed, m, D, L, F, E, k):
    x, wr, b, wd, w1, w3, w2, norm, wu, shared = _normal(
        seed, (m, D), (E, D), (E,), (L, D), (E, F, L), (E, F, L), (E, L, F), (L,), (D, L), (m, D))
    return x, wr, 0.2 * b, k, wd, w1, w3, w2, 1 + 0.3 * norm, wu, shared


LAYER = Exercise(
    "5.4", "the forward pass of the layer", latent_moe,
    "Route on x; z = x @ w_down.T; sum weight times gated_ffn(z, ...) over the experts; rms_norm; w_up; plus shared.",
    takes={"x": "m D", "w_router": "E D", "bias": "E", "k": None, "w_down": "L D", "w1": "E F L", "w3": "E F L",
           "w2": "E L F", "norm": "L", "w_up": "D L", "shared": "m D"}, returns={"y": "m D"},
    cases=(Case("for paper (one token, D = 2, L = 1, two experts, one chosen, norm 1)",
                (np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2), 1, np.array([[1.0, 1.0]]),
                 np.ones((2, 1, 1)), np.ones((2, 1, 1)), np.array([[[1.0]], [[-2.0]]]), np.ones(1),
                 np.array([[1.0], [3.0]]), np.array([[0.5, 0.5]])), paper=True),
           Case("with two of five experts (m = 7, D = 8, L = 4, F = 3)", _moe(0, 7, 8, 4, 3, 5, 2)),
           Case("with three of six experts (m = 4, D = 9, L = 5, F = 7)", _moe(1, 4, 9, 5, 7, 6, 3))),
    properties=(Property("twice the expert matrices w2 give (nearly) the same y: the norm takes the size away",
                         lambda f: np.allclose(f(*_moe(2, 5, 8, 4, 3, 6, 2)), f(
                             *_moe(2, 5, 8, 4, 3, 6, 2)[:7], 2 * _moe(2, 5, 8, 4, 3, 6, 2)[7],
                             *_moe(2, 5, 8, 4, 3, 6, 2)[8:]), rtol=1e-3, atol=1e-3)),),
    mistakes=(
        Mistake("The norm sits after W_down; it belongs before W_up, on the sum of the experts.",
                lambda *a: _layer(*a, norm_at="latent")),
        Mistake("There is no norm: the sum of the experts goes through rms_norm before W_up.",
                lambda *a: _layer(*a, norm_at="no")),
        Mistake("Each expert is normed by itself: norm the weighted sum, once.",
                lambda *a: _layer(*a, norm_at="each")),
        Mistake("The norm sits after W_up; it acts on the L numbers before it.",
                lambda *a: _layer(*a, norm_at="after")),
        Mistake("The router reads the latent z; it must see x at full width.",
                lambda *a: _layer(*a, router_on="z")),
        Mistake("The experts are fed x at full width; they read the latent z = W_down x.",
                lambda *a: _layer(*a, experts_on="x")),
        Mistake("The experts are summed without their weights.", lambda *a: _layer(*a, weighted=False)),
        Mistake("The shared experts are missing: add what they give, with weight one.",
                lambda *a: _layer(*a, add="nothing")),
        Mistake("Routed and shared part are averaged: they are added, each with weight one.",
                lambda *a: _layer(*a, add="half")),
    ))


EXERCISES = (ACTIVE, ROUTE, SITU, LAYER, SIGN, QUANTILE)
