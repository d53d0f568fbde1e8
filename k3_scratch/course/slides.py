"""Slides: what a notebook's cells tagged `slide` show, one deck a chapter, as pages that need no network.

A tagged markdown cell brings its words, a tagged code cell the picture it drew, or else its code and what it printed. A
heading begins a new slide; so does a second picture, and a line that leads to one. What is too much for one slide goes
on on the next one, under the same heading, unless so little is left that a slide of its own would be nearly empty. Long
paragraphs are for the speaker: they stand in the notes below a slide (key N), not on it; of one that leads to what
comes next its last sentence is shown.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from bs4 import BeautifulSoup

from k3_scratch.course.chapters import NOTEBOOKS
from k3_scratch.course.formulas import FormulaError
from k3_scratch.course.page import Page, PageError, blocks, code
from k3_scratch.course.site import Files, templates, way

TAG = "slide"
HEIGHT = 16                  # lines of a slide
PICTURE = 10                 # lines that a picture needs at least; it takes all that are free
REST = 5                     # so few lines have no slide of their own ...
FULL = 20                    # ... if the one before then holds no more than this (smaller letters make room)
LINE = 90                    # characters of a line
SPOKEN = 34                  # a paragraph of more words is for the speaker, unless something in it is bold
SAME = ("Every number says where it comes from", "As everywhere, numbers are")     # said in each chapter: for the notes
SENTENCE = re.compile(r"(?<=[.?!)]) (?=[A-Z<(])")
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
    shown = {id(cell) for cell in tagged}
    follow = {id(cell): id(after) in shown for cell, after in zip(notebook.cells, notebook.cells[1:], strict=False)}
    page, made = Page(link, picture), [_title(notebook.metadata.k3)]
    for cell in tagged:
        if cell.cell_type == "markdown":
            found = blocks(page.markdown(_without_head(cell.source)))
            for i, block in enumerate(found):
                _place(made, block, leads=_leads(block) and (i + 1 < len(found) or follow.get(id(cell), False)))
        else:
            _place_code(made, page, cell)
    return _joined(made)


def write_decks(out, names=(), notebooks=NOTEBOOKS, site=None):
    """Write a deck for each chapter called `names` (two digits or file names; none: all with tagged cells).

    site    where the site's index.html is, seen from `out` (".."): then each deck leads back to it and to its chapter
    Returns {name: (address, how many slides)}; nothing is written when no cell is tagged. Raises PageError for an
    unknown name, and for one without tagged cells.
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
            slides=made, title=title, stem=stem, site=site, to=lambda there, here=address: way(here, there)))
    if decks:
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


def _leads(block):
    """Whether this is a paragraph that only says what comes next."""
    return block.name == "p" and block.get_text().rstrip().endswith(":")


def _place(made, block, leads=False):
    """One block of a page onto the last slide, onto a new one, or into the notes.

    leads   it ends with a colon, and what it leads to is shown too
    """
    if block.name in ("h1", "h2", "h3", "h4"):
        made.append(Slide(block.decode_contents()))
        return
    if block.name in ("details", "hr"):
        return
    picture = block.name in ("img", "figure") or bool(block.find("img"))
    if block.name != "p" or picture:
        _onto(made, str(block), PICTURE if picture else _height(block, block.get_text()), picture)
    elif leads:
        _place_lead(made, block)
    elif _is_spoken(made[-1], block):
        made[-1].notes.append(str(block))
    else:
        _onto(made, str(block), _height(block, block.get_text()), False)


def _is_spoken(slide, block):
    """Whether a paragraph is for the notes: long and plain, or too much below a picture, or leading to nothing."""
    words = block.get_text()
    if words.startswith(SAME) or _leads(block) and not block.find(class_="formula"):
        return True
    if [child.name for child in block.contents if str(child).strip()] == ["em"]:        # a chapter opens with it
        return False
    full = slide.has_picture and slide.height + _height(block, words) > HEIGHT and not block.find(class_="formula")
    long = len(words.split())
    return full or long > 2 * SPOKEN or long > SPOKEN and not block.find(["strong", "math", "img"])


def _place_lead(made, block):
    """A paragraph that leads to what comes next: whole, or its last sentence when it is long."""
    html, words = str(block), block.get_text()
    if len(words.split()) > SPOKEN and not block.find(class_="formula"):
        last = SENTENCE.split(block.decode_contents())[-1]
        if str(BeautifulSoup(last, "html.parser")) == last:              # no tag is cut in two
            html, words = f"<p>{last}</p>", BeautifulSoup(last, "html.parser").get_text()
    if made[-1].has_picture:                                             # it belongs to the next one
        made.append(Slide(made[-1].heading))
    if html != str(block):
        made[-1].notes.append(str(block))
    _onto(made, html, _height(block, words), False)


def _place_code(made, page, cell):
    drawn = [output for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]
    shown = [(str(block), PICTURE if drawn else _height(block, block.get_text()))
             for output in drawn or cell.get("outputs", ()) for block in blocks(page.outputs({"outputs": [output]}))]
    if not drawn:
        shown.insert(0, (code(cell.source), .8 * (cell.source.count("\n") + 3)))
        if made[-1].shown and made[-1].height + sum(height for _, height in shown) > FULL - 1:
            made.append(Slide(made[-1].heading))                         # code and what it printed stay together
    for html, height in shown:
        _onto(made, html, height, bool(drawn), HEIGHT if drawn else FULL)


def _onto(made, html, height, picture, room=HEIGHT):
    last = made[-1]
    if last.shown and (picture and last.has_picture or last.height + height > room):
        made.append(Slide(last.heading))
        last = made[-1]
    last.shown.append(html)
    last.height += height
    last.has_picture = last.has_picture or picture


def _joined(made):
    """Slides without the empty ones; a rest of a few lines goes back to the slide it came from."""
    kept = made[:1]
    for slide in made[1:]:
        last = kept[-1]
        rest = (slide.heading == last.heading and slide.height <= REST and last.height + slide.height <= FULL
                and last is not made[0] and not slide.has_picture and not last.has_picture)
        if not slide.shown or rest:
            last.shown += slide.shown
            last.notes += slide.notes
            last.height += slide.height
        else:
            kept.append(slide)
    return kept


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
