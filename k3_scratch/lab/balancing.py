"""The rules that set a router's bias, under one name each, and how far loads are from even."""

import numpy as np

from k3_scratch.reference.quantile_balancing import quantile_bias, quantile_bias_histogram
from k3_scratch.reference.sign_rule import sign_rule


def next_bias(rule, scores, bias, counts, k):
    """The bias for the next batch.                          scores [m, E], bias [E], counts [E] -> float64 [E]

    rule   "none", "quantile", "histogram BINS" such as "histogram 1000", or "sign RATE" such as "sign 0.001"
    """
    bias = np.asarray(bias, dtype=np.float64)
    if rule == "none":
        return bias
    if rule == "quantile":
        return quantile_bias(scores, bias, k)
    name, _, number = rule.partition(" ")
    if name not in ("histogram", "sign") or not number:
        raise ValueError(f"rule must be none, quantile, 'histogram BINS' or 'sign RATE', but {rule!r} came")
    return quantile_bias_histogram(scores, bias, k, int(number)) if name == "histogram" else \
        sign_rule(bias, counts, float(number))


def loads(scores, bias, k):
    """Tokens that each expert gets: the k largest of score + bias, ties to the lower number.   [m, E], [E] -> [E]"""
    chosen = np.argsort(-(scores + bias), axis=1, kind="stable")[:, :k]
    return np.bincount(chosen.ravel(), minlength=scores.shape[1])


def imbalance(counts):
    """Largest distance of a load from the mean, as a share of the mean.   [..., E] -> [...]

    >>> float(imbalance(np.array([5, 10, 15])))
    0.5
    """
    mean = np.mean(counts, axis=-1, keepdims=True)
    return np.abs(counts / mean - 1).max(axis=-1)


def sampling_error(tokens, k, experts, seed=0, draws=2000):
    """The imbalance that a batch shows by chance when every expert is chosen with the same probability k / E.

    Mean over `draws` batches of independent tokens; real tokens of a batch resemble each other, so theirs is larger.
    """
    rng = np.random.default_rng(seed)
    return float(imbalance(rng.binomial(tokens, k / experts, size=(draws, experts))).mean())
