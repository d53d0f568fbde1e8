"""Quantile Balancing: the bias with which an expert would have got exactly its share of this batch.

m tokens, E experts, k a token: the fair share is q = m k / E tokens. Token i takes expert j when s_ij + b_j is among
its k largest, that is when the margin s_ij - alpha_i exceeds -b_j, where the threshold alpha_i is the (k+1)-th largest
of s_i + b. With the thresholds held fixed, b_j = -(the (q+1)-th largest margin of expert j) leaves the q largest above
-b_j (fewer where margins tie). A whole quantile in one step, where the sign rule moves by a fixed small amount.

The thresholds move with the biases, so one step need not balance every matrix; repeating it does, in the limit. The
new bias acts from the next batch on, it is frozen at inference, and no gradient runs through it.
Source: K3 report, Quantile Balancing.
"""

import numpy as np

from k3_scratch.shapes import check_shapes


def quantile_bias(scores, bias, k):
    """The exact update.          [m, E], [E] -> [E]

    scores [m, E] router scores of a batch in [0, 1]; bias [E] used on that batch; k experts a token.
    For fractional q the order statistic is number floor(q) + 1, never an interpolated quantile. The mean is subtracted
    at the end: a bias common to all experts chooses nothing.
    Two batches say nothing about balance, and return the bias unchanged: one without tokens, and one with k = E, where
    every expert gets every token and no (k+1)-th score exists.
    Raises ShapeError; ValueError for k outside 1 ... E.
    """
    scores, bias = _check("quantile_bias", scores, bias, k)
    m, E = scores.shape
    if m == 0 or k == E:
        return bias.copy()
    margins = scores - _thresholds(scores, bias, k)                              # [m, E]
    place = m * k // E                                                           # floor(q), counted from 0
    new_bias = -np.sort(margins, axis=0)[::-1][place]                            # [m, E] -> [E]
    return new_bias - new_bias.mean()


def margin_histogram(scores, bias, k, bins=1000):
    """How often alpha_i - s_ij falls in each bin.   [m, E], [E] -> counts [E, bins], low, high

    Exact margins cannot be sorted across devices at scale; counts can be added. The edges low = min b - 1 and
    high = max b + 1 hold every possible value, since alpha lies in [min b, max b + 1] and s in [0, 1].
    Raises ShapeError; ValueError for k outside 1 ... E - 1 or bins below 1.
    """
    scores, bias = _check("margin_histogram", scores, bias, k)
    m, E = scores.shape
    if k == E:
        raise ValueError(f"margin_histogram: k must be below E = {E}: with k = E there is no (k+1)-th score")
    if bins < 1:
        raise ValueError(f"margin_histogram: bins must be at least 1, but {bins} came")
    low, high = float(bias.min() - 1), float(bias.max() + 1)
    needed = _thresholds(scores, bias, k) - scores                               # [m, E]: the bias that j would need
    place = np.floor((needed - low) / (high - low) * bins).astype(int)           # [m, E]
    place = np.clip(place, 0, bins - 1)                                          # the upper edge is in the last bin
    counts = np.stack([np.bincount(place[:, j], minlength=bins) for j in range(E)])      # [E, bins]
    return counts, low, high


def bias_from_histogram(counts, low, high, tokens, k):
    """Read the q-th smallest of alpha - s from the counts, linearly inside its bin.          [E, bins] -> [E]

    counts [E, bins] summed over all devices; low, high the edges; tokens m, over all devices; k experts a token.
    Before the mean is subtracted, each value lies within one bin width of the interval between the order statistics
    ceil(q) and floor(q) + 1.  Raises ShapeError; ValueError when tokens is below 1 or is not the sum of each row.
    """
    counts = np.asarray(counts, dtype=np.float64)
    sizes = check_shapes("bias_from_histogram", counts=(counts, "E bins"))
    if tokens < 1 or np.any(counts.sum(axis=1) != tokens):
        raise ValueError(f"bias_from_histogram: tokens must be at least 1 and the sum of each row of counts, "
                         f"but {tokens} came with sums {counts.sum(axis=1).tolist()}")
    q = tokens * k / sizes["E"]
    up_to = np.cumsum(counts, axis=1)                                            # [E, bins]
    place = np.argmax(up_to >= q, axis=1)[:, None]                               # [E, 1]: the first bin that reaches q
    inside = np.take_along_axis(counts, place, axis=1)                           # h, never 0 there
    before = np.take_along_axis(up_to, place, axis=1) - inside                   # c
    width = (high - low) / sizes["bins"]
    new_bias = low + (place + np.clip((q - before) / inside, 0, 1))[:, 0] * width    # [E]
    return new_bias - new_bias.mean()


def quantile_bias_histogram(scores, bias, k, bins=1000):
    """The update by way of the histogram; arguments, special cases and errors as `quantile_bias`."""
    scores, bias = _check("quantile_bias_histogram", scores, bias, k)
    m, E = scores.shape
    if m == 0 or k == E:
        return bias.copy()
    counts, low, high = margin_histogram(scores, bias, k, bins)
    return bias_from_histogram(counts, low, high, m, k)


def alternating_balance(scores, k, rounds):
    """The exact update again and again on one batch, from bias 0.          [m, E] -> [E]

    Thresholds and biases in turn: coordinate descent on the dual of the assignment problem "largest total score, every
    expert its share". At the limit no expert is sure of more than its share, and the few tokens still missing (about
    one an expert) tie exactly between two experts: a tie-break that looks at loads could make the balance perfect; the
    router's, to the lower number, leaves it a few tokens off.  Raises as `quantile_bias`.
    """
    bias = np.zeros(np.shape(scores)[-1:])                                       # [E]
    for _ in range(rounds):
        bias = quantile_bias(scores, bias, k)
    return bias


def _thresholds(scores, bias, k):
    """alpha_i, the (k+1)-th largest of s_i + b: the best expert that token i does not take.   [m, E] -> [m, 1]"""
    return np.sort(scores + bias, axis=1)[:, ::-1][:, k, None]


def _check(function, scores, bias, k):
    scores, bias = (np.asarray(a, dtype=np.float64) for a in (scores, bias))
    sizes = check_shapes(function, scores=(scores, "m E"), bias=(bias, "E"))
    if not 1 <= k <= sizes["E"]:
        raise ValueError(f"{function}: k must be between 1 and E = {sizes['E']}, but {k} came")
    return scores, bias
