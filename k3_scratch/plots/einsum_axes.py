"""Which axes meet: einsum as boxes with one tag an axis, joined where the letter is the same."""

import re

import numpy as np

from k3_scratch.plots.sheet import Sheet
from k3_scratch.plots.style import INK, PETROFF10, PlotError, darker, styled, tint

TAG, GAP = 3.4, 0.8            # width of an axis's tag and the room between two, in tenths of an inch
CARD_WIDTH, CARD_HEIGHT = 42.0, 26.0
COLOURS = (0, 6, 4, 2, 5, 8, 1, 7, 9, 3)          # of PETROFF10, neighbours far apart


@styled
def einsum_axes(examples):
    """Follow the lines down: a letter that reaches the result stays an axis, one that ends in Σ is summed over.

    examples  {title: "tk,sk->ts"}, two cards a row
    Raises PlotError for what is no such text.
    """
    if not isinstance(examples, dict) or not examples:
        raise PlotError(f"einsum_axes: examples must be a dict {{title: 'tk,sk->ts'}} with at least one entry, "
                        f"but {examples!r} came")
    parsed = {title: _parse(spec) for title, spec in examples.items()}
    letters = list(dict.fromkeys("".join("".join(inputs) for inputs, _ in parsed.values())))
    colour = {letter: PETROFF10[COLOURS[i % 10]] for i, letter in enumerate(letters)}
    rows = -(-len(parsed) // 2)
    columns = min(2, len(parsed))
    sheet = Sheet(columns * CARD_WIDTH + 1, rows * CARD_HEIGHT + 1)
    for place, (title, (inputs, result)) in enumerate(parsed.items()):
        x, y = 1 + place % 2 * CARD_WIDTH, 1 + (rows - 1 - place // 2) * CARD_HEIGHT
        sheet.frame(x, y, CARD_WIDTH - 1, CARD_HEIGHT - 1, order=-2)
        sheet.text(x + 1.4, y + CARD_HEIGHT - 3.2, title, size=11, bold=True, across="left")
        sheet.text(x + CARD_WIDTH - 2.4, y + 1.9, f'"{",".join(inputs)}->{result}"', size=10, across="right",
                   colour="#4b5258").set_family("monospace")
        _card(sheet, x + (CARD_WIDTH - 1) / 2, y + 4.6, inputs, result, colour)
    return sheet.fit()


def _card(sheet, middle, y, inputs, result, colour):
    """Operands above, the result below, a line for each letter of each operand."""
    widths = [_width(letters) for letters in inputs]
    x = middle - (sum(widths) + 3.0 * (len(inputs) - 1)) / 2
    tags = {}                                                      # letter -> [x of its tags above]
    for letters, width in zip(inputs, widths, strict=True):
        for letter, place in _box(sheet, x, y + 12.0, letters, colour).items():
            tags.setdefault(letter, []).append(place)
        x += width + 3.0
    below = _box(sheet, middle - _width(result) / 2, y, result, colour)
    kept = [((place, y + 12.4), (below[letter], y + 4.2), letter) for letter, places in tags.items()
            if letter in below for place in places]
    for start, end, letter in kept:
        sheet.line([start, end], colour=colour[letter], width=2.0, order=3)
    for letter, places in tags.items():
        if letter not in below:
            spot = _free_spot(sum(places) / len(places), y + 8.4, kept)
            for place in places:
                sheet.line([(place, y + 12.4), spot], colour=colour[letter], width=2.0, order=3)
            sheet.dot(*spot, colour=colour[letter], radius=1.25, hollow=True, order=6)
            sheet.text(*spot, "Σ", size=10, bold=True, colour=darker(colour[letter]), order=8)


def _free_spot(x, y, lines):
    """The place nearest to (x, y) where a circle touches none of the lines, or the best there is."""
    spots = sorted(((x + dx, y + dy) for dx in np.arange(-9, 9.5, 0.5) for dy in (0.0, 1.2, -1.2)),
                   key=lambda spot: abs(spot[0] - x) + 2 * abs(spot[1] - y))
    room = [min((_distance(spot, start, end) for start, end, _ in lines), default=9.0) for spot in spots]
    return next((spot for spot, free in zip(spots, room, strict=True) if free > 1.9), spots[int(np.argmax(room))])


def _distance(point, start, end):
    """From a point to a piece of a straight line."""
    point, start, end = np.array(point), np.array(start), np.array(end)
    along = np.clip((point - start) @ (end - start) / ((end - start) @ (end - start)), 0, 1)
    return float(np.hypot(*(start + along * (end - start) - point)))


def _box(sheet, x, y, letters, colour):
    """A box with one tag an axis.                                                       -> {letter: x of its tag}"""
    sheet.frame(x, y, _width(letters), 4.2, face="#f4f6f8", edge=INK, line=1.2, order=4)
    places = {}
    for i, letter in enumerate(letters):
        left = x + GAP + i * (TAG + GAP)
        sheet.frame(left, y + 0.7, TAG, 2.8, face=tint(colour[letter], 0.7), edge=colour[letter], order=5)
        sheet.text(left + TAG / 2, y + 2.0, letter, size=11, bold=True, order=8)
        places[letter] = left + TAG / 2
    if not letters:
        sheet.text(x + _width(letters) / 2, y + 2.1, "a number", size=9, order=8)
    return places


def _width(letters):
    return GAP + len(letters) * (TAG + GAP) if letters else 9.0


def _parse(spec):
    if not isinstance(spec, str) or not re.fullmatch(r"[a-z]+(,[a-z]+)*->[a-z]*", spec):
        raise PlotError(f"einsum_axes: examples must be texts such as 'tk,sk->ts', but {spec!r} came")
    inputs, result = spec.split("->")
    if any(len(set(letters)) != len(letters) for letters in (*inputs.split(","), result)):
        raise PlotError(f"einsum_axes: a letter must occur once in each operand, but {spec!r} came")
    if set(result) - set(inputs):
        raise PlotError(f"einsum_axes: the result's letters must come from the operands, but {spec!r} came")
    return inputs.split(","), result
