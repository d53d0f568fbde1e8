"""The site and the slides: formulas, pages, links, pictures, and which cells become slides. No browser here:
tests/browser/check_site.py looks at them in one."""

import base64
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import nbformat
import pytest
from course_helpers import MASTERS, TINY, cells_of
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from k3_scratch.__main__ import main
from k3_scratch.commands import site as command
from k3_scratch.course import build as machine
from k3_scratch.course.chapters import ROOT
from k3_scratch.course.formulas import FormulaError, mathml
from k3_scratch.course.master import read_master, student
from k3_scratch.course.page import Page, PageError, slug
from k3_scratch.course.site import build_site, leaves
from k3_scratch.course.slides import slides, write_decks
from k3_scratch.course.sources import digest

PARTS = {"msub": 2, "msup": 2, "msubsup": 3, "mover": 2, "munder": 2, "munderover": 3, "mfrac": 2, "mi": 0, "mo": 0,
         "mn": 0, "mtext": 0, "mspace": 0}               # how many children MathML wants
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=")


# ---- formulas

@pytest.mark.parametrize(("latex", "wanted"), [
    (r"\operatorname{softmax}_i x", "<msub><mi>softmax</mi><mi>i</mi></msub><mspace/><mi>x</mi>"),
    (r"\tanh(x)", "<mi>tanh</mi><mo>(</mo><mi>x</mi><mo>)</mo>"),
    (r"5\,\log x", "<mn>5</mn><mspace/><mi>log</mi><mspace/><mi>x</mi>"),
    (r"\mathrm{Att}", "<mrow><mi>Att</mi></mrow>"), (r"\mathrm{dt\_bias}", "<mrow><mi>dt_bias</mi></mrow>"),
    (r"\mathrm dS", "<mi>d</mi><mi>S</mi>"), (r"\mathcal R q", "<mi>ℛ</mi><mi>q</mi>"),
    ("12{,}288 + 1", "<mn>12,288</mn><mo>+</mo><mn>1</mn>"), ("f(1, 2)", None), (".25", "<mn>.25</mn>"),
    (r"S \mathrel{+}= 1", "<mi>S</mi><mo>+=</mo><mn>1</mn>"), (r"k^\top", "<msup><mi>k</mi><mi>⊤</mi></msup>"),
    (r"\boxed{x}", "<mrow><mrow><mi>x</mi></mrow></mrow>"), (r"a\!b", "<mi>a</mi><mspace/><mi>b</mi>"),
    (r"\lfloor q \rfloor", "<mo>⌊</mo><mi>q</mi><mo>⌋</mo>"), (r"|k|", "<mo>|</mo><mi>k</mi><mo>|</mo>"),
    (r"\tilde S", "<mover><mi>S</mi><mo>˜</mo></mover>"), (r"\text{as a matrix}", "<mtext>as\xa0a\xa0matrix</mtext>"),
    (r"\pm 1", "<mo>±</mo><mn>1</mn>"),
])
def test_formulas(latex, wanted):
    """The tree of elements, without attributes and without the outermost row."""
    made = mathml(latex)
    root = ElementTree.fromstring(made)
    assert root.get("alttext") == latex and root.get("display") == "inline" and "xmlns" not in made
    inside = re.sub(r"(<\w+)[^>]*?(/?>)", r"\1\2", "".join(ElementTree.tostring(n, "unicode") for n in root[0]))
    assert wanted is None or inside.replace(" />", "/>") == wanted
    assert "12,288" not in mathml("12, 288")                             # a list of two numbers


def test_formulas_keep_what_browsers_need():
    assert 'class="boxed"' in mathml(r"\boxed{x}") and 'display="block"' in mathml("x", display=True)
    assert 'width="-0.167em"' in mathml(r"a\!b") and 'accent="true"' in mathml(r"\bar N")
    assert mathml("x < y").count("&lt;") == 2                            # in alttext and in the operator


@pytest.mark.parametrize("latex", [r"\notacommand x", r"\frac{1", r"a & b"])
def test_a_formula_that_cannot_be_converted_is_named(latex):
    with pytest.raises(FormulaError, match="this formula"):
        mathml(latex)


