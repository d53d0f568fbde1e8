"""Every notebook runs clean in a fresh kernel: unsolved, and with solutions in strict mode."""

import re
import shutil
import time

import nbformat
import pytest
from course_helpers import MASTERS, TINY, asked, outputs, printed, stem

from k3_scratch.course.build import LARGEST, build, plan, refresh, stale
from k3_scratch.course.chapters import NOTEBOOKS, ROOT
from k3_scratch.course.exercise import exercises_of
from k3_scratch.course.kernel import RunError, execute
from k3_scratch.course.master import read_master, solution, student

FEWER = 40                   # 09 and 10 train for minutes: here they make a fortieth of their updates
every_master = pytest.mark.parametrize("master", MASTERS, ids=stem)


def run(notebook, folder=NOTEBOOKS, **settings):
    """Execute, and print how long it took (pytest -rP shows it)."""
    start = time.perf_counter()
    execute(notebook, folder, shorter=FEWER, **settings)
    print(f"{notebook.metadata.k3.name} {notebook.metadata.k3.version}: {time.perf_counter() - start:.1f} s")
    assert not outputs(notebook, "error")
    assert not [output.text for output in outputs(notebook, "stream") if output.name == "stderr"]
    assert not re.search(r"0x[0-9a-f]{6,}|/home/|/root/|site-packages|Traceback", printed(notebook))
    # a shortened training draws noisier pictures; the committed files keep to LARGEST itself, see below
    assert len(nbformat.writes(notebook).encode()) < 1.25 * LARGEST
    pictures = [output for output in outputs(notebook, "display_data") if "image/png" in output.data]
    assert all(output.metadata["image/png"]["alt"] for output in pictures)
    return notebook


@every_master
def test_student_notebook_shows_every_exercise_as_not_attempted(master):
    text = printed(run(student(read_master(master))))
    ids = list(asked(master))
    assert re.findall(r"^· (\S+) not attempted yet$", text, re.MULTILINE) == ids
    assert not re.search(r"^[✓✗] ", text, re.MULTILINE)


@every_master
def test_solution_notebook_passes_every_check(master):
    """This is the master's own run: strict, and with the asserts that hold the numbers of the prose."""
    text = printed(run(solution(read_master(master), keep_asserts=True), strict=True))
    titles = [f"✓ {exercise.id} {exercise.title}" for exercise in exercises_of(master.stem[:2])]
    assert re.findall(r"^✓ .*$", text, re.MULTILINE) == titles


@every_master
def test_committed_notebooks_have_the_cells_of_their_master(master):
    pair, = plan([master.stem])
    for file, wanted in ((pair.student_file, pair.student), (pair.solution_file, pair.solution)):
        assert file.exists(), f"{file.name}: run k3 notebooks"
        given = nbformat.read(file, as_version=4)
        nbformat.validate(given)
        assert [cell.source for cell in given.cells] == [cell.source for cell in wanted.cells], "run k3 notebooks"
        assert file.stat().st_size < LARGEST


# ---- one short notebook: places, double runs, answers of every kind

def headlines(notebook):
    return re.findall(r"^headline .*$", printed(notebook), re.MULTILINE)


def twice(notebook):
    """Every cell again behind itself."""
    notebook.cells = [nbformat.from_dict({**cell, "id": f"{cell.id[:30]}-{n}"}) for cell in notebook.cells
                      for n in range(2)]
    return notebook


def test_same_numbers_from_three_folders_and_when_every_cell_runs_twice(tmp_path):
    spaced = tmp_path / "a folder with spaces"
    spaced.mkdir()
    for folder in (NOTEBOOKS, ROOT):
        assert headlines(run(student(read_master(TINY)), folder)) == ["headline 4.5"]
    assert headlines(run(twice(student(read_master(TINY))), spaced)) == ["headline 4.5"] * 2


