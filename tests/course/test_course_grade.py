"""`k3 grade`: forty and more submissions of all kinds, marked in one run, none harmed by another."""

import csv
import os
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from course_helpers import MASTERS, stem
from submissions import ADDS, IDS, RIGHT, STEP, honest, hostile, notebooks, states_of, submitted, write

from k3_scratch.__main__ import main
from k3_scratch.course.chapters import ROOT
from k3_scratch.course.grade import COLUMNS, HOLDS, Limits, grade, page, student_of, submissions
from k3_scratch.course.grade_own import foreign, is_given
from k3_scratch.course.grade_read import paper
from k3_scratch.course.grade_wire import decode, encode

SHORT = Limits(seconds=5, memory=300_000_000, output=2_000_000)
POINTS = {"1.1": 1, "1.2": 1, "1.3": 1, "1.4": 1, "1.5": 2, "1.6": 3}
# What some would do to this machine where the system does not keep them from it: then they are left out.
NEEDS = {"network": "network", "spies": "other students", "kills": "processes", "destroys": "files"}


@pytest.fixture(scope="module")
def class_(tmp_path_factory):
    """All submissions, marked: folder, out, what was wanted, Marks, connections that came in."""
    folder = tmp_path_factory.mktemp("class") / "submitted"
    out = folder.with_name("marks")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        found = {**honest(), **hostile(str(folder), str(out), server.getsockname()[1], os.getpid())}
        probe = folder.with_name("probe")
        write(probe, {"anna": (submitted(only=["1.1"]), {})})
        held = grade(probe, limits=SHORT, tell=lambda _: None).held
        wanted = write(folder, {name: each for name, each in found.items() if NEEDS.get(name) in (None, *held)})
        lines = []
        marks = grade(folder, out, limits=SHORT, jobs=2, tell=lines.append)
        try:
            server.accept()
            reached = True
        except BlockingIOError:
            reached = False
    return folder, out, wanted, marks, reached, lines


def test_there_are_forty_and_each_is_marked(class_):
    folder, _, wanted, marks, _, lines = class_
    assert len(wanted) >= 40 and set(states_of(marks.rows)) == set(wanted)
    assert len(lines) == len(wanted) == marks.now and marks.before == 0
    assert len(submissions(folder)) == len(wanted)                       # nobody has deleted a file


@pytest.mark.parametrize("name", [*honest(), *hostile("", "", 0, 0)])
def test_each_has_the_right_result(class_, name):
    _, _, wanted, marks, _, _ = class_
    rows = [row for row in marks.rows if row["student"] == name]
    if name not in wanted:
        assert NEEDS[name] not in marks.held
        return
    right = [wanted[name]]
    if name == "kills":              # where it is the first process of its set, its own signal does not end it
        right.append({**wanted[name], "1.3": "wrong"})
    assert states_of(rows)[name] in right, [row["said"] for row in rows]
    assert [row["mark"] for row in rows] == [POINTS[row["exercise"]] * (row["state"] == "done") for row in rows]
    assert all(row["notebook"] == "01_delta_rule_rnn" and row["said"] for row in rows)


@pytest.mark.parametrize(("name", "words"), [
    ("mistaken", "Nothing is erased: you add beta k v^T"), ("loop", "did not end within 5 seconds"),
    ("sleeper", "did not end within 5 seconds"), ("memory", "more than 300 MB of memory"),
    ("os_exit", "ended the process"), ("prints_much", "printed more than 2 MB"), ("syntax", "no Python, line 2"),
    ("fork_bomb", "more than 32 processes"), ("in_place", "changes its argument state in place"),
    ("exit_in_cell", "stopped, in its line `sys.exit()`, with SystemExit"), ("named", "uses delta_step of the package"),
    ("hidden_call", "calls delta_step of the package"), ("recursion", "RecursionError"),
    ("corrupt", "no notebook can be read from it (JSONDecodeError)"), ("scribble", "cannot be read")])
def test_what_is_said(class_, name, words):
    said = {row["exercise"]: row["said"] for row in class_[3].rows if row["student"] == name}
    assert words in said["1.3"]


def test_what_an_answer_is_kept_from(class_):
    _, _, _, marks, reached, _ = class_
    assert set(marks.held) <= set(HOLDS)
    assert not ("network" in marks.held and reached)


