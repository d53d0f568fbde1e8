"""Marking: what is asked in a chapter, and which cells of a submitted notebook answer it.

`Paper` comes from the master. `read` takes a submission's text apart; it runs in a room of its own (grade_inside), as a
broken file may cost any amount of memory. Nothing of a submission runs here.
"""

import ast
import builtins
import json
import re
import symtable
from dataclasses import dataclass
from pathlib import Path

from k3_scratch import course
from k3_scratch.course.exercise import exercises_of
from k3_scratch.course.grade_inside import use_limits
from k3_scratch.course.grade_wire import say
from k3_scratch.course.master import MasterError, read_master, student

# Parts of the package, and files of reference/, that any answer may use; all else must be named by the exercise.
FREE = {"config", "shapes", "files", "tasks", "plots"}
HELPERS = {"sigmoid", "silu", "softmax", "gelu", "unit_keys", "rms_norm", "memory"}
# Ways round that no answer needs: an answer computes from its arguments.
WAYS_ROUND = {"exec", "eval", "compile", "open", "globals", "importlib", "inspect", "gc", "ctypes", "builtins",
              "pickle", "marshal", "subprocess", "__import__", "__builtins__", "__globals__", "__code__", "__closure__",
              "__dict__", "__subclasses__", "__wrapped__", "__loader__", "__spec__", "setprofile", "settrace",
              "_getframe", "f_globals", "f_back"}


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
    binding = [i for i, (_, source) in enumerate(cells) if asked.name in _bound(_parsed(source))]
    tried = [i for i in (*binding, *reversed(named)) if cells[i][1].strip() != asked.stub.strip()]
    if not tried or not any(cells[i][1].strip() for i in tried):
        return {"open": True, "missing": not named and not binding}
    place = tried[-1]
    try:
        ast.parse(_python(cells[place][1]))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        return {"problem": f"its cell is no Python{f', line {line}' if line else ''}: "
                           f"{getattr(error, 'msg', type(error).__name__)}"}
    chosen = _needed(paper, cells, place)
    sources = [_python(cells[i][1]) for i in chosen]
    return {"cells": sources, "foreign": foreign(sources, paper.imports, asked)}


def _needed(paper, cells, place):
    """Numbers of the cells that an answer needs, in order: its own, and earlier ones that define what it uses."""
    ready = {*dir(builtins), *_bound(_parsed(paper.imports))}
    own = {i for i in range(place) if cells[i][1].strip() not in {source.strip() for source in paper.cells}}
    chosen, todo = set(), [place]
    while todo:
        here = todo.pop()
        if here in chosen:
            continue
        chosen.add(here)
        tree = _parsed(cells[here][1])
        for name in _used(tree):
            found = [i for i in range(here) if name in _bound(_parsed(cells[i][1])) and (i in own or name not in ready)]
            if found and (here != place or name not in _bound(tree) or _before_bound(tree, name)):
                todo.append(found[-1])
    return sorted(chosen)


def _before_bound(tree, name):
    """Does a cell that binds a name use what it was before, as in `S = S + 1`?"""
    for node in tree.body:
        if name in _bound(ast.Module([node], [])):
            return not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and name in _used(ast.Module([node], []))
    return False


def _python(source):
    """Without lines that only IPython understands, should they stand in the way."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "\n".join("" if re.match(r"\s*[%!]|.*\?\s*$", line) else line for line in source.split("\n"))
    return source


def _parsed(source):
    try:
        return ast.parse(_python(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def _bound(tree):
    """Names that a cell defines, outside its functions."""
    names, todo = set(), list(ast.iter_child_nodes(tree))
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            todo += ast.iter_child_nodes(node)
    return names


def _used(tree):
    """Names that a cell or a statement takes from the notebook, in its functions too; their own variables not."""
    try:
        todo = [symtable.symtable(ast.unparse(tree), "cell", "exec")]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names, outermost = set(), todo[0]
    while todo:
        table = todo.pop()
        names |= {symbol.get_name() for symbol in table.get_symbols()
                  if symbol.is_referenced() and (table is outermost or symbol.is_global())}
        todo += table.get_children()
    return names | {node.target.id for node in ast.walk(tree)
                    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}


# ---- own work?

def is_given(origin, asked):
    """May the answer use this part of the package?   origin  "reference.delta_rule.delta_step" (without k3_scratch)"""
    parts = origin.split(".")
    if parts[0] == "course":
        return len(parts) == 2 and parts[1] in course.__all__
    if asked.is_value:
        return parts[0] != ""
    if parts[-1] == asked.solution:
        return False
    helper = parts[0] == "reference" and parts[1:2] and parts[1] in HELPERS
    made = {part for part in parts if part[:1].isupper()}                # a class, of which a method is called
    return bool(parts[0] in FREE or helper or asked.given & {parts[-1], *made})


def foreign(sources, imports, asked):
    """Sentences on what an answer takes that is not the student's own: the package's functions, ways round.   -> [str]

    Looked at are the statements that the answer is made of, not what else stands in its cell (such as a comparison
    with the package's function).
    """
    statements = _behind([node for text in (imports, *sources) for node in _parsed(text).body], asked.name)
    origins, found = {}, []
    for node in (inner for statement in statements for inner in ast.walk(statement)):
        if isinstance(node, ast.ImportFrom):
            origins |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            origins |= {(alias.asname or alias.name).split(".")[0]: alias.name if alias.asname
                        else alias.name.split(".")[0] for alias in node.names}
    for statement in statements:
        if not isinstance(statement, (ast.Import, ast.ImportFrom)):
            found += _taken(statement, origins, asked)
    return sorted(set(found))


def _behind(statements, name):
    """The statements that define a name, and those that define what they use."""
    chosen, todo = [], [name]
    for wanted in todo:
        for statement in statements:
            if statement not in chosen and wanted in _bound(ast.Module([statement], [])):
                chosen.append(statement)
                todo += sorted(_used(ast.Module([statement], [])) - {*todo})
    return chosen


def _taken(statement, origins, asked):
    docstrings = {id(node.value) for node in ast.walk(statement) if isinstance(node, ast.Expr)}
    outer = _used(ast.Module([statement], [])) | {
        (alias.asname or alias.name).split(".")[0] for node in ast.walk(statement)
        if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
    bases = {id(node.value): node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
    for node in ast.walk(statement):
        word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        origin = origins.get(word, "") if isinstance(node, ast.Name) and word in outer else ""
        if origin.split(".")[0] == "k3_scratch":
            whole = ".".join([origin, *([bases[id(node)]] if id(node) in bases else [])]).partition(".")[2]
            if not is_given(whole, asked):
                yield f"it uses {whole.rpartition('.')[2] or 'k3_scratch'} of the package"
        elif word in WAYS_ROUND or origin.split(".")[0] in WAYS_ROUND:
            yield f"it uses {word}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "k3_scratch" in node.value \
                and id(node) not in docstrings:
            yield "it names the package in a text"
