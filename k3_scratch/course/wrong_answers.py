"""The wrong answers that the checks know, as tables for the teacher: what is given, and what the check then says."""

import functools

import numpy as np

from k3_scratch.course.compare import plain
from k3_scratch.course.exercise import exercises_of
from k3_scratch.course.judge import call

LONG = 60                    # characters from which on a result is not written out


@functools.lru_cache(maxsize=64)
def tables(number):
    """All exercises of a chapter ("01"), folded away.                                           -> lines of Markdown"""
    exercises = exercises_of(number)
    total = sum(len(exercise.mistakes) for exercise in exercises)
    if not total:
        return ["*The checks of this chapter name no wrong answers.*"]
    lines = ["<details><summary>"
             f"The {total} wrong answers that the checks of chapter {number} know, and what each check says</summary>"]
    for exercise in exercises:
        right, rows = _exercise(exercise)
        paper = "" if exercise.is_value else f" in the case {exercise.cases[0].name}"
        lines += ["", f"**{exercise.id} {exercise.title}**, right{paper}: {right}", "",
                  "| given | what the check says |", "|---|---|",
                  *(f"| {given} | {hint.replace('|', chr(92) + '|')} |" for given, hint in rows)]
    return [*lines, "", "</details>"]


def _exercise(exercise):
    if exercise.is_value:
        return written([exercise.solution]), [(written([m.wrong]), m.hint) for m in exercise.mistakes]
    arguments, many = exercise.cases[0].arguments, len(exercise.returns) > 1
    right = _results(exercise.solution, arguments, many)
    return written(right), [(_beside(right, _results(mistake.wrong, arguments, many)), mistake.hint)
                            for mistake in exercise.mistakes]


def _results(function, arguments, many):
    """What a function gives, as a list of its results; None: it stops with an error."""
    value, _, error = call(function, arguments)
    return None if error is not None else list(value) if many else [value]


def _beside(right, wrong):
    """A wrong result in words, beside the right one."""
    if wrong is None:
        return "an error"
    same = all(np.shape(plain(a)) == np.shape(plain(b)) and np.allclose(plain(a), plain(b), equal_nan=True)
               for a, b in zip(right, wrong, strict=True))
    return "the same here" if same else written(wrong)


def written(results):
    """Results in a few characters, three digits behind the point; one that is long is only counted.

    >>> written([np.array([[0.5, -2.0]]), 16384]), written([np.arange(99.0)]), written(["ABF"])
    ('0.5, -2; 16,384', '(99 numbers)', 'ABF')
    """
    texts = [str(result) if isinstance(result, (str, bool, np.bool_))
             else ", ".join(map(_number, np.ravel(plain(result)).tolist())) or "nothing" for result in results]
    return "; ".join(text if len(text) <= LONG else f"({text.count(', ') + 1} numbers)" for text in texts)


def _number(number):
    if number != number:
        return "nan"
    if isinstance(number, int) or abs(number) < 1e-12 or (number == round(number) and abs(number) < 1e15):
        return f"{int(number):,}"
    return f"{number:.3g}" if abs(number) < 1e-3 or abs(number) > 1e5 else f"{round(number, 3):g}"
