"""check, progress, show, stubs and hashes, without a kernel."""

import json
import os
import stat

import numpy as np
import pytest
import torch
from course_helpers import TINY

from k3_scratch.__main__ import main
from k3_scratch.course import build as machine
from k3_scratch.course import check, progress, results, show, strict
from k3_scratch.course.chapters import ROOT, chapter_of
from k3_scratch.course.checker import CheckError
from k3_scratch.course.compare import blank, difference
from k3_scratch.course.exercise import ExerciseError, find
from k3_scratch.course.master import MasterError, read_master, solution, student, without_solution
from k3_scratch.course.progress import progress_file, recall, record
from k3_scratch.course.sources import digest, files_behind
from k3_scratch.course.steps import full_run, steps
from k3_scratch.plots.magnitudes import magnitudes
from k3_scratch.reference.delta_rule import delta_step


def test_check_prints_and_never_raises(capsys):
    for answer in (delta_step, ..., lambda state, k, v, beta: state + beta * np.outer(k, v), 7, RuntimeError):
        check("1.3", answer)
    check("1.77", 1)
    check("nonsense", 1)
    check("99.1", 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["✓ 1.3 one delta-rule write", "· 1.3 not attempted yet",
                         "✗ 1.3 one delta-rule write: in the case for paper (K = 2, V = 1, the memory holds 1 under "
                         "the key, v = 5, beta = 1), state should be [[5.], [3.]], but [[6.], [3.]] came"]
    assert lines[3].startswith("  Look at: Nothing is erased")
    assert "there is no exercise 1.77; chapter 01 has 1.1, 1.2, 1.3" in lines[-3]
    assert 'id must be like "3.2"' in lines[-2]
    assert "chapter 99 has none" in lines[-1]


def test_a_broken_check_is_told_and_does_not_stop_the_notebook(capsys, monkeypatch):
    def broken(*_):
        raise RuntimeError("oh")
    monkeypatch.setattr("k3_scratch.course.checker.judge", broken)
    check("1.3", delta_step)
    assert "the check itself stopped with RuntimeError: oh" in capsys.readouterr().out


@pytest.mark.parametrize("answer", [..., 7, None])
def test_strict_raises(answer, monkeypatch):
    with strict(), pytest.raises(CheckError, match=r"1\.3"):
        check("1.3", answer)
    check("1.3", answer)
    monkeypatch.setenv("K3_STRICT", "1")
    with pytest.raises(CheckError):
        check("1.3", answer)
    with strict():
        check("1.3", delta_step)
    assert os.environ["K3_STRICT"] == "1"


def test_the_line_that_raised_is_shown(tmp_path, capsys):
    file = tmp_path / "answer.py"
    file.write_text("def mine(state, k, v, beta):\n    return state @ k + v\n", encoding="utf-8")
    space = {}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), space)
    check("1.3", space["mine"])
    assert "stopped, in its line `return state @ k + v`, with ValueError" in capsys.readouterr().out


def test_progress_is_a_table_kept_in_a_file(capsys):
    check("1.3", delta_step)
    check("1.1", 64)
    check("1.3", ...)                                                    # what is done stays done
    capsys.readouterr()
    progress()
    text = capsys.readouterr().out
    assert "01  The delta-rule RNN" in text and " 1 of 6  ✗·✓···" in text
    assert json.loads(progress_file().read_text(encoding="utf-8")) == {"1.1": "wrong", "1.3": "done"}
    assert [entry.name for entry in progress_file().parent.iterdir()] == [progress_file().name]


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"1.1": "perfect", "1.2": 3}', "\0"])
def test_a_damaged_progress_file_counts_as_empty(content):
    progress_file().write_text(content, encoding="utf-8")
    assert recall() == {}
    record("1.2", "done")
    assert recall() == {"1.2": "done"}


def test_progress_without_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("K3_PROGRESS", str(tmp_path / "not there" / "progress.json"))
    record("1.2", "done")
    assert recall() == {"1.2": "done"}                                   # remembered in this session
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setenv("K3_PROGRESS", str(locked / "progress.json"))
    record("1.3", "wrong")
    assert recall() == {"1.2": "done", "1.3": "wrong"}
    locked.chmod(stat.S_IRWXU)
    monkeypatch.setenv("K3_PROGRESS", "")
    assert progress_file() is None
    record("1.4", "done")
    assert recall()["1.4"] == "done"


