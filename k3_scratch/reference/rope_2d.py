"""Rotary positions in two directions, inside the picture encoder only."""

import numpy as np

from k3_scratch.shapes import check_shapes


def rope_2d(x, theta=10_000.0):
    """Turn each patch's channels by its row and its column.          [P, y, x, H, K] -> [P, y, x, H, K]

    The first half of the K channels turns by the row, the second by the column. Within a half, channels i and i + K/4
    are the real and imaginary part of one number z, and z becomes z e^(i angle), angle = position * theta^(-4i/K).
    Then q . k depends on the distance in rows and the distance in columns alone.
    Raises ShapeError; ValueError when K is no multiple of 4.  Source: RoPE, arXiv 2104.09864; K3 report, Vision.
    """
    x = np.asarray(x, dtype=np.float64)
    sizes = check_shapes("rope_2d", x=(x, "P y x H K"))
    if sizes["K"] % 4:
        raise ValueError(f"rope_2d: x must have a number of channels K that is a multiple of 4, but {sizes['K']} came")
    quarter = sizes["K"] // 4
    speed = theta ** (-np.arange(quarter) / quarter)         # [K/4]
    row_angle = np.arange(sizes["y"])[:, None, None, None] * speed       # [y, 1, 1, K/4]
    column_angle = np.arange(sizes["x"])[:, None, None] * speed          # [x, 1, K/4]
    result = []
    for half, angle in ((x[..., :2 * quarter], row_angle), (x[..., 2 * quarter:], column_angle)):
        z = (half[..., :quarter] + 1j * half[..., quarter:]) * np.exp(1j * angle)
        result += [z.real, z.imag]
    return np.concatenate(result, axis=-1)
