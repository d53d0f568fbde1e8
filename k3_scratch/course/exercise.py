"""What an exercise is: a right answer, cases to compare on, properties, and the likely mistakes by name.

An exercise asks for a function or for a value (a number, an array, a word). A module `checks/chNN.py` declares
`EXERCISES`, a tuple of `Exercise`; `judge.py` compares an answer with it, in this order: can it be called, shapes and
kinds of numbers, the case for paper, properties, agreement in the other cases, and at the end the mistakes.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from k3_scratch.course import checks
from k3_scratch.course.chapters import chapter_of


class ExerciseError(ValueError):
    """There is no such exercise, or one is declared wrongly."""


@dataclass(frozen=True)
class Case:
    """One set of arguments. `name` goes into a sentence: "in the case {name}, ..."."""

    name: str                       # "for paper: one key, two values" or "strong decay"
    arguments: tuple = ()           # what the function is called with, in order; copied before each call
    paper: bool = False             # small enough for paper: the message shows all numbers


@dataclass(frozen=True)
class Property:
    """Something every right answer does. `name` is what must hold: "with beta = 0 nothing changes"."""

    name: str
    holds: Callable                 # the student's function -> bool


@dataclass(frozen=True)
class Mistake:
    """A likely mistake: `hint` names it ("you decayed after the write"), `wrong` is a function or value that has it."""

    hint: str
    wrong: Any


@dataclass(frozen=True)
class Exercise:
    """One exercise. `takes` None: the answer is a value, compared with `solution` itself."""

    id: str                         # "1.3"
    title: str                      # a few words: "one delta-rule write"
    solution: Any                   # the package's function, or the value
    look: str                       # where to look when no mistake fits: one sentence
    mistakes: tuple[Mistake, ...]   # at least three, each with another hint
    takes: dict | None = None       # {argument: letters}, e.g. {"state": "K V", "k": "K"}; None for what has no shape
    returns: dict | None = None     # {result: letters}; several results come as a tuple, in this order
    cases: tuple[Case, ...] = ()
    properties: tuple[Property, ...] = ()
    tolerance: float = 1e-9         # of the largest number of the right result

    @property
    def is_value(self):
        """Is the answer a value, not a function?"""
        return self.takes is None


def exercises_of(chapter):
    """The exercises of a chapter ("01") in order; () when it has no checks yet.                   -> (Exercise, ...)"""
    if f"ch{chapter}" not in {found.name for found in pkgutil.iter_modules(checks.__path__)}:
        return ()
    return importlib.import_module(f"k3_scratch.course.checks.ch{chapter}").EXERCISES


def find(exercise_id):
    """The exercise with this id. Raises ExerciseError that says which ids there are."""
    try:
        chapter = chapter_of(exercise_id)
    except ValueError as error:
        raise ExerciseError(str(error)) from error
    known = {exercise.id: exercise for exercise in exercises_of(chapter)}
    if exercise_id not in known:
        raise ExerciseError(f"there is no exercise {exercise_id}; chapter {chapter} has {', '.join(known) or 'none'}")
    return known[exercise_id]


def chapters_with_checks():
    """["01", ...]"""
    return sorted(found.name[2:] for found in pkgutil.iter_modules(checks.__path__)
                  if found.name.startswith("ch") and found.name[2:].isdigit())
