"""How much a visit to an expert tells about the token: counts, bits, and a random router to compare with."""

import numpy as np

from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.shapes import check_shapes


def visits(experts, groups, number_of_groups, number_of_experts):
    """How often tokens of each group visit each expert.     experts [m, k], groups [m] -> counts [groups, experts]"""
    experts, groups = np.asarray(experts), np.asarray(groups)
    k = check_shapes("visits", experts=(experts, "m k"), groups=(groups, "m"))["k"]
    counts = np.zeros((number_of_groups, number_of_experts), np.int64)
    np.add.at(counts, (groups.repeat(k), experts.ravel()), 1)
    return counts


def mutual_information(counts):
    """Bits that a column tells about the row, and the other way round.                       [rows, columns] -> bits

    sum of P(r, c) log2( P(r, c) / (P(r) P(c)) ), with P the counts over their sum; 0 when they are independent.
    From few counts it comes out too large by about (rows - 1)(columns - 1) / (2 log 2 * sum of counts).

    >>> mutual_information([[3, 0], [0, 3]]), mutual_information([[2, 4], [1, 2]])
    (1.0, 0.0)
    """
    p = np.asarray(counts, dtype=np.float64)
    check_shapes("mutual_information", counts=(p, "rows columns"))
    p = p / p.sum()
    independent = p.sum(axis=1, keepdims=True) * p.sum(axis=0)
    there = p > 0
    return float(np.sum(p[there] * np.log2(p[there] / independent[there])))


def bias_for_loads(scores, loads, k, rounds=8):
    """A selection bias under which expert e is chosen about loads[e] times.              [m, E], [E] -> [E]

    `alternating_balance` of reference/quantile_balancing.py with a share of its own for each expert: thresholds of the
    tokens and biases in turn.
    """
    scores, loads = np.asarray(scores, dtype=np.float64), np.asarray(loads)
    m = check_shapes("bias_for_loads", scores=(scores, "m E"), loads=(loads, "E"))["m"]
    if not 1 <= k < scores.shape[1]:
        raise ValueError(f"bias_for_loads: k must be from 1 to E - 1 = {scores.shape[1] - 1}, but {k} came")
    bias, place = np.zeros(scores.shape[1]), np.minimum(loads, m - 1)
    for _ in range(rounds):
        threshold = np.sort(scores + bias, axis=1)[:, -k - 1, None]      # the best score not chosen  [m, 1]
        margin = -np.sort(threshold - scores, axis=0)                    # largest first  [m, E]
        new = -margin[place, np.arange(len(bias))]
        bias = new - new.mean()
    return bias


def random_choice(x, spread, loads, k, seed):
    """The experts that a random router chooses for the same vectors, with about the same loads.   [m, D] -> [m, k]

    spread  standard deviation of its weights;  loads [E] wanted
    """
    weight = np.random.default_rng(seed).normal(size=(len(loads), x.shape[1])) * spread
    scores = sigmoid(x @ weight.T)                                       # [m, E]
    return np.argsort(-(scores + bias_for_loads(scores, loads, k)), axis=1, kind="stable")[:, :k]
