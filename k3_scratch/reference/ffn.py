"""One gated feed-forward network: the form that dense layers, shared experts and routed experts all have."""

import numpy as np

from k3_scratch.reference.situ import situ_glu
from k3_scratch.reference.swiglu import swiglu
from k3_scratch.shapes import check_shapes


def gated_ffn(x, w_gate, w_up, w_down, *, activation="situ", beta=4.0, linear_beta=25.0):
    """w_down GLU(w_gate x, w_up x).          [..., D] -> [..., D]

    x [..., D], w_gate and w_up [F, D], w_down [D, F]; D is whatever width the network works at (L inside the MoE).
    activation "situ" with its two bounds, or "swiglu".  Raises ShapeError; ValueError for another activation.
    """
    x, w_gate, w_up, w_down = (np.asarray(a, dtype=np.float64) for a in (x, w_gate, w_up, w_down))
    check_shapes("gated_ffn", x=(x, "... D"), w_gate=(w_gate, "F D"), w_up=(w_up, "F D"), w_down=(w_down, "D F"))
    gate, up = x @ w_gate.T, x @ w_up.T                          # [..., D] @ [D, F] -> [..., F]
    if activation == "situ":
        hidden = situ_glu(gate, up, beta, linear_beta)           # [..., F]
    elif activation == "swiglu":
        hidden = swiglu(gate, up)                                # [..., F]
    else:
        raise ValueError(f'gated_ffn: activation must be "situ" or "swiglu", but {activation!r} came')
    return hidden @ w_down.T                                     # [..., F] @ [F, D] -> [..., D]
