"""A picture cut into square patches, each a row of numbers."""

import numpy as np

from k3_scratch.shapes import check_shapes


def patches(images, size):
    """Cut pictures into patches of size x size pixels.          [P, Y, X, C] -> [P, Y/size, X/size, size^2 C]

    Inside a patch the numbers stand by row, column, channel.
    images [P, Y, X, C], any numbers; size in pixels.  Raises ShapeError; ValueError when the sides cannot be cut so.
    Source: ViT, arXiv 2010.11929, section 3.1; K3 uses patches of 14 pixels.
    """
    images = np.asarray(images, dtype=np.float64)
    sizes = check_shapes("patches", images=(images, "P Y X C"))
    if size < 1 or sizes["Y"] % size or sizes["X"] % size:
        raise ValueError(f"patches: images must have sides that are multiples of size = {size}, "
                         f"but {sizes['Y']} x {sizes['X']} came")
    rows = []
    for y in range(0, sizes["Y"], size):
        row = [images[:, y:y + size, x:x + size].reshape(sizes["P"], -1) for x in range(0, sizes["X"], size)]
        rows.append(np.stack(row, axis=1))                   # [P, X/size, size^2 C]
    return np.stack(rows, axis=1)
