"""SiTU-GLU, K3's gated activation: a SwiGLU whose two branches saturate.

SwiGLU multiplies two unbounded numbers, so that one outlier token can leave the range of low-precision formats. Capping
each branch with beta tanh(x / beta) leaves small values alone (slope 1 at 0) and bounds the product by the two betas.
"""

import numpy as np

from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.shapes import check_shapes


def situ_glu(gate, up, beta=4.0, linear_beta=25.0):
    """beta tanh(gate/beta) sigmoid(gate) * linear_beta tanh(up/linear_beta).          [...], [...] -> [...]

    The sigmoid takes the *uncapped* gate; beta is not a slope of it. |result| <= beta * linear_beta = 100.
    gate, up [...] equal shapes, no unit; beta bounds the gate branch, linear_beta the up branch.  Raises ShapeError.
    Source: K3 report, SiTU; bounds 4 and 25 from the released config. Check value: (4, 25) -> 56.9593.
    """
    gate, up = (np.asarray(a, dtype=np.float64) for a in (gate, up))
    check_shapes("situ_glu", gate=(gate, "..."), up=(up, "..."))
    capped_gate = beta * np.tanh(gate / beta)                    # [...], within +-beta
    capped_up = linear_beta * np.tanh(up / linear_beta)          # [...], within +-linear_beta
    return capped_gate * sigmoid(gate) * capped_up               # [...]
