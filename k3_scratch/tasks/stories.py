"""Stories: who has what after things changed hands.

    text     Di has rye, Mo ice. Su takes ice. Di gives Bo rye. Ice? Su. Rye? Bo
    marks    ........................................................^^.......^^$

Wants the newest owner of each thing. Two short cuts pay little: the name that the story mentions last is right for
fewer than half of the questions, and so is the first owner (a test measures both).
The first letter of a name decides it; the second follows from the first, so half of the scored characters are easy.
"""

from k3_scratch.tasks.dice import dice, pick
from k3_scratch.tasks.example import Example
from k3_scratch.tasks.splits import draw_in_split

NAME = "stories"
LONGEST = 80
NAMES = ("Al", "Bo", "Cy", "Di", "Ed", "Jo", "Mo", "Su")
THINGS = ("tea", "jam", "ice", "oil", "rye", "gum", "wax", "hay")
_QUESTION = len(" Tea? Al.")    # also the size of the last question, with the newline in place of the full stop


def example(rng, split):
    """One example whose story belongs to `split`: 3 to 5 persons, 2 to 4 things, 1 to 3 events and questions.

    >>> import numpy as np
    >>> shown = example(np.random.default_rng(2), "train")
    >>> print(shown.text + shown.marks)
    Di has rye, Mo ice. Su takes ice. Di gives Bo rye. Ice? Su. Rye? Bo
    ........................................................^^.......^^$
    """
    return draw_in_split(split, lambda: _draw(rng), contents)


def contents(example):
    """The story without the questions."""
    story = example.turns[0][0]
    return [story[:story.rindex(".") + 1]]


def _draw(rng):
    roll = dice(rng, 48)
    things = pick(roll, THINGS, 2 + roll(3))
    fewest = max(3, len(things))
    cast = pick(roll, NAMES, fewest + roll(6 - fewest))
    owner = dict(zip(things, cast, strict=False))                # at first everybody has one thing at most
    (thing, name), *others = owner.items()
    story = ", ".join([f"{name} has {thing}", *(f"{name} {thing}" for thing, name in others)]) + "."
    count = min(len(things), (1, 2, 2, 3)[roll(4)])              # questions

    moved = []
    for _ in range(3):
        thing = pick(roll, [thing for thing in things if thing not in moved[-1:]], 1)[0]
        taker = pick(roll, [name for name in cast if name != owner[thing]], 1)[0]
        event = f" {owner[thing]} gives {taker} {thing}." if roll(2) else f" {taker} takes {thing}."
        if len(story) + len(event) + count * _QUESTION > LONGEST:
            break
        story += event
        owner[thing] = taker
        moved.append(thing)

    asked = _questions(roll, things, moved)[:count]
    prompts = [f". {thing.capitalize()}? " for thing in asked]
    prompts[0] = story + prompts[0].removeprefix(".")
    return Example(tuple((prompt, owner[thing]) for prompt, thing in zip(prompts, asked, strict=True)))


def _questions(roll, things, moved):
    """All things in the order of asking: mostly first what moved before the last event, and last what moved then."""
    order = pick(roll, things, len(things))
    if roll(4):
        order.sort(key=lambda thing: 2 * (thing == moved[-1]) + (thing not in moved))
    return order
