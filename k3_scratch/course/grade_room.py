"""Marking, the outer side: open a room for one answer, watch it, ask it, and judge what comes back.

The judge, the cases and the right results stay in this process. From the room come plain data only, never pickles.
"""

import base64
import builtins
import contextlib
import inspect
import io
import json
import math
import multiprocessing
import os
import pickle
import shutil
import sys
import tempfile
import threading
import time
import types
from dataclasses import dataclass

import numpy as np

from k3_scratch.course.grade_inside import LARGEST, enter
from k3_scratch.course.judge import Verdict, judge

try:
    import psutil                                      # it comes with jupyter
except ImportError:
    psutil = None

STARTING = 180               # seconds in which the import cell must have run
TICK = 0.1
_lock = threading.Lock()     # starting and ending a process are not meant for several threads at once


class Stopped(BaseException):
    """The room has ended before its answer: the message says why. No Exception, so that the judge lets it through."""


@dataclass(frozen=True)
class Place:
    """Where rooms are opened: how processes start, their limits, folders that no answer sees."""

    context: object
    limits: object
    hidden: tuple = ()


def place(limits, modules=(), hidden=()):
    """Rooms whose processes have `modules` imported already, where the system can fork safely.           -> Place"""
    linux = sys.platform == "linux"
    context = multiprocessing.get_context("forkserver" if linux else "spawn")
    if linux:
        context.set_forkserver_preload(["k3_scratch.course.grade_read", *modules])
    return Place(context, limits, tuple(str(folder) for folder in hidden))


@contextlib.contextmanager
def _no_main():
    """A new process imports the program again that has called us, unless there seems to be none."""
    before = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = before