def test_the_table_and_the_pages(class_):
    _, out, wanted, marks, _, _ = class_
    with (out / "marks.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS and len(rows) == len(marks.rows) == len(wanted) * len(IDS)
    pages = list((out / "feedback").iterdir())
    assert len(pages) == len(wanted)
    shown, = (file.read_text(encoding="utf-8") for file in pages if file.name.startswith("mistaken-"))
    assert "mistaken: 6 of 9 points" in shown and "Nothing is erased" in shown and "<script" not in shown
    assert not [file for file in out.rglob("*") if ".tmp" in file.name]


def test_again_runs_nothing_and_changes_nothing(class_):
    folder, out, _, marks, _, _ = class_
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    again = grade(folder, out, limits=SHORT, tell=lambda _: None)
    assert (again.now, again.before, again.rows) == (0, marks.now, marks.rows)
    assert before == {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}


KILLED = """import sys
from k3_scratch.course.grade import Limits, grade
grade(sys.argv[1], sys.argv[2], limits=Limits(5, 300_000_000, 2_000_000))
"""


def test_a_run_that_is_killed_goes_on_where_it_was(tmp_path):
    folder, whole, broken = tmp_path / "s", tmp_path / "whole", tmp_path / "broken"
    write(folder, {name: (submitted({"1.3": STEP + line}), {}) for name, line in
                   {"anna": RIGHT, "ben": ADDS, "cleo": "    import time\n    time.sleep(1)\n" + RIGHT,
                    "dan": "    pass\n", "eve": RIGHT}.items()})
    grade(folder, whole, limits=SHORT, tell=lambda _: None)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder), str(broken)], env=environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while process.poll() is None and len(list(broken.glob("files/*.json"))) < 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    process.communicate()
    assert not (broken / "marks.csv").exists()
    marks = grade(folder, broken, limits=SHORT, tell=lambda _: None)
    assert marks.before >= 2 and marks.now >= 1
    for file in whole.rglob("*.*"):
        assert file.read_bytes() == (broken / file.relative_to(whole)).read_bytes(), file


def test_changed_files_and_limits_are_marked_again(tmp_path):
    folder = tmp_path / "s"
    write(folder, {"anna": (submitted(only=["1.1"]), {}), "ben": (submitted(only=["1.4"]), {})})
    quiet = {"tell": lambda _: None}
    assert grade(folder, limits=SHORT, **quiet).now == 2
    (folder / "anna" / "01_delta_rule_rnn.ipynb").write_bytes(submitted(only=["1.1", "1.4"]))
    marks = grade(folder, limits=SHORT, **quiet)
    assert (marks.now, marks.before) == (1, 1) and sum(row["mark"] for row in marks.rows) == 3
    assert grade(folder, limits=Limits(3, 300_000_000, 2_000_000), **quiet).now == 2
    kept, = (tmp_path / "s-marks" / "files").glob("ben*")
    kept.write_text("{", encoding="utf-8")                               # damaged
    assert grade(folder, limits=Limits(3, 300_000_000, 2_000_000), **quiet).now == 1


# ---- every chapter: a right answer gets its marks, so that no exercise asks for what marking cannot give

@pytest.mark.parametrize("master", MASTERS, ids=stem)
def test_solutions_of_every_chapter_get_all_points(master, tmp_path):
    import nbformat

    from k3_scratch.course.master import read_master, solution, student
    (tmp_path / "s" / "solved").mkdir(parents=True)
    for name, make in (("solved/x.ipynb", solution), ("empty.ipynb", student)):
        nbformat.write(make(read_master(master)), tmp_path / "s" / name)
    marks = grade(tmp_path / "s", notebook=master.stem[:2], tell=lambda _: None)
    for row in marks.rows:
        assert row["state"] == ("done" if row["student"] == "solved" else "open"), row
    assert len(marks.rows) == 2 * len(paper(master).asked)


# ---- the parts

@pytest.mark.parametrize("thing", [
    None, True, "text", ..., 3, -2 ** 70, 2.5, float("inf"), (1, ...), [1.5, (None, "a")],
    np.float32(2.5), np.int64(-3), np.array([[1.5, np.nan]]), np.zeros((0, 3)), np.array(["a", "bc"]),
    np.array([True]), np.array(2 + 1j), 1j, torch.arange(6.0).reshape(2, 3), torch.ones(2, dtype=torch.bfloat16)])
def test_what_goes_out_comes_in(thing):
    back = decode(encode(thing))
    assert type(back) is (np.complex128 if isinstance(thing, complex) else type(thing))
    if hasattr(thing, "dtype"):
        assert back.dtype == thing.dtype and back.shape == thing.shape
        one, other = (np.asarray(each.float() if hasattr(each, "detach") else each) for each in (back, thing))
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    else:
        assert back == thing


@pytest.mark.parametrize("told", [
    {}, {"is": "spell"}, {"is": "array"}, {"is": "int", "value": "x"}, [1], 3, {"is": "tuple", "parts": 3},
    {"is": "array", "dtype": "O", "shape": [1], "data": "AAAAAAAAAAA="},
    {"is": "array", "dtype": "<f8", "shape": [2], "data": "AAAAAAAAAAA="},
    {"is": "array", "dtype": "<f8", "shape": [-1], "data": "AAAAAAAAAAA="}])
def test_what_is_no_result_is_refused(told):
    with pytest.raises(ValueError):
        decode(told)


def test_other_things_keep_their_type_s_name():
    assert type(decode(encode({1: 2}))).__name__ == "dict"
    assert callable(decode(encode(print))) and not callable(decode(encode(object())))


