"""Masters and what is in them, for the tests of the course."""

import functools
from pathlib import Path

from k3_scratch.course.chapters import chapter_of, masters
from k3_scratch.course.exercise import chapters_with_checks, exercises_of
from k3_scratch.course.master import read_master

MASTERS = masters()
TINY = Path(__file__).parent / "tiny" / "src" / "01_tiny.py"
EXERCISES = [exercise for chapter in chapters_with_checks() for exercise in exercises_of(chapter)]


def stem(thing):
    """The name of a test parameter: 01_delta_rule_rnn for a master, ch01-1.3 for an exercise."""
    return thing.stem if hasattr(thing, "stem") else f"ch{chapter_of(thing.id)}-{thing.id}"


@functools.cache
def cells_of(master):
    return read_master(master).cells


def tags(cell):
    return cell.metadata.get("tags", [])


def asked(master):
    """{exercise id: (index of its answer's cell, cell)}"""
    return {cell.metadata["id"]: (i, cell) for i, cell in enumerate(cells_of(master)) if "id" in cell.metadata}


def code(master):
    return [cell for cell in cells_of(master) if cell.cell_type == "code"]


def import_cell(master):
    return code(master)[0]


def outputs(notebook, kind):
    """All outputs of one kind ("stream", "error", "display_data"), in order."""
    return [output for cell in notebook.cells for output in cell.get("outputs", ()) if output.output_type == kind]


def printed(notebook):
    return "".join(output.text for output in outputs(notebook, "stream"))
