"""Checks of chapter 06, attention residuals. Tokens [T, D]; N sources over depth; L decoder layers, 2 L sublayers."""

import numpy as np

from k3_scratch.accounting.flops import depth_sources
from k3_scratch.config import K3Config
from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.attention_residuals import (
    block_attention_residuals,
    depth_mix,
    full_attention_residuals,
)
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.reference.softmax import softmax

# ---- 6.2 one mix over depth


def _mix(sources, query, gamma, *, norm_keys=True, norm_values=False, gamma_on_values=False, gamma_on_keys=True,
         over_root=False, over_tokens=False, averaged=False, added_back=False):
    keys = rms_norm(sources, np.ones(len(query))) if norm_keys else sources
    scores = keys @ (query * gamma if gamma_on_keys else query) / (len(query) ** 0.5 if over_root else 1.0)
    if averaged:
        scores = np.broadcast_to(scores.mean(axis=1, keepdims=True), scores.shape)
    weights = softmax(scores, axis=1 if over_tokens else 0)
    values = keys if norm_values else sources
    mixed = np.einsum("nt,ntd->td", weights, values * gamma if gamma_on_values else values)
    return mixed + sources[-1] if added_back else mixed, weights


def _sources(seed, N, T, D, largest=4.0):
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(0.3, largest, (N, 1, 1))
    return sizes * rng.normal(size=(N, T, D)), rng.normal(size=D), rng.uniform(0.4, 1.8, D)


def _sees_no_later_token(f):
    sources, query, gamma = _sources(5, 3, 4, 6)
    changed = sources.copy()
    changed[:, -1] += 3.0
    return np.allclose(f(sources, query, gamma)[1][:, :-1], f(changed, query, gamma)[1][:, :-1])


MIX = Exercise(
    "6.2", "one mix over depth", depth_mix,
    "Scores from the normed sources, softmax over axis 0 (the sources), then the weighted sum of the raw sources.",
    takes={"sources": "N T D", "query": "D", "norm_weight": "D"}, returns={"mixed": "T D", "weights": "N T"},
    cases=(Case("for paper (two sources 2 and -3, T = D = 1, query log(3)/2: but for eps the weights are 3/4 and 1/4)",
                (np.array([[[2.0]], [[-3.0]]]), np.array([np.log(3) / 2]), np.ones(1)), paper=True),
           Case("with small and large sources (N = 3, T = 5, D = 4)", _sources(0, 3, 5, 4)),
           Case("with many sources (N = 7, T = 2, D = 6)", _sources(1, 7, 2, 6, largest=2.0))),
    properties=(Property("a query of zero gives the plain mean",
                         lambda f: np.allclose(f(_sources(2, 3, 2, 5)[0], np.zeros(5), np.ones(5))[0],
                                               _sources(2, 3, 2, 5)[0].mean(axis=0))),
                Property("the weights of a token do not depend on later tokens", _sees_no_later_token)),
    mistakes=(
        Mistake("You mix the normed sources: norm the keys alone, and mix the vectors as they are.",
                lambda *a: _mix(*a, norm_values=True)),
        Mistake("You divide the scores by the root of D: there is no such factor here.",
                lambda *a: _mix(*a, over_root=True)),
        Mistake("The norm weight multiplies the values: it belongs into the scores alone.",
                lambda *a: _mix(*a, gamma_on_values=True)),
        Mistake("The norm weight is missing: the query meets norm_weight * v / rms(v).",
                lambda *a: _mix(*a, gamma_on_keys=False)),
        Mistake("The keys are not normed: a source that is merely large then wins.",
                lambda *a: _mix(*a, norm_keys=False)),
        Mistake("The softmax runs over the tokens: it must run over the sources, axis 0.",
                lambda *a: _mix(*a, over_tokens=True)),
        Mistake("You average the scores over the tokens: a token's weights then know the future.",
                lambda *a: _mix(*a, averaged=True)),
        Mistake("You add the newest source once more, as a residual: the mix stands alone.",
                lambda *a: _mix(*a, added_back=True)),
    ))


# ---- 6.3 the full form

def full(embedding, sublayers, queries, norm_weights):
    """[T, D], M functions, [M+1, D], [M+1, D] -> the output mix [T, D]"""
    return full_attention_residuals(embedding, sublayers, queries, norm_weights)[0]


