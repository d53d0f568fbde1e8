"""The short causal convolution in front of KDA's q, k and v: each channel looks at its own last few tokens.

What differs from a library convolution: no mixing of channels ("depthwise"), no bias, no activation inside (SiLU
follows outside), and a tail that makes one long call equal to any sequence of shorter ones.
"""

import numpy as np

from k3_scratch.shapes import check_shapes


def short_convolution(x, weight, tail=None):
    """y_t = sum_j weight_j x_{t - (taps-1) + j}, so the last tap meets the current token.

    [..., T, P], [P, taps], [..., taps-1, P] -> y [..., T, P], tail [..., taps-1, P]

    x       [..., T, P]       inputs before any activation; P = all channels of all heads
    weight  [P, taps]         one filter a channel; weight[:, -1] multiplies the current token
    tail    [..., taps-1, P]  the inputs just before x, oldest first; None: a start of the text, which is zeros
    Returns y and the new tail: always taps - 1 rows, even when fewer tokens than that have ever been seen.
    Raises ShapeError.  Source: Kimi Linear, ShortConv; 4 taps in the released config of K3.
    """
    x, weight = (np.asarray(a, dtype=np.float64) for a in (x, weight))
    sizes = check_shapes("short_convolution", x=(x, "... T P"), weight=(weight, "P taps"))
    T, P, taps = sizes["T"], sizes["P"], sizes["taps"]
    if tail is None:
        tail = np.zeros((*sizes["..."], taps - 1, P))        # [..., taps-1, P]
    tail = np.asarray(tail, dtype=np.float64)
    check_shapes("short_convolution", x=(x, "... T P"), tail=(tail, f"... {taps - 1} P"))

    history = np.concatenate([tail, x], axis=-2)             # [..., taps-1+T, P]
    y = np.zeros(x.shape)                                    # [..., T, P]
    for j in range(taps):
        y += weight[:, j] * history[..., j:j + T, :]         # [P] * [..., T, P] -> [..., T, P]
    return y, history[..., T:, :]                            # the last taps-1 rows, whatever T is
