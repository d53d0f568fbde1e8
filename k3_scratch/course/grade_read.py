"""Marking: what is asked in a chapter, and which cells of a submitted notebook answer it.

`Paper` comes from the master. `read` takes a submission's text apart; it runs in a room of its own (grade_inside), as a
broken file may cost any amount of memory. Nothing of a submission runs here.
"""

import ast
import builtins
import json
import re
from dataclasses import dataclass
from pathlib import Path

from k3_scratch.course.exercise import exercises_of
from k3_scratch.course.grade_inside import use_limits
from k3_scratch.course.grade_names import bound, parsed, python, used
from k3_scratch.course.grade_own import foreign
from k3_scratch.course.grade_wire import say
from k3_scratch.course.master import MasterError, read_master, student


@dataclass(frozen=True)
class Asked:
    """One exercise as its master asks it."""

    id: str
    title: str
    name: str                # what the answer is called, my_...
    difficulty: int
    is_value: bool
    solution: str            # what the package calls its own
    stub: str                # the cell as the student gets it
    given: frozenset         # names in the exercise's text, hint and solution: an answer may call these


@dataclass(frozen=True)
class Paper:
    """What marking needs of one master."""

    name: str
    imports: str             # the import cell
    cells: tuple             # all code cells that the student gets, in order
    asked: tuple
    master: str              # path


def paper(master):
    """Path of a master -> Paper. MasterError when an exercise has no check."""
    notebook, known = read_master(master), {exercise.id: exercise for exercise in exercises_of(master.stem[:2])}
    given = [cell for cell in student(notebook).cells if cell.cell_type == "code"]
    stubs = {cell.metadata["id"]: cell.source for cell in given if "id" in cell.metadata}
    asked = []
    for i, cell in enumerate(notebook.cells):
        if "id" in cell.metadata:
            key, checked = cell.metadata["id"], re.search(r"\bcheck\([^,]*, *(\w+)\)", notebook.cells[i + 1].source)
            if key not in known or not checked:
                raise MasterError(f"{master.name}: exercise {key} must have a check")
            words = {*re.findall(r"\w+", "\n".join(near.source for near in notebook.cells[max(0, i - 2):i + 1]))}
            asked.append(Asked(key, known[key].title, checked[1], cell.metadata["difficulty"], known[key].is_value,
                               getattr(known[key].solution, "__name__", ""), stubs[key], frozenset(words)))
    return Paper(master.stem, given[0].source, tuple(cell.source for cell in given), tuple(asked), str(master))


def modules_of(imports):
    """The modules that an import cell names."""
    return [name for node in ast.walk(ast.parse(imports)) for name in (
        [alias.name for alias in node.names] if isinstance(node, ast.Import)
        else [node.module] if isinstance(node, ast.ImportFrom) else [])]


# ---- taking a submission apart

def read(connection, limits, file, papers, wanted):
    """A task for a room: say which chapter a file is of and which cells answer each exercise."""
    use_limits(limits)
    say(connection, {"ready": True})
    try:
        name, cells = _cells(Path(file).read_bytes())
    except (ValueError, RecursionError, MemoryError) as error:
        found = _chapter(papers, wanted, "", file, [])
        say(connection, {"notebook": found, "problem": f"no notebook can be read from it ({type(error).__name__})"})
        return
    found = _chapter(papers, wanted, name, file, cells)
    answers = {asked.id: _answer(papers[found], asked, cells) for asked in papers[found].asked} if found else {}
    say(connection, {"notebook": found, "answers": answers,
                     "problem": "" if found else "neither its name nor its exercises say which chapter it is of"})


def _cells(content):
    """-> name in the metadata, [(id, source)] of the code cells"""
    notebook = json.loads(content.decode("utf-8-sig"))
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("no cells")
    k3 = _dict(_dict(notebook.get("metadata")).get("k3"))
    cells = []
    for cell in map(_dict, notebook["cells"]):
        if cell.get("cell_type") == "code":
            source = cell.get("source", "")
            source = "".join(map(str, source)) if isinstance(source, list) else str(source)
            cells.append((str(_dict(cell.get("metadata")).get("id", "")), source.replace("\r\n", "\n")[:200_000]))
    return str(k3.get("name", "")), cells


def _dict(thing):
    return thing if isinstance(thing, dict) else {}


def _chapter(papers, wanted, name, file, cells):
    """The notebook's name: as asked for, from its metadata, its file's name, or its exercises; "" when none fits."""
    if wanted or name in papers:
        return wanted or name
    for known in sorted(papers, key=len, reverse=True):
        if known in Path(file).name:
            return known
    text = "\n".join(source for _, source in cells)
    count = {known: sum(asked.name in text for asked in one.asked) for known, one in papers.items()}
    best = max(count, key=count.get, default="")
    return best if count.get(best) else ""


def _answer(paper, asked, cells):
    """What a submission says to one exercise, as plain data: {"open": True}, {"problem": ...} or {"cells": [...]}."""
    named = [i for i, (key, _) in enumerate(cells) if key == asked.id]
    # Some programs drop the mark of a cell, some students write below: then the last cell that defines the name counts.
    binding = [i for i, (_, source) in enumerate(cells) if asked.name in bound(parsed(source))]
    tried = [i for i in (*binding, *reversed(named)) if cells[i][1].strip() != asked.stub.strip()]
    if not tried or not any(cells[i][1].strip() for i in tried):
        return {"open": True, "missing": not named and not binding}
    place = tried[-1]
    try:
        ast.parse(python(cells[place][1]))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        return {"problem": f"its cell is no Python{f', line {line}' if line else ''}: "
                           f"{getattr(error, 'msg', type(error).__name__)}"}
    chosen = _needed(paper, cells, place)
    sources = [python(cells[i][1]) for i in chosen]
    return {"cells": sources, "foreign": foreign(sources, paper.imports, asked)}


def _needed(paper, cells, place):
    """Numbers of the cells that an answer needs, in order: its own, and earlier ones that define what it uses."""
    ready = {*dir(builtins), *bound(parsed(paper.imports))}
    own = {i for i in range(place) if cells[i][1].strip() not in {source.strip() for source in paper.cells}}
    chosen, todo = set(), [place]
    while todo:
        here = todo.pop()
        if here in chosen:
            continue
        chosen.add(here)
        tree = parsed(cells[here][1])
        for name in used(tree):
            found = [i for i in range(here) if name in bound(parsed(cells[i][1])) and (i in own or name not in ready)]
            if found and (here != place or name not in bound(tree) or _before_bound(tree, name)):
                todo.append(found[-1])
    return sorted(chosen)


def _before_bound(tree, name):
    """Does a cell that binds a name use what it was before, as in `S = S + 1`?"""
    for node in tree.body:
        if name in bound(ast.Module([node], [])):
            return not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and name in used(ast.Module([node], []))
    return False
