"""Queries and keys of unit length, per head.

A delta-rule write replaces what is stored under `k` exactly only when k . k = 1: then (I - k k^T) is the projection
that removes that direction. A longer key would over-correct and, repeated, blow the memory up.
"""

import numpy as np

from k3_scratch.shapes import check_shapes


def l2_norm(x, eps=1e-6):
    """x / sqrt(sum(x^2) + eps), along the last axis.          [..., K] -> [..., K]

    The *sum* of squares (RMSNorm takes the mean), with eps inside the root: zero stays zero, with a finite slope of
    eps^(-1/2) there, where `max(norm, eps)` would have a kink.
    x [..., K], K the channels of one head; eps in units of x squared.  Raises ShapeError.
    Source: Kimi Linear, neural parameterisation of KDA (L2Norm on q and k).
    """
    x = np.asarray(x, dtype=np.float64)
    check_shapes("l2_norm", x=(x, "... K"))
    square_sum = np.sum(x * x, axis=-1, keepdims=True)       # [..., K] -> [..., 1]
    return x / np.sqrt(square_sum + eps)                     # [..., K]
