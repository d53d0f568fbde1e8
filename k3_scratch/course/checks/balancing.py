"""The two exercises of chapter 05 about balancing: the sign rule and Quantile Balancing. Scores [m, E], k a token."""

import numpy as np

from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.quantile_balancing import quantile_bias
from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.reference.sign_rule import sign_rule

# ---- 5.5 the sign rule over several batches

def sign_rule_run(scores, rate, k):
    """scores [n, m, E] of n batches -> loads [n, E] of each, bias [E] after the last"""
    return _signs(scores, rate, k)


def _signs(scores, rate, k, *, sign=1, same_batch=False, proportional=False, use_bias=True):
    n, m, E = scores.shape
    bias, loads = np.zeros(E), np.zeros((n, E), dtype=np.int64)
    for t in range(n):
        if same_batch:
            bias = sign_rule(bias, _load(scores[t], bias, k), rate)
        loads[t] = _load(scores[t], bias if use_bias else 0.0, k)
        if proportional:
            bias = bias + rate * (loads[t].mean() - loads[t]) / loads[t].mean()
        elif not same_batch:
            bias = sign_rule(bias, loads[t], sign * rate)
    return loads, bias


def _load(scores, bias, k):
    chosen = np.argsort(-(scores + bias), axis=1, kind="stable")[:, :k]
    return np.bincount(chosen.ravel(), minlength=scores.shape[1])


def _batches(seed, n, m, E):
    rng = np.random.default_rng(seed)
    return sigmoid(rng.normal(size=(n, m, E)) + rng.normal(size=E))


SIGN = Exercise(
    "5.5", "the sign rule over batches", sign_rule_run,
    "For each batch: count with the bias as it is, keep the counts, then bias + rate * sign(mean load - load).",
    takes={"scores": "n m E", "rate": None, "k": None}, returns={"loads": "n E", "bias": "E"},
    cases=(Case("for paper (two batches of two tokens, three experts, k = 1, rate .1)",
                (np.array([[[0.9, 0.85, 0.1], [0.8, 0.2, 0.1]], [[0.9, 0.85, 0.1], [0.7, 0.2, 0.6]]]), 0.1, 1),
                paper=True),
           Case("with small steps (n = 6, m = 40, E = 5, k = 2)", (_batches(0, 6, 40, 5), 0.01, 2)),
           Case("with large steps (n = 9, m = 30, E = 7, k = 3)", (_batches(1, 9, 30, 7), 0.15, 3))),
    properties=(Property("the first batch is chosen without a bias",
                         lambda f: np.array_equal(f(_batches(2, 3, 20, 4), 0.5, 1)[0][0],
                                                  _load(_batches(2, 3, 20, 4)[0], 0.0, 1))),),
    mistakes=(
        Mistake("The sign is turned: an expert with too little load needs a larger bias, sign(mean load - load).",
                lambda s, r, k: _signs(s, r, k, sign=-1)),
        Mistake("The bias is used on the batch that made it: count first, the new bias is for the next batch.",
                lambda s, r, k: _signs(s, r, k, same_batch=True)),
        Mistake("The step is proportional to the gap: only its sign counts, every step is one rate long.",
                lambda s, r, k: _signs(s, r, k, proportional=True)),
        Mistake("The loads are counted without the bias, so it never has an effect.",
                lambda s, r, k: _signs(s, r, k, use_bias=False)),
    ))


# ---- 5.6 one step of Quantile Balancing

def _quantile(scores, bias, k, *, rank=1, threshold=0, centred=True, biased_margin=False, sign=-1, add=False,
              interpolated=False):
    m, E = scores.shape
    alpha = np.sort(scores + bias, axis=1)[:, ::-1][:, k + threshold, None]
    margins = scores - alpha + (bias if biased_margin else 0)
    new = sign * np.sort(margins, axis=0)[::-1][m * k // E + rank - 1]
    new = -np.quantile(margins, 1 - k / E, axis=0) if interpolated else new
    new = new + bias if add else new
    return new - new.mean() if centred else new


def _scores(seed, m, E, k, size=0.3):
    rng = np.random.default_rng(seed)
    return sigmoid(rng.normal(size=(m, E)) + rng.normal(size=E)), size * rng.normal(size=E), k


PAPER = np.array([[0.9, 0.3, 0.2], [0.8, 0.7, 0.1], [0.6, 0.5, 0.4]])

QUANTILE = Exercise(
    "5.6", "one step of Quantile Balancing", quantile_bias,
    "alpha: (k+1)-th largest of scores + bias; margins = scores - alpha; minus the (floor(q)+1)-th largest; centre.",
    takes={"scores": "m E", "bias": "E", "k": None}, returns={"new_bias": "E"},
    cases=(Case("for paper (three tokens, three experts, k = 1, bias 0)", (PAPER, np.zeros(3), 1), paper=True),
           Case("with a whole share (m = 15, E = 5, k = 2: q = 6)", _scores(0, 15, 5, 2)),
           Case("with a fraction (m = 13, E = 6, k = 2: q = 4.33)", _scores(1, 13, 6, 2)),
           Case("with a large old bias (m = 23, E = 7, k = 3)", _scores(2, 23, 7, 3, size=1.5))),
    properties=(Property("the new bias has the mean 0", lambda f: abs(f(*_scores(3, 11, 4, 2)).mean()) < 1e-12),
                Property("an old bias that is the same for all experts changes nothing",
                         lambda f: np.allclose(f(*_scores(4, 11, 4, 2)), f(
                             _scores(4, 11, 4, 2)[0], _scores(4, 11, 4, 2)[1] + 0.4, 2)))),
    mistakes=(
        Mistake("The rank is one too early: minus the (floor(q)+1)-th largest margin, with index floor(q) from 0.",
                lambda s, b, k: _quantile(s, b, k, rank=0)),
        Mistake("The new bias is not centred: subtract its mean at the end.",
                lambda s, b, k: _quantile(s, b, k, centred=False)),
        Mistake("The threshold is the k-th largest; it is the (k+1)-th, the best expert that the token does not take.",
                lambda s, b, k: _quantile(s, b, k, threshold=-1)),
        Mistake("The old bias is in the margins too; it is in the thresholds only, margins are scores - alpha.",
                lambda s, b, k: _quantile(s, b, k, biased_margin=True)),
        Mistake("The sign is turned: the bias is minus the margin, a favourite gets a lower one.",
                lambda s, b, k: _quantile(s, b, k, sign=1)),
        Mistake("You added the new bias to the old one; it takes the old one's place.",
                lambda s, b, k: _quantile(s, b, k, add=True)),
        Mistake("np.quantile interpolates between two margins; take the sorted margin itself.",
                lambda s, b, k: _quantile(s, b, k, interpolated=True)),
    ))
