"""RMSNorm, the only normalisation of the model besides the unit length of q and k."""

import numpy as np

from k3_scratch.shapes import check_shapes


def rms_norm(x, weight, eps=1e-5):
    """x / sqrt(mean(x^2) + eps) * weight.          [..., D], [D] -> [..., D]

    The mean of squares, not the variance: nothing is subtracted. The weight multiplies as it is (no "1 + weight"), and
    there is no bias. eps sits inside the root, so x = 0 gives 0 and not a division by zero.
    x [..., D], weight [D], eps in units of x squared.  Raises ShapeError.
    Source: Zhang and Sennrich, arXiv 1910.07467, Eq. 4; eps 1e-5 from the released config of K3 (1e-6 for the latents
    of MLA).
    """
    x, weight = (np.asarray(a, dtype=np.float64) for a in (x, weight))
    check_shapes("rms_norm", x=(x, "... D"), weight=(weight, "D"))
    mean_square = np.mean(x * x, axis=-1, keepdims=True)     # [..., D] -> [..., 1]
    return x / np.sqrt(mean_square + eps) * weight           # [..., D]
