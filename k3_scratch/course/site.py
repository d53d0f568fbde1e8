"""The course as a folder of web pages that need neither a server nor the network.

`make site` writes it to build/site; open its index.html. Pages are made from the committed notebooks, with the outputs
that are in them, and from the Markdown pages of the repository; nothing runs here.
"""

import base64
import hashlib
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from k3_scratch.course.chapters import CHAPTERS, NOTEBOOKS
from k3_scratch.course.formulas import FormulaError
from k3_scratch.course.master import DOTS
from k3_scratch.course.page import Page, PageError, code_colours
from k3_scratch.files import write_atomically

ASSETS = Path(__file__).parent / "assets"
TEACHING = ("README", "syllabus", "quizzes", "quiz_answers", "projects")  # what comes before the chapters' pages
MORE = (("figures/README.md", "results.html"), ("notebooks/troubleshooting.md", "troubleshooting.html"),
        ("README.md", "readme.html"), ("CONTRIBUTING.md", "contributing.html"), ("CHANGELOG.md", "changelog.html"),
        ("figures/results/bench.md", "speed.html"))
GROUPS = {"course": "The course", "solutions": "With solutions", "teaching": "For teachers", "more": "More"}
WAYS = (("For teachers", "teaching/index.html"), ("Results", "results.html"),
        ("What it is, and how to run it", "readme.html"))
WRITTEN = "assets/written.txt"                # the addresses that the last run wrote, so that the next can clear up
QUESTION = re.compile(r"[Tt]he\s+questions?\s+of\s+this\s+chapter:\s+(.+?)\*\*", re.DOTALL)
OPENING = re.compile(r"^\*([^*].+?)\*$", re.DOTALL | re.MULTILINE)      # a chapter that has no such line
COPIED = {".json", ".toml", ".txt", ".csv"}   # files of the repository that a page may lead to as they are
PICTURES = {".png", ".svg", ".jpg", ".gif", ".webp"}


@dataclass(frozen=True)
class Leaf:
    """A page to be: the file it is made from, its address in the site, the group it is listed in."""

    source: Path
    address: str
    group: str

    @property
    def is_notebook(self):
        return self.source.suffix == ".ipynb"


INDEX = (Leaf(Path("index.html"), "index.html", "course"), "All chapters")


@dataclass(eq=False)
class Files:
    """What will be written: {address: bytes}. Pictures are named by their content, so each is there once.

    root   the repository's folder;   pages   where the page made from a file will be: {file: address}
    """

    root: Path
    pages: dict = field(default_factory=dict)
    content: dict = field(default_factory=dict)

    def text(self, address, text):
        self.content[address] = text.encode()

    def picture(self, data, suffix=".png"):
        address = f"pictures/{hashlib.sha256(data).hexdigest()[:16]}{suffix}"
        self.content[address] = data
        return address

    def picture_file(self, file):
        """Raises PageError for what is no picture of the repository."""
        if file.suffix not in PICTURES or not file.is_file() or not file.is_relative_to(self.root):
            raise PageError(f"a picture must be a file of the repository, but {file.name} came")
        return self.picture(file.read_bytes(), file.suffix)

    def assets(self, *names):
        for name in names:
            self.text(f"assets/{name}", (ASSETS / name).read_text(encoding="utf-8"))
        self.text("assets/code.css", code_colours())

    def clear(self, out):
        """Remove from `out` what an earlier run wrote (WRITTEN) and this one does not; list what this one writes."""
        out = Path(out).resolve()
        before = (out / WRITTEN).read_text(encoding="utf-8").splitlines() if (out / WRITTEN).is_file() else []
        for address in set(before) - set(self.content):
            file = (out / address).resolve()
            if file.is_relative_to(out):
                file.unlink(missing_ok=True)
        self.text(WRITTEN, "".join(f"{address}\n" for address in sorted(self.content)))

    def write(self, out):
        """Every file under `out`, each moved to its place when it is whole."""
        for address, data in self.content.items():
            path = Path(out) / address
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, lambda temporary, data=data: temporary.write_bytes(data))