def test_where_progress_is_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("K3_PROGRESS")
    monkeypatch.chdir(tmp_path)
    assert progress_file() == ROOT / "notebooks" / ".progress.json"
    (tmp_path / "01_delta_rule_rnn.ipynb").write_text("{}", encoding="utf-8")
    assert progress_file() == tmp_path / ".progress.json"
    record("1.1", "done")
    assert not progress_file().exists()                                  # a script, not a notebook


def test_the_command_and_the_ignored_file():
    assert ".progress.json" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_show_and_results(tmp_path, monkeypatch):
    figure = magnitudes(["a", "b"], [1, 2])
    show(figure, "Two bars, the second twice as high", name="bars")      # outside a notebook: nothing to see
    with pytest.raises(ValueError, match="alt must be a sentence"):
        show(figure, "")
    monkeypatch.setenv("K3_FIGURES", str(tmp_path))
    show(figure, "Two bars, the second twice as high", name="bars")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert len(results("mini_seeds")) == 3
    with pytest.raises(ValueError, match="mini_seeds"):
        results("nothing")


# ---- comparing

def test_blank():
    assert blank(...) and blank(None) and blank((..., None)) and not blank(()) and not blank((1, ...))
    assert not blank(np.zeros(3)) and not blank(0)


@pytest.mark.parametrize(("got", "wanted", "words"), [
    (np.array([1.0, 2.0]), np.array([1.0, 2.5]),
     "1 of 2 numbers of x are wrong; the first, x[1], should be 2.5, but 2."),
    ([[1.0], [2.0, 3.0]], np.zeros((2, 2)), "parts of different lengths"),
    (np.array([1.0, np.inf]), np.array([1.0, 2.0]), "should be 2."),
    (torch.zeros(2), np.zeros(2), "x must be a NumPy array"), (np.zeros(2), torch.zeros(2), "x must be a torch tensor"),
    (np.array([0, 1]), np.array([False, True]), "x must hold True and False"),
    (np.array([1.5]), np.array([1]), "x must hold whole numbers"), ("kda", "mla", "x is not 'kda'"),
    (np.array([True]), np.array([False]), "should be False, but True came"),
])
def test_differences_are_told(got, wanted, words):
    assert words in difference("x", got, wanted, None, {}, 1e-9, False)


@pytest.mark.parametrize(("got", "wanted"), [
    (3, 3.0), (3.0, 3), (np.float64(3), 3), ([1.0, 2.0], np.array([1.0, 2.0])), (" KDA", "kda"), (True, True),
    (np.array([np.nan, np.inf]), np.array([np.nan, np.inf])), (np.zeros((0, 3)), np.zeros((0, 3))),
    (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)), (1 + 1e-12, 1.0)])
def test_what_counts_as_equal(got, wanted):
    assert difference("x", got, wanted, None, {}, 1e-9, True) == ""


def test_shapes_are_told_in_letters():
    text = difference("state", np.zeros((2, 3)), np.zeros((3, 2)), "K V", {"K": 3, "V": 2}, 1e-9, True)
    assert text == "state must have shape [K, V] with K = 3, V = 2, but [2, 3] came"


# ---- masters

def test_stubs():
    assert without_solution("def f(x):\n    # BEGIN SOLUTION\n    y = x\n    if y:\n        y = 2\n    return (y,\n"
                            "            x)\n    # END SOLUTION") == "def f(x):\n    return ...  # your answer"
    for bad in ("# BEGIN SOLUTION\nx = 1", "x = 1\n# END SOLUTION", "# BEGIN SOLUTION\n# END SOLUTION",
                "# BEGIN SOLUTION\nprint(1)\n# END SOLUTION",
                "def f():\n    # BEGIN SOLUTION\n    x = 1\n    # END SOLUTION\n    return x"):
        with pytest.raises(MasterError):
            without_solution(bad)


