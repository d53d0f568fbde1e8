"""Marking, the inner side: a process of its own in which a student's code runs, and what it is kept from.

`enter` closes the room, then runs one task in it: here `serve`, which runs an answer and calls it when asked. Nothing
is judged in here. Results leave as plain data (`encode`): whatever the code does to this process, what comes out can
be a wrong array, never a mark.
"""

import contextlib
import ctypes
import inspect
import io
import linecache
import os
import pickle
import signal
import sys
import tempfile
import traceback
from dataclasses import dataclass
from os import open as handle

import k3_scratch
from k3_scratch.course.grade_wire import encode, say

PACKAGE = os.path.dirname(k3_scratch.__file__) + os.sep
MISSING = object()
KEPT = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
NEW_ROOM = 0x10000000 | 0x40000000 | 0x20000000 | 0x08000000 | 0x00020000    # users, network, processes, ipc, mounts


@dataclass(frozen=True)
class Limits:
    """What one answer may use: seconds of processor time, bytes of memory, bytes written to one file, processes."""

    seconds: float = 30
    memory: int = 1_000_000_000
    output: int = 10_000_000
    processes: int = 32

    @property
    def wall(self):
        """Seconds on the clock, for what sleeps or waits."""
        return 2 * self.seconds + 5


def enter(task, connection, limits, folder, hidden, *arguments):
    """Close the room, say what it is kept from, run task(connection, limits, *arguments), leave without clean-up.

    folder   home and working folder become folder/home, and what is printed goes to folder/printed
    hidden   folders that are seen empty, where the system allows it
    """
    _redirect(connection, folder)
    held = _close(limits, folder, hidden)
    with contextlib.suppress(Exception):
        say(connection, {"held": held})
        task(connection, limits, *arguments)
    os._exit(0)


# ---- closing the room

def _redirect(connection, folder):
    home = os.path.join(folder, "home")
    os.makedirs(home, exist_ok=True)
    printed, nothing = io.FileIO(os.path.join(folder, "printed"), "a"), io.FileIO(os.devnull)
    for file, number in ((nothing, 0), (printed, 1), (printed, 2)):
        os.dup2(file.fileno(), number)
    printed.close()
    nothing.close()
    sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(number, mode, closefd=False), encoding="utf-8",
                                                          errors="replace", write_through=True)
                                         for number, mode in enumerate("rww"))
    if hasattr(os, "setsid"):
        os.setsid()
        os.closerange(3, connection.fileno())
        os.closerange(connection.fileno() + 1, 1024)
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    os.environ.clear()
    os.environ.update(kept, HOME=home, USERPROFILE=home, TMPDIR=home, TEMP=home, TMP=home, MPLCONFIGDIR=home,
                      MPLBACKEND="Agg", K3_PROGRESS="")
    tempfile.tempdir = None
    os.chdir(home)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _close(limits, folder, hidden):
    """-> what the code is kept from: "network", "processes", "files" (writing outside its folder), "other students"."""
    held = []
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)                           # ends when the marking ends
        who, group = os.getuid(), os.getgid()
        if libc.unshare(NEW_ROOM) == 0:
            for name, text in (("setgroups", "deny"), ("uid_map", f"{who} {who} 1"), ("gid_map", f"{group} {group} 1")):
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(text)
            held += ["network", "processes"]
            private = libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None) == 0
            if private and hidden and not any(libc.mount(b"none", os.fsencode(place), b"tmpfs", 1, None)
                                              for place in hidden):
                held.append("other students")
            _wait_for_the_first_process(libc)
        if _write_only(libc, os.path.join(folder, "home")):
            held.append("files")
    with contextlib.suppress(ImportError):
        import resource
        for name, most in (("CORE", 0), ("FSIZE", limits.output)):
            _at_most(resource, getattr(resource, f"RLIMIT_{name}"), most)
        if sys.platform == "linux" and os.getuid():                      # this user's threads, and a few more
            _at_most(resource, resource.RLIMIT_NPROC, _threads(os.getuid()) + 8 * limits.processes)
    return held


def _wait_for_the_first_process(libc):
    """Go on as the first of a new set of processes; when it ends, or this one, all others of the set end too."""
    first = os.fork()
    if first:
        os.closerange(3, 1024)
        _, status = os.waitpid(first, 0)
        os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)


