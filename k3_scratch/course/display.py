"""Pictures and stored results for notebooks, the same from every working folder."""

import io
import json
import os
from pathlib import Path

from k3_scratch.course.chapters import ROOT
from k3_scratch.plots.style import save, to_bytes

LARGE = 250_000              # bytes of a PNG from which on a notebook gets it with fewer colours


def show(figure, alt, *, name=None):
    """Show a picture of `k3_scratch.plots` under a cell, with a text for those who cannot see it.

    alt    what the picture shows, one sentence
    name   "NN_name": the builder of the notebooks also saves it as figures/NN_name.png (it sets K3_FIGURES)
    Outside a notebook the picture is drawn and nothing is shown.
    """
    if not isinstance(alt, str) or len(alt.split()) < 4:
        raise ValueError(f"show: alt must be a sentence that says what the picture shows, but {alt!r} came")
    content = to_bytes(figure)
    if name and os.environ.get("K3_FIGURES"):
        save(figure, Path(os.environ["K3_FIGURES"]) / f"{name}.png")
    if not in_a_notebook():
        return
    from IPython.display import display
    width = round(figure.get_size_inches()[0] * 96)
    content = fewer_colours(content) if len(content) > LARGE else content
    display({"image/png": content, "text/plain": alt}, raw=True, metadata={"image/png": {"alt": alt, "width": width}})


def fewer_colours(png):
    """The same picture with 256 colours: nobody sees it in a diagram; a third of the bytes.         bytes -> bytes"""
    from PIL import Image, PngImagePlugin  # they come with matplotlib

    smaller = io.BytesIO()
    with PngImagePlugin.PngImageFile(io.BytesIO(png)) as image:
        few = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
        few.save(smaller, "png", optimize=True)
    return smaller.getvalue()


def results(name):
    """What an experiment of the lab has measured: the content of figures/results/NAME.json.

    Name the file in the master's header too (`data: [figures/results/NAME.json]`), so that a new measurement makes the
    notebook stale. Raises ValueError naming the files that are there.
    """
    folder = ROOT / "figures" / "results"
    file = folder / f"{name}.json"
    if not file.exists():
        known = ", ".join(sorted(path.stem for path in folder.glob("*.json"))) or "none"
        raise ValueError(f"results: name must be one of {known}, but {name!r} came")
    return json.loads(file.read_text(encoding="utf-8"))


def in_a_notebook():
    """Does this run in a kernel, and not as a script?"""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return get_ipython() is not None
