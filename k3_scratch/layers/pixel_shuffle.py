"""Pixel shuffle: neighbouring patches side by side in one longer vector, so that a picture takes fewer tokens."""

from k3_scratch.layers.patches import patches
from k3_scratch.shapes import check_shapes


def pixel_shuffle(x, merge):
    """[P, y, x, h] -> [P, y/merge, x/merge, merge * merge * h]: a square of patches becomes one vector, by row.

    Nothing is lost and nothing is mixed; the projector mixes. Raises ShapeError, or ValueError when the grid cannot be
    cut so. The same rearrangement as `patches`, one level up: there pixels, here patches.
    """
    sizes = check_shapes("pixel_shuffle", x=(x, "P y x h"))
    if merge < 1 or sizes["y"] % merge or sizes["x"] % merge:
        raise ValueError(f"pixel_shuffle: x must have a grid that is a multiple of merge = {merge}, "
                         f"but {sizes['y']} x {sizes['x']} came")
    return patches(x, merge)