def _write_only(libc, home):
    """Landlock: nothing is written outside `home`, but for /dev/null.                           -> is that in force?"""
    version = libc.syscall(444, None, 0, 1)
    if version < 1:
        return False
    writing = 0b1_1111_1111_0010 | (0x2000 if version > 1 else 0) | (0x4000 if version > 2 else 0)
    rules = libc.syscall(444, ctypes.byref(ctypes.c_uint64(writing)), 8, 0)
    for place, rights in ((home, writing), (os.devnull, writing & 0x4002)):
        file = handle(place, os.O_PATH)
        rule = rights.to_bytes(8, sys.byteorder) + file.to_bytes(4, sys.byteorder)
        libc.syscall(445, rules, 1, rule, 0)
        os.close(file)
    return libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(446, rules, 0) == 0


def _at_most(resource, kind, most):
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (most, most))


def _threads(user):
    count = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == user:
                count += len(os.listdir(f"/proc/{entry.name}/task"))
    return count


def use_limits(limits):
    """From here on: processor time and memory, counted on top of what is used already."""
    with contextlib.suppress(ImportError):
        import resource
        used = resource.getrusage(resource.RUSAGE_SELF)
        _at_most(resource, resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + limits.seconds + 1))
        if sys.platform == "linux":
            with open("/proc/self/statm", encoding="ascii") as file:
                pages = int(file.read().split()[0])
            _at_most(resource, resource.RLIMIT_AS, pages * resource.getpagesize() + limits.memory)


# ---- running an answer

def serve(connection, limits, imports, cells, name):
    """Run the import cell and the student's cells, describe the answer, then call it as often as asked.

    cells   texts, the last one the answer's cell;   name   what the answer is called
    """
    space = {"__name__": "__main__"}
    exec(compile(imports, "<imports>", "exec"), space)
    use_limits(limits)
    say(connection, {"ready": True})
    error = None
    for number, text in enumerate(cells, start=1):
        file = f"<cell {number} of {len(cells)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        try:
            exec(compile(text, file, "exec"), space)
        except BaseException as stopped:
            error = _told(stopped)
    say(connection, {**_described(space.get(name, MISSING)), **({"error": error} if error else {})})
    while True:
        say(connection, _called(space[name], *_receive(connection)))


def _described(answer):
    if answer is MISSING:
        return {"kind": "missing"}
    if not callable(answer):
        return {"kind": "value", "value": encode(answer)}
    file = getattr(getattr(inspect.unwrap(answer), "__code__", None), "co_filename", "")
    try:
        takes = [[p.name, int(p.kind), p.default is not p.empty] for p in inspect.signature(answer).parameters.values()]
    except (TypeError, ValueError):
        takes = None
    return {"kind": "function", "takes": takes, "package": _ours(file), "called": getattr(answer, "__name__", "")}


def _called(answer, arguments, named):
    foreign = set()

    def watch(frame, event, _):
        if event == "call" and _ours(frame.f_code.co_filename) and not (
                frame.f_back and _ours(frame.f_back.f_code.co_filename)):
            part = frame.f_code.co_filename.removeprefix(PACKAGE).removesuffix(".py").replace(os.sep, ".")
            if not part.lstrip(".").startswith("course.grade_"):         # calls of a function that it was given
                foreign.add(f"{part}.{frame.f_code.co_qualname}")
    try:
        sys.setprofile(watch)
        try:
            result = answer(*arguments, **named)
        finally:
            sys.setprofile(None)
        reply = {"result": encode(result)}
    except BaseException as error:
        reply = {"error": _told(error)}
    return {**reply, "after": [encode(argument) for argument in arguments], "foreign": sorted(foreign)}


def _ours(file):
    return file.startswith(PACKAGE) and file != __file__


def _told(error):
    """An exception as data, with the student's line that raised it."""
    lines = [linecache.getline(frame.filename, frame.lineno or 0).strip()
             for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith("<cell ")]
    try:
        text = str(error)
    except BaseException:
        text = ""
    return {"type": type(error).__name__, "text": text[:1000], "line": lines[-1][:200] if lines else ""}


def _receive(connection):
    """Arguments come pickled, from our own side; functions among them stay there and are called over the line."""
    reader = pickle.Unpickler(io.BytesIO(connection.recv_bytes()))
    reader.persistent_load = lambda number: _distant(connection, number)
    return reader.load()


def _distant(connection, number):
    def function(*arguments):
        say(connection, {"wants": number, "arguments": [encode(argument) for argument in arguments]})
        result, error = _receive(connection)
        if error:
            raise ValueError(error)
        return result
    return function
