"""A slider over pictures that are drawn beforehand: plain HTML in the output of a cell, no kernel and no network."""

import base64
import hashlib
import html
import io

from k3_scratch.plots.style import PlotError, settings

DPI = 100                # less than for single pictures: all frames lie in the notebook
LOOK = "background:#fff;color:#22262b;border:1px solid #c9ced3;padding:8px"
PAGE = """<div id="{name}" style="{look};max-width:{wide}px">
<label style="display:flex;gap:10px;align-items:center"><span>{caption}</span>
<input type="range" min="0" max="{last}" value="0" style="flex:1" aria-label="{caption}"></label>
{frames}
<script>(function () {{
  var box = document.getElementById("{name}"), frames = box.querySelectorAll("img");
  box.querySelector("input").addEventListener("input", function (event) {{
    frames.forEach(function (frame, i) {{ frame.style.display = i == event.target.value ? "block" : "none"; }});
  }});
}})();</script></div>"""


class FrameSlider:
    """What a notebook shows as the last value of a cell; everywhere else it is a line of text."""

    def __init__(self, page, text):
        self.page, self.text = page, text

    def _repr_html_(self):
        return self.page

    def __repr__(self):
        return self.text


def frame_slider(figures, alts, caption):
    """A slider through `figures`, the first one shown at the start.                                  -> FrameSlider

    figures  pictures, at least two;   alts  for each a sentence that says what it shows;   caption  beside the slider
    Always put a static picture of the same thing next to it: where scripts do not run, the first frame stays.
    The same pictures give the same bytes. Raises PlotError for fewer than two pictures or another number of alts.
    """
    figures, alts = list(figures), list(alts)
    if len(figures) < 2 or len(alts) != len(figures):
        raise PlotError(f"frame_slider: figures and alts must be two or more, as many of the one as of the other, "
                        f"but {len(figures)} and {len(alts)} came")
    pictures = [_small(figure) for figure in figures]
    name = "frames-" + hashlib.sha256(b"".join(pictures)).hexdigest()[:12]
    wide = round(max(figure.get_size_inches()[0] for figure in figures) * 96)
    frames = "\n".join(
        f'<img alt="{html.escape(alt)}" style="display:{"none" if i else "block"};width:100%" '
        f'src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
        for i, (picture, alt) in enumerate(zip(pictures, alts, strict=True)))
    page = PAGE.format(name=name, look=LOOK, wide=wide + 18, last=len(figures) - 1, caption=html.escape(caption),
                       frames=frames)
    return FrameSlider(page, f"{caption}: {len(figures)} pictures, see the static one")


def _small(figure):
    """The picture as the bytes of a PNG of fewer dots."""
    stream = io.BytesIO()
    with settings():
        figure.savefig(stream, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return stream.getvalue()
