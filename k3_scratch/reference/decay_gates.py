"""How fast each key channel forgets: two ways from a linear output z to a log-decay g <= 0, alpha = e^g.

`z` is W_fb W_fa x + dt_bias: the bias is already inside, *before* the product with e^A. A_log is one number a head.
"""

import numpy as np

from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.shapes import check_shapes


def bounded_decay(z, A_log, lower_bound=-5.0):
    """K3: g = lower_bound * sigmoid(e^A z).          [..., T, H, K], [H] -> [..., T, H, K]

    The bound swaps the activation; it does not clamp the older gate. With g >= -5, sixteen tokens together decay by no
    less than e^-80, which float32 still holds: that lets a chunk of 16 be plain matrix products.
    z [..., T, H, K] no unit, A_log [H], lower_bound < 0 in nats a token.  Returns g in [lower_bound, 0]; both ends are
    reached in floating point.  Raises ShapeError; ValueError when lower_bound is not below 0.
    Source: K3 report, KDA with a lower-bounded decay; gate_lower_bound -5 in the released config.
    """
    if not lower_bound < 0:
        raise ValueError(f"bounded_decay: lower_bound must be below 0 (g = log alpha <= 0), but {lower_bound} came")
    z, A_log = _check("bounded_decay", z, A_log)
    with np.errstate(over="ignore"):                         # an infinite argument is fine: the sigmoid is then 0 or 1
        slope_times_z = np.exp(A_log)[:, None] * z           # [H, 1] * [..., T, H, K] -> [..., T, H, K]
    return lower_bound * sigmoid(slope_times_z)              # [..., T, H, K]


def softplus_decay(z, A_log):
    """Kimi Linear: g = -e^A softplus(z).          [..., T, H, K], [H] -> [..., T, H, K]

    Unbounded below: a large z erases a channel in a single token. softplus(z) = log(1 + e^z), computed without
    forming e^z.
    z [..., T, H, K], A_log [H].  Returns g <= 0.  Raises ShapeError.  Source: Kimi Linear, decay gate; Mamba-2.
    """
    z, A_log = _check("softplus_decay", z, A_log)
    softplus = np.logaddexp(0.0, z)                          # [..., T, H, K]
    return -np.exp(A_log)[:, None] * softplus                # [H, 1] * [..., T, H, K] -> [..., T, H, K]


def _check(function, z, A_log):
    """Both as float64 with checked shapes."""
    z, A_log = (np.asarray(a, dtype=np.float64) for a in (z, A_log))
    check_shapes(function, z=(z, "... T H K"), A_log=(A_log, "H"))
    return z, A_log
