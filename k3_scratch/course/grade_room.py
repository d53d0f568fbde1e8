"""Marking, the outer side of a room: start its process, watch it, send arguments, hear what comes back.

What goes in is pickled, what comes out is plain data only.
"""

import contextlib
import io
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import types
from dataclasses import dataclass, field

from k3_scratch.course.grade_inside import enter
from k3_scratch.course.grade_wire import LARGEST, clean, decode

try:
    import psutil  # it comes with jupyter
except ImportError:
    psutil = None

STARTING = 180               # seconds in which the import cell must have run
TICK = 0.1
_lock = threading.Lock()     # starting and ending a process are not meant for several threads at once


class NotStarted(OSError):
    """The course's own part of a room did not come to its end: no fault of the answer, so it gets no result."""


class Stopped(BaseException):
    """The room has ended before its answer: the message says why. No Exception, so that the judge lets it through."""


@dataclass(frozen=True)
class Place:
    """Where rooms are opened: how processes start, their limits, folders that no answer sees."""

    context: object
    limits: object
    hidden: tuple = ()
    leaving: threading.Event = field(default_factory=threading.Event)    # set: every room ends, without a result


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


def family(process):
    """Numbers of a process and of all that it and they have started, itself first; as far as the system tells."""
    found = [process]
    try:
        for member in found:
            for thread in os.listdir(f"/proc/{member}/task"):
                with open(f"/proc/{member}/task/{thread}/children", encoding="ascii") as file:
                    found += map(int, file.read().split())
    except OSError:                                                      # ended meanwhile, or no such list here
        if psutil is not None:
            with contextlib.suppress(psutil.Error):
                found = [process, *(child.pid for child in psutil.Process(process).children(recursive=True))]
    return found


def room(where, task, *arguments, tries=3):
    """Open a room, again when its process did not start; `with room(...) as opened`. NotStarted after the last try."""
    for left in reversed(range(tries)):
        try:
            return Room(where, task, *arguments).ready()
        except NotStarted:
            if not left:
                raise
    return None


class Room:
    """One process for one task; see `room`. `held`: what it is kept from."""

    def __init__(self, where, task, *arguments):
        self.where, self.limits, self.functions, self.foreign = where, where.limits, [], set()
        self.folder = tempfile.mkdtemp(prefix="k3-grade-")
        self.mine, other = where.context.Pipe()
        self.process = where.context.Process(
            target=enter, args=(task, other, where.limits, self.folder, where.hidden, *arguments))
        with _lock, _no_main():
            self.process.start()
        other.close()
        self.ended = False
        self.deadline, self.at_first, self.held = time.monotonic() + STARTING, None, ()

    def ready(self):
        """Wait until the task is ready; from then on the limits count.                                    -> itself"""
        try:
            self.held = self.hear()["held"]
            self.hear()                                                  # the import cell has run
        except Stopped as stopped:
            self.__exit__()
            raise NotStarted(f"an answer's process did not start: {stopped}") from None
        except BaseException:
            self.__exit__()
            raise
        self.deadline = time.monotonic() + self.limits.wall
        used, number = self._used()
        self.at_first = used / max(1, number)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
        self.mine.close()
        shutil.rmtree(self.folder, ignore_errors=True)

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
        except (EOFError, ConnectionError):
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
        if self.ended:
            return
        self.ended = True
        for member in family(self.process.pid)[1:]:
            with contextlib.suppress(OSError):
                os.kill(member, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
        with _lock:
            self.process.kill()
            self.process.join(10)
        if hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)

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
        if self.where.leaving.is_set():
            self.end()
            raise KeyboardInterrupt
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
        for member in family(self.process.pid) if psutil else ():
            with contextlib.suppress(psutil.Error):
                used, number = used + psutil.Process(member).memory_info().rss, number + 1
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
