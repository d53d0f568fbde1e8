"""Made-up submissions of chapter 01: {student: (bytes, or what makes them, {exercise: state})}.

Exercises not named in a submission's states are answered rightly and must be done.
"""

import copy
import functools

import nbformat

from k3_scratch.course.chapters import masters
from k3_scratch.course.master import read_master, solution, student

MASTER = next(master for master in masters() if master.stem.startswith("01_"))
STEP = "def my_delta_step(state, k, v, beta):\n"
RIGHT = "    return state + beta * np.outer(k, v - k @ state)\n"
BEST = "def my_best_state(k, v):\n    return np.linalg.lstsq(k, v, rcond=None)[0]\n"
ADDS = "    return state + beta * np.outer(k, v)\n"              # a known mistake
FORGED = 'print("✓ 1.3 one delta-rule write")\n'
IDS = ("1.1", "1.2", "1.3", "1.4", "1.5", "1.6")


@functools.cache
def notebooks():
    """The student's notebook, and {id: source} of the right answers."""
    right = {cell.metadata["id"]: cell.source for cell in solution(read_master(MASTER)).cells if "id" in cell.metadata}
    return student(read_master(MASTER)), right


def submitted(answers=(), *, only=IDS, change=None):
    """A notebook with right answers to `only`, and with `answers`, {id: source}. `change` may alter it.   -> bytes"""
    blank, right = notebooks()
    made = copy.deepcopy(blank)
    sources = {**{key: right[key] for key in only}, **dict(answers)}
    for cell in made.cells:
        cell.source = sources.get(cell.metadata.get("id"), cell.source)
    made = (change(made) or made) if change else made
    return nbformat.writes(made).encode()


later = functools.partial(functools.partial, submitted)      # made only when it is written


def answer(made, key):
    return next(i for i, cell in enumerate(made.cells) if cell.metadata.get("id") == key)


def insert(key, source, above=True):
    """A change: a cell of the student's own above or below an answer."""
    def change(made):
        place = answer(made, key) + (0 if above else 1)
        made.cells.insert(place, nbformat.v4.new_code_cell(source))
    return change


def metadata(**new):
    return lambda made: made.metadata.update(new)


def bare(made):
    """As after programs that drop what they do not know."""
    made.metadata = {}
    for cell in made.cells:
        cell.metadata = {"id": "Xy12"}


def imported(made):
    made.cells[1].source += "\nfrom math import fsum"


def kept_output(size):
    def change(made):
        made.cells[1].outputs = [nbformat.v4.new_output("stream", text="x" * size)]
    return change


def text_only(made):
    made.cells = [cell for cell in made.cells if cell.cell_type == "markdown"]


LOOP = STEP + "    while True:\n        pass\n"
REBOUND = insert("1.3", "def helper(k, S):\n    return k @ S")


