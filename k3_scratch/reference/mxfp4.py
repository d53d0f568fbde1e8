"""MXFP4, the four-bit format of K3's routed experts: 32 neighbouring columns of a row share one power of two.

A code is a sign bit (bit 3) and one of eight magnitudes; two codes share a byte, the even column in the low nibble. The
scale byte e means 2^(e - 127).  OCP Microscaling Formats (MX) v1.0; K3 report, released checkpoint.
"""

import numpy as np

from k3_scratch.shapes import check_shapes

MAGNITUDES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
BLOCK = 32


def mxfp4_pack(x):
    """Codes and scales of the rows of x.                [..., N] -> uint8 [..., 16 blocks], uint8 [..., blocks]

    The scale's exponent is floor(log2 of the block's largest magnitude) - 2; values are rounded to the nearest
    magnitude, ties to the even code, and saturate at 6. A last block of fewer than 32 columns is filled with zeros.
    Raises ValueError for values that are not finite.
    """
    x = np.asarray(x, dtype=np.float64)
    check_shapes("mxfp4_pack", x=(x, "... N"))
    if not np.isfinite(x).all():
        raise ValueError("mxfp4_pack: x must be finite everywhere")
    blocks = -(-x.shape[-1] // BLOCK)
    padded = np.zeros((*x.shape[:-1], blocks * BLOCK))
    padded[..., :x.shape[-1]] = x
    cut = padded.reshape(*x.shape[:-1], blocks, BLOCK)                   # [..., blocks, 32]
    largest = np.abs(cut).max(axis=-1, initial=0.0)                      # [..., blocks]
    exponent = np.frexp(largest)[1] - 1 - 2                              # frexp: largest = m 2^e with m in [.5, 1)
    scales = np.where(largest > 0, np.clip(exponent + 127, 0, 254), 0).astype(np.uint8)
    scaled = np.abs(cut) / np.exp2(scales.astype(np.float64) - 127)[..., None]
    codes = _nearest(scaled) | (np.signbit(cut) << 3).astype(np.uint8)
    codes = codes.reshape(*x.shape[:-1], blocks * BLOCK)
    return codes[..., 0::2] | codes[..., 1::2] << 4, scales


def mxfp4_unpack(packed, scales, columns=None):
    """The values that the codes mean, the first `columns` of each row (None: all).

    packed uint8 [..., 16 blocks], scales uint8 [..., blocks]  ->  float64 [..., columns]
    """
    packed, scales = np.asarray(packed), np.asarray(scales)
    check_shapes("mxfp4_unpack", scales=(scales, "... G"), packed=(packed, f"... {scales.shape[-1] * BLOCK // 2}"))
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)    # low nibble first
    values = np.where(codes & 8, -1.0, 1.0) * MAGNITUDES[codes & 7]      # [..., 32 blocks]
    values = values * np.repeat(np.exp2(scales.astype(np.float64) - 127), BLOCK, axis=-1)
    return values[..., :columns]


def _nearest(scaled):
    """Code of the nearest magnitude, ties to the even code, at most 6.                        [...] -> uint8 [...]"""
    lower = np.minimum(np.searchsorted(MAGNITUDES, scaled, side="right") - 1, 7)
    upper = np.minimum(lower + 1, 7)
    down, up = scaled - MAGNITUDES[lower], MAGNITUDES[upper] - scaled
    return np.where((up < down) & (upper > lower) | ((up == down) & (upper % 2 == 0)), upper, lower).astype(np.uint8)
