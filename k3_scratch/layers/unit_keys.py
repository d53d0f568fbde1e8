"""Unit-length queries and keys: with |k| = 1 and beta = 1 a write replaces exactly what the memory held for k."""

import torch

from k3_scratch.layers.by_hand import ByHand
from k3_scratch.layers.precision import raised


def l2_norm(x, eps=1e-6):
    """x / sqrt(sum(x^2) + eps) over the last axis: a sum, not a mean, and eps inside the root.   [..., K] -> [..., K]

    At x = 0 the result is 0 with a finite gradient. Returned in at least float32.  Kimi Linear, section 3.
    """
    return _L2Norm.run(raised(x), eps)


class _L2Norm(ByHand):
    """y = x / |x|; the gradient d loses its part along y and is divided by |x| too: (d - y (y . d)) / |x|."""

    @staticmethod
    def forward(ctx, x, eps):
        inverse = torch.rsqrt(torch.linalg.vecdot(x, x) + eps).unsqueeze(-1)
        y = x * inverse
        ctx.save_for_backward(y, inverse)
        return y

    @staticmethod
    def backward(ctx, d):
        y, inverse = ctx.saved_tensors
        return torch.addcmul(d, y, torch.linalg.vecdot(d, y).unsqueeze(-1), value=-1).mul_(inverse), None
