"""The rules of the authors' guide, for every master."""

import ast
import re

import pytest
from course_helpers import MASTERS, TINY, asked, cells_of, code, import_cell, stem, tags

from k3_scratch.course.chapters import NOTEBOOKS, TITLES, masters
from k3_scratch.course.exercise import exercises_of
from k3_scratch.course.master import BEGIN, END, LINK, TARGET, read_master, solution, student

ALL = [*MASTERS, TINY]
every_master = pytest.mark.parametrize("master", ALL, ids=stem)
own_master = pytest.mark.parametrize("master", MASTERS, ids=stem)


def test_there_are_masters():
    assert "01_delta_rule_rnn" in [master.stem for master in MASTERS]


@own_master
def test_header(master):
    k3 = read_master(master).metadata.k3
    assert k3.title == TITLES[master.stem]
    assert {*k3.minutes} == {"read", "exercises", "run"}
    assert k3.needs and k3.objectives and all(isinstance(item, str) for item in (*k3.needs, *k3.objectives))
    assert sum(cell.metadata["minutes"] for _, cell in asked(master).values()) == k3.minutes.exercises
    cells = cells_of(master)
    assert cells[0].cell_type == "markdown" and cells[0].source.startswith(f"# {master.stem[:2]} · {k3.title}\n")
    assert cells[-1].cell_type == "markdown"


@every_master
def test_cells_are_short_and_plain(master):
    for cell in code(master):
        seen = [line for line in cell.source.split("\n") if line.strip() not in (BEGIN, END)]
        assert len(seen) <= 25, cell.source
        assert [line for line in cell.source.split("\n") if len(line) > 110] == []
        assert not re.search(r"^\s*[!%]", cell.source, re.MULTILINE), cell.source
        assert "remove" in tags(cell) or "assert " not in cell.source or "#" in cell.source, \
            "a visible assert needs a comment that says what it shows"
        assert not re.search(r"\.seed\(|pyplot|(?<![\w.])open\(", cell.source), cell.source
    for cell in cells_of(master):
        assert set(tags(cell)) <= {"remove", "solution-only", "student-only", "hint", "slide"}
        assert set(cell.metadata) <= {"tags", "id", "minutes", "difficulty"}


@every_master
def test_one_cell_imports(master):
    for cell in code(master)[1:]:
        imports = [node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, (ast.Import, ast.ImportFrom))]
        assert not imports, cell.source
    assert "import" in import_cell(master).source


@every_master
def test_an_exercise_is_four_cells(master):
    cells = cells_of(master)
    for id, (i, cell) in asked(master).items():
        statement, hint, check = cells[i - 2], cells[i - 1], cells[i + 1]
        assert statement.cell_type == "markdown" and statement.source.startswith(f"### Exercise {id}: ")
        assert hint.cell_type == "markdown" and tags(hint) == ["hint"]
        assert cell.metadata["difficulty"] in (1, 2, 3) and cell.metadata["minutes"] >= 1
        assert cell.source.count("# BEGIN SOLUTION") == cell.source.count("# END SOLUTION") == 1
        name = re.fullmatch(rf'check\("{re.escape(id)}", (my_\w+)\)', check.source)
        assert name and re.search(rf"^(def {name[1]}\(|{name[1]} = )", cell.source, re.MULTILINE), check.source
    regions = sum("BEGIN SOLUTION" in cell.source for cell in cells)
    checks = sum("check(" in cell.source for cell in code(master))
    assert regions == checks == len(asked(master))


@own_master
def test_every_exercise_of_the_chapter_is_asked_in_order(master):
    assert list(asked(master)) == [exercise.id for exercise in exercises_of(master.stem[:2])]
    assert 3 <= len(asked(master)) <= 6 or master.stem == "13_bug_hunt"


@every_master
def test_only_exercises_use_what_the_student_writes(master):
    checks = [cells_of(master)[i + 1].source for i, _ in asked(master).values()]
    for cell in code(master):
        if "id" not in cell.metadata and cell.source not in checks:
            assert not re.search(r"\bmy_\w+", cell.source), cell.source


@every_master
def test_a_picture_has_a_sentence_below(master):
    cells = [cell for cell in cells_of(master) if "remove" not in tags(cell)]
    for cell, following in zip(cells, cells[1:], strict=False):
        if cell.cell_type == "code" and re.search(r"(?<![\w.])show\(", cell.source):
            assert following.cell_type == "markdown" and not following.source.startswith(("#", "!", "|", "$")), \
                following.source
            assert cell.source.count("show(") == 1, "one picture a cell, so that each has its sentence"


@every_master
def test_no_formula_is_cut_by_a_list(master):
    """A line that starts with +, - or a number begins a list, also in the middle of a formula between two $."""
    for cell in cells_of(master):
        if cell.cell_type == "markdown":
            for paragraph in re.sub(r"\$\$.*?\$\$", "", cell.source, flags=re.DOTALL).split("\n\n"):
                lines = paragraph.split("\n")
                for i, line in enumerate(lines):
                    inside = "\n".join(lines[:i]).count("$") % 2
                    assert not (inside and re.match(r"\s*([-+*>]|\d+[.)])\s", line)), line


@every_master
def test_measured_numbers_are_asserted(master):
    """Where the prose says (measured here), cells tagged `remove` hold the numbers."""
    prose = "\n".join(cell.source for cell in cells_of(master) if cell.cell_type == "markdown")
    hidden = "\n".join(cell.source for cell in code(master) if "remove" in tags(cell))
    assert prose.count("measured here") <= hidden.count("assert"), "each (measured here) needs an assert"


@own_master
def test_links_resolve(master):
    written = {found.stem for found in masters()}
    for make, folder in ((student, NOTEBOOKS), (solution, NOTEBOOKS / "solutions")):
        for cell in make(read_master(master), written).cells:
            if cell.cell_type == "markdown":
                for _, target, _ in TARGET.findall(cell.source):
                    if target.startswith(("http", "#")) or target.split("#")[0][:-6].split("/")[-1] in written:
                        continue                                         # notebooks are built; masters are what counts
                    assert (folder / target.split("#")[0]).exists(), f"{target} from {folder.name}"
                assert not re.search(r"!\[\s*\]\(", cell.source), "a picture needs a text"
                assert not re.search(r"!\[[^\]]*\]\(http|<img", cell.source), "no remote pictures"
                assert all(text.strip() for text, _ in LINK.findall(cell.source))


@every_master
def test_the_student_sees_no_solution(master):
    made = student(read_master(master))
    assert not any("SOLUTION" in cell.source for cell in made.cells)
    for cell in made.cells:
        if "id" in cell.metadata:
            assert cell.source.count("...  # your answer") == 1
            ast.parse(cell.source)