def test_every_formula_of_the_course_is_converted():
    """Of all masters, so also of chapters whose notebooks are not built yet."""
    found, failed = set(), []

    class Collect(IPythonRenderer):
        def inline_math(self, body):
            found.add((body, False))
            return ""

        def block_math(self, body):
            found.add((body, True))
            return ""

    for master in MASTERS:
        for cell in cells_of(master):
            if cell.cell_type == "markdown" and "$" in cell.source:
                MarkdownWithMath(renderer=Collect(escape=False)).render(cell.source)
    for latex, display in found:
        try:
            tree = ElementTree.fromstring(mathml(latex, display))
        except FormulaError as error:
            failed.append(str(error))
            continue
        failed += [f"{node.tag} in {latex}" for node in tree.iter() if len(node) != PARTS.get(node.tag, len(node))]
    assert failed == [] and len(found) > 400


# ---- pages

def test_markdown_becomes_html():
    page = Page(link=lambda target: {"a.md": "a.html"}.get(target), picture=lambda target: f"pictures/{target}")
    html = page.markdown("## One *thing*\n\n## One *thing*\n\nSee [a](a.md), [b](b.md), <https://c.d> and $x_1$.\n\n"
                         "![what it is](p.png)\n\n$$ y\n = 1 $$\n\n| a |\n|---|\n| `b` |\n\n```python\nx = 1\n```\n\n"
                         '<p><img src="q.png" alt="q"><a href="b.md">b</a></p>\n')
    assert page.headings == [(2, "one-thing", "One <em>thing</em>"), (2, "one-thing-1", "One <em>thing</em>")]
    assert '<a href="a.html">a</a>, b, <a href="https://c.d">' in html
    assert '<img src="pictures/p.png" alt="what it is" loading="lazy">' in html and 'src="pictures/q.png"' in html
    assert html.count("<math") == 2 and '<span class="formula"><math display="block"' in html
    assert '<div class="wide"><table>' in html and '<span class="n">x</span>' in html and "$" not in html


def test_cells_become_html():
    cell = nbformat.v4.new_code_cell("x < 1", outputs=[
        nbformat.v4.new_output("stream", name="stdout", text="a < b\n\x1b[31mred\x1b[0m\n"),
        nbformat.v4.new_output("display_data", data={"text/markdown": "**bold**", "text/plain": "bold"}),
        nbformat.v4.new_output("display_data", data={"image/png": base64.b64encode(PNG).decode(), "text/plain": "dot"},
                               metadata={"image/png": {"alt": 'a "dot"', "width": 7}}),
        nbformat.v4.new_output("execute_result", data={"text/plain": "3"})])
    seen = []
    html = Page(picture=lambda data: seen.append(data) or "dot.png").cell(cell)
    assert seen == [PNG] and '<img src="dot.png" alt="a &quot;dot&quot;" width="7" loading="lazy">' in html
    assert "a &lt; b" in html and "red</span>" in html and "<strong>bold</strong>" in html and ">3</pre>" in html
    hint = nbformat.v4.new_markdown_cell("<details><summary>Hint</summary>\n\n**Look**\n\n</details>",
                                         metadata={"tags": ["hint"]})
    assert re.search(r'class="hint">\n<details>.*<strong>Look</strong>.*</details>', Page().cell(hint), re.DOTALL)
    cell.outputs[2].metadata["image/png"].alt = " "
    with pytest.raises(PageError, match="must have a text"):
        Page().cell(cell)
    with pytest.raises(PageError, match="must have a text"):
        Page().markdown("![](x.png)")


def test_slugs():
    assert slug("(g) The norm before W_up, and SiTU") == "g-the-norm-before-w_up-and-situ" and slug("…") == "part"


# ---- a small site

@pytest.fixture
def folder(tmp_path):
    """A repository with one chapter, its solutions, a page for teachers, a README; the tiny notebook has a picture."""
    notebooks = tmp_path / "notebooks"
    (notebooks / "solutions").mkdir(parents=True)
    (notebooks / "teaching").mkdir()
    (tmp_path / "figures").mkdir()
    shutil.copytree(TINY.parent, notebooks / "src")
    pair, = machine.plan(folder=notebooks)
    for made in (pair.student, pair.solution):
        shown = next(cell for cell in made.cells if "show(" in cell.source)
        shown.outputs = [nbformat.v4.new_output(
            "display_data", data={"image/png": base64.b64encode(PNG).decode(), "text/plain": "dot"},
            metadata={"image/png": {"alt": "Two bars, the second higher than the first"}})]
    nbformat.write(pair.student, pair.student_file)
    nbformat.write(pair.solution, pair.solution_file)
    (notebooks / "troubleshooting.md").write_text("# Something does not work\n\nSee [README](../README.md#start).\n",
                                                  encoding="utf-8")
    (notebooks / "teaching" / "README.md").write_text(
        "# For teachers\n\n[chapter](../01_tiny.ipynb) [plan](plan.json) [code](../src/01_tiny.py) [all](..)\n",
        encoding="utf-8")
    (notebooks / "teaching" / "plan.json").write_text("{}", encoding="utf-8")
    (tmp_path / "README.md").write_text("# Front\n\n## Start\n\n![a dot](figures/dot.png) [kit](notebooks/teaching/)\n",
                                        encoding="utf-8")
    (tmp_path / "figures" / "dot.png").write_bytes(PNG)
    return notebooks


