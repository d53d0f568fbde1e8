"""The same master through otter-grader: the same marks as `k3 grade`. Run by `make test-extras`."""

import json
import os
import subprocess
import sys

import nbformat
from extras_helpers import DONE, SHORT, by_k3, filled

from k3_scratch.course.other_graders import question, write


def otter(folder, *arguments):
    environment = {**os.environ, "K3_STRICT": "", "K3_PROGRESS": "", "HOME": str(folder)}
    done = subprocess.run([sys.executable, "-m", "otter", *map(str, arguments)], cwd=folder, env=environment, text=True,
                          encoding="utf-8", capture_output=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_marks_are_the_same(tmp_path):
    write("otter", SHORT, tmp_path / "01_short.ipynb")
    otter(tmp_path, "assign", "--no-pdfs", "01_short.ipynb", "made")     # it runs the solutions against the tests
    released = nbformat.read(tmp_path / "made" / "student" / "01_short.ipynb", as_version=4)
    texts = "\n".join(cell.source for cell in released.cells)
    assert "SOLUTION" not in texts and "np.outer" not in texts and "my_tokens = ..." in texts
    archive, = (tmp_path / "made" / "autograder").glob("*.zip")
    wanted, marks = by_k3(tmp_path / "ours"), {}
    for name in DONE:
        place = tmp_path / name
        place.mkdir()
        nbformat.write(filled(released, name, lambda cell: cell.metadata.get("id")), place / "01_short.ipynb")
        otter(place, "run", "-a", archive, "-o", place, "01_short.ipynb")
        found = json.loads((place / "results.json").read_text(encoding="utf-8"))["tests"]
        marks[name] = {key: sum(int(test["score"]) for test in found if question(key) in test["name"].split()[:1])
                       for key in wanted[name]}
    assert marks == wanted
