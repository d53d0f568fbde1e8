"""The same masters for other marking programs: `for_nbgrader` and `for_otter` make their source notebooks.

Both programs take the solutions out themselves, between the markers that the masters have. nbgrader replaces them with
its stub (set `ClearSolutions.code_stub` to `...`, see notebooks/teaching/marking.md), otter-grader with `...`; so a
value exercise gets a line `my_answer = ...` above its solution. Points are the difficulty, as in `k3 grade`.
"""

import copy
import re

import nbformat

from k3_scratch.course.exercise import find
from k3_scratch.course.master import BEGIN, read_master, solution
from k3_scratch.files import write_text

TEST = """from k3_scratch.course.exercise import find
from k3_scratch.course.judge import judge
judge(find("{id}"), {name}).state"""


def for_nbgrader(master):
    """Path of a master -> notebook for `source/ASSIGNMENT/`; it is marked with K3_STRICT=1, so that checks raise."""
    made = _prepared(master)
    for i, cell in enumerate(made.cells):
        key = cell.metadata.get("id")
        before = made.cells[i - 1].metadata.get("id") if i else None
        if key:
            cell.metadata["nbgrader"] = _marks(f"answer_{question(key)}", solution=True)
        elif before:
            points = made.cells[i - 1].metadata["difficulty"]
            cell.metadata["nbgrader"] = {**_marks(f"check_{question(before)}", grade=True, locked=True),
                                         "points": points}
    return made


def for_otter(master):
    """Path of a master -> notebook for `otter assign`."""
    made, cells = _prepared(master), []
    raw = nbformat.v4.new_raw_cell
    cells.append(raw(f"# ASSIGNMENT CONFIG\nname: {made.metadata.k3.name}\nexport_cell: false\ncheck_all_cell: false\n"
                     "generate: true"))
    for i, cell in enumerate(made.cells):
        following = [near.metadata.get("id") for near in made.cells[i:i + 3]]
        if following[2:] and following[2]:
            difficulty = made.cells[i + 2].metadata["difficulty"]
            cells.append(raw(f"# BEGIN QUESTION\nname: {question(following[2])}\npoints: {difficulty}"))
        if not following[0]:
            cells.append(cell)
            continue
        name = re.search(r", *(\w+)\)", made.cells[i + 1].source)[1]
        test = nbformat.v4.new_code_cell(TEST.format(id=following[0], name=name))
        test.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "'done'"}, execution_count=1)]
        cells += [raw("# BEGIN SOLUTION"), cell, raw("# END SOLUTION"), raw("# BEGIN TESTS"), test, raw("# END TESTS"),
                  raw("# END QUESTION")]
    made.cells = cells
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"
    return made


def question(key):
    """What the other programs call an exercise: "1.3" -> "q1_3"."""
    return "q" + key.replace(".", "_")


WRITERS = {"nbgrader": for_nbgrader, "otter": for_otter}


def write(program, master, file):
    """Write a master for "nbgrader" or "otter" to a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, nbformat.writes(WRITERS[program](master)) + "\n")


def _prepared(master):
    """The notebook with solutions, values with a line that stays when the solution goes."""
    made = copy.deepcopy(solution(read_master(master)))
    for i, cell in enumerate(made.cells):
        key = cell.metadata.get("id")
        if key and find(key).is_value and cell.source.startswith(BEGIN):
            name = re.search(r", *(\w+)\)", made.cells[i + 1].source)[1]
            cell.source = f"{name} = ...\n{cell.source}"
    return made


def _marks(name, *, grade=False, solution=False, locked=False):
    return {"grade": grade, "solution": solution, "locked": locked, "task": False, "grade_id": name,
            "schema_version": 3, "cell_type": "code"}
