"""Is an answer right? And if not: which sentence helps?

`judge(exercise, answer)` never raises whatever the answer is, and never lets it change the exercise's own arrays.
"""

import copy
import inspect
import linecache
import traceback
import warnings
from dataclasses import dataclass

import numpy as np

from k3_scratch.course.compare import blank, difference, form, plain, same
from k3_scratch.shapes import check_shapes


@dataclass(frozen=True)
class Verdict:
    """What came out: state "done", "open" (not attempted) or "wrong"; what was found, and the hint."""

    state: str
    found: str = ""
    hint: str = ""


def judge(exercise, answer):
    """Compare an answer with its exercise.                                                            -> Verdict"""
    if blank(answer):
        return Verdict("open")
    if exercise.is_value:
        found = _value_fault(exercise, answer)
        return Verdict("wrong", found, _named(exercise, answer) or exercise.look) if found else Verdict("done")
    if not callable(answer):
        return Verdict("wrong", f"a function is wanted, but a {type(answer).__name__} came",
                       'Give the name of your function alone, without brackets: check("1.2", my_function).')
    found = _signature_fault(exercise, answer)
    if found:
        return Verdict("wrong", found, "Keep the first line of the function as it was.")
    first, rest = exercise.cases[:1], exercise.cases[1:]
    for step in (*first, *exercise.properties, *rest):
        found = _case_fault(exercise, answer, step) if hasattr(step, "arguments") else _property_fault(answer, step)
        if found is OPEN:
            return Verdict("open")
        if found:
            return Verdict("wrong", found, _named(exercise, answer) or exercise.look)
    return Verdict("done")


OPEN = object()              # what a stub returns: nothing has been tried


def call(function, arguments):
    """Run with copies of the arguments, without warnings.            -> result, copies, and the error or None"""
    copies = [_copied(argument) for argument in arguments]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function(*copies), copies, None
    except (Exception, SystemExit) as error:
        return None, copies, error


def _copied(argument):
    if hasattr(argument, "detach"):
        return argument.detach().clone().requires_grad_(argument.requires_grad)
    return copy.deepcopy(argument) if isinstance(argument, (np.ndarray, list, dict, set)) else argument


def _signature_fault(exercise, answer):
    try:
        inspect.signature(answer).bind(*exercise.takes)
    except TypeError:
        return f"your function must take the arguments ({', '.join(exercise.takes)}), in this order"
    except ValueError:                                                   # a built-in without a signature
        return ""
    return ""


def _case_fault(exercise, answer, case):
    result, copies, error = call(answer, case.arguments)
    where = f"in the case {case.name}, "
    if error is not None:
        return where + _told(error, answer)
    if result is None:
        return where + "your function returns None: is there a `return` at its end?"
    wanted, _, _ = call(exercise.solution, case.arguments)
    names, letters = list(exercise.returns), list(exercise.returns.values())
    if len(names) > 1:
        if blank(result) or (isinstance(result, (tuple, list)) and any(part is ... for part in result)):
            return OPEN
        if not isinstance(result, (tuple, list)) or len(result) != len(names):
            came = f"{len(result)} came" if isinstance(result, (tuple, list)) else f"a {type(result).__name__} came"
            return where + f"{len(names)} results are wanted ({', '.join(names)}), but {came}"
    else:
        if blank(result):
            return OPEN
        result, wanted = (result,), (wanted,)
    sizes = _sizes(exercise.takes, case.arguments)
    for name, contract, got, right in zip(names, letters, result, wanted, strict=True):
        found = difference(name, got, right, contract, sizes, exercise.tolerance, case.paper)
        if found:
            return where + found
    for name, before, after in zip(exercise.takes, case.arguments, copies, strict=True):
        if hasattr(before, "shape") and not same(plain(after), plain(before), 0.0):
            return where + f"your function changes its argument {name} in place: make a new array instead"
    return ""


def _property_fault(answer, rule):
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return "" if rule.holds(answer) else f"this must hold and does not: {rule.name}"
    except Exception as error:
        return f"where this was tried: {rule.name}, " + _told(error, answer)


def _value_fault(exercise, answer):
    if callable(answer):
        return "a value is wanted, but a function came"
    return difference("the answer", answer, exercise.solution, None, {}, exercise.tolerance, False)


def _sizes(takes, arguments):
    """The size of each letter in one case."""
    arrays = {name: (argument, letters) for (name, letters), argument in zip(takes.items(), arguments, strict=True)
              if letters is not None}
    return check_shapes("case", **arrays)


def _told(error, answer):
    """An exception in the answer as a sentence, with the line that raised it."""
    place = f", in its line `{error.answers_line}`," if getattr(error, "answers_line", "") else ""   # marking sets it
    file = getattr(getattr(answer, "__code__", None), "co_filename", None)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        line = linecache.getline(frame.filename, frame.lineno or 0).strip()
        if frame.filename == file and line:
            place = f", in its line `{line}`,"
            break
    return f"your function stopped{place} with {type(error).__name__}: {str(error).strip() or 'no message'}"


def _named(exercise, answer):
    """The hint of the mistake that gives the same results as the answer in every case, or ""."""
    for mistake in exercise.mistakes:
        if exercise.is_value:
            if not callable(answer) and form(answer) == form(mistake.wrong) and same(
                    plain(answer), plain(mistake.wrong), exercise.tolerance):
                return mistake.hint
        elif all(_alike(call(answer, case.arguments), call(mistake.wrong, case.arguments), exercise.tolerance)
                 for case in exercise.cases):
            return mistake.hint
    return ""


def _alike(one, other, tolerance):
    """Do two calls end alike: the same error, or the same results and the same changes to the arguments?"""
    (result, after, error), (other_result, other_after, other_error) = one, other
    if error is not None or other_error is not None:
        return type(error) is type(other_error) and str(error) == str(other_error)
    pairs = [(result, other_result), *zip(after, other_after, strict=True)]
    return all(form(a) == form(b) and same(plain(a), plain(b), tolerance) for a, b in pairs)
