"""SwiGLU, the gated activation of Kimi Linear and of most language models before K3."""

import numpy as np

from k3_scratch.reference.silu import silu
from k3_scratch.shapes import check_shapes


def swiglu(gate, up):
    """silu(gate) * up.          [...], [...] -> [...]

    gate, up [...] equal shapes, no unit. Unbounded: it grows with the product of both.  Raises ShapeError.
    Source: Shazeer, arXiv 2002.05202. Check value: (4, 25) -> 98.2014.
    """
    gate, up = (np.asarray(a, dtype=np.float64) for a in (gate, up))
    check_shapes("swiglu", gate=(gate, "..."), up=(up, "..."))
    return silu(gate) * up                                       # [...]