def _full(e, sublayers, queries, gammas, *, added_back=False, cumulative=False, no_mix=False, late=False, roll=0,
          no_embedding=False):
    sources, queries, gammas = [e], np.roll(queries, roll, axis=0), np.roll(gammas, roll, axis=0)
    for f, w, gamma in zip(sublayers, queries, gammas, strict=False):
        seen = sources[:-1] if late and len(sources) > 1 else sources[1:] if no_embedding and len(sources) > 1 \
            else sources
        x = depth_mix(seen, w, gamma)[0]
        y = f(x)
        sources.append(x + y if added_back else sources[-1] + y if cumulative else y)
    if no_mix:
        return sources[-1]
    return depth_mix(sources[1:] if no_embedding else sources, queries[-1], gammas[-1])[0]


def _sublayers(seed, M, D):
    """M functions x -> tanh(norm(x) A) B, each with its own matrices."""
    rng = np.random.default_rng(seed)

    def one(A, B):
        return lambda x: np.tanh(rms_norm(x, np.ones(D)) @ A) @ B
    return [one(rng.normal(size=(D, D + 1)) * D ** -0.5, rng.normal(size=(D + 1, D))) for _ in range(M)]


def _network(seed, M, T, D, strength=1.0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(T, D)), _sublayers(seed + 100, M, D), strength * rng.normal(size=(M + 1, D)),
            rng.uniform(0.4, 1.8, (M + 1, D)))


_ON_PAPER = [lambda x: x + 1, lambda x: 2 * x, lambda x: x - 1, lambda x: 3 * x]

FULL = Exercise(
    "6.3", "the full form", full,
    "A list that begins with the embedding; each sublayer reads a mix of all of it and appends its output; mix again.",
    takes={"embedding": "T D", "sublayers": None, "queries": "Q D", "norm_weights": "Q D"}, returns={"output": "T D"},
    cases=(Case("for paper (embedding 2, sublayers x + 1 and 2 x, queries 0: means of 2; 2, 3; 2, 3, 5)",
                (np.array([[2.0]]), _ON_PAPER[:2], np.zeros((3, 1)), np.ones((3, 1))), paper=True),
           Case("with strong queries (M = 4, T = 3, D = 6)", _network(0, 4, 3, 6)),
           Case("with weak queries (M = 7, T = 2, D = 5)", _network(1, 7, 2, 5, strength=0.2))),
    properties=(Property("without sublayers the embedding comes out",
                         lambda f: np.allclose(f(np.ones((2, 3)), [], np.ones((1, 3)), np.ones((1, 3))), 1.0)),),
    mistakes=(
        Mistake("You add the input to the output of a sublayer: the source is the output alone, nothing is added.",
                lambda *a: _full(*a, added_back=True)),
        Mistake("Your sources are running sums: append each output as it is.", lambda *a: _full(*a, cumulative=True)),
        Mistake("The last output is returned without a mix: the output has a query of its own.",
                lambda *a: _full(*a, no_mix=True)),
        Mistake("A sublayer does not see the output right before it: mix after that has been appended.",
                lambda *a: _full(*a, late=True)),
        Mistake("The queries are shifted: sublayer i uses number i, the output uses the last one.",
                lambda *a: _full(*a, roll=1)),
        Mistake("The embedding is read by the first sublayer alone: it stays a source for all.",
                lambda *a: _full(*a, no_embedding=True)),
    ))


# ---- 6.4 how many sources each mix reads

def counts(num_layers, block_size):
    """Sources of each of the 2 L + 1 mixes of the block form.                                      -> int [2 L + 1]"""
    config = K3Config(num_layers=num_layers, first_k_dense=0, attn_res_block_size=block_size)
    return np.maximum(1, depth_sources(config))          # the first reads the embedding alone, without a softmax


def _counts(L, S, *, seals=lambda layer, S: layer % S == 0, early=False, h=1, output=True, unit=1):
    found, banked = [], 0
    for layer in range(L):
        starts = seals(unit * layer, S)
        found += [max(1, banked + (early and starts) + h), max(1, banked + starts + h)]
        banked += starts
    return np.array([*found, banked + h] if output else found)