def leaves(notebooks=NOTEBOOKS, solutions=False):
    """The pages of the site, in reading order within each group.                                       -> [Leaf]"""
    notebooks, root = Path(notebooks), Path(notebooks).parent
    found = [Leaf(file, f"{file.stem}.html", "course") for file in sorted(notebooks.glob("[0-9][0-9]_*.ipynb"))]
    if not found:
        raise PageError(f"{notebooks} must hold notebooks, NN_name.ipynb: none is there")
    if solutions:
        found += [Leaf(file, f"solutions/{file.stem}.html", "solutions")
                  for file in sorted((notebooks / "solutions").glob("[0-9][0-9]_*.ipynb"))]
    order = {name: i for i, name in enumerate(TEACHING)}
    pages = sorted((notebooks / "teaching").glob("*.md"), key=lambda file: (order.get(file.stem, 99), file.stem))
    found += [Leaf(file, f"teaching/{'index' if file.stem == 'README' else file.stem}.html", "teaching")
              for file in pages]
    return found + [Leaf(root / name, address, "more") for name, address in MORE if (root / name).is_file()]


def build_site(out, notebooks=NOTEBOOKS, solutions=False, decks=()):
    """Write the whole site.                                                  -> {"pages": int, "bytes": int}

    decks   addresses of slides that are there, by the name of the chapter: {"01_delta_rule_rnn": "slides/..."}
    A page of an earlier run that is not part of this one is removed, so that solutions do not stay by mistake.
    Raises PageError (and FormulaError) for a page that would be broken; then nothing is written.
    """
    notebooks = Path(notebooks)
    found = leaves(notebooks, solutions)
    files = Files(notebooks.parent.resolve(), {notebooks.resolve() / "README.md": "index.html",
                                               **{leaf.source.resolve(): leaf.address for leaf in found}})
    made, decks = [], dict(decks)
    for leaf in found:
        try:
            made.append((leaf, *_body(leaf, files)))
        except (PageError, FormulaError) as error:
            raise type(error)(f"{leaf.source.name}: {error}") from error
    menu = [(GROUPS[group], [(leaf, title) for leaf, _, _, title, _ in made if leaf.group == group])
            for group in GROUPS if any(leaf.group == group for leaf in found)]
    template = templates()
    for leaf, body, headings, title, _ in made:
        previous, following = _neighbours(leaf, menu)
        deck = decks.get(leaf.source.stem) if leaf.group == "course" else None
        files.text(leaf.address, template.get_template("page.html").render(
            leaf=leaf, body=body, headings=headings, title=title, menu=menu, previous=previous, following=following,
            deck=deck, to=lambda address, leaf=leaf: way(leaf.address, address)))
    chapters = [card(notebook, leaf, files, decks.get(leaf.source.stem))
                for leaf, *_, notebook in made if leaf.group == "course"]
    files.text("index.html", template.get_template("index.html").render(
        chapters=chapters, exercises=sum(len(chapter["exercises"]) for chapter in chapters),
        missing=[(name[:2], title) for name, title in CHAPTERS if not (notebooks / f"{name}.ipynb").exists()],
        ways=[(words, there) for words, there in WAYS if there in files.content], menu=menu,
        picture=_picture_of_all(files), title="K3 from scratch", following=menu[0][1][0],
        previous=None, to=lambda address: address))
    files.assets("site.css", "site.js")
    files.clear(out)
    files.write(out)
    return {"pages": len(made) + 1, "bytes": sum(map(len, files.content.values()))}


def templates():
    """The templates in assets/, which refuse a name that is not given."""
    return Environment(loader=FileSystemLoader(ASSETS, encoding="utf-8"), autoescape=True, undefined=StrictUndefined,
                       trim_blocks=True, lstrip_blocks=True)


