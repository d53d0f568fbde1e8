"""Checks of chapter 08, the miniature K3: its plan, one layer, the end, counts, a tail, the first loss."""

import math

import numpy as np

from k3_scratch.accounting import parameters_of_layer
from k3_scratch.config import K3Config, preset
from k3_scratch.course.checks import ch08_wrong as wrong
from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.attention_residuals import depth_mix
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.short_convolution import short_convolution

# ---- 8.1 the plan


def layer_plan(layers, first_k_dense, block_size):
    """Which of the layers 0 ... L - 1 are MLA, which have the dense FFN, where a block starts.   -> three bool [L]"""
    config = K3Config(num_layers=len(layers), first_k_dense=first_k_dense, attn_res_block_size=block_size)
    return (np.array([config.is_mla(i) for i in layers]), np.array([config.is_dense(i) for i in layers]),
            np.array([i % block_size == 0 for i in layers]))


PLAN = Exercise(
    "8.1", "the plan of the layers", layer_plan,
    "MLA where layers % 4 is 3 and at the end, dense where layers < first_k_dense, a block where layers % size is 0.",
    takes={"layers": "L", "first_k_dense": None, "block_size": None},
    returns={"mla": "L", "dense": "L", "starts": "L"},
    cases=(Case("for paper (the miniature: 4 layers, 1 of them dense, blocks of 2)", (np.arange(4), 1, 2), paper=True),
           Case("of the real K3 (93 layers, 1 dense, blocks of 12)", (np.arange(93), 1, 12)),
           Case("with 7 layers, 3 dense, blocks of 3", (np.arange(7), 3, 3)),
           Case("with 1 layer", (np.arange(1), 1, 5)),
           Case("with 10 layers, none dense, blocks of 1", (np.arange(10), 0, 1))),
    properties=(Property("the last layer is always MLA",
                         lambda f: all(f(np.arange(L), 1, 2)[0][-1] for L in (1, 2, 5, 8, 27))),),
    mistakes=(
        Mistake("The last layer is missing: it is MLA too, whatever its number is.",
                lambda *a: wrong.plan(*a, last=False)),
        Mistake("Your MLA layers stand one place late: layers are counted from 0, so the fourth one is number 3.",
                lambda *a: wrong.plan(*a, fourth=0, skip_first=True)),
        Mistake("Each group of four begins with its MLA layer: three KDA layers come first.",
                lambda *a: wrong.plan(*a, fourth=0)),
        Mistake("KDA and MLA are exchanged: three of four layers are KDA.", lambda *a: wrong.plan(*a, turned=True)),
        Mistake("The blocks start one layer late: layer 0 starts the first.", lambda *a: wrong.plan(*a, late=True)),
        Mistake("You count a block in sublayers: its size counts decoder layers, two sublayers each.",
                lambda *a: wrong.plan(*a, sublayers=True)),
        Mistake("The dense FFN is in the first layers, not in the last.", lambda *a: wrong.plan(*a, dense_last=True)),
        Mistake("No dense layer is left: the first first_k_dense layers have no experts.",
                lambda *a: wrong.plan(*a, no_dense=True)),
    ))


# ---- 8.2 one decoder layer

def decoder_layer(bank, h, starts, attention, ffn, queries, gammas, norms):
    """One decoder layer with its mixes and norms.                       -> the new bank [M, T, D] and h"""
    a = depth_mix([*bank, h], queries[0], gammas[0])[0] if len(bank) else h
    y = attention(rms_norm(a, norms[0]))
    bank, h = ([*bank, h], y) if starts else ([*bank], h + y)
    m = depth_mix([*bank, h], queries[1], gammas[1])[0]
    return np.array(bank), h + ffn(rms_norm(m, norms[1]))


def _parts(seed, D):
    """Two functions [T, D] -> [T, D] that look at one token, or at those before it as well."""
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(2, D, D)) * D ** -0.5
    return lambda x: np.cumsum(x, axis=0) @ A, lambda x: np.tanh(x @ B)


def _layer(seed, N, T, D, starts):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(N, T, D)), 2 * rng.normal(size=(T, D)), starts, *_parts(seed, D), rng.normal(size=(2, D)),
            rng.uniform(0.5, 1.5, (2, D)), rng.uniform(0.4, 1.8, (2, D)))


