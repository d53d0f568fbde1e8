"""A master and what becomes of it: text -> cells -> the student's notebook and the one with solutions.

Pure functions of text and cells; nothing runs here. The rules for authors are in the docstring of
`k3_scratch.course`.
"""

import copy
import hashlib
import re

import jupytext

from k3_scratch.course.chapters import CHAPTERS, TITLES
from k3_scratch.course.lab_results import alt_text

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
DOTS = {1: "●○○", 2: "●●○", 3: "●●●"}
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^()\s]+)\)")
TARGET = re.compile(r"(\]\()([^()\s]+)(\))")
LAB_PICTURE = re.compile(r"!\[\](\(\.\./figures/lab_(\w+)\.png\))")


class MasterError(ValueError):
    """A master breaks a rule of the authors' guide; the message names the place and what was wanted."""


def read_master(path):
    """The cells of a master (nbformat), with `metadata.k3` from its header. Raises MasterError without one."""
    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    if "k3" not in notebook.metadata:
        raise MasterError(f"{path.name}: wanted a header with k3: title, minutes, needs, objectives")
    notebook.metadata = {"k3": {"name": path.stem, **notebook.metadata["k3"]}, "kernelspec": KERNEL,
                         "language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata.pop("lines_to_next_cell", None)
    return notebook


def student(notebook, written=()):
    """Stubs in place of solutions. `written`: names of the masters that exist, to which links may lead."""
    return _made(notebook, written, "student", {"remove", "solution-only"})


def solution(notebook, written=(), keep_asserts=False):
    """With solutions. `keep_asserts` keeps the cells tagged "remove": they run, but are shown nowhere."""
    return _made(notebook, written, "solution", {"student-only"} | (set() if keep_asserts else {"remove"}))


def _made(notebook, written, version, dropped):
    made = copy.deepcopy(notebook)
    made.cells = [cell for cell in made.cells if not dropped & set(cell.metadata.get("tags", ()))]
    made.metadata.k3.version = version
    for i, cell in enumerate(made.cells):
        if cell.cell_type == "markdown":
            following = [c for c in made.cells[i + 1:i + 3] if "id" in c.metadata]
            cell.source = _links(with_texts(cell.source), written, version)
            cell.source = _prose(cell, made.metadata.k3, first=i == 0, last=i == len(made.cells) - 1,
                                 exercise=following[0].metadata if following else None, written=written)
        elif version == "student":
            cell.source = without_solution(cell.source)
    _number(made.cells)
    return made


def with_texts(source):
    """`![](../figures/lab_NAME.png)` gets the text of the result for its picture. MasterError without a result."""
    try:
        return LAB_PICTURE.sub(lambda found: f"![{alt_text(found[2])}]{found[1]}", source)
    except ValueError as error:
        raise MasterError(f"{LAB_PICTURE.search(source)[0]}: {error}") from error


def without_solution(source):
    """Each region becomes `return ...` (when it ends with a return) or `name = ...` (with an assignment).

    >>> print(without_solution("x = 1\\n# BEGIN SOLUTION\\ny = x + 1\\n# END SOLUTION"))
    x = 1
    y = ...  # your answer
    """
    lines, kept, region = source.split("\n"), [], None
    for line in lines:
        if line.strip() == BEGIN:
            region = []
        elif line.strip() == END and region is not None:
            kept.append(_stub(region))
            region = None
        elif region is not None:
            region.append(line)
        else:
            kept.append(line)
    if region is not None or any(line.strip() == END for line in kept):
        raise MasterError(f"{BEGIN} and {END} must come in pairs, in the cell that begins with {lines[0]!r}")
    return "\n".join(kept)


def _stub(region):
    filled = [line for line in region if line.strip()]
    if not filled:
        raise MasterError("a solution must not be empty")
    indent = filled[0][:len(filled[0]) - len(filled[0].lstrip())]
    top = [line[len(indent):] for line in filled if re.match(r"\w", line[len(indent):]) and line.startswith(indent)]
    name = re.match(r"(\w+)\s*=[^=]", top[-1])
    if top[-1].startswith("return"):
        return f"{indent}return ...  # your answer"
    if name and not indent:
        return f"{name[1]} = ...  # your answer"
    raise MasterError(f"a solution must end with `return ...` (in a function) or `name = ...` (in a cell), "
                      f"but it ends with {top[-1]!r}")


def _prose(cell, k3, first, last, exercise, written):
    """Markdown with what the metadata say: the head of the notebook, minutes of an exercise, a folded hint, ways on."""
    source = cell.source
    if "hint" in cell.metadata.get("tags", ()):
        source = f"<details><summary>Hint</summary>\n\n{source}\n\n</details>"
    elif exercise is not None and source.startswith("### Exercise"):
        title, _, text = source.partition("\n")
        source = f"{title}\n\n*about {exercise['minutes']} minutes · {DOTS[exercise['difficulty']]}*\n{text}"
    if first:
        title, _, text = source.partition("\n")
        source = "\n\n".join(filter(None, [title, _head(k3, written), text.strip("\n")]))
    if last and k3["name"] in TITLES:
        source += "\n\n---\n" + ways_on(k3["name"], written)
    return source


def _head(k3, written):
    minutes = k3["minutes"]
    if k3["version"] == "student":
        other, up = f"[with solutions](solutions/{k3['name']}.ipynb)", ""
    else:
        other, up = f"these are the solutions; [the notebook without them](../{k3['name']}.ipynb)", "../"
    lines = [f"*Reading {minutes['read']} minutes · exercises {minutes['exercises']} minutes · running all cells "
             f"{minutes['run']} · {other} · [something does not work]({up}troubleshooting.md)*", "",
             "**Afterwards you can**", "", *(f"- {item}" for item in k3["objectives"]), "",
             "**You need** " + _links("; ".join(k3["needs"]), written, k3["version"]) + "."]
    return "\n".join(lines)


def ways_on(name, written):
    """Links to the chapter before and the one after, where they are written."""
    names = [chapter for chapter, _ in CHAPTERS]
    here, ways = names.index(name), []
    if here > 0:
        ways.append("← " + _way(names[here - 1], written))
    if here < len(names) - 1:
        ways.append(_way(names[here + 1], written) + " →")
    return " · ".join(ways)


def _way(name, written):
    label = f"{name[:2]} {TITLES[name]}"
    return f"[{label}]({name}.ipynb)" if name in written else label


def _links(source, written, version):
    """Links to chapters not yet written become plain text; in solutions/ those to other files lead one folder up."""
    def chapter(target):
        return target.split("#")[0].removesuffix(".ipynb")

    def kept(match):
        return match[1] if chapter(match[2]) in TITLES and chapter(match[2]) not in written else match[0]

    def moved(match):
        stays = match[2].startswith(("http://", "https://", "#")) or chapter(match[2]) in TITLES
        return match[0] if stays else f"{match[1]}../{match[2]}{match[3]}"
    source = LINK.sub(kept, source)
    return TARGET.sub(moved, source) if version == "solution" else source


def _number(cells):
    """Cell ids that depend on the text alone: the same text, the same id."""
    seen = {}
    for cell in cells:
        key = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
        seen[key] = seen.get(key, 0) + 1
        cell.id = key if seen[key] == 1 else f"{key}-{seen[key]}"
