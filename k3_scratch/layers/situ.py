"""The two gated activations: SiTU-GLU (K3) and SwiGLU (Kimi Linear)."""

import torch
import torch.nn.functional as F

from k3_scratch.layers.by_hand import ByHand
from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def situ_glu(gate, up, beta=4.0, linear_beta=25.0):
    """beta tanh(gate/beta) * sigmoid(gate) * linear_beta tanh(up/linear_beta).          [..., F], [..., F] -> [..., F]

    SiLU with both factors bounded: |result| <= beta * linear_beta. The sigmoid takes the uncapped gate.  K3 report.
    """
    check_shapes("situ_glu", gate=(gate, "... F"), up=(up, "... F"))
    return _SituGLU.run(raised(gate), raised(up), beta, linear_beta).to(gate.dtype)


class _SituGLU(ByHand):
    """With t = tanh(gate/beta), s = sigmoid(gate), u = tanh(up/linear_beta): beta t s linear_beta u, and by hand

    d gate = linear_beta u (s (1 - t^2) + beta t s (1 - s))          d up = beta t s (1 - u^2)
    """

    @staticmethod
    def forward(ctx, gate, up, beta, linear_beta):
        t, s, u = (gate / beta).tanh_(), gate.sigmoid(), (up / linear_beta).tanh_()
        ctx.save_for_backward(t, s, u)
        ctx.bounds = beta, linear_beta
        return (t * s).mul_(u).mul_(beta * linear_beta)

    @staticmethod
    def backward(ctx, d):
        (t, s, u), (beta, linear_beta), one = ctx.saved_tensors, ctx.bounds, d.new_ones(())
        d_s = d * s
        slope = torch.addcmul(t * beta, t, s, value=-beta).addcmul_(t, t, value=-1).add_(1)      # 1 - t^2 + bt(1 - s)
        d_up = torch.addcmul(one, u, u, value=-1).mul_(t).mul_(d_s).mul_(beta)
        return slope.mul_(u).mul_(d_s).mul_(linear_beta), d_up, None, None


def swiglu(gate, up):
    """silu(gate) * up.                                                              [..., F], [..., F] -> [..., F]"""
    check_shapes("swiglu", gate=(gate, "... F"), up=(up, "... F"))
    return F.silu(gate) * up


def activation(config):
    """The gated activation that `config` names, as a function of (gate, up)."""
    if config.activation == "swiglu":
        return swiglu
    return lambda gate, up: situ_glu(gate, up, config.situ_beta, config.situ_linear_beta)
