"""The short convolution: each channel sees its own last few values before it becomes a query, key or value."""

import torch
from torch import nn

from k3_scratch.layers.by_hand import ByHand
from k3_scratch.shapes import check_shapes


def short_convolution(x, weight, tail=None, *, documents=None):
    """Causal depthwise convolution without bias or activation.

    x          [B, T, P]            values, one row per token
    weight     [P, taps]            last tap = current token
    tail       [B, taps - 1, P]     the values before x, oldest to newest; None: zeros
    documents  [B, T]               tokens see only tokens of their own document (packing); None: one document
    returns    y [B, T, P] and the new tail, which always has taps - 1 rows.  Kimi Linear, section 3.
    """
    B, T, P = (check_shapes("short_convolution", x=(x, "B T P"), weight=(weight, "P W"))[letter] for letter in "BTP")
    taps = weight.shape[1]
    if tail is not None:
        check_shapes("short_convolution", x=(x, "B T P"), tail=(tail, f"B {taps - 1} P"))
    if documents is not None:
        check_shapes("short_convolution", x=(x, "B T P"), documents=(documents, "B T"))
    if tail is None and taps <= T + 1:                                  # zeros before x: nothing to put there
        seen = x
    else:
        tail = x.new_zeros(B, taps - 1, P) if tail is None else tail.to(x.dtype)
        seen = torch.cat([tail, x], dim=1)                               # [B, taps - 1 + T, P]
    if T == 1 and seen is not x:                                         # decoding
        return (seen * weight.mT).sum(1, keepdim=True), seen[:, 1:]
    reach = None if documents is None else torch.stack([_same_document(documents, back) for back in range(taps)])
    return _Taps.run(seen, weight, reach, T), seen[:, seen.shape[1] - taps + 1:]


class _Taps(ByHand):
    """y_t = sum over `back` of weight[:, -1 - back] * x_{t - back}, and its gradients, one pass over memory per tap.

    seen [B, S, P], weight [P, taps], reach [taps, B, T] (may a token look so far back?) or None -> the last T [B, T, P]
    """

    @staticmethod
    def forward(ctx, seen, weight, reach, T):
        ctx.save_for_backward(seen, weight, reach)
        ctx.T = T
        (tap, here, _), *others = _Taps.views(seen, weight, reach, T)    # a token always reaches itself
        y = here * tap
        for tap, earlier, ok in others:
            y[:, T - earlier.shape[1]:].addcmul_(earlier if ok is None else earlier * ok, tap)
        return y

    @staticmethod
    def backward(ctx, d_y):
        (seen, weight, reach), T = ctx.saved_tensors, ctx.T
        d_seen, d_taps = torch.zeros_like(seen), []
        for (tap, earlier, ok), (_, d_earlier, _) in zip(_Taps.views(seen, weight, reach, T),
                                                         _Taps.views(d_seen, weight, reach, T), strict=True):
            d_here = d_y[:, T - earlier.shape[1]:]
            d_here = d_here if ok is None else d_here * ok
            d_earlier.addcmul_(d_here, tap)
            d_taps.append((d_here * earlier).sum((0, 1)))
        return d_seen, torch.stack(d_taps[::-1], 1), None, None

    @staticmethod
    def views(seen, weight, reach, T):
        """For back = 0, 1, ...: the tap [P], what it multiplies for the last n tokens [B, n, P], where [B, n, 1].

        n is T, or less where nothing lies so far back.
        """
        S = seen.shape[1]
        for back, tap in enumerate(weight.t().flip(0).contiguous()):     # contiguous rows: four times faster
            n = min(T, S - back)
            yield tap, seen[:, S - back - n:S - back], None if reach is None else reach[back, :, T - n:, None]


def _same_document(documents, back):
    """True where the token `back` places earlier exists and belongs to the same document.          [B, T] -> [B, T]"""
    same = torch.zeros_like(documents, dtype=torch.bool)
    same[:, back:] = documents[:, back:] == documents[:, :documents.shape[1] - back]
    return same


class ShortConvolution(nn.Module):
    """`short_convolution` with its weight [P, taps], uniform within +-1/sqrt(taps) at the start."""

    def __init__(self, channels, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, taps))
        nn.init.uniform_(self.weight, -taps ** -0.5, taps ** -0.5)

    def forward(self, x, tail=None, *, documents=None):
        return short_convolution(x, self.weight, tail, documents=documents)