def way(here, there):
    """The address of one page of the site from another.

    >>> way("teaching/index.html", "01_delta_rule_rnn.html")
    '../01_delta_rule_rnn.html'
    """
    return posixpath.relpath(there, posixpath.dirname(here) or ".")


def card(notebook, leaf, files, deck):
    """What the index says about a chapter, all from the notebook itself.                      -> dict"""
    titles = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("### Exercise "):
            number, _, title = cell.source.split("\n")[0].removeprefix("### Exercise ").partition(": ")
            titles[number] = title
    page, k3 = Page(), notebook.metadata.k3
    exercises = [{"id": cell.metadata.id, "title": page.markdown(titles.get(cell.metadata.id, "")),
                  "minutes": cell.metadata.minutes, "dots": DOTS[cell.metadata.difficulty]}
                 for cell in notebook.cells if "id" in cell.metadata]
    opening = notebook.cells[0].source.split("\n---\n")[0].split("**You need**")[-1]
    question = QUESTION.search(opening) or OPENING.search(opening)
    stem = leaf.source.stem
    beside = [("slides", deck), ("for teachers", f"teaching/{stem}.html"), ("solutions", f"solutions/{stem}.html")]
    return {"address": leaf.address, "number": stem[:2], "title": k3.title, "minutes": k3.minutes,
            "question": question and page.markdown(question[1][:1].upper() + question[1][1:]),
            "picture": _first_picture(notebook, files), "exercises": exercises,
            "objectives": [page.markdown(text) for text in k3.objectives],
            "beside": [(words, address) for words, address in beside
                       if address and (address == deck or address in files.pages.values())]}


def _first_picture(notebook, files):
    """The first picture that a notebook's cells drew: its address and its text, or None."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                data = base64.b64decode(output.data["image/png"])
                return files.picture(data), output.metadata["image/png"]["alt"]
    return None


def _body(leaf, files):
    """HTML of a page, its headings, its title, and the notebook (None for Markdown)."""
    page = Page(lambda target: link(target, leaf, files),
                lambda target: way(leaf.address, _picture(target, leaf, files)))
    if leaf.is_notebook:
        notebook = nbformat.read(leaf.source, as_version=4)
        body = "".join(page.cell(cell) for cell in notebook.cells)
    else:
        notebook, body = None, f'<div class="words">{page.markdown(leaf.source.read_text(encoding="utf-8"))}</div>'
    title = next((words for level, _, words in page.headings if level == 1), leaf.source.stem)
    return body, [heading for heading in page.headings if heading[0] in (2, 3)], title, notebook


def _picture(target, leaf, files):
    if isinstance(target, bytes):
        return files.picture(target)
    return files.picture_file((leaf.source.parent / target).resolve())


def link(target, leaf, files):
    """Where a link of a page leads in the site: to a page, to a file copied as it is, or nowhere (None)."""
    path, _, part = target.partition("#")
    if not path:
        return target
    file = (leaf.source.parent / path).resolve()
    file = file / "README.md" if file.is_dir() else file
    if file in files.pages:
        return way(leaf.address, files.pages[file]) + (f"#{part}" if part else "")
    if file.suffix in PICTURES and file.is_file():
        return way(leaf.address, files.picture_file(file))
    if file.suffix in COPIED and file.is_file() and file.is_relative_to(files.root):
        address = f"files/{file.relative_to(files.root).as_posix()}"
        files.content[address] = file.read_bytes()
        return way(leaf.address, address)
    return None


def _neighbours(leaf, menu):
    listed = next(pages for _, pages in menu if leaf in (other for other, _ in pages))
    place = [other for other, _ in listed].index(leaf)
    return (listed[place - 1] if place else INDEX), (listed[place + 1] if place + 1 < len(listed) else None)


def _picture_of_all(files):
    file = files.root / "figures" / "architecture.png"
    return files.picture_file(file) if file.is_file() else None
