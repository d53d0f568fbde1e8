"""The short convolution: each channel sees its own last few values before it becomes a query, key or value."""

import torch
from torch import nn

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
    if tail is None:
        tail = x.new_zeros(B, taps - 1, P)
    check_shapes("short_convolution", x=(x, "B T P"), tail=(tail, f"B {taps - 1} P"))
    seen = torch.cat([tail.to(x.dtype), x], dim=1)                       # [B, taps - 1 + T, P]
    by_age = weight.t().flip(0).contiguous()                             # [taps, P], the current token's tap first
    y = x * by_age[0]
    for back in range(1, taps):                                          # the value `back` tokens ago
        earlier = seen[:, taps - 1 - back:taps - 1 - back + T]           # [B, T, P]
        if documents is not None:
            earlier = earlier * _same_document(documents, back).unsqueeze(-1)
        y = torch.addcmul(y, earlier, by_age[back])
    return y, seen[:, T:]


def _same_document(documents, back):
    """True where the token `back` places earlier exists and belongs to the same document.          [B, T] -> [B, T]"""
    same = torch.zeros_like(documents, dtype=torch.bool)
    same[:, back:] = documents[:, back:] == documents[:, :-back] if back < documents.shape[1] else False
    return same


class ShortConvolution(nn.Module):
    """`short_convolution` with its weight [P, taps], uniform within +-1/sqrt(taps) at the start."""

    def __init__(self, channels, taps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, taps))
        nn.init.uniform_(self.weight, -taps ** -0.5, taps ** -0.5)

    def forward(self, x, tail=None, *, documents=None):
        return short_convolution(x, self.weight, tail, documents=documents)
