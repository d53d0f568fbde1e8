"""Masters -> notebooks: built, run, and written only when something they depend on has changed."""

from dataclasses import dataclass
from pathlib import Path

import nbformat

from k3_scratch.course.chapters import NOTEBOOKS, ROOT, TITLES, masters
from k3_scratch.course.kernel import execute
from k3_scratch.course.master import MasterError, read_master, solution, student
from k3_scratch.course.sources import digest
from k3_scratch.training.checkpoint import write_text

LARGEST = 1_500_000          # bytes of one notebook with its outputs


@dataclass(frozen=True, eq=False)
class Pair:
    """A master and its two notebooks, as they should be: built, not run."""

    master: Path
    student: nbformat.NotebookNode
    solution: nbformat.NotebookNode
    asserting: nbformat.NotebookNode        # the solution with its hidden asserts: this one is run
    student_file: Path
    solution_file: Path


def plan(names=(), folder=None):
    """The masters called `names` (file names, or two digits; none: all).                              -> [Pair]

    folder   where the notebooks go and `src/` is; None: the course's own.  Raises MasterError for an unknown name.
    """
    folder = Path(folder or NOTEBOOKS)
    found = masters(folder / "src")
    known = {key: master for master in found for key in (master.stem, master.name, master.stem[:2])}
    unknown = [name for name in names if Path(name).name.removesuffix(".ipynb") not in known]
    if unknown:
        raise MasterError(f"name must be one of {', '.join(m.stem for m in found) or 'none'}, but {unknown[0]!r} came")
    chosen = {known[Path(name).name.removesuffix(".ipynb")] for name in names} or set(found)
    written = {master.stem for master in found} & set(TITLES)
    return [_pair(master, folder, written) for master in found if master in chosen]


def stale(pair):
    """Why the notebooks of a pair must be built again, or "". Compares hashes and the texts of cells; runs nothing."""
    for file, wanted in ((pair.student_file, pair.student), (pair.solution_file, pair.solution)):
        if not file.exists():
            return f"{_relative(file)} is missing"
        try:
            given = nbformat.read(file, as_version=4)
        except Exception as error:                                       # nbformat raises many kinds
            return f"{_relative(file)} is not readable ({type(error).__name__})"
        if list(map(_looks, given.cells)) != list(map(_looks, wanted.cells)):
            return f"{_relative(file)} has other cells than its master"
        if given.metadata.get("k3", {}).get("hash") != wanted.metadata.k3.hash:
            return f"{_relative(file)} was made from other sources"
    return ""


def orphans():
    """Notebooks without a master.                                                                     -> [Path]"""
    names = {master.stem for master in masters(NOTEBOOKS / "src")}
    return sorted(file for place in (NOTEBOOKS, NOTEBOOKS / "solutions") for file in place.glob("[0-9][0-9]_*.ipynb")
                  if file.stem not in names)


def build(pair, figures=ROOT / "figures"):
    """Run both notebooks of a pair and write them, all or nothing.                        -> {file: bytes}

    The solution runs in strict mode and with the asserts that hold the numbers of the prose, which are then dropped.
    Raises RunError when a cell raises, MasterError when a notebook becomes too large.
    """
    pair.solution_file.parent.mkdir(parents=True, exist_ok=True)
    run = execute(pair.asserting, pair.student_file.parent, figures=figures, strict=True)
    shown = [cell for cell in run.cells if "remove" not in cell.metadata.get("tags", ())]
    run.cells, run.metadata = shown, pair.solution.metadata
    for cell, wanted in zip(shown, pair.solution.cells, strict=True):
        cell.id = wanted.id
    _count_again(shown)
    texts = {pair.solution_file: _text(run),
             pair.student_file: _text(execute(pair.student, pair.student_file.parent))}
    for file, text in texts.items():
        if len(text.encode()) > LARGEST:
            raise MasterError(f"{file.name} must have at most {LARGEST:,} bytes, but {len(text.encode()):,} came: "
                              "fewer or smaller pictures")
    for file, text in texts.items():
        write_text(file, text)
    return {file: len(text.encode()) for file, text in texts.items()}


def refresh(pair):
    """Write new prose around outputs that still hold, without running.                -> was that all that was needed?

    So when a chapter is written, its neighbours get their links to it in a moment: their hashes and code are the same.
    """
    made = {}
    for file, wanted in ((pair.student_file, pair.student), (pair.solution_file, pair.solution)):
        if not file.exists():
            return False
        try:
            given = nbformat.read(file, as_version=4)
        except Exception:                                                # as in `stale`
            return False
        old, new = ([cell for cell in cells if cell.cell_type == "code"] for cells in (given.cells, wanted.cells))
        same = given.metadata.get("k3", {}).get("hash") == wanted.metadata.k3.hash
        if not same or [cell.source for cell in old] != [cell.source for cell in new]:
            return False
        for cell, ran in zip(new, old, strict=True):
            cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
        made[file] = _text(wanted)
    for file, text in made.items():
        write_text(file, text)
    return True


def _pair(master, folder, written):
    notebook = read_master(master)
    notebook.metadata.k3.hash = digest(master, notebook)
    return Pair(master, student(notebook, written), solution(notebook, written),
                solution(notebook, written, keep_asserts=True),
                folder / f"{master.stem}.ipynb", folder / "solutions" / f"{master.stem}.ipynb")


def _looks(cell):
    return cell.cell_type, cell.source, "slide" in cell.metadata.get("tags", ())


def _count_again(cells):
    """Numbers of execution without gaps, as if the dropped cells had never been there."""
    for count, cell in enumerate((cell for cell in cells if cell.cell_type == "code"), start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count


def _text(notebook):
    return nbformat.writes(notebook, version=4).rstrip("\n") + "\n"


def _relative(file):
    return file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name
