"""Marking: the judge of the notebooks' checks, put before an answer that lives in another process.

The judge, the cases and the right results stay in this process; the answer is asked over the line, call by call.
"""

import builtins
import contextlib
import inspect

import numpy as np

from k3_scratch.course.grade_room import Stopped
from k3_scratch.course.grade_wire import clean, decode
from k3_scratch.course.judge import Verdict, judge


def judged(room, exercise):
    """Judge the answer in a room that runs `serve`.    -> Verdict. Stopped when the room ends before its answer"""
    told = room.hear()
    error = told.get("error") or {}
    verdict = None
    if told.get("kind") == "missing":
        verdict = Verdict("wrong", _stopped(error, "the cell stopped") if error else "the cell does not define it",
                          "Run the cell by itself, and keep the name that it had.")
    elif told.get("kind") == "value":
        try:
            verdict = judge(exercise, decode(told.get("value")))
        except Exception as wrong:
            verdict = Verdict("wrong", f"the value cannot be read ({type(wrong).__name__})", "Give a number or array")
    elif told.get("package") and not exercise.is_value:
        room.foreign.add(clean(str(told.get("called"))))
        return Verdict("done")
    else:
        verdict = judge(exercise, _Distant(room, told.get("takes")))
    if verdict.state != "done":
        if room.printed_too_much():
            raise Stopped(f"it printed more than {room.limits.output / 1e6:g} MB")
        if "MemoryError" in verdict.found or error.get("type") == "MemoryError":
            raise Stopped(room.too_much())
    return Verdict(verdict.state, clean(verdict.found), clean(verdict.hint))


class _Distant:
    """The student's function, as far as the judge can tell: a call goes to the room and comes back as arrays."""

    def __init__(self, room, takes):
        self.room = room
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            self.__signature__ = inspect.Signature(
                [inspect.Parameter(name, kind, default=None if default else inspect.Parameter.empty)
                 for name, kind, default in takes])

    def __call__(self, *arguments, **named):
        reply = self.room.ask((arguments, named))
        for mine, after in zip(arguments, reply.get("after", ()), strict=False):
            _copy_back(mine, decode(after))
        if reply.get("error"):
            raise _error(reply["error"])
        return decode(reply.get("result"))


def _copy_back(mine, after):
    """What the function did to an array in place, done to ours."""
    if isinstance(mine, np.ndarray) and isinstance(after, np.ndarray) and mine.shape == after.shape:
        mine[...] = after
    elif hasattr(mine, "detach") and hasattr(after, "detach") and mine.shape == after.shape:
        mine.detach().copy_(after)


def _error(told):
    name, text = clean(str(told.get("type"))), clean(str(told.get("text")))
    known = getattr(builtins, name, None)
    known = known if isinstance(known, type) and issubclass(known, (Exception, SystemExit)) else None
    try:
        error = known(text)
    except TypeError:                                                    # not known, or made from more than a text
        error = type(name, (Exception,), {})(text)
    error.answers_line = clean(str(told.get("line") or ""))
    return error


def _stopped(told, what):
    line = f", in its line `{clean(str(told['line']))}`," if told.get("line") else ""
    return f"{what}{line} with {clean(str(told.get('type')))}: {clean(str(told.get('text'))) or 'no message'}"
