"""Formulas: LaTeX -> MathML, which every browser draws by itself, without a script and without the network.

The library latex2mathml converts; what it writes in a way that browsers do not draw well is mended here.
"""

import functools
import re
from html import unescape
from xml.etree import ElementTree

from latex2mathml.converter import convert_to_element

BARE_LETTER = re.compile(r"\\(mathcal|mathbb|mathbf)\s+([A-Za-z])")       # \mathcal R -> \mathcal{R}
NUMBER = re.compile(r"\.\d+")
FENCES = {"⌊": "prefix", "⟨": "prefix", "⌋": "postfix", "⟩": "postfix"}
OPEN = set("([{⌊⟨|")
ROWS = {"math", "mrow", "mstyle", "mtd", "msqrt", "menclose"}
ATOMS = {"mi", "mn", "msub", "msup", "msubsup", "mfrac", "msqrt", "mrow", "mtext"}
ACCENTS = {"~": "˜", "^": "^", "¯": "¯", "˜": "˜"}
SPACE = "0.167em"            # TeX's thin space


class FormulaError(ValueError):
    """A formula that cannot be turned into MathML; the message holds the formula."""


@functools.lru_cache(maxsize=4096)
def mathml(latex, display=False):
    """One formula, without its dollar signs.                                      str -> '<math ...>...</math>'

    display   on a line of its own.  The LaTeX itself becomes `alttext`. Raises FormulaError when a command is unknown.

    >>> mathml("k_t")
    '<math display="inline" alttext="k_t"><mrow><msub><mi>k</mi><mi>t</mi></msub></mrow></math>'
    """
    text = " ".join(latex.split())
    braces = re.sub(r"\\[{}]", "", text)
    if braces.count("{") != braces.count("}"):
        raise FormulaError(f"this formula has an open brace: {text}")
    try:
        root = convert_to_element(BARE_LETTER.sub(r"\\\1{\2}", text), display="block" if display else "inline")
    except Exception as error:                                           # the library raises many kinds
        raise FormulaError(f"this formula cannot be converted ({type(error).__name__}): {text}") from error
    root.attrib.pop("xmlns", None)
    root.set("alttext", text)
    for node in root.iter():
        node.text = unescape(node.text) if node.text else None           # the library writes entities
    _mend(root)
    left = [node.text for node in root.iter() if node.tag != "mtext" and re.search(r"[\\&]", node.text or "")]
    if left:
        raise FormulaError(f"this formula has {left[0]!r}, which is not converted: {text}")
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _mend(node):
    for child in node:
        _mend(child)
    _leaf(node)
    _accent(node)
    if node.tag in ROWS:                                                 # not where places have a meaning: <msub>
        node[:] = _spaced(_words(_numbers(list(node))))


def _leaf(node):
    text = node.text or ""
    if node.tag == "mo" and len(node) == 1:                              # \mathrel{+}: an operator around a row
        node.text = "".join(node.itertext())
        node[:] = []
    elif node.tag == "mo" and text.isalpha() and text.isascii() and len(text) > 1:
        node.tag = "mi"                                                  # a name; as <mo> it would stand far apart
        node.set("class", "name")
    elif node.tag == "mi" and text.isascii() and text.isalpha() and len(text) > 1:
        node.set("class", "name")
    elif node.tag == "mi" and NUMBER.fullmatch(text):
        node.tag = "mn"
    elif node.tag == "mi" and text in FENCES:
        node.tag = "mo"
        node.attrib.update(form=FENCES[text], stretchy="false", lspace="0", rspace="0")
    elif node.tag == "mi" and text == "±":
        node.tag = "mo"
    elif node.tag == "mo" and text == "⊤":
        node.tag = "mi"                                                  # transposed: no operator between two things
    elif node.tag == "mo" and text == "|" and "fence" not in node.attrib:
        node.attrib.update(stretchy="false", lspace="0", rspace="0")
    elif node.tag == "menclose":
        node.tag = "mrow"
        node.attrib = {"class": "boxed"}                                 # the style sheet draws the box
    elif node.tag == "mspace" and node.get("width", "").startswith("negative"):
        node.set("width", f"-{SPACE}")


def _accent(node):
    if node.tag == "mover" and len(node) == 2 and node[1].text in ACCENTS:
        node.set("accent", "true")
        node[1].text = ACCENTS[node[1].text]


def _numbers(children):
    """12{,}288 is one number; += is one operator."""
    kept = []
    for child in children:
        comma = len(kept) > 1 and kept[-1].tag == "mrow" and "".join(kept[-1].itertext()) == ","
        if child.tag == "mn" and comma and kept[-2].tag == "mn":
            kept.pop()
            kept[-1].text += "," + child.text
        elif child.tag == "mo" and child.text == "=" and kept and kept[-1].tag == "mo" and kept[-1].text in "+-−":
            kept[-1].text += "="
        else:
            kept.append(child)
    return kept


def _words(children):
    r"""\mathrm{top} is one word, not three upright letters."""
    kept = []
    for child in children:
        upright = child.tag == "mi" and child.get("mathvariant") == "normal"
        if upright and kept and kept[-1].get("class") == "word":
            kept[-1].text += child.text
        else:
            kept.append(child)
            if upright:
                child.set("class", "word")
    for child in kept:
        if child.get("class") == "word":
            del child.attrib["class"]
            if len(child.text) > 1:                                      # a longer <mi> is upright by itself
                del child.attrib["mathvariant"]
    return kept


def _spaced(children):
    """A thin space beside the name of a function, as in TeX: before a letter, not before a bracket."""
    kept = []
    for i, child in enumerate(children):
        following = children[i + 1] if i + 1 < len(children) else None
        if not _is_name(child):
            kept.append(child)
            continue
        if kept and kept[-1].tag in ATOMS:
            kept.append(ElementTree.Element("mspace", width=SPACE))
        kept.append(child)
        if following is not None and following.tag in ATOMS and (_first(following) or "") not in OPEN:
            kept.append(ElementTree.Element("mspace", width=SPACE))
    return kept


def _is_name(node):
    base = node[0] if node.tag in ("msub", "msup", "msubsup", "munder") and len(node) else node
    return base.get("class") == "name"


def _first(node):
    return next((text for text in node.itertext() if text), None)
