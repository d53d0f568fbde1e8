"""The map of the code, k3_scratch/README.md: short, complete, and as the code is."""

import ast
import re

import pytest
from test_house import EVERYTHING, MAY_IMPORT, NOT_FOR_THE_COURSE, PACKAGE

from k3_scratch.config import PRESETS

ROOT = PACKAGE.parent
MAP = (PACKAGE / "README.md").read_text(encoding="utf-8")
DIAGRAM = re.search(r"```\n(.*?)```", MAP, re.DOTALL).group(1)
WORDS = 900                                                              # five minutes, 180 a minute
LINKS = re.findall(r"\[`([^`\]]+)`\]\(([^)]+)\)", MAP)
TWINS = [line for line in MAP.splitlines() if line.startswith("|") and line.count("|") == 5]


def modules(folder):
    return {file.name for file in (PACKAGE / folder).glob("*.py")} - {"__init__.py"}


def defined(file):
    """Functions, classes and Class.method of a file."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names |= {node.name, *(f"{node.name}.{inner.name}" for inner in node.body
                                   if isinstance(inner, ast.FunctionDef) and isinstance(node, ast.ClassDef))}
    return names


def linked(text, folder=""):
    """Files that links of a text lead to, of one folder of the package."""
    return [target.removeprefix(f"{folder}/") for _, target in re.findall(r"\[`([^`\]]+)`\]\(([^)]+)\)", text)
            if target.startswith(folder) and target.endswith(".py")]


def test_it_is_read_in_five_minutes():
    seen = re.sub(r"\]\([^)]*\)", "]", MAP)                              # what a link leads to is not read
    assert 400 < len(re.findall(r"[\w./]*\w[\w./]*", seen)) <= WORDS


def test_every_path_exists_and_is_named_as_it_is():
    assert len(LINKS) > 80
    for words, target in LINKS:
        path = (PACKAGE / target).resolve()
        assert path.is_relative_to(ROOT) and path.exists(), target
        assert f"{path.as_posix()}/".endswith(f"/{words.rstrip('/')}/"), f"{words} leads to {target}"
    for target in re.findall(r"\]\(([^)]+)\)", MAP):
        assert (PACKAGE / target).exists(), target
    for path in re.findall(r"`((?:tests|notebooks)/[\w./]+)`", MAP):
        assert (ROOT / path).exists(), path


def test_every_part_and_every_operation_is_named():
    parts = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} | {
        file.name for file in PACKAGE.glob("*.py")}
    assert {target.rstrip("/") for _, target in LINKS} >= parts
    for folder in ("reference", "layers"):
        assert set(linked(MAP, folder)) == modules(folder)


def test_twins_stand_side_by_side():
    """Column 3 has NumPy's files, column 4 PyTorch's, and those of one name stand in one row."""
    place = {"reference": {}, "layers": {}}
    for i, row in enumerate(TWINS):
        for folder, cell in zip(place, row.split("|")[3:5], strict=True):
            assert len(linked(cell, folder)) == len(set(linked(cell)) - {"model.py"}), row
            for name in linked(cell, folder):
                assert name not in place[folder], f"{name} stands twice"
                place[folder][name] = i
    for folder in place:
        assert set(place[folder]) == modules(folder)
    both = set(place["reference"]) & set(place["layers"])
    assert len(both) > 12 and all(place["reference"][name] == place["layers"][name] for name in both)


def test_functions_are_where_the_map_says():
    """A name in code stands in a line (or a paragraph) that links the file which defines it."""
    found = 0
    for part in re.split(r"\n\n|\n(?=[|-])", MAP.replace(DIAGRAM, "")):
        names = set(re.findall(r"(?<!\[)`([A-Za-z_]\w*(?:\.\w+)?)`", part)) - set(PRESETS)
        known = {name for file in linked(part) for name in defined(PACKAGE / file)}
        assert names <= known, (names - known, linked(part))
        found += len(names)
    assert found > 15


def test_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in re.findall(r"`make ([\w-]+)`", MAP):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), name
    for name in re.findall(r"`k3 (\w+)`", MAP):
        assert (PACKAGE / "commands" / f"{name}.py").exists(), name


def drawn():
    """The rows of the diagram, from the top.                              -> [(parts, what they import)]"""
    rows = []
    for line in DIAGRAM.splitlines():
        if line.strip() != "|":
            left, right = re.fullmatch(r"([\w ]+?)\s+(?:-->|(?=nothing$))\s*([\w, ]+)", line).groups()
            parts, right = left.split(), right.replace(",", " ")
            others = set(parts) if "each other" in right else set()
            rows.append((parts, right.replace("each other", "").split(), others))
    return rows


def reached(direct, part):
    """All that a part may import, also by way of others."""
    seen, todo = set(), [part]
    while todo:
        new = direct[todo.pop()] - seen
        seen |= new
        todo += new
    return seen - {part}


def test_the_diagram_draws_the_table_of_imports():
    direct = {name: None if to is EVERYTHING else {other.split(".")[0] for other in to}
              for name, to in MAY_IMPORT.items() if name != "__init__"}
    everything = {name for name, to in direct.items() if to is None}
    arrows, shown = {}, []
    for parts, right, others in drawn():
        for part in parts:
            shown.append(part)
            if right[:1] == ["everything"]:
                assert part in everything
                assert set(right[1:]) == ({"but", *NOT_FOR_THE_COURSE} if part == "course" else set())
            else:
                arrows[part] = (set(right) - {"nothing"} | others) - {part}
                assert all(name in shown or name in others for name in arrows[part]), f"{part} imports from below"
    assert sorted(shown) == sorted(direct)
    assert {part: reached(arrows, part) for part in arrows} == {
        part: reached(direct, part) for part in direct if part not in everything}


@pytest.mark.parametrize("wrong", ["model                               --> cache plots",
                                   "model                               --> layers"])
def test_a_wrong_arrow_is_noticed(wrong, monkeypatch):
    right = "model                               --> cache"
    assert right in DIAGRAM
    monkeypatch.setitem(globals(), "DIAGRAM", DIAGRAM.replace(right, wrong))
    with pytest.raises(AssertionError):
        test_the_diagram_draws_the_table_of_imports()
