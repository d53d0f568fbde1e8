"""Markdown and the cells of a notebook -> HTML. Pure functions; where links and pictures lead is given to them.

Formulas become MathML (`formulas.py`), code is coloured by pygments, text and tables follow Jupyter's own Markdown.
"""

import base64
import re
from html import escape

from bs4 import BeautifulSoup
from nbconvert.filters.ansi import ansi2html
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

from k3_scratch.course.formulas import mathml

ELSEWHERE = ("http://", "https://", "mailto:")
ATTRIBUTE = re.compile(r"""\b(src|href)=(["'])(.*?)\2""")


class PageError(ValueError):
    """A page of the site would be broken: a picture without a file or without a text, for example."""


class Page:
    """Markdown and cells -> HTML for one page.

    link     target as written -> address from this page, or None when there is no such page (the words stay)
    picture  target as written, or bytes of a PNG -> address of the picture
    After rendering, `headings` holds what was met: (level, id, HTML of the words).
    """

    def __init__(self, link=lambda target: target, picture=lambda target: target):
        self.link, self.picture, self.headings = link, picture, []

    def markdown(self, text):
        """Markdown with formulas, tables and folded hints.                                        str -> HTML"""
        return MarkdownWithMath(renderer=_Renderer(self)).render(text)

    def cell(self, cell):
        """A cell of a notebook with its outputs.                                            NotebookNode -> HTML"""
        if cell.cell_type == "markdown":
            html = self.markdown(cell.source)
            kind = "hint" if "hint" in cell.metadata.get("tags", ()) else "words"
            return f'<div class="{kind}">\n{html}</div>\n'
        return f'<div class="code">\n{code(cell.source)}{self.outputs(cell)}</div>\n'

    def outputs(self, cell):
        """What a code cell showed.                                                          NotebookNode -> HTML"""
        return "".join(self._output(output) for output in cell.get("outputs", ()))

    def _output(self, output):
        data = output.get("data", {})
        if output.output_type == "stream":
            return _printed(output.text)
        if output.output_type == "error":
            return _printed("\n".join(output.traceback))
        if "image/png" in data:
            settings = output.metadata.get("image/png", {})
            alt = settings.get("alt", "")
            if not alt.strip():
                raise PageError("a picture below a cell must have a text (show's alt)")
            src = self.picture(base64.b64decode(data["image/png"]))
            width = f' width="{settings["width"]}"' if "width" in settings else ""
            return f'<figure><img src="{src}" alt="{escape(alt)}"{width} loading="lazy"></figure>\n'
        if "text/markdown" in data:
            return f'<div class="shown">{self.markdown(data["text/markdown"])}</div>\n'
        if "text/html" in data:
            return f'<div class="shown">{_scrolling(data["text/html"])}</div>\n'
        return _printed(data.get("text/plain", ""))


def code(source, language="python"):
    """Coloured code.                                                                              str -> HTML"""
    formatter = HtmlFormatter(cssclass="source", wrapcode=True)
    return highlight(source, get_lexer_by_name(language), formatter)


def code_colours():
    """The style sheet of coloured code, by day and by night.                                           -> CSS"""
    def colours(style):
        rules = HtmlFormatter(style=style, cssclass="source").get_style_defs(".source").split("\n")
        return "\n".join(rule for rule in rules if rule.startswith(".source ."))
    return (f"@media screen {{\n{colours('xcode')}\n}}\n@media print {{\n{colours('bw')}\n}}\n"
            f"@media screen and (prefers-color-scheme: dark) {{\n{colours('github-dark')}\n}}\n")


def blocks(html):
    """The elements at the top of a piece of HTML, with those inside a plain `<div>` of ours.   HTML -> [Tag]"""
    found = []
    for tag in BeautifulSoup(html, "html.parser").find_all(True, recursive=False):
        wrapper = tag.name == "div" and set(tag.get("class", ())) & {"words", "shown"}
        found += tag.find_all(True, recursive=False) if wrapper else [tag]
    return found


def slug(html):
    """The anchor that Markdown pages give a heading.

    >>> slug("Exercise 1.3: <code>one</code> write")
    'exercise-13-one-write'
    """
    words = re.sub(r"<[^>]*>", "", html).lower()
    return re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-") or "part"


def _printed(text):
    return f'<pre class="printed">{ansi2html(text.rstrip())}</pre>\n' if text.strip() else ""


def _scrolling(html):
    return f'<div class="wide">{html}</div>\n'


class _Renderer(IPythonRenderer):
    """Jupyter's Markdown, with addresses, headings and formulas of ours."""

    def __init__(self, page):
        super().__init__(escape=False, exclude_anchor_links=True)
        self.page = page

    def heading(self, text, level, **_):
        taken = [name for _, name, _ in self.page.headings]
        name, number = slug(text), 1
        while name in taken:
            name, number = f"{slug(text)}-{number}", number + 1
        self.page.headings.append((level, name, re.sub(r"</?a\b[^>]*>", "", text)))
        return f'<h{level} id="{name}">{text}</h{level}>\n'

    def link(self, text, url, title=None):
        address = url if url.startswith(ELSEWHERE) else self.page.link(url)
        return text if address is None else f'<a href="{escape(address)}">{text}</a>'

    def image(self, text, url, title=None):
        alt = re.sub(r"<[^>]*>", "", text)
        if not alt.strip():
            raise PageError(f"a picture must have a text, but ![]({url}) has none")
        return f'<img src="{escape(self.page.picture(url))}" alt="{alt}" loading="lazy">'

    def block_html(self, html):
        return super().block_html(self._addresses(html))

    def inline_html(self, html):
        return super().inline_html(self._addresses(html))

    def _addresses(self, html):
        """Addresses in HTML that a page holds as it is: <img src=...>, <a href=...>."""
        def moved(match):
            name, quote, url = match.groups()
            if name == "href" and url.startswith(ELSEWHERE):
                return match[0]
            address = self.page.picture(url) if name == "src" else self.page.link(url)
            return f"{name}={quote}{address or '#'}{quote}"
        return ATTRIBUTE.sub(moved, html)

    def block_code(self, source, info=None):
        return code(source, (info or "text").split()[0]) if info != "mermaid" else code(source, "text")

    def table(self, text):
        return _scrolling(f"<table>\n{text}</table>")

    def inline_math(self, body):
        return mathml(body)

    def block_math(self, body):
        return f'<span class="formula">{mathml(body, display=True)}</span>'

    def latex_environment(self, name, body):
        return self.block_math(rf"\begin{{{name}}}{body}\end{{{name}}}")