def test_what_an_answer_may_use():
    asked = next(one for one in paper(MASTERS[1]).asked if one.id == "1.3")
    assert asked.name == "my_delta_step" and asked.solution == "delta_step"
    for origin in ("config.preset", "reference.softmax.softmax", "course.check", "tasks.rewrite.Rewrite.batch"):
        assert is_given(origin, asked)
    for origin in ("reference.delta_rule.delta_step", "reference.kda.kda_step", "course.exercise.find", "course.checks",
                   "layers.kda.kda_recurrent", ""):
        assert not is_given(origin, asked)
    imports, _ = paper(MASTERS[1]).imports, notebooks()
    assert foreign([STEP + RIGHT], imports, asked) == []
    assert foreign([STEP + '    """As in k3_scratch."""\n    delta_step = 3\n' + RIGHT], imports, asked) == []
    assert foreign([STEP + "    return eval('state')\n"], imports, asked) == ["it uses eval"]
    assert "it uses __globals__" in foreign([STEP + "    return check.__globals__['x']\n"], imports, asked)


@pytest.mark.parametrize(("before", "line"), [
    ("", "model.eval()"), ("import re\n", "re.compile('a')"), ("import re\n", "re.compile('a').match('a')"),
    ("from re import compile\n", "compile('a')"), ("from pathlib import Path\n", "Path('x').open()"),
    ("", "path.open(encoding='utf-8')"), ("", "torch.compile(state)"), ("", "open = state + 1"), ("", "k.inspect(v)"),
    ("def eval(x):\n    return x\n", "eval(state)"), ("", "[compile for compile in state]"), ("", "k.globals = 3")])
def test_a_method_is_not_a_way_round_for_its_name(before, line):
    asked = next(one for one in paper(MASTERS[1]).asked if one.id == "1.3")
    assert foreign([before + STEP + f"    {line}\n" + RIGHT], paper(MASTERS[1]).imports, asked) == []


@pytest.mark.parametrize(("before", "line", "word"), [
    ("", "open('x')", "open"), ("", "exec('x')", "exec"), ("", "compile('x', 'y', 'exec')", "compile"),
    ("", "list(map(eval, 'x'))", "eval"), ("", "globals()['delta' + '_step']", "globals"),
    ("import builtins\n", "builtins.open('x')", "builtins"), ("", "__builtins__.exec('x')", "__builtins__"),
    ("import builtins as b\n", "b.exec('x')", "b"), ("from builtins import exec as run\n", "run('x')", "run"),
    ("import dataclasses\n", "dataclasses.builtins.exec('x')", "builtins"), ("", "__import__('x')", "__import__"),
    ("import dataclasses\n", "inside = dataclasses.inspect", "inspect"), ("work = open\n", "work('x')", "open"),
    ("def exec(x):\n    return x\ndel exec\n", "exec('x')", "exec"), ("", "k.sys.settrace(v)", "settrace"),
    ("", "x" + ".a" * 600 + "\n    exec('x')", "exec")], ids=lambda part: part[:30])
def test_a_way_round_is_seen(before, line, word):
    asked = next(one for one in paper(MASTERS[1]).asked if one.id == "1.3")
    assert f"it uses {word}" in foreign([before + STEP + f"    {line}\n" + RIGHT], paper(MASTERS[1]).imports, asked)


def test_students_and_a_page(tmp_path):
    (tmp_path / ".ipynb_checkpoints").mkdir()
    for name in ("anna/week 1/x.ipynb", "ben.ipynb", ".ipynb_checkpoints/ben.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    found = submissions(tmp_path)
    assert [student_of(file, tmp_path) for file in found] == ["anna", "ben"]
    row = dict(zip(COLUMNS, ("<b>", "a.ipynb", "", "1.1", 1, 1, 0, "wrong", "<script>"), strict=True))
    text = page([row])
    assert "&lt;b&gt;: 0 of 1 points" in text and "<script>" not in text and not re.search(r"https?:", text)


def test_the_command(tmp_path, capsys):
    write(tmp_path / "s", {"=anna": (submitted(only=["1.1"]), {}), "ben": (b"", {})})
    assert main(["grade", str(tmp_path / "s"), "--notebook", "01", "--seconds", "9", "--out", str(tmp_path / "o")]) == 0
    printed = capsys.readouterr().out
    assert "=anna/01_delta_rule_rnn.ipynb: 1 of 9 points" in printed and "2 marked, 0 marked before" in printed
    assert "\n'=anna,'=anna/01_delta_rule_rnn.ipynb,01_delta_rule_rnn,1.1,1,1,1,done," in \
        (tmp_path / "o" / "marks.csv").read_text(encoding="utf-8")
    (tmp_path / "none").mkdir()
    for arguments, words in ((["none"], "folder must hold notebooks"),
                             (["s", "--notebook", "77"], "notebook must be one of")):
        assert main(["grade", str(tmp_path / arguments[0]), *arguments[1:]]) == 2
        assert words in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["grade", str(tmp_path), "--jobs", "0"])
