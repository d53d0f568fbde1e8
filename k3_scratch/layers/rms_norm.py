"""RMSNorm, the only normalisation of K3 (no bias, no "+1" on the weight)."""

import torch
from torch import nn

from k3_scratch.layers.by_hand import ByHand
from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def rms_norm(x, weight, eps=1e-5):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis.                       [..., D], [D] -> [..., D]

    Computed in at least float32, returned in x's dtype. Raises ShapeError for a weight of another width.
    """
    check_shapes("rms_norm", x=(x, "... D"), weight=(weight, "D"))
    wide = raised(x)
    return _RMSNorm.run(wide, weight.to(wide.dtype), eps).to(x.dtype)


class _RMSNorm(ByHand):
    """In fewer passes over memory than PyTorch's own. With y = x / rms and g = weight d: (g - y mean(g y)) / rms."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        inverse = torch.rsqrt(torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(eps)).unsqueeze(-1)
        y = x * inverse
        ctx.save_for_backward(y, inverse, weight)
        return y * weight

    @staticmethod
    def backward(ctx, d):
        y, inverse, weight = ctx.saved_tensors
        g = d * weight
        mean = torch.linalg.vecdot(g, y).div_(y.shape[-1]).unsqueeze(-1)
        return torch.addcmul(g, y, mean, value=-1).mul_(inverse), (d * y).reshape(-1, y.shape[-1]).sum(0), None


class RMSNorm(nn.Module):
    """`rms_norm` with its weight, which starts at 1."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)
