"""Pixel shuffle: the cut into patches once more, one level up, so that a picture takes fewer tokens."""

import numpy as np

from k3_scratch.reference.patches import patches
from k3_scratch.shapes import check_shapes


def pixel_shuffle(x, merge):
    """Put merge x merge neighbouring vectors side by side.          [P, y, x, h] -> [P, y/merge, x/merge, merge^2 h]

    A picture then takes merge^2 times fewer tokens; nothing is lost, the projector that follows mixes.
    Raises ShapeError; ValueError when the grid cannot be cut so.  Source: K3 report, Vision (2 x 2).
    """
    sizes = check_shapes("pixel_shuffle", x=(np.asarray(x), "P y x h"))
    if merge < 1 or sizes["y"] % merge or sizes["x"] % merge:
        raise ValueError(f"pixel_shuffle: x must have a grid that is a multiple of merge = {merge}, "
                         f"but {sizes['y']} x {sizes['x']} came")
    return patches(x, merge)