_ON_PAPER = (np.array([[[1.0]]]), np.array([[3.0]]), True, lambda x: 5 * x, lambda x: 7 * x, np.zeros((2, 1)),
             np.ones((2, 1)), np.ones((2, 1)))


def _keeps_the_bank(f):
    arguments = _layer(7, 2, 3, 4, True)
    bank, _ = f(*arguments)
    return np.allclose(np.asarray(bank)[:2], arguments[0]) and np.allclose(np.asarray(bank)[2], arguments[1])


LAYER = Exercise(
    "8.2", "one decoder layer", decoder_layer,
    "mix, norm, attention; bank h if a block starts; add; mix anew, norm, FFN; add. The sublayers read normed mixes.",
    takes={"bank": "N T D", "h": "T D", "starts": None, "attention": None, "ffn": None, "queries": "2 D",
           "gammas": "2 D", "norms": "2 D"},
    returns={"bank": "M T D", "h": "T D"},
    cases=(Case("for paper (D = 1: bank 1, h = 3, a block starts, attention 5 x, FFN 7 x; but for eps a norm leaves "
                "the sign: bank 1, 3 and h = 5 + 7)", _ON_PAPER, paper=True),
           Case("inside a block (N = 2, T = 4, D = 5)", _layer(0, 2, 4, 5, False)),
           Case("where a block starts (N = 3, T = 2, D = 6)", _layer(1, 3, 2, 6, True)),
           Case("in layer 0 with nothing banked (N = 0, T = 3, D = 4)", _layer(2, 0, 3, 4, True))),
    properties=(Property("what is banked is h as it came in, behind the vectors that were there", _keeps_the_bank),),
    mistakes=(
        Mistake("The FFN does not see its own layer's attention: mix again after y has gone into h.",
                lambda *a: wrong.layer(*a, slip="FFN blind")),
        Mistake("You bank the mix: what is banked is the raw running sum h.",
                lambda *a: wrong.layer(*a, slip="mix banked")),
        Mistake("The running sum goes on: where a block starts it is y alone.",
                lambda *a: wrong.layer(*a, slip="sum goes on")),
        Mistake("You add h to the mix, as a residual: nothing is added around a mix.",
                lambda *a: wrong.layer(*a, slip="h added to the mix")),
        Mistake("The norm stands behind the sublayer: it belongs in front, on what the sublayer reads.",
                lambda *a: wrong.layer(*a, slip="norm behind the sublayer")),
        Mistake("The sublayers read their mix without a norm.", lambda *a: wrong.layer(*a, slip="no norm")),
        Mistake("Without mixes the sublayers read h: that is the plain residual stream.",
                lambda *a: wrong.layer(*a, slip="no mixes")),
        Mistake("The attention that starts a block reads h twice, banked and running: mix first, then bank.",
                lambda *a: wrong.layer(*a, slip="banked before the mix")),
        Mistake("The two queries are exchanged: row 0 belongs to the attention part.",
                lambda *a: wrong.layer(*a, slip="queries exchanged")),
        Mistake("The FFN's output replaces h: it is added to it.",
                lambda *a: wrong.layer(*a, slip="FFN replaces h")),
    ))


# ---- 8.3 the end

def last_steps(bank, h, query, gamma, norm, embedding, head):
    """From the last running sum to logits.                                                            -> [T, vocab]"""
    return rms_norm(depth_mix([*bank, h], query, gamma)[0], norm) @ head.T


def _end(seed, N, T, D, vocab):
    rng = np.random.default_rng(seed)
    return (2 * rng.normal(size=(N, T, D)), rng.normal(size=(T, D)), rng.normal(size=D), rng.uniform(0.5, 1.5, D),
            rng.uniform(0.4, 1.8, D), rng.normal(size=(vocab, D)), rng.normal(size=(vocab, D)))


def _all_tokens(f):
    arguments = _end(5, 2, 4, 3, 6)
    short = (arguments[0][:, :2], arguments[1][:2], *arguments[2:])
    return np.allclose(f(*arguments)[:2], f(*short))


