"""A picture cut into square patches, each a row of numbers."""

from k3_scratch.shapes import check_shapes


def patches(images, size):
    """[P, Y, X, C] -> [P, Y/size, X/size, size * size * C]; inside a patch by row, column, channel.

    Raises ShapeError, or ValueError when the sides are no multiples of `size`.
    """
    sizes = check_shapes("patches", images=(images, "P Y X C"))
    P, Y, X, C = (sizes[letter] for letter in "PYXC")
    if size < 1 or Y % size or X % size:
        raise ValueError(f"patches: images must have sides that are multiples of size = {size}, but {Y} x {X} came")
    cut = images.reshape(P, Y // size, size, X // size, size, C).swapaxes(2, 3)      # [P, y, x, size, size, C]
    return cut.reshape(P, Y // size, X // size, size * size * C)
