"""The two gated activations: SiTU-GLU (K3) and SwiGLU (Kimi Linear)."""

import torch
import torch.nn.functional as F

from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def situ_glu(gate, up, beta=4.0, linear_beta=25.0):
    """beta tanh(gate/beta) * sigmoid(gate) * linear_beta tanh(up/linear_beta).          [..., F], [..., F] -> [..., F]

    SiLU with both factors bounded: |result| <= beta * linear_beta. The sigmoid takes the uncapped gate.  K3 report.
    """
    check_shapes("situ_glu", gate=(gate, "... F"), up=(up, "... F"))
    wide, wide_up = raised(gate), raised(up)
    capped = beta * torch.tanh(wide / beta) * torch.sigmoid(wide)
    return (capped * (linear_beta * torch.tanh(wide_up / linear_beta))).to(gate.dtype)


def swiglu(gate, up):
    """silu(gate) * up.                                                              [..., F], [..., F] -> [..., F]"""
    check_shapes("swiglu", gate=(gate, "... F"), up=(up, "... F"))
    return F.silu(gate) * up


def activation(config):
    """The gated activation that `config` names, as a function of (gate, up)."""
    if config.activation == "swiglu":
        return swiglu
    return lambda gate, up: situ_glu(gate, up, config.situ_beta, config.situ_linear_beta)
