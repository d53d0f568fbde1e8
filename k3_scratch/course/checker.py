"""`check(id, answer)`: one line that says how an exercise stands. Strict mode makes it raise."""

import os
from contextlib import contextmanager

from k3_scratch.course.exercise import ExerciseError, find
from k3_scratch.course.judge import judge
from k3_scratch.course.progress import record

_STRICT = "K3_STRICT"


class CheckError(AssertionError):
    """In strict mode: an exercise is not done; the message is what `check` prints."""


def check(exercise_id, answer):
    """Print how the answer to an exercise stands; never raises, except in strict mode.

        ✓ 1.3 one delta-rule write
        · 1.3 not attempted yet
        ✗ 1.3 one delta-rule write: in the case ..., state should be ..., but ... came
          Look at: You decayed after the write.

    exercise_id  "1.3": chapter, dot, number
    answer       your function (its name, without brackets) or your value
    """
    state, text = "wrong", ""
    try:
        exercise = find(exercise_id)
        verdict = judge(exercise, answer)
        state, text = verdict.state, _text(exercise, verdict)
        record(exercise_id, state)
    except ExerciseError as error:
        text = f"✗ {error}"
    except Exception as error:                         # a fault of the check, which must not stop the notebook
        text = f"✗ {exercise_id} the check itself stopped with {type(error).__name__}: {error}"
    print(text)
    if state != "done" and os.environ.get(_STRICT, "") not in ("", "0"):
        raise CheckError(text)


@contextmanager
def strict():
    """Inside the block `check` raises CheckError for all that is not done. The variable K3_STRICT=1 does the same."""
    before = os.environ.get(_STRICT)
    os.environ[_STRICT] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_STRICT]
        else:
            os.environ[_STRICT] = before


def _text(exercise, verdict):
    if verdict.state == "open":
        return f"· {exercise.id} not attempted yet"
    if verdict.state == "done":
        return f"✓ {exercise.id} {exercise.title}"
    return f"✗ {exercise.id} {exercise.title}: {verdict.found}\n  Look at: {verdict.hint}"
