"""The two decay gates: how fast each key channel of the KDA state forgets, as g = log(alpha) <= 0."""

import torch.nn.functional as F

from k3_scratch.layers.by_hand import ByHand
from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def bounded_decay(z, A_log, lower_bound=-5.0):
    """K3's gate: g = lower_bound * sigmoid(exp(A_log) z).                [..., T, H, K], [H] -> [..., T, H, K]

    z contains dt_bias already. The bound is no clamp: it replaces the softplus, so that a tile of 16 tokens stays above
    e^-80 and can be a plain matrix product.  K3 report, section 2 (KDA).
    """
    check_shapes("bounded_decay", z=(z, "... T H K"), A_log=(A_log, "H"))
    z = raised(z)
    return _BoundedDecay.run(z, A_log.to(z.dtype).exp().unsqueeze(-1), lower_bound)


class _BoundedDecay(ByHand):
    """g = lower_bound sigmoid(a z) with a [H, 1]; by hand d(a z) = d g (1 - g / lower_bound), in few new arrays."""

    @staticmethod
    def forward(ctx, z, a, lower_bound):
        g = (a * z).sigmoid_().mul_(lower_bound)
        ctx.save_for_backward(z, a, g)
        ctx.lower_bound = lower_bound
        return g

    @staticmethod
    def backward(ctx, d):
        z, a, g = ctx.saved_tensors
        inner = (g / -ctx.lower_bound).add_(1).mul_(g).mul_(d)           # gradient of a z
        return inner * a, (inner * z).flatten(0, -3).sum((0, -1)).view_as(a), None


def softplus_decay(z, A_log):
    """Kimi Linear's gate: g = -exp(A_log) softplus(z), without a lower bound.   [..., T, H, K], [H] -> [..., T, H, K]

    z contains dt_bias already.  Kimi Linear, arXiv 2510.26692, section 3.
    """
    check_shapes("softplus_decay", z=(z, "... T H K"), A_log=(A_log, "H"))
    z = raised(z)
    return -A_log.to(z.dtype).exp().unsqueeze(-1) * F.softplus(z)
