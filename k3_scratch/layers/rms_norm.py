"""RMSNorm, the only normalisation of K3 (no bias, no "+1" on the weight)."""

import torch
import torch.nn.functional as F
from torch import nn

from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def rms_norm(x, weight, eps=1e-5):
    """x / sqrt(mean(x^2) + eps) * weight over the last axis.                       [..., D], [D] -> [..., D]

    Computed in at least float32, returned in x's dtype. Raises ShapeError for a weight of another width.
    """
    check_shapes("rms_norm", x=(x, "... D"), weight=(weight, "D"))
    wide = raised(x)
    return F.rms_norm(wide, weight.shape, weight.to(wide.dtype), eps).to(x.dtype)


class RMSNorm(nn.Module):
    """`rms_norm` with its weight, which starts at 1."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)
