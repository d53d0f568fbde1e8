"""The same master through nbgrader: the same marks as `k3 grade`. Run by `make test-extras`."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
from extras_helpers import DONE, SHORT, by_k3, filled

from k3_scratch.course.other_graders import write

CONFIG = """c = get_config()
c.CourseDirectory.course_id = "k3"
c.ClearSolutions.code_stub = {"python": "..."}
"""


def nbgrader(folder, *arguments):
    environment = {**os.environ, "K3_STRICT": "1", "K3_PROGRESS": "", "HOME": str(folder)}
    done = subprocess.run([sys.executable, "-m", "nbgrader", *arguments], cwd=folder, env=environment, text=True,
                          encoding="utf-8", capture_output=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_marks_are_the_same(tmp_path, monkeypatch):
    # nbgrader starts a program that lies beside its Python
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "nbgrader_config.py").write_text(CONFIG, encoding="utf-8")
    write("nbgrader", SHORT, tmp_path / "source" / "one" / "01_short.ipynb")
    nbgrader(tmp_path, "generate_assignment", "one")
    released = nbformat.read(tmp_path / "release" / "one" / "01_short.ipynb", as_version=4)
    texts = "\n".join(cell.source for cell in released.cells)
    assert "SOLUTION" not in texts and "np.outer" not in texts and "my_tokens = ..." in texts
    for name in DONE:
        (tmp_path / "submitted" / name / "one").mkdir(parents=True)
        nbformat.write(filled(released, name, exercise), tmp_path / "submitted" / name / "one" / "01_short.ipynb")
    nbgrader(tmp_path, "autograde", "one")
    nbgrader(tmp_path, "generate_feedback", "one")
    assert all((tmp_path / "feedback" / name / "one" / "01_short.html").exists() for name in DONE)
    assert marks(tmp_path) == by_k3(tmp_path / "ours")


def exercise(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id", "").removeprefix("answer_q").replace("_", ".")


def marks(folder):
    """{student: {exercise: mark}} out of nbgrader's book."""
    from nbgrader.api import Gradebook
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as book:
        return {name: {grade.name.removeprefix("check_q").replace("_", "."): int(grade.score) for grade in
                       book.find_submission_notebook("01_short", "one", name).grades} for name in DONE}