END = Exercise(
    "8.3", "from the last sum to the logits", last_steps,
    "depth_mix of [*bank, h] with the output's query, then rms_norm with the last norm, then the head's rows.",
    takes={"bank": "N T D", "h": "T D", "query": "D", "gamma": "D", "norm": "D", "embedding": "E D", "head": "E D"},
    returns={"logits": "T E"},
    cases=(Case("for paper (D = 1: bank 1, h = 3, query 0, norm 2, head 5 and -1: the mix 2 is normed to 1)",
                (np.array([[[1.0]]]), np.array([[3.0]]), np.zeros(1), np.ones(1), np.array([2.0]),
                 np.array([[0.5], [0.7]]), np.array([[5.0], [-1.0]])), paper=True),
           Case("with two banked vectors (N = 2, T = 4, D = 5, 7 tokens known)", _end(0, 2, 4, 5, 7)),
           Case("with one (N = 1, T = 2, D = 6, 3 tokens known)", _end(1, 1, 2, 6, 3))),
    properties=(Property("a token's logits do not depend on later tokens", _all_tokens),),
    mistakes=(
        Mistake("The mix is missing: the output reads the bank as well, with a query of its own.",
                lambda *a: wrong.end(*a, slip="no mix at the end")),
        Mistake("The last norm is missing: it stands between the mix and the head.",
                lambda *a: wrong.end(*a, slip="no norm at the end")),
        Mistake("The head is not the embedding turned round: it has a table of its own.",
                lambda *a: wrong.end(*a, slip="embedding as head")),
        Mistake("You norm the sources and then mix: mix the raw vectors, and norm the mixture.",
                lambda *a: wrong.end(*a, slip="norm before the mix")),
        Mistake("Those are probabilities: wanted are the logits, before any softmax.",
                lambda *a: wrong.end(*a, slip="softmax")),
        Mistake("gamma belongs to the keys of the mix; the last norm has a weight of its own.",
                lambda *a: wrong.end(*a, slip="gamma as norm")),
        Mistake("The sum of all sources is what a plain residual hands on: here a softmax chooses.",
                lambda *a: wrong.end(*a, slip="sum")),
    ))


# ---- 8.5 one token through the convolution

def tail_step(tail, x, taps):
    """One token through the short convolution.                  [3, P], [P], [P, 4] -> y [P], the new tail [3, P]"""
    y, new = short_convolution(x[None], taps, tail)
    return y[0], new


def _channels(seed, P, W):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(W - 1, P)), rng.normal(size=P), rng.normal(size=(P, W))


def _token_by_token(f):
    _, _, taps = _channels(6, 3, 4)
    x, tail, rows = np.random.default_rng(7).normal(size=(5, 3)), np.zeros((3, 3)), []
    for row in x:
        y, tail = f(tail, row, taps)
        rows.append(y)
    return np.allclose(rows, short_convolution(x, taps)[0])


TAIL = Exercise(
    "8.5", "one token through the convolution", tail_step,
    "Put x behind the tail: oldest to newest, as the taps are. y sums over the rows; the new tail drops the first.",
    takes={"tail": "N P", "x": "P", "taps": "P W"}, returns={"y": "P", "tail": "N P"},
    cases=(Case("for paper (one channel, tail 1, 2, 3, x = 4, taps 1000, 100, 10, 1)",
                (np.array([[1.0], [2.0], [3.0]]), np.array([4.0]), np.array([[1000.0, 100.0, 10.0, 1.0]])),
                paper=True),
           Case("with four taps (P = 5)", _channels(0, 5, 4)), Case("with three taps (P = 6)", _channels(1, 6, 3)),
           Case("at the beginning of a text, after a tail of zeros (P = 6)",
                (np.zeros((3, 6)), *_channels(2, 6, 4)[1:]))),
    properties=(Property("five tokens one by one give what the whole convolution gives", _token_by_token),),
    mistakes=(
        Mistake("The taps are reversed: the last one meets the current token.",
                lambda *a: wrong.tail(*a, reverse=True)),
        Mistake("The tail holds what goes *into* the convolution: you keep its output y.",
                lambda *a: wrong.tail(*a, keep="output")),
        Mistake("The tail holds values before SiLU: the activation comes after the convolution.",
                lambda *a: wrong.tail(*a, keep="activated")),
        Mistake("The tail does not move: drop its oldest row and append x.", lambda *a: wrong.tail(*a, keep="old")),
        Mistake("The current token is missing: y looks at the tail and at x.", lambda *a: wrong.tail(*a, blind=True)),
        Mistake("The new tail keeps its oldest row: that is the one to drop.",
                lambda *a: wrong.tail(*a, keep="oldest")),
        Mistake("The tail has one row too many: taps - 1 rows are enough, the next token brings its own.",
                lambda *a: wrong.tail(*a, keep="all")),
    ))