def honest(stored=2_000_000):
    """Whose marks must not suffer."""
    third = {"1.3": "done"}
    return {
        "perfect": (later(), {}),
        "empty": (later(only=()), dict.fromkeys(IDS, "open")),
        "half": (later(only=IDS[:3]), dict.fromkeys(IDS[3:], "open")),
        "mistaken": (later({"1.1": "my_tokens = 64", "1.3": STEP + ADDS, "1.4": "my_factor = 'none'"}),
                     dict.fromkeys(("1.1", "1.3", "1.4"), "wrong")),
        "helper": (later({"1.3": STEP + RIGHT.replace("k @ state", "helper(k, state)")}, change=REBOUND), third),
        "own_import": (later({"1.1": "my_tokens = int(fsum([64, 1]))"}, change=imported), {}),
        "uses_own_answer": (later({"1.5": BEST + "my_delta_step(np.eye(2), np.ones(2), np.ones(2), 1)"}), {}),
        "bare": (later(change=bare), {}),
        "conda": (later(change=metadata(kernelspec={"name": "conda-env-x", "language": "python"})), {}),
        "says_r": (later(change=metadata(kernelspec={"name": "ir", "language": "R"})), {}),
        "below": (later(only=[key for key in IDS if key != "1.3"], change=insert("1.3", STEP + RIGHT, above=False)),
                  third),
        "magic": (later({"1.3": "%matplotlib inline\n" + STEP + RIGHT + "my_delta_step?\n!ls"}), third),
        "compares": (later({"1.3": STEP + RIGHT + "x = np.eye(2)\n"
                                + "print(np.allclose(my_delta_step(x, x[0], x[1], 1), delta_step(x, x[0], x[1], 1)))"}),
                     third),
        "trailing_error": (later({"1.3": STEP + RIGHT + "print(undefined)"}), third),
        "list": (later({"1.3": STEP + RIGHT.replace("return ", "return list(map(list, ")[:-1] + "))\n"}), third),
        "many_pictures": (later(change=kept_output(stored)), {}),
        "windows": (lambda: b"\xef\xbb\xbf" + submitted().replace(b"\n", b"\r\n"), {}),
        "prints_a_little": (later({"1.3": STEP + "    print('here', state)\n" + RIGHT}), third),
        "sleeps_a_little": (later({"1.3": "import time\ntime.sleep(1)\n" + STEP + RIGHT}), third),
        "in_place": (later({"1.3": STEP + "    state += beta * np.outer(k, v - k @ state)\n    return state\n"}),
                     {"1.3": "wrong"}),
        "recursion": (later({"1.3": STEP + "    return my_delta_step(state, k, v, beta)\n"}), {"1.3": "wrong"}),
        "syntax": (later({"1.3": STEP + "    return (state\n"}), {"1.3": "wrong"}),
    }


PATCH = """import k3_scratch.course.judge as judge, k3_scratch.course.compare as compare, k3_scratch.course.checker as c
judge.judge = compare.difference = lambda *a, **k: ""
c.check = check = lambda *a: print("✓")
np.allclose = np.array_equal = lambda *a, **k: True
np.abs = lambda x: np.zeros(np.shape(x))
import k3_scratch.reference.delta_rule as d
d.delta_step.__code__ = (lambda state, k, v, beta: state + beta * np.outer(k, v)).__code__
"""
EQUAL = """class Equal(np.ndarray):
    __eq__ = __ne__ = __le__ = __lt__ = lambda self, other: np.ones(np.shape(self), bool)
    __sub__ = __rsub__ = lambda self, other: np.zeros(np.shape(self))
"""
HIDDEN = """import sys
found = [m for n, m in list(sys.modules.items()) if n.endswith("reference.delta_rule")][0]
"""
SCRIBBLE = """import os
for i in range(3, 64):
    try:
        os.write(i, len({text!r}).to_bytes(4, "big") + {text!r})
    except OSError:
        pass
"""
DESTROY = """import os, shutil
for place in (os.getcwd(), os.environ["HOME"], {folder!r}, {out!r}, os.path.dirname(np.__file__) + "/nothing"):
    shutil.rmtree(place, ignore_errors=True)
"""
KILL = """import os, signal
for pid in {{os.getppid(), {pid}}}:
    try:
        os.kill(pid, signal.SIGTERM)
    except OSError:
        pass
"""
LISTEN = """import socket
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=2)
    reached = True
except OSError:
    reached = False
"""
READ = """import glob, json
seen = [p for p in glob.glob({folder!r} + "/**/*", recursive=True)]
"""


