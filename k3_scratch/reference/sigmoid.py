"""The logistic sigmoid, written so that no argument overflows."""

import numpy as np


def sigmoid(x):
    """1 / (1 + e^-x) for any finite or infinite x.          [...] -> [...]

    The textbook form overflows at x = -710. log(1 + e^-x) is what `logaddexp(0, -x)` returns without ever forming a
    large exponential, and its negative is the logarithm of the sigmoid.
    x [...] any shape, no unit.  Returns float64 in [0, 1]; both ends are reached in floating point.
    """
    x = np.asarray(x, dtype=np.float64)
    return np.exp(-np.logaddexp(0.0, -x))                # [...]
