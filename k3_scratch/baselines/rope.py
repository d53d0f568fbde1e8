"""Rotary positions: each pair of channels turns by an angle that grows with the position.

Used by: Llama, Qwen, DeepSeek, Gemma and nearly all others; K3 has no positions at all.
Differs from K3's NoPE by: q_t . k_s becomes (R_t q_t) . (R_s k_s), which depends on t - s.  arXiv 2104.09864
"""

import torch

from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def rope(x, positions, theta=10_000.0):
    """Turn channel pair (i, i + K/2) by the angle position * theta^(-2i/K).              [B, T, H, K], [T] -> same

    The pairing of Llama and Gemma ("rotate half"). Angles in at least float32; returned in x's dtype.
    Raises ShapeError, or ValueError for an odd K.
    """
    K = check_shapes("rope", x=(x, "B T H K"), positions=(positions, "T"))["K"]
    if K % 2:
        raise ValueError(f"rope: x must have an even number of channels K, but {K} came")
    wide = raised(x)
    slower = torch.arange(0, K, 2, device=x.device).to(wide.dtype) / K   # [K/2]
    angle = positions.to(wide.dtype).unsqueeze(-1) / theta ** slower     # [T, K/2]
    cos, sin = angle.cos().unsqueeze(1), angle.sin().unsqueeze(1)        # [T, 1, K/2]
    first, second = wide.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)