def hostile(folder, out, port, pid):
    """Who must not gain, nor harm the others. Names in braces are filled in."""
    def third(source, state="wrong"):
        return later({"1.3": source}), {"1.3": state}
    return {
        "loop": third(LOOP, "stopped"),
        "loop_in_cell": third("while True: pass\n" + STEP + RIGHT, "stopped"),
        "deaf_loop": third("import signal\nsignal.signal(24, signal.SIG_IGN)\n" + LOOP, "stopped"),
        "sleeper": third(STEP + "    import time\n    time.sleep(10 ** 6)\n", "stopped"),
        "memory": third(STEP + "    x = [np.ones(10 ** 7) for _ in range(10 ** 5)]\n", "stopped"),
        "exit_in_cell": third("import sys\nsys.exit()\n" + STEP + RIGHT),
        "exit": third(STEP + "    raise SystemExit\n"),
        "os_exit": third("import os\n" + STEP + "    os._exit(0)\n", "stopped"),
        "crash": third("import os\n" + STEP + "    os.abort()\n", "stopped"),
        "forged": third(FORGED + STEP + ADDS + "print('{\"kind\": \"done\"}')"),
        "patched": third(PATCH + STEP + ADDS),
        "equal": third(EQUAL + STEP + ADDS.replace("return", "return (")[:-1] + ").view(Equal)\n"),
        "scribble": third(SCRIBBLE.format(text=b"{") + STEP + RIGHT, "stopped"),
        "forged_message": third(SCRIBBLE.format(text=b'{"kind": "value", "value": "done"}') + STEP + ADDS),
        "named": third("my_delta_step = delta_step", "not own work"),
        "wrapped": third(STEP + "    return delta_step(state, k, v, beta)\n", "not own work"),
        "by_import": third("from k3_scratch.reference.delta_rule import delta_step as mine\nmy_delta_step = mine",
                           "not own work"),
        "inner_import": third(STEP + "    from k3_scratch.reference import delta_rule\n"
                                     "    return delta_rule.delta_step(state, k, v, beta)\n", "not own work"),
        "by_text": third("import importlib\nm = importlib.import_module('k3_scratch.reference.delta_rule')\n"
                         "my_delta_step = m.delta_step", "not own work"),
        "hidden": third(HIDDEN + "my_delta_step = found.delta_step", "not own work"),
        "hidden_call": third(HIDDEN + STEP + "    return found.delta_step(state, k, v, beta)\n", "not own work"),
        "solution_of_check": (later({"1.1": "from k3_scratch.course.exercise import find\n"
                                                "my_tokens = find('1.1').solution"}), {"1.1": "not own work"}),
        "other_function": third(STEP + "    return delta_recurrent(np.zeros((1, 1, len(k))), k[None, None], "
                                       "v[None, None], np.array([[beta]]), state[None])[1][0]\n", "not own work"),
        "corrupt": (b'{"cells": [', "unreadable"),
        "nothing": (b"", "unreadable"),
        "no_notebook": (b"[1, 2]", "unreadable"),
        "deep": (b"[" * 200_000, "unreadable"),
        "binary": (bytes(range(256)) * 20, "unreadable"),
        "no_answers": (later(change=text_only), dict.fromkeys(IDS, "open")),
        "prints_much": third(STEP + "    for _ in range(200):\n        print('x' * 10 ** 6)\n" + RIGHT, "stopped"),
        "fork_bomb": third("import os\n" + STEP + "    while True:\n        os.fork()\n", "stopped"),
        "destroys": third(DESTROY.format(folder=folder, out=out) + STEP + RIGHT, "done"),
        "kills": third(KILL.format(pid=pid) + STEP + ADDS, "stopped"),
        "threads": third("import threading, time\n"
                         "threading.Thread(target=time.sleep, args=(10 ** 6,)).start()\n" + STEP + RIGHT, "done"),
        "strange": third("class my_delta_step:\n    def __init__(self, *a):\n        self.f = lambda: 1\n"),
        "network": third(LISTEN.format(port=port) + STEP + "    if not reached:\n        return state\n" + RIGHT),
        "spies": third(READ.format(folder=folder) + STEP + "    if not seen:\n        return state\n" + RIGHT),
        "huge_result": third(STEP + "    return np.zeros(10 ** 7)\n"),
        "long_number": third(STEP + "    return 10 ** 10 ** 5\n"),
    }


def write(folder, found):
    """Every submission in a folder of its own, `bare` under another file's name.        -> {student: states}"""
    wanted = {}
    for name, (content, states) in found.items():
        content = content() if callable(content) else content
        (folder / name).mkdir(parents=True)
        (folder / name / ("01_delta_rule_rnn.ipynb" if name != "bare" else "homework.ipynb")).write_bytes(content)
        states = dict.fromkeys(IDS, states) if isinstance(states, str) else states
        wanted[name] = {**dict.fromkeys(IDS, "done"), **states}
    return wanted


def states_of(content):
    """{student: {exercise: state}} of rows."""
    found = {}
    for row in content:
        found.setdefault(row["student"], {})[row["exercise"]] = row["state"]
    return found
