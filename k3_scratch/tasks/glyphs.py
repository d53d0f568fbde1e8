"""Drawing: four shapes of 3 x 3 pixels in four colours, on a gray and noisy ground of 12 x 12."""

import numpy as np

_DRAWN = """
    box     plus    tee     ell
    ###     .#.     ###     #..
    ###     ###     .#.     #..
    ###     .#.     .#.     ###
"""
SIDE, SLOT, GLYPH = 12, 4, 3            # pixels: of a picture, of one of its 3 x 3 slots, of a shape
_NAMES, *_ROWS = (line.split() for line in _DRAWN.split("\n") if line)
SHAPES = {name: np.array([[pixel == "#" for pixel in row[i]] for row in _ROWS]) for i, name in enumerate(_NAMES)}
COLOURS = {name: np.array(rgb, dtype=float) for name, rgb in {           # nowhere darker than the ground
    "red": (255, 128, 128), "lime": (128, 255, 128), "blue": (128, 128, 255), "gold": (255, 255, 128)}.items()}
GROUND, NOISE = 128, 12                 # mean brightness of the ground, standard deviation of the noise


def draw(scenes, rng):
    """Pictures of scenes.                                                    P scenes -> uint8 [P, 12, 12, 3]

    scenes    each a tuple of things (shape, colour, row, column), row and column of a slot from 0 to 2
    rng       NumPy Generator, for what does not matter: each thing is up to a third paler, and every pixel is noisy
    """
    pixels = np.full((len(scenes), SIDE, SIDE, 3), float(GROUND))
    light = rng.uniform(0.67, 1.0, (len(scenes), max(map(len, scenes), default=0))).tolist()
    for p, scene in enumerate(scenes):
        for (shape, colour, row, column), bright in zip(scene, light[p], strict=False):
            y, x = SLOT * row, SLOT * column
            rgb = GROUND + bright * (COLOURS[colour] - GROUND)
            pixels[p, y:y + GLYPH, x:x + GLYPH][SHAPES[shape]] = rgb
    return (pixels + NOISE * rng.standard_normal(pixels.shape)).clip(0, 255).round().astype(np.uint8)
