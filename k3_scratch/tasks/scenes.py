"""Scenes, what can be asked about them, and the answers.

A scene is a tuple of things (shape, colour, row, column) in different slots of a 3 x 3 grid:

    .    plus .        shape       red? box            the one red thing
    box  .    .        colour      plus? gold          the one plus
    .    .    box      count       boxes? 2            or things, or of a colour
                       relation    left of plus? box   the one thing in a column further left

Only questions with exactly one answer are asked.
"""

from k3_scratch.tasks.dice import dice, pick
from k3_scratch.tasks.glyphs import COLOURS, SHAPES

GRID, FEWEST, MOST = 3, 2, 3            # slots in a row and a column; things in a scene
DIRECTIONS = {"left of": (3, -1), "right of": (3, 1), "above": (2, -1), "below": (2, 1)}   # what is compared, and how
KINDS = ("shape", "colour", "count", "relation")
ROLLS = 3 * MOST + 1                    # random numbers that one scene takes at most
_SHAPES, _COLOURS = tuple(SHAPES), tuple(COLOURS)


def draw_scene(rng):
    """2 or 3 things in different slots; shapes and colours may come twice.

    >>> import numpy as np
    >>> [len(draw_scene(np.random.default_rng(seed))) for seed in range(4)]
    [3, 2, 3, 2]
    """
    roll = dice(rng, ROLLS)
    slots = pick(roll, range(GRID * GRID), FEWEST + roll(MOST - FEWEST + 1))
    return tuple((_SHAPES[roll(len(_SHAPES))], _COLOURS[roll(len(_COLOURS))], *divmod(slot, GRID))
                 for slot in sorted(slots))


def content(scene):
    """The scene as a text, which decides the split that it belongs to."""
    return ";".join(f"{shape} {colour} {row} {column}" for shape, colour, row, column in scene)


def questions(scene, kind):
    """[(question, answer), ...] of one of KINDS, all that have exactly one answer; perhaps none.

    >>> questions((("plus", "gold", 0, 1), ("box", "red", 1, 0), ("tee", "red", 2, 2)), "relation")[:2]
    [('left of plus?', 'box'), ('right of plus?', 'tee')]
    """
    return {"shape": _shape, "colour": _colour, "count": _count, "relation": _relation}[kind](scene)


def _shape(scene):
    return [(f"{colour}?", shape) for shape, colour, *_ in scene if _number(scene, 1, colour) == 1]


def _colour(scene):
    return [(f"{shape}?", colour) for shape, colour, *_ in scene if _number(scene, 0, shape) == 1]


def _count(scene):
    """Things, and things of each colour and of each shape that is there."""
    asked = {"thing": len(scene)}
    asked |= {colour: _number(scene, 1, colour) for _, colour, *_ in scene}
    asked |= {shape: _number(scene, 0, shape) for shape, *_ in scene}
    return [(f"{plural(what)}?", str(number)) for what, number in asked.items()]


def plural(word):
    """With it a question asks how many.

    >>> [plural(word) for word in ("red", "box", "plus")]
    ['reds', 'boxes', 'pluses']
    """
    return word + ("es" if word.endswith(("s", "x")) else "s")


def _relation(scene):
    """Beside a shape that is there once: what is the one thing further left, right, up or down, in any row?"""
    found = []
    for thing in scene:
        if _number(scene, 0, thing[0]) > 1:
            continue
        for words, (axis, sign) in DIRECTIONS.items():
            beyond = [other[0] for other in scene if sign * (other[axis] - thing[axis]) > 0]
            if len(beyond) == 1:
                found.append((f"{words} {thing[0]}?", beyond[0]))
    return found


def _number(scene, axis, value):
    return sum(thing[axis] == value for thing in scene)
