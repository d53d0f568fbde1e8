"""Unit-length queries and keys: with |k| = 1 and beta = 1 a write replaces exactly what the memory held for k."""

import torch

from k3_scratch.layers.precision import raised


def l2_norm(x, eps=1e-6):
    """x / sqrt(sum(x^2) + eps) over the last axis: a sum, not a mean, and eps inside the root.   [..., K] -> [..., K]

    At x = 0 the result is 0 with a finite gradient. Returned in at least float32.  Kimi Linear, section 3.
    """
    x = raised(x)
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)
