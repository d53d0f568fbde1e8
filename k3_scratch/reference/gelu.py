"""GELU in its tanh form, used by the picture encoder and its projector and nowhere in the language model."""

import numpy as np


def gelu(x):
    """x/2 (1 + tanh( sqrt(2/pi) (x + .044715 x^3) )).          [...] -> [...]

    Close to x times the probability that a normal number lies below x. Source: arXiv 1606.08415, section 2.
    """
    x = np.asarray(x, dtype=np.float64)
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))
