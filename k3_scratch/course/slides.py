"""Slides: what a notebook's cells tagged `slide` show, one deck a chapter, as pages that need no network.

A tagged markdown cell brings its words, a tagged code cell the picture it drew, or else its code and what it printed. A
heading begins a new slide, a picture too; what is too much for one slide goes on on the next one, under the same
heading. Long paragraphs are for the speaker: they stand in the notes below a slide (key N), not on it.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from k3_scratch.course.chapters import NOTEBOOKS
from k3_scratch.course.formulas import FormulaError
from k3_scratch.course.page import Page, PageError, blocks, code
from k3_scratch.course.site import Files, templates, way

TAG = "slide"
HEIGHT = 16                  # lines of a slide; a picture fills one
LINE = 90                    # characters of a line
SPOKEN = 34                  # a paragraph of more words is for the speaker, unless something in it is bold
HEAD = re.compile(r"\n\*Reading .*?\n\*\*You need\*\*[^\n]*\n?", re.DOTALL)   # what the builder adds under the title


@dataclass(eq=False)
class Slide:
    """A heading (HTML), what is shown below it, and what is said: lists of HTML."""

    heading: str
    shown: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    height: float = 0.0
    has_picture: bool = False


def slides(notebook, picture=lambda data: "", link=lambda target: None):
    """The slides of a notebook, the title first.                          NotebookNode -> [Slide], [] without tags

    picture  bytes or a target as written -> address;  link  target as written -> address or None (then the words stay)
    """
    tagged = [cell for cell in notebook.cells if TAG in cell.metadata.get("tags", ())]
    if not tagged:
        return []
    page, made = Page(link, picture), [_title(notebook.metadata.k3)]
    for cell in tagged:
        if cell.cell_type == "markdown":
            for block in blocks(page.markdown(_without_head(cell.source))):
                _place(made, block)
        else:
            _place_code(made, page, cell)
    return [slide for slide in made if slide.shown]


def write_decks(out, names=(), notebooks=NOTEBOOKS):
    """Write a deck for each chapter called `names` (two digits or file names; none: all with tagged cells).

    Returns {name: (address, how many slides)}. Raises PageError for an unknown name, and for one without tagged cells.
    """
    found = {file.stem: file for file in sorted(Path(notebooks).glob("[0-9][0-9]_*.ipynb"))}
    known = {key: stem for stem in found for key in (stem, stem[:2], f"{stem}.ipynb")}
    unknown = [name for name in names if Path(name).name not in known]
    if unknown:
        raise PageError(f"name must be one of {', '.join(found) or 'none'}, but {unknown[0]!r} came")
    files, decks = Files(Path(notebooks).parent.resolve()), {}
    for stem in [known[Path(name).name] for name in names] or found:
        try:
            made = slides(nbformat.read(found[stem], as_version=4), lambda target: _picture(target, notebooks, files))
        except (PageError, FormulaError) as error:
            raise type(error)(f"{stem}: {error}") from error
        if made:
            decks[stem] = (f"{stem}.html", made)
        elif names:
            raise PageError(f"no cell of {stem} is tagged {TAG!r}: there is nothing to show")
    for stem, (address, made) in decks.items():
        title = f"{stem[:2]} · {re.sub('<[^>]*>', '', made[0].heading).split(' · ', 1)[-1]}"
        files.text(address, templates().get_template("deck.html").render(
            slides=made, title=title, to=lambda there, here=address: way(here, there)))
    files.assets("site.css", "deck.css", "deck.js")
    files.write(out)
    return {stem: (address, len(made)) for stem, (address, made) in decks.items()}


def _picture(target, notebooks, files):
    return files.picture(target) if isinstance(target, bytes) else \
        files.picture_file((Path(notebooks) / target).resolve())


def _title(k3):
    page = Page(link=lambda target: None)
    aims = "".join(f"<li>{page.markdown(aim).removeprefix('<p>').removesuffix('</p>' + chr(10))}</li>"
                   for aim in k3.objectives)
    return Slide(f"{k3.name[:2]} · {k3.title}", [f"<p>Afterwards you can</p><ul>{aims}</ul>"], height=HEIGHT)


def _without_head(source):
    """The first cell without its title and what the builder put below it: that is the title slide's."""
    return HEAD.sub("\n", re.sub(r"\A# .*\n", "\n", source)).split("\n---\n")[0]


def _place(made, block):
    """One block of a page onto the last slide, onto a new one, or into the notes."""
    if block.name in ("h1", "h2", "h3", "h4"):
        made.append(Slide(block.decode_contents()))
        return
    if block.name in ("details", "hr"):
        return
    words = block.get_text()
    spoken = block.name == "p" and len(words.split()) > SPOKEN and not block.find(["strong", "math", "img"])
    picture = block.name in ("img", "figure") or bool(block.find("img"))
    height = HEIGHT - 4 if picture else _height(block, words)
    beside = made[-1].has_picture and not picture and made[-1].height + height > HEIGHT     # no room below a picture
    spoken = spoken or len(words.split()) > 2 * SPOKEN or (beside and not block.find(class_="formula"))
    if block.name == "p" and spoken and not picture:
        made[-1].notes.append(str(block))
        return
    _onto(made, str(block), height, picture)


def _place_code(made, page, cell):
    drawn = [output for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]
    if not drawn:
        _onto(made, code(cell.source), .8 * (cell.source.count("\n") + 3), False)
    for output in drawn or cell.get("outputs", ()):
        html = page.outputs({"outputs": [output]})
        for block in blocks(html):
            _onto(made, str(block), HEIGHT - 4 if drawn else _height(block, block.get_text()), bool(drawn))


def _onto(made, html, height, picture):
    last = made[-1]
    if last.shown and (picture or last.height + height > HEIGHT):
        made.append(Slide(last.heading))
        last = made[-1]
    last.shown.append(html)
    last.height += height
    last.has_picture = last.has_picture or picture


def _height(block, words):
    """How many lines of a slide a block takes, about."""
    if block.name == "table" or block.find("table"):
        return 1.3 * len(block.find_all("tr")) + .5
    if block.name == "pre":
        return .8 * (words.count("\n") + 2)
    if block.name in ("ul", "ol"):
        return sum(1 + len(item.get_text()) // LINE for item in block.find_all("li"))
    formulas = len(block.select(".formula"))
    return 2.6 * formulas + (0 if formulas and len(block.find_all(True, recursive=False)) == formulas
                             else 1.4 + len(words) // LINE)
