"""Rotary positions in two directions, for the patches of a picture; the language model itself has no positions.

Half of a head's channels turn by the row, half by the column, so that q . k depends on how many rows and how many
columns lie between two patches, and on nothing else about where they are.  RoPE: arXiv 2104.09864.
"""

import torch

from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes

THETA = 10_000.0


def rope_2d(x, theta=THETA):
    """Turn every patch's channels by its row (first half of K) and column (second half).       [P, y, x, H, K] -> same

    In each half, channel pair (i, i + K/4) turns by the angle position * theta^(-4i/K). Angles in at least float32;
    returned in x's dtype. Raises ShapeError, or ValueError when K is no multiple of 4.
    """
    sizes = check_shapes("rope_2d", x=(x, "P y x H K"))
    if sizes["K"] % 4:
        raise ValueError(f"rope_2d: x must have a number of channels K that is a multiple of 4, but {sizes['K']} came")
    wide, quarter = raised(x), sizes["K"] // 4
    speed = theta ** (-torch.arange(quarter, device=x.device, dtype=wide.dtype) / quarter)              # [K/4]
    by_row, by_column = wide.chunk(2, -1)                                # [P, y, x, H, K/2] each
    rows = torch.arange(sizes["y"], device=x.device, dtype=wide.dtype)[:, None, None, None] * speed     # [y, 1, 1, K/4]
    columns = torch.arange(sizes["x"], device=x.device, dtype=wide.dtype)[:, None, None] * speed        # [x, 1, K/4]
    return torch.cat([_turn(by_row, rows), _turn(by_column, columns)], -1).to(x.dtype)


def _turn(x, angle):
    first, second = x.chunk(2, -1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