class Room:
    """One process for one task; `with Room(place, task, arguments) as room`. `room.held`: what it is kept from."""

    def __init__(self, where, task, *arguments):
        self.where, self.limits, self.functions, self.foreign = where, where.limits, [], set()
        self.folder = tempfile.mkdtemp(prefix="k3-grade-")
        self.mine, other = where.context.Pipe()
        self.process = where.context.Process(
            target=enter, args=(task, other, where.limits, self.folder, where.hidden, *arguments))
        with _lock, _no_main():
            self.process.start()
        other.close()
        self.deadline, self.at_first, self.held = time.monotonic() + STARTING, None, ()

    def __enter__(self):
        self.held = self.hear()["held"]
        return self

    def __exit__(self, *_):
        self.end()
        self.mine.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_the_clock(self):
        """From here on the limit of time counts."""
        self.deadline = time.monotonic() + self.limits.wall
        used, number = self._used()
        self.at_first = used / max(1, number)

    def hear(self):
        """The next message, plain data. Stopped when a limit is reached, or the process has ended, or it is no data."""
        self._in_time()
        while not self.mine.poll(TICK):
            self._in_time()
            self._watch()
        try:
            message = json.loads(self.mine.recv_bytes(LARGEST))
            if not isinstance(message, dict):
                raise ValueError("no dict")
        except EOFError:
            raise Stopped(self._why_it_ended()) from None
        except (OSError, ValueError, RecursionError):
            raise Stopped("it sent something that cannot be read") from None
        return message

    def ask(self, arguments):
        """Call the answer with arguments of our own.                                                      -> reply"""
        self._send(arguments)
        while "wants" in (message := self.hear()):
            try:
                function = self.functions[int(message["wants"])]
                self._send((function(*[decode(x) for x in message["arguments"]]), ""))
            except Exception as error:
                self._send((None, f"{type(error).__name__}: {error}"))
        self.foreign |= {clean(name) for name in message.get("foreign", ())}
        return message

    def end(self):
        """Stop the process and all that it has started."""
        family = []
        if psutil is not None:
            with contextlib.suppress(psutil.Error):
                family = psutil.Process(self.process.pid).children(recursive=True)
        for member in family:
            with contextlib.suppress(psutil.Error):
                member.kill()
        with _lock:
            self.process.kill()
            self.process.join(10)
        if hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, 9)

    def _send(self, thing):
        buffer = io.BytesIO()
        writer = pickle.Pickler(buffer)
        writer.persistent_id = self._number
        writer.dump(thing)
        try:
            self.mine.send_bytes(buffer.getvalue())
        except OSError:
            raise Stopped(self._why_it_ended()) from None

    def _number(self, thing):
        """Functions of the checks stay here and are known by number."""
        if not isinstance(thing, types.FunctionType) or not (
                "<" in thing.__qualname__ or thing.__module__.startswith("k3_scratch.")):
            return None
        self.functions.append(thing)
        return len(self.functions) - 1

    def _in_time(self):
        if time.monotonic() > self.deadline:
            self.end()
            raise Stopped(self._too_long())

    def _watch(self):
        used, number = self._used()
        if number > self.limits.processes:
            self.end()
            raise Stopped(f"it started more than {self.limits.processes} processes")
        if self.at_first is not None and used > number * self.at_first + 1.1 * self.limits.memory:
            self.end()
            raise Stopped(self.too_much())

    def _used(self):
        """Bytes of memory and number of all processes in the room."""
        used = number = 0
        if psutil is not None:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(self.process.pid)
                for member in (process, *process.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        used, number = used + member.memory_info().rss, number + 1
        return used, number

    def _why_it_ended(self):
        with _lock:
            self.process.join(10)
        code = self.process.exitcode
        if code is not None and (code - 128 if code > 128 else -code) in (9, 24):       # by the system's own limit
            return self._too_long()
        return "it ended the process that ran it (as sys.exit or os._exit do, or a crash)"

    def _too_long(self):
        return f"it did not end within {self.limits.seconds:g} seconds"

    def too_much(self):
        """The sentence for too much memory."""
        return f"it needed more than {self.limits.memory / 1e6:,.0f} MB of memory"

    def printed_too_much(self):
        """Has all been printed that may be?"""
        with contextlib.suppress(OSError):
            return os.path.getsize(os.path.join(self.folder, "printed")) >= self.limits.output
        return False


def judged(room, exercise):
    """Judge the answer in a room that runs `serve`.          -> Verdict; Stopped when the room ends before its answer"""
    room.hear()                                                          # the import cell has run
    room.start_the_clock()
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
            verdict = Verdict("wrong", f"the value cannot be read ({type(wrong).__name__})", "Give a number or an array.")
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
                [inspect.Parameter(name, inspect._ParameterKind(kind), default=None if default else inspect._empty)
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


def clean(text):
    """Text from a room, fit for a file: no half characters, no addresses, at most 600 characters."""
    text = text[:600].encode("utf-8", "replace").decode()
    return " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text).split())


def decode(told):
    """What `encode` made plain. ValueError for anything else."""
    if told is None or isinstance(told, (bool, str)):
        return told
    try:
        kind = told["is"]
        if kind in ("array", "scalar", "tensor"):
            return _array(told, kind)
        if kind in ("tuple", "list"):
            return (tuple if kind == "tuple" else list)(decode(part) for part in told["parts"])
        simple = {"dots": lambda: ..., "int": lambda: int(told["value"]), "float": lambda: float.fromhex(told["value"]),
                  "other": lambda: type(clean(str(told["name"])), (), {"__call__": None} if told["callable"] else {})()}
        return simple[kind]()
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no result: {error}") from None


def _array(told, kind):
    dtype = np.dtype(told["dtype"])
    shape = tuple(int(size) for size in told["shape"])
    data = base64.b64decode(told["data"])
    if dtype.kind not in "biufcUS" or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError("no array")
    array = np.frombuffer(data, dtype).reshape(shape).copy()
    if kind == "tensor":
        import torch
        return torch.from_numpy(array).to(getattr(torch, str(told["torch"]).removeprefix("torch."), None))
    return array[()] if kind == "scalar" else array
