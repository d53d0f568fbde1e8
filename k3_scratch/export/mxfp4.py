"""MXFP4 in torch: four bits a value, one power of two for 32 neighbouring columns; twin of `reference/mxfp4.py`.

A code is a sign bit and one of eight magnitudes, the even column in the low nibble. OCP Microscaling Formats v1.0.
"""

import math

import torch
import torch.nn.functional as F

from k3_scratch.reference import mxfp4 as reference
from k3_scratch.shapes import check_shapes

BLOCK = reference.BLOCK
MAGNITUDES = torch.tensor(reference.MAGNITUDES.tolist(), dtype=torch.float64)


def pack(w):
    """Codes and scales of the rows of w.       [..., N] -> uint8 [..., 16 blocks], uint8 [..., blocks]

    The scale's exponent is floor(log2 of the block's largest magnitude) - 2; values are rounded to the nearest
    magnitude, ties to the even code, and saturate at 6. A last block of fewer than 32 columns is filled with zeros.
    Raises ValueError for values that are not finite.
    """
    check_shapes("pack", w=(w, "... N"))
    w = w.detach().double()
    if not torch.isfinite(w).all():
        raise ValueError("pack: w must be finite everywhere")
    cut = F.pad(w, (0, -w.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))         # [..., blocks, 32]
    largest = cut.abs().amax(-1)                                                 # [..., blocks]
    exponent = torch.frexp(largest).exponent - 1 - 2                             # largest = m 2^e with m in [.5, 1)
    scale = torch.where(largest > 0, (exponent + 127).clamp(0, 254), 0).to(torch.uint8)
    codes = _nearest(cut.abs() / _power(scale).unsqueeze(-1)) | torch.signbit(cut).to(torch.uint8) << 3
    codes = codes.flatten(-2)
    return codes[..., 0::2] | codes[..., 1::2] << 4, scale


def unpack(packed, scale, *, columns=None, dtype=torch.float32):
    """The values that the codes mean, the first `columns` of each row (None: all).

    packed uint8 [..., 16 blocks], scale uint8 [..., blocks]  ->  dtype [..., columns]
    """
    check_shapes("unpack", scale=(scale, "... G"), packed=(packed, f"... {scale.shape[-1] * BLOCK // 2}"))
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()       # low nibble first
    values = torch.where(codes >= 8, -1.0, 1.0) * MAGNITUDES.to(codes.device)[codes & 7]
    values = values.unflatten(-1, (-1, BLOCK)) * _power(scale).unsqueeze(-1)
    return values.flatten(-2)[..., :columns].to(dtype)


def error_statistics(w):
    """What packing does to w [..., N]: a dict of numbers.

    relative_rms  root of the summed squared error over that of the summed squares
    largest       largest absolute error
    saturated     share of values beyond the largest magnitude of their block, 6 times its scale
    zeroed        share of values that were not zero and became zero
    snr_db        -20 log10 relative_rms; infinity when nothing was lost
    """
    packed, scale = pack(w)
    w = w.detach().double()
    kept = unpack(packed, scale, columns=w.shape[-1], dtype=torch.float64)
    error = kept - w
    limit = (MAGNITUDES[-1] * _power(scale)).repeat_interleave(BLOCK, -1)[..., :w.shape[-1]]
    size, lost = w.square().sum().item(), error.square().sum().item()
    relative = math.sqrt(lost / size) if size else 0.0
    count = max(w.numel(), 1)
    return {"relative_rms": relative, "largest": error.abs().max().item() if w.numel() else 0.0,
            "saturated": (w.abs() > limit).sum().item() / count,
            "zeroed": ((kept == 0) & (w != 0)).sum().item() / count,
            "snr_db": -20 * math.log10(relative) if relative else math.inf}


def _power(scale):
    """2^(scale - 127) exactly, from the bits of a double.                              uint8 [...] -> float64 [...]"""
    return (scale.long() - 127 + 1023 << 52).view(torch.float64)


def _nearest(scaled):
    """Code of the nearest magnitude, ties to the even code, at most 6.                        [...] -> uint8 [...]"""
    table = MAGNITUDES.to(scaled.device)
    lower = (torch.searchsorted(table, scaled, right=True) - 1).clamp(max=7)
    upper = (lower + 1).clamp(max=7)
    down, up = scaled - table[lower], table[upper] - scaled
    rounds_up = (up < down) & (upper > lower) | (up == down) & (upper % 2 == 0)
    return torch.where(rounds_up, upper, lower).to(torch.uint8)