def test_student_and_solution_of_the_tiny_master():
    one, other = student(read_master(TINY)), solution(read_master(TINY))
    assert "**Afterwards you can**" in one.cells[0].source and "- run a test" in one.cells[0].source
    assert "See chapter 00 and [this](../README.md)" in one.cells[0].source          # not written: plain text
    assert "[this](../../README.md)" in other.cells[0].source
    assert "[chapter 00](00_the_map.ipynb)" in solution(read_master(TINY), {"00_the_map"}).cells[0].source
    assert "*about 2 minutes · ●○○*" in one.cells[2].source
    assert one.cells[3].source.startswith("<details><summary>Hint</summary>\n\n")
    assert len({cell.id for cell in one.cells}) == len(one.cells)
    assert [cell.id for cell in one.cells] == [cell.id for cell in student(read_master(TINY)).cells]
    texts = [[cell.source for cell in notebook.cells] for notebook in (one, other)]
    assert 'print("with solutions")' in texts[1] and 'print("with solutions")' not in texts[0]
    assert len(solution(read_master(TINY), keep_asserts=True).cells) == len(other.cells) + 1


def test_the_hash_sees_what_is_imported(tmp_path):
    names = {file.relative_to(ROOT).as_posix() for file in files_behind(TINY)}
    assert {"k3_scratch/reference/delta_rule.py", "k3_scratch/reference/memory.py", "k3_scratch/course/checks/ch01.py",
            "k3_scratch/shapes.py", "k3_scratch/plots/style.py", "k3_scratch/__init__.py"} <= names
    assert "k3_scratch/model.py" not in names
    notebook, copy = read_master(TINY), tmp_path / TINY.name
    copy.write_text(TINY.read_text(encoding="utf-8"), encoding="utf-8", newline="\r\n")
    assert digest(TINY, notebook) == digest(copy, notebook)              # line ends do not count
    copy.write_text(copy.read_text(encoding="utf-8") + "# \n", encoding="utf-8")
    assert digest(TINY, notebook) != digest(copy, notebook)
    notebook.metadata.k3.data = ["figures/results/mini_seeds.json"]
    assert digest(TINY, notebook) != digest(TINY, read_master(TINY))


def test_a_master_without_a_header_is_refused(tmp_path):
    (tmp_path / "01_x.py").write_text("# %%\nx = 1\n", encoding="utf-8")
    with pytest.raises(MasterError, match="wanted a header"):
        read_master(tmp_path / "01_x.py")


def test_unknown_names_are_refused(capsys):
    with pytest.raises(MasterError, match="01_delta_rule_rnn"):
        machine.plan(["77"])
    assert main(["notebooks", "--check", "77"]) == 2
    assert "name must be one of" in capsys.readouterr().err
    assert [pair.master.stem for pair in machine.plan(["01"])] == ["01_delta_rule_rnn"]


def test_check_command_names_what_is_stale(monkeypatch, capsys, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / TINY.name).write_text(TINY.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "02_left.ipynb").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(machine, "NOTEBOOKS", tmp_path)
    assert main(["notebooks", "--check"]) == 1
    assert capsys.readouterr().out.splitlines() == ["01_tiny.ipynb is missing", "02_left.ipynb has no master"]
    monkeypatch.setattr(machine, "stale", lambda pair: "")
    (tmp_path / "02_left.ipynb").unlink()
    assert main(["notebooks", "--check"]) == 0
    assert main(["notebooks"]) == 0
    assert capsys.readouterr().out.splitlines() == ["1 notebooks are up to date", "01_tiny: up to date"]


def test_ids():
    assert chapter_of("12.3") == "12"
    for bad in ("1", "a.b", "", "1.x", None):
        with pytest.raises(ValueError, match="id must be"):
            chapter_of(bad)
    with pytest.raises(ExerciseError):
        find("1.99")


# ---- notebooks that train

@pytest.mark.parametrize("given, full, wanted",
                         [(None, 600, 600), ("", 600, 600), ("1", 7, 7), ("40", 600, 15), ("40", 50, 2)])
def test_steps_are_a_part_of_the_full_number(monkeypatch, given, full, wanted):
    monkeypatch.delenv("K3_STEPS", raising=False)
    if given is not None:
        monkeypatch.setenv("K3_STEPS", given)
    assert steps(full) == wanted and full_run() == (given in (None, "", "1"))


@pytest.mark.parametrize("given", ["0", "-3", "half", "2.5"])
def test_steps_refuses_other_divisors(monkeypatch, given):
    monkeypatch.setenv("K3_STEPS", given)
    with pytest.raises(ValueError, match=f"K3_STEPS must be a whole number from 1 on, but '{given}' came"):
        steps(100)
