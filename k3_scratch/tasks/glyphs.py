"""Drawing: six shapes of 3 x 3 pixels in six colours, on a gray and noisy ground of 16 x 16."""

import numpy as np

_DRAWN = """
    box     ring    plus    ex      tee     ell
    ###     ###     .#.     #.#     ###     #..
    ###     #.#     ###     .#.     .#.     #..
    ###     ###     .#.     #.#     .#.     ###
"""
SIDE, SLOT, GLYPH = 16, 4, 3            # pixels: of a picture, of one of its 4 x 4 slots, of a shape
_NAMES, *_ROWS = (line.split() for line in _DRAWN.split("\n") if line)
SHAPES = {name: np.array([[pixel == "#" for pixel in row[i]] for row in _ROWS]) for i, name in enumerate(_NAMES)}
COLOURS = {name: np.array(rgb, dtype=float) for name, rgb in {
    "red": (230, 30, 30), "lime": (60, 230, 40), "blue": (30, 50, 240), "gold": (240, 200, 20),
    "pink": (250, 90, 220), "white": (250, 250, 250)}.items()}
GROUND, NOISE = 128, 12                 # mean brightness of the ground, standard deviation of the noise


def draw(scenes, rng):
    """Pictures of scenes.                                                    P scenes -> uint8 [P, 16, 16, 3]

    scenes    each a tuple of things (shape, colour, row, column), row and column of a slot from 0 to 3
    rng       NumPy Generator, for what does not matter: each thing stands up to a pixel aside in its slot and is up to
              a quarter darker, and every pixel is noisy
    """
    pixels = np.full((len(scenes), SIDE, SIDE, 3), float(GROUND))
    most = max(map(len, scenes), default=0)
    aside = rng.integers(0, 1 + SLOT - GLYPH, (len(scenes), most, 2)).tolist()           # [P, things, y x]
    light = rng.uniform(0.75, 1.0, (len(scenes), most)).tolist()
    for p, scene in enumerate(scenes):
        for (shape, colour, row, column), (y, x), bright in zip(scene, aside[p], light[p], strict=False):
            y, x = y + SLOT * row, x + SLOT * column
            pixels[p, y:y + GLYPH, x:x + GLYPH][SHAPES[shape]] = bright * COLOURS[colour]
    return (pixels + NOISE * rng.standard_normal(pixels.shape)).clip(0, 255).round().astype(np.uint8)