COUNTS = Exercise(
    "6.4", "how many sources each mix reads", counts(9, 4),
    "Attention side: what is banked so far, and h. FFN side: the same, after the sum has been banked. Then the output.",
    mistakes=(
        Mistake("The block starts one layer late: layer i starts one when i % block_size is 0, layer 0 too.",
                _counts(9, 4, seals=lambda layer, S: layer % S == 1)),
        Mistake("The attention that starts a block still reads the old bank: the sum is banked after its mix.",
                _counts(9, 4, early=True)),
        Mistake("The running sum h is a source too: one more than there are banked vectors.", _counts(9, 4, h=0)),
        Mistake("The output has a mix of its own: there are 2 L + 1 numbers.", _counts(9, 4, output=False)),
        Mistake("You count a block in sublayers: in K3 its size counts decoder layers, two sublayers each.",
                _counts(9, 4, unit=2)),
    ))


# ---- 6.5 the block form

def block(embedding, sublayers, queries, norm_weights, block_size):
    """[T, D], 2 L functions, [2 L + 1, D], [2 L + 1, D], layers a block -> the output mix [T, D]"""
    return block_attention_residuals(embedding, sublayers, queries, norm_weights, block_size)[0]


def _block(e, sublayers, queries, gammas, S, *, late=False, blind=False, zero_first=False, cumulative=False,
           added_back=False, no_mix=False, seal_mix=False, boundary_reads_new=False, lost=False):
    bank, h = [np.zeros_like(e)] if zero_first else [], e

    def mix(place, bank, h):
        sources = [*bank, h]
        x = sources[0] if len(sources) == 1 else depth_mix(sources, queries[place], gammas[place])[0]
        return x + h if added_back and len(sources) > 1 else x

    for layer in range(len(sublayers) // 2):
        starts = layer > 0 and (layer - 1) % S == 0 if late else layer % S == 0
        starts = starts and not (zero_first and layer == 0)
        sealed = [*bank, h] if starts else bank
        x = mix(2 * layer, sealed if boundary_reads_new else bank, h)
        if starts and seal_mix:
            sealed = [*bank, x]
        y = sublayers[2 * layer](x)
        before, h = (bank, h), y if starts and not cumulative else h + y
        bank = sealed
        m = mix(2 * layer + 1, *(before if blind else (bank, h)))
        h = (0 if lost else h) + sublayers[2 * layer + 1](m)
    return h if no_mix else mix(len(sublayers), bank, h)


def _blocks(seed, L, S, T, D, strength=1.0):
    return (*_network(seed, 2 * L, T, D, strength), S)


BLOCK = Exercise(
    "6.5", "the block form", block,
    "Per layer, in this order: mix, seal if a block starts, attention into h, mix again, FFN into h. At the end a mix.",
    takes={"embedding": "T D", "sublayers": None, "queries": "Q D", "norm_weights": "Q D", "block_size": None},
    returns={"output": "T D"},
    cases=(Case("for paper (embedding 2; x + 1, 2 x, x - 1, 3 x; queries 0, block 1: at the end the mean of 2, 8, 18)",
                (np.array([[2.0]]), _ON_PAPER, np.zeros((5, 1)), np.ones((5, 1)), 1), paper=True),
           Case("with 5 layers in blocks of 2 (T = 3, D = 4)", _blocks(0, 5, 2, 3, 4)),
           Case("with 4 layers in blocks of 3 and weak queries (T = 2, D = 7)", _blocks(1, 4, 3, 2, 7, 0.2)),
           Case("with 2 layers in one block of 6 (T = 4, D = 3)", _blocks(2, 2, 6, 4, 3))),
    properties=(Property("without sublayers the embedding comes out",
                         lambda f: np.allclose(f(np.ones((2, 3)), [], np.ones((1, 3)), np.ones((1, 3)), 2), 1.0)),),
    mistakes=(
        Mistake("The block starts one layer late: layer 0 already banks the embedding.",
                lambda *a: _block(*a, late=True)),
        Mistake("The FFN does not see its own layer's attention: bring the bank and h up to date, then mix again.",
                lambda *a: _block(*a, blind=True)),
        Mistake("A zero vector is the first source: the bank starts empty, and the embedding is banked first.",
                lambda *a: _block(*a, zero_first=True)),
        Mistake("Your sources are sums from the beginning: h starts anew, as y alone, when a block starts.",
                lambda *a: _block(*a, cumulative=True)),
        Mistake("You add h to the mix, as a residual: nothing is added around a mix.",
                lambda *a: _block(*a, added_back=True)),
        Mistake("The running sum comes out without a mix: the output reads the bank too, with the last query.",
                lambda *a: _block(*a, no_mix=True)),
        Mistake("You bank the mix: what is banked is the raw running sum h.", lambda *a: _block(*a, seal_mix=True)),
        Mistake("The attention that starts a block reads h twice, banked and running: mix first, then bank.",
                lambda *a: _block(*a, boundary_reads_new=True)),
        Mistake("The FFN's output replaces h: inside a block it is added.", lambda *a: _block(*a, lost=True)),
    ))


# ---- 6.6 two parts of a softmax merged

def merge(log_total, mean, h, score):
    """The newest source h, with its score, joins a mean over the others.     [T], [T, D], [T, D], [T] -> [T, D]"""
    return mean + sigmoid(score - log_total)[:, None] * (h - mean)


def _two_exponentials(log_total, mean, h, score):
    with np.errstate(all="ignore"):
        one, other = np.exp(log_total)[:, None], np.exp(score)[:, None]
        return (one * mean + other * h) / (one + other)


def _parts(seed, T, D, size):
    rng = np.random.default_rng(seed)
    return size * rng.normal(size=T), rng.normal(size=(T, D)), rng.normal(size=(T, D)), size * rng.normal(size=T)


MERGE = Exercise(
    "6.6", "two parts of a softmax merged", merge,
    "The weight of h is e^score / (Z + e^score) with Z = e^log_total: a sigmoid of score - log_total.",
    takes={"log_total": "T", "mean": "T D", "h": "T D", "score": "T"}, returns={"mixed": "T D"},
    cases=(Case("for paper (Z = 3, mean 4, h = 8, score 0: a quarter of the way from 4 to 8)",
                (np.array([np.log(3.0)]), np.array([[4.0]]), np.array([[8.0]]), np.zeros(1)), paper=True),
           Case("with small scores (T = 5, D = 3)", _parts(0, 5, 3, 1.0)),
           Case("with large scores (T = 6, D = 2)",
                (np.array([900.0, -900.0, 900.0, 0.0, 750.0, -5.0]), *_parts(1, 6, 2, 1.0)[1:3],
                 np.array([901.0, -901.0, -900.0, 800.0, 750.5, -5.0])))),
    properties=(Property("a score equal to log_total gives the point half-way",
                         lambda f: np.allclose(f(np.ones(2), np.zeros((2, 3)), np.ones((2, 3)), np.ones(2)), 0.5)),),
    mistakes=(
        Mistake("The bank's total is left out: h stands against all banked vectors together, score - log_total.",
                lambda z, m, h, s: m + sigmoid(s)[:, None] * (h - m)),
        Mistake("The sign is turned: the more score exceeds log_total, the more of h.",
                lambda z, m, h, s: m + sigmoid(z - s)[:, None] * (h - m)),
        Mistake("The mean keeps its full weight: what h gets is taken from it, so add h - mean, not h.",
                lambda z, m, h, s: m + sigmoid(s - z)[:, None] * h),
        Mistake("Half and half is right only when score equals log_total.",
                lambda z, m, h, s: (m + h) / 2),
        Mistake("Your exponentials overflow beyond about 709: only the difference score - log_total is needed.",
                _two_exponentials),
    ))


EXERCISES = (
    Exercise("6.1", "how large the sum gets", 187 ** 0.5,
             "One embedding and 2 * 93 outputs; the squares of independent vectors add up, then take the root.",
             tolerance=1e-3,
             mistakes=(Mistake("Lengths add up only when all vectors point the same way; here their squares do.", 187),
                       Mistake("The embedding is one of the terms too: 187 of them.", 186 ** 0.5),
                       Mistake("A layer has two sublayers, and both write.", 94 ** 0.5),
                       Mistake("That is the share that one of them has in the whole; asked is the whole.",
                               187 ** -0.5))),
    MIX, FULL, COUNTS, BLOCK, MERGE)