ANSWERS = {
    "wrong": ("return state", "✗ 1.3 "), "half": ("recalled = k @ state", "returns None"),
    "raising": ("raise ValueError('no')", "ValueError: no"),
    "right": ("return delta_step(state, k, v, beta)", "✓ 1.3 "),
}


def test_run_all_reaches_the_end_whatever_is_answered(tmp_path):
    notebook = student(read_master(TINY))
    place, cell = next((i, cell) for i, cell in enumerate(notebook.cells) if "id" in cell.metadata)
    extra = []
    for line, _ in ANSWERS.values():
        for source in (cell.source.replace("return ...  # your answer", line), notebook.cells[place + 1].source):
            extra += [nbformat.v4.new_code_cell(source)]
    notebook.cells[place + 2:place + 2] = extra
    text = printed(run(notebook, tmp_path, progress=tmp_path / "kept.json"))
    assert all(words in text for _, words in ANSWERS.values())
    assert "headline 4.5" in text and " 1 of 6  ··✓···" in text
    again = student(read_master(TINY))                                   # another kernel remembers
    assert " 1 of 6  ··✓···" in printed(run(again, tmp_path, progress=tmp_path / "kept.json"))


def test_strict_run_stops_at_an_open_exercise(tmp_path):
    with pytest.raises(RunError, match=r"01_tiny: CheckError: · 1\.3 not attempted yet"):
        execute(student(read_master(TINY)), tmp_path, strict=True)


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(TINY.parent, tmp_path / "src")
    return tmp_path


def test_build_writes_both_and_knows_when_they_are_stale(folder):
    pair, = plan(folder=folder)
    assert stale(pair) == "01_tiny.ipynb is missing"
    sizes = build(pair, figures=folder / "figures")
    assert {file.relative_to(folder).as_posix() for file in sizes} == {"01_tiny.ipynb", "solutions/01_tiny.ipynb"}
    assert stale(pair) == ""
    first = {file: file.read_bytes() for file in sizes}
    build(plan(folder=folder)[0], figures=folder / "figures")
    assert first == {file: file.read_bytes() for file in sizes}          # the same bytes: no times, no random ids
    written = first[pair.student_file].replace(b"See chapter 00", b"See [chapter 00](00_the_map.ipynb)")
    pair.student_file.write_bytes(written)                               # as if chapter 00 had existed then
    assert "has other cells" in stale(pair) and refresh(pair) and stale(pair) == ""
    assert first == {file: file.read_bytes() for file in sizes}          # outputs kept, prose as the master has it
    given = nbformat.read(pair.solution_file, as_version=4)
    assert "with solutions" in printed(given) and "assert" not in "".join(cell.source for cell in given.cells)
    assert [cell.execution_count for cell in given.cells if cell.cell_type == "code"] == list(range(1, 7))
    assert given.metadata.kernelspec.name == "python3" and given.metadata.k3.version == "solution"
    assert (folder / "figures" / "01_tiny.png").exists()

    given.cells[-1].source = "changed by hand"
    nbformat.write(given, pair.solution_file)
    assert "has other cells" in stale(pair)
    pair.solution_file.write_bytes(first[pair.solution_file])
    text = pair.master.read_text(encoding="utf-8")
    pair.master.write_text(text + "# \n# More.\n", encoding="utf-8")
    assert stale(plan(folder=folder)[0]) == "01_tiny.ipynb has other cells than its master"
    pair.master.write_text(text.replace("headline == 4.5", "headline > 4.4"), encoding="utf-8")
    assert stale(plan(folder=folder)[0]) == "01_tiny.ipynb was made from other sources"
    assert not refresh(plan(folder=folder)[0])


def test_a_wrong_number_in_the_prose_is_never_built(folder):
    master = folder / "src" / "01_tiny.py"
    text = master.read_text(encoding="utf-8").replace("headline == 4.5", "headline == 4.6")
    master.write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match="AssertionError"):
        build(plan(folder=folder)[0], figures=folder)
    assert not list(folder.glob("*.ipynb"))
