"""Every exercise of every chapter: the solutions pass, and each likely mistake gets its own hint."""

import builtins

import numpy as np
import pytest
from course_helpers import EXERCISES, MASTERS, asked, import_cell, stem

from k3_scratch.course.exercise import chapters_with_checks, exercises_of
from k3_scratch.course.judge import call, judge
from k3_scratch.shapes import check_shapes

FUNCTIONS = [exercise for exercise in EXERCISES if not exercise.is_value]
every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=stem)
every_function = pytest.mark.parametrize("exercise", FUNCTIONS, ids=stem)


def test_there_are_exercises():
    assert "01" in chapters_with_checks()
    assert len(FUNCTIONS) >= 4


@every_exercise
def test_at_least_three_mistakes_each_with_its_own_hint(exercise):
    hints = [mistake.hint for mistake in exercise.mistakes]
    assert len(hints) >= 3
    assert len({*hints, exercise.look}) == len(hints) + 1
    assert all(hint.endswith((".", "?")) and len(hint.split()) >= 5 for hint in (*hints, exercise.look))
    for mistake in exercise.mistakes:
        verdict = judge(exercise, mistake.wrong)
        assert (verdict.state, verdict.hint) == ("wrong", mistake.hint), verdict


@every_exercise
def test_the_packages_solution_passes(exercise):
    verdict = judge(exercise, exercise.solution)
    assert verdict.state == "done", verdict


@pytest.mark.parametrize(("master", "id"), [(master, id) for master in MASTERS for id in asked(master)],
                         ids=lambda value: value.stem if hasattr(value, "stem") else value)
def test_the_masters_solution_passes(master, id):
    """It needs the import cell and its own cell, nothing else of the notebook."""
    space, cell = {"__name__": "master"}, asked(master)[id][1]
    exec(compile(import_cell(master).source, master.name, "exec"), space)
    exec(compile(cell.source, f"{master.name}:{id}", "exec"), space)
    names = [name for name in space if name.startswith("my_")]
    assert len(names) == 1, "an exercise defines one name that begins with my_"
    exercise = {e.id: e for e in exercises_of(master.stem[:2])}[id]
    verdict = judge(exercise, space[names[0]])
    assert verdict.state == "done", verdict


@every_exercise
def test_not_attempted(exercise):
    assert judge(exercise, ...).state == "open"
    assert judge(exercise, None).state == "open"
    if not exercise.is_value:
        several = max(1, len(exercise.returns))
        assert judge(exercise, with_arguments(exercise, "...")).state == "open"
        assert judge(exercise, with_arguments(exercise, "(" + "..., " * several + ")")).state == "open"


def with_arguments(exercise, expression, **names):
    """A function of the exercise's arguments that returns an expression of them."""
    return eval(f"lambda {', '.join(exercise.takes)}: {expression}", {"builtins": builtins, "np": np, **names})


def changed(exercise, change):
    """The right answer, its first result changed."""
    def answer(*arguments):
        result = exercise.solution(*arguments)
        if len(exercise.returns) == 1:
            return change(result)
        return (change(result[0]), *result[1:])
    return with_arguments(exercise, f"answer({', '.join(exercise.takes)})", answer=answer)


@every_function
def test_a_sentence_for_each_accident(exercise):
    first = next(iter(exercise.returns))

    def boom():
        raise ZeroDivisionError("division by zero")
    accidents = {
        "returns None": with_arguments(exercise, "None"),
        "ZeroDivisionError: division by zero": with_arguments(exercise, "boom()", boom=boom),
        "must take the arguments (" + ", ".join(exercise.takes): lambda: 0,
        f"{first} must have shape": changed(exercise, lambda x: np.stack([np.asarray(x)] * 2)),
        f"{first} must hold": changed(exercise, lambda x: np.asarray(x).astype(object)),
    }
    right = call(exercise.solution, exercise.cases[0].arguments)[0]
    right = np.asarray(right[0] if len(exercise.returns) > 1 else right)
    if right.dtype.kind == "f":
        accidents["nan (not a number)"] = changed(exercise, lambda x: np.asarray(x) * np.nan)
        if right.ndim:
            accidents["whole numbers lose"] = changed(exercise, lambda x: np.asarray(x).astype(np.int64))
            accidents["float32 came"] = changed(exercise, lambda x: np.asarray(x).astype(np.float32))
    for words, answer in accidents.items():
        verdict = judge(exercise, answer)
        assert verdict.state == "wrong" and words in verdict.found and verdict.hint, (words, verdict)
    verdict = judge(exercise, 3.5)
    assert verdict.state == "wrong" and "a function is wanted, but a float came" in verdict.found
    if len(exercise.returns) > 1:
        answer = with_arguments(exercise, f"answer({', '.join(exercise.takes)})[0]", answer=exercise.solution)
        assert f"{len(exercise.returns)} results are wanted" in judge(exercise, answer).found


@every_exercise
def test_a_sentence_for_wrong_values(exercise):
    if exercise.is_value:
        for answer in (np.nan, "a word", np.zeros((2, 3, 4, 5)), print, object()):
            verdict = judge(exercise, answer)
            assert verdict.state == "wrong" and verdict.found and verdict.hint, answer


@every_function
def test_arguments_must_stay_as_they_are(exercise):
    place, name = next((i, name) for i, name in enumerate(exercise.takes)
                       if any(isinstance(case.arguments[i], np.ndarray) for case in exercise.cases))

    def answer(*arguments):
        result = exercise.solution(*arguments)
        if isinstance(arguments[place], np.ndarray):
            arguments[place].fill(7)
        return result
    verdict = judge(exercise, with_arguments(exercise, f"answer({', '.join(exercise.takes)})", answer=answer))
    assert verdict.state == "wrong" and f"changes its argument {name} in place" in verdict.found


@every_function
def test_cases_are_strong_enough(exercise):
    """One for paper, first; two more in which all sizes differ."""
    assert [case.paper for case in exercise.cases] == [True] + [False] * (len(exercise.cases) - 1)
    assert len(exercise.cases) >= 3
    assert len({case.name for case in exercise.cases}) == len(exercise.cases)
    for case in exercise.cases:
        assert len(case.arguments) == len(exercise.takes)
        sizes = check_shapes(exercise.id, **{name: (argument, letters) for (name, letters), argument
                                             in zip(exercise.takes.items(), case.arguments, strict=True)
                                             if letters is not None})
        sizes.pop("...", None)
        if not case.paper:
            assert len(set(sizes.values())) == len(sizes), f"{case.name}: sizes must all differ, but {sizes} came"


def test_ids_are_unique_and_of_their_chapter():
    for chapter in chapters_with_checks():
        ids = [exercise.id for exercise in exercises_of(chapter)]
        assert ids == [f"{int(chapter)}.{i}" for i in range(1, len(ids) + 1)]