# ---- 8.6 the loss before training

def first_loss(vocab, width, std):
    """Mean cross-entropy of a model whose logits are random: log(vocab) + width * std^2 / 2.          [n] -> [n]"""
    return math.log(vocab) + width * std ** 2 / 2


FIRST_LOSS = Exercise(
    "8.6", "the loss before training", first_loss,
    "A logit is a sum of `width` products with variance std^2 each; put s^2 = width std^2 into log V + s^2 / 2.",
    takes={"vocab": None, "width": None, "std": "n"}, returns={"loss": "n"},
    cases=(Case("for paper (one token known, width 2, std 1: log 1 + 2 / 2)", (1, 2, np.array([1.0])), paper=True),
           Case("of the miniature (260 tokens, width 64, std 0.02)", (260, 64, np.array([0.02]))),
           Case("of the real sizes (163,840 tokens, width 7,168, std 0.02)", (163_840, 7168, np.array([0.02]))),
           Case("with 50 tokens, width 30, four values of std", (50, 30, np.array([0.0, 0.1, 0.3, 0.7])))),
    properties=(Property("with std = 0 all tokens are equally likely: log(vocab)",
                         lambda f: np.isclose(f(97, 64, np.zeros(2)), math.log(97)).all()),),
    mistakes=(
        Mistake("That is the loss of equal logits: random ones cost s^2 / 2 more.",
                lambda v, d, s: math.log(v) + 0 * s),
        Mistake("Loss is measured with the natural logarithm, not in bits.",
                lambda v, d, s: math.log2(v) + d * s ** 2 / 2),
        Mistake("The half is missing: the mean of e^z is e^(s^2 / 2).", lambda v, d, s: math.log(v) + d * s ** 2),
        Mistake("The width is missing: a logit sums `width` products, so its variance is width std^2.",
                lambda v, d, s: math.log(v) + s ** 2 / 2),
        Mistake("std enters squared: variances add up, not standard deviations.",
                lambda v, d, s: math.log(v) + d * s / 2),
        Mistake("The sign is turned: confident nonsense costs more than no opinion.",
                lambda v, d, s: math.log(v) - d * s ** 2 / 2),
        Mistake("What the normed vector is multiplied with is not divided by the root of the width here.",
                lambda v, d, s: math.log(v) + s ** 2 * d ** 0.5 / 2),
    ))


_parts_of_1 = parameters_of_layer(preset("mini"), 1)
_total, _expert = sum(_parts_of_1.values()), _parts_of_1["routed_experts"] // 16
_resting = 14 * _expert

EXERCISES = (
    PLAN, LAYER, END,
    Exercise("8.4", "the parameters of one layer, and those that work", [_total, _total - _resting],
             "KDA + router and its 16 biases + 16 experts + two matrices and the norm of the latent + shared + 6 D.",
             mistakes=(
                 Mistake("The two norms, two queries and two norms of the mixes are missing, 6 vectors of D numbers.",
                         [_total - 384, _total - 384 - _resting]),
                 Mistake("The selection bias is missing: the router has one number more for each expert.",
                         [_total - 16, _total - 16 - _resting]),
                 Mistake("The experts work between L = 32 and F = 64, not at the full width D.",
                         [_total + 16 * _expert, _total + 2 * _expert - _resting]),
                 Mistake("Two experts work for a token: 14 of 16 rest, not 15.",
                         [_total, _total - _resting - _expert]),
                 Mistake("The shared expert always works, beside the two that were chosen.",
                         [_total, _total - _resting - _parts_of_1["shared_experts"]]),
                 Mistake("All sixteen experts exist, but only two of them work for a token.", [_total, _total]),
                 Mistake("All sixteen experts exist, also those that rest: the first number counts them.",
                         [_total - _resting, _total - _resting]))),
    TAIL, FIRST_LOSS)
