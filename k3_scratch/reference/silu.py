"""SiLU, the activation after each short convolution and inside SwiGLU."""

import numpy as np

from k3_scratch.reference.sigmoid import sigmoid


def silu(x):
    """x * sigmoid(x).          [...] -> [...]

    x [...] any shape, no unit.  Its minimum is about -0.2785 near x = -1.278; for large x it is x itself.
    Source: Elfwing et al., arXiv 1702.03118; Kimi Linear, the activation after the short convolutions.
    """
    x = np.asarray(x, dtype=np.float64)
    return x * sigmoid(x)                                # [...]
