"""What a notebook is made from: its master, the files of this package that it imports, and data that it names."""

import ast
import functools
import hashlib
import re
from pathlib import Path

import k3_scratch
from k3_scratch.course.chapters import ROOT

PACKAGE = Path(k3_scratch.__file__).parent
SLIDE = re.compile(rb'^(# %%.*) tags=\["slide"\]', re.MULTILINE)  # says what slides show; no output depends on it


def digest(master, notebook):
    """One number for everything a notebook depends on.                                        -> 16 hexadecimal digits

    master    Path of the master;   notebook  its cells, for `k3.data`: files named from the repository's root
    """
    total = hashlib.sha256()
    data = [ROOT / name for name in notebook.metadata.k3.get("data", ())]
    for file in (master, *files_behind(master), *data):
        name = file.name if file == master else file.relative_to(ROOT).as_posix()
        content = SLIDE.sub(rb"\1", _content(file)) if file == master else _content(file)
        total.update(f"{name}\n".encode() + content + b"\0")
    return total.hexdigest()[:16]


def files_behind(master):
    """The package's files that a master imports, directly or through others, and its checks, in order of name."""
    checks = PACKAGE / "course" / "checks" / f"ch{master.name[:2]}.py"
    todo, found = [*_imports(master), *([checks] if checks.exists() else [])], set()
    while todo:
        file = todo.pop()
        if file not in found:
            found.add(file)
            todo += _imports(file)
    return sorted(found)


def _content(file):
    return file.read_bytes().replace(b"\r\n", b"\n")


def _imports(file):
    return _imports_of(file, _content(file))


@functools.lru_cache(maxsize=1024)
def _imports_of(file, content):
    """Files of this package that a file names in an import, wherever in it, with the `__init__` of their folders."""
    names = []
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
    files = []
    for name in names:
        parts = name.split(".")
        if parts[0] == "k3_scratch":
            for end in range(1, len(parts) + 1):
                path = PACKAGE.parent.joinpath(*parts[:end])
                files += [option for option in (path / "__init__.py", path.with_suffix(".py")) if option.exists()]
    return files
