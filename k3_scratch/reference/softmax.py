"""Softmax over one axis, used by attention over tokens and by attention over depth."""

import numpy as np


def softmax(scores, axis=-1):
    """e^score / sum e^score along `axis`.          [...] -> [...]

    Subtracting the largest score first changes nothing in the quotient and keeps every exponent at or below 0.
    scores [...]; -inf means "not visible" and gets weight 0, but at least one score of each group must be finite.
    """
    scores = np.asarray(scores, dtype=np.float64)
    exponentials = np.exp(scores - scores.max(axis=axis, keepdims=True, initial=-np.inf))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)     # same shape as scores