class Links(HTMLParser):
    """What a page loads, where it leads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.led, self.ids, self.alts = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.led += [given["href"]] if tag == "a" else []
        self.loaded += [given[name] for name in ("src", "href") if name in given and tag != "a"]
        self.alts += [given.get("alt", "")] if tag == "img" else []


def broken(out):
    """Everything that is wrong with the links and pictures of a folder of pages.                       -> [str]"""
    pages = {file: Links(file.read_text(encoding="utf-8")) for file in sorted(Path(out).rglob("*.html"))}
    found = []
    for file, page in pages.items():
        for address in page.loaded + page.led:
            if address.startswith("data:") or address in page.led and address.startswith(("http", "mailto")):
                continue
            path, _, part = unquote(address).partition("#")
            target = (file.parent / path).resolve() if path else file
            if not target.is_file() or part and part not in pages[target].ids:
                found.append(f"{file.name}: {address}")
        found += [f"{file.name}: a picture without a text" for alt in page.alts if not alt.strip()]
        found += [f"{file.name}: the anchor {id} twice" for id in {id for id in page.ids if page.ids.count(id) > 1}]
    return found


def test_a_small_site(folder, tmp_path):
    out = tmp_path / "out"
    made = build_site(out, folder, solutions=True)
    names = {file.relative_to(out).as_posix() for file in out.rglob("*.html")}
    assert names == {"index.html", "01_tiny.html", "solutions/01_tiny.html", "teaching/index.html",
                     "troubleshooting.html", "readme.html"} and made["pages"] == len(names)
    assert broken(out) == [] and not list(out.rglob("*.tmp"))
    text = (out / "01_tiny.html").read_text(encoding="utf-8")
    assert "<title>01 · A tiny notebook · K3 from scratch</title>" in text
    assert '<a href="#exercise-13-one-write">Exercise 1.3: one write</a>' in text
    assert 'href="solutions/01_tiny.html"' in text and 'href="readme.html"' in text and "first</a>" not in text
    picture, = re.findall(r'src="(pictures/\w+\.png)" alt="Two bars', text)
    assert (out / picture).read_bytes() == PNG and len(list((out / "pictures").iterdir())) == 1
    teaching = (out / "teaching" / "index.html").read_text(encoding="utf-8")
    assert 'href="../files/notebooks/teaching/plan.json"' in teaching and 'href="../index.html">all' in teaching
    assert re.search(r"\bcode\b(?!</a>)", teaching) and 'href="../readme.html"' in teaching
    assert 'href="readme.html#start"' in (out / "troubleshooting.html").read_text(encoding="utf-8")
    index = (out / "index.html").read_text(encoding="utf-8")
    assert "<li><p>run a test</p>" in index.replace("\n", "") and "2 min ●○○" in index
    assert "not written yet" in index and f'src="{picture}"' in index
    assert 'href="solutions/01_tiny.html">solutions</a>' in index and 'href="teaching/index.html">For teachers' in index
    assert 'rel="next" href="01_tiny.html"' in index
    first = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    build_site(out, folder, solutions=True)
    assert first == {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}


def test_without_solutions_links_to_them_become_words(folder, tmp_path):
    build_site(tmp_path / "out", folder)
    assert broken(tmp_path / "out") == [] and not (tmp_path / "out" / "solutions").exists()
    assert "with solutions" in (tmp_path / "out" / "01_tiny.html").read_text(encoding="utf-8")


def test_a_broken_page_is_named_and_nothing_is_written(folder, tmp_path):
    page = folder / "troubleshooting.md"
    for text, words in (("![a](nowhere.png)", "nowhere.png"), ("![a](https://x.y/z.png)", "file of the repository"),
                        ("$\\nothing$", "nothing")):
        page.write_text(f"# T\n\n{text}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=rf"troubleshooting\.md: .*{words}"):
            build_site(tmp_path / "out", folder)
    assert not (tmp_path / "out").exists()
    with pytest.raises(PageError, match="must hold notebooks"):
        build_site(tmp_path / "out", tmp_path / "figures")


def test_the_course_as_a_site(tmp_path):
    """All committed notebooks and pages: every link and anchor leads somewhere, nothing is loaded from elsewhere."""
    made = build_site(tmp_path)
    assert made["pages"] == len(leaves()) + 1 > 10
    assert broken(tmp_path) == []
    texts = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.glob("*.html")}
    assert sum(text.count("<math ") for text in texts.values()) > 1000
    assert all(text.count("<summary>Hint") == text.count('class="hint"') for text in texts.values())
    assert not re.search(r"url\(|@import|https?:", (tmp_path / "assets" / "site.css").read_text(encoding="utf-8"))


# ---- slides

def tag(cell):
    cell.metadata["tags"] = [*cell.metadata.get("tags", []), "slide"]


def test_which_cells_become_slides(folder):
    notebook = nbformat.read(folder / "01_tiny.ipynb", as_version=4)
    assert slides(notebook) == []
    shown = next(i for i, cell in enumerate(notebook.cells) if "show(" in cell.source)
    for i in (0, 2, shown, shown + 1, 1):
        tag(notebook.cells[i])
    long = "word " * 50
    notebook.cells[2].source = f"## A heading\n\nShort. **Bold.**\n\n{long}\n\n$$ x = 1 $$\n\n### Another\n\n- a\n- b"
    made = slides(notebook, picture=lambda data: "dot.png")
    assert [slide.heading for slide in made] == ["01 · A tiny notebook"] * 2 + ["A heading", "Another"]
    text = ["".join(slide.shown) for slide in made]
    assert "run a test" in text[0] and "Does the machine work?" in text[1] and "Afterwards" not in text[1]
    assert "import numpy" in re.sub(r"<[^>]+>", "", "".join(text)) and "Reading 1 minutes" not in "".join(text)
    heading = next(slide for slide in made if slide.heading == "A heading")
    assert "word word" in "".join(heading.notes) and "word word" not in "".join(heading.shown)
    assert "<math" in "".join(heading.shown)
    picture = next(slide for slide in made if slide.has_picture)
    assert "<li>a</li>" in "".join(picture.shown)                        # a short list stands above the next picture
    assert "show(" not in "".join(picture.shown) and "The second bar is 4.5 high" in "".join(picture.shown)


def test_what_is_too_much_goes_on_on_the_next_slide():
    text = "## Many\n\n" + "\n\n".join(f"- **{i}**\n\n$$ x_{i} = {i} $$" for i in range(9))
    cell = nbformat.v4.new_markdown_cell(text, metadata={"tags": ["slide"]})
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata = read_master(TINY).metadata
    made = slides(notebook)
    assert len(made) > 2 and {slide.heading for slide in made[1:]} == {"Many"}
    assert "".join(html for slide in made for html in slide.shown).count("<math") == 9


def shown_of(*cells):
    """The slides of markdown cells, each tagged unless it ends with "not tagged"."""
    made = [nbformat.v4.new_markdown_cell(text, metadata={} if text.endswith("not tagged") else {"tags": ["slide"]})
            for text in cells]
    notebook = nbformat.v4.new_notebook(cells=made)
    notebook.metadata = read_master(TINY).metadata
    return slides(notebook, picture=lambda target: target)


def test_a_line_that_leads_to_something_stands_with_it():
    lead, image = "Here is the next one:", "![a dot](dot.png)"
    first, second = shown_of(f"## Two\n\n{image}\n\n{lead}", image)[1:]
    assert lead not in "".join(first.shown) and lead in second.shown[0] and second.has_picture
    title, section = shown_of(f"## One\n\n- a\n\n{lead}", "not tagged")
    assert lead not in "".join(section.shown) and lead in "".join(section.notes)      # it leads to nothing
    long = "It takes a while to say. " * 9 + lead
    section = shown_of(f"## Long\n\n{long}\n\n- a")[1]
    assert section.shown[0] == f"<p>{lead}</p>" and long in section.notes[0]


def test_a_rest_of_a_few_lines_has_no_slide_of_its_own():
    rows = "\n".join(f"| {i} | b |" for i in range(10))
    made = shown_of(f"## Table\n\n| a | b |\n|---|---|\n{rows}\n\n**One line** more.")
    assert len(made) == 2 and "One line" in made[1].shown[-1]
    assert len(shown_of("## Empty\n\nEvery number says where it comes from: here.", "## Full\n\n- a")) == 2


def test_what_an_earlier_run_wrote_is_cleared(folder, tmp_path):
    out = tmp_path / "out"
    build_site(out, folder, solutions=True)
    (out / "solutions" / "mine.txt").write_text("kept", encoding="utf-8")
    (tmp_path / "outside.txt").write_text("kept", encoding="utf-8")
    with (out / "assets" / "written.txt").open("a", encoding="utf-8") as file:
        file.write("../outside.txt\n")
    build_site(out, folder)
    assert not (out / "solutions" / "01_tiny.html").exists() and (out / "solutions" / "mine.txt").exists()
    assert (tmp_path / "outside.txt").exists() and (out / "01_tiny.html").exists() and broken(out) == []


def test_decks_are_written(folder, tmp_path):
    notebook = nbformat.read(folder / "01_tiny.ipynb", as_version=4)
    assert write_decks(tmp_path / "none", notebooks=folder) == {}
    with pytest.raises(PageError, match="no cell of 01_tiny is tagged 'slide'"):
        write_decks(tmp_path / "none", ["01"], folder)
    with pytest.raises(PageError, match="name must be one of 01_tiny, but '77' came"):
        write_decks(tmp_path / "none", ["77"], folder)
    assert not (tmp_path / "none").exists()
    for cell in notebook.cells[:1] + [cell for cell in notebook.cells if "show(" in cell.source]:
        tag(cell)
    nbformat.write(notebook, folder / "01_tiny.ipynb")
    assert write_decks(tmp_path / "out", ["01"], folder) == {"01_tiny": ("01_tiny.html", 2)}
    text = (tmp_path / "out" / "01_tiny.html").read_text(encoding="utf-8")
    assert text.count("<section") == 2 and text.count("<h1") == 1 and broken(tmp_path / "out") == []
    build_site(tmp_path / "site", folder, decks={"01_tiny": "slides/01_tiny.html"})
    write_decks(tmp_path / "site" / "slides", (), folder, site="..")
    assert broken(tmp_path / "site") == []
    deck = (tmp_path / "site" / "slides" / "01_tiny.html").read_text(encoding="utf-8")
    assert 'href="../01_tiny.html"' in deck and 'href="../index.html"' in deck and 'href="../' not in text
    assert 'href="slides/01_tiny.html"' in (tmp_path / "site" / "01_tiny.html").read_text(encoding="utf-8")


def test_the_tag_changes_no_hash_and_is_written_around_the_outputs(folder):
    pair, = machine.plan(folder=folder)
    text = pair.master.read_text(encoding="utf-8")
    before, outputs = digest(pair.master, pair.student), nbformat.read(pair.student_file, 4).cells[6].outputs
    assert machine.stale(pair) == ""
    tagged = text.replace("# %%\nstate =", '# %% tags=["slide"]\nstate =').replace(
        "# %% [markdown]\n# # 01", '# %% [markdown] tags=["slide"]\n# # 01')
    assert tagged.count('tags=["slide"]') == 2
    pair.master.write_text(tagged, encoding="utf-8")
    again, = machine.plan(folder=folder)
    assert digest(again.master, again.student) == before
    assert "has other cells" in machine.stale(again) and machine.refresh(again) and machine.stale(again) == ""
    given = nbformat.read(pair.student_file, as_version=4)
    assert [i for i, cell in enumerate(given.cells) if "slide" in cell.metadata.get("tags", ())] == [0, 6]
    assert given.cells[6].outputs == outputs and outputs
    assert [cell.id for cell in given.cells] == [cell.id for cell in student(read_master(TINY)).cells]


# ---- commands

def test_commands(folder, tmp_path, monkeypatch, capsys):
    where = ["--notebooks", str(folder)]
    assert main(["site", "--out", str(tmp_path / "a"), "--solutions", *where]) == 0
    assert "6 pages and slides of 0 chapters" in capsys.readouterr().out
    assert main(["slides", "--out", str(tmp_path / "b"), *where]) == 2
    assert "no notebook has cells tagged `slide`" in capsys.readouterr().err
    notebook = nbformat.read(folder / "01_tiny.ipynb", as_version=4)
    tag(notebook.cells[0])
    nbformat.write(notebook, folder / "01_tiny.ipynb")
    assert main(["slides", "01", "--out", str(tmp_path / "b"), *where]) == 0
    assert "01_tiny.html: 2 slides" in capsys.readouterr().out
    assert main(["site", "--out", str(tmp_path / "a"), *where]) == 0
    assert "slides of 1 chapters" in capsys.readouterr().out and broken(tmp_path / "a") == []
    monkeypatch.setattr(command, "_modules", lambda: (_ for _ in ()).throw(ValueError("this needs latex2mathml")))
    assert main(["slides"]) == 2


def test_assets_are_part_of_the_package():
    assert '"course/assets/*"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
