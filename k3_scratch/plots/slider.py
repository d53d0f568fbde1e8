"""Pictures behind a slider, as HTML that needs no kernel: it moves in a notebook, in exported HTML and on a site."""

import base64
import html
import io

from k3_scratch.plots.style import PlotError, settings

DPI = 96                     # less than a printed picture: a notebook carries every frame

_MOVE = ("var b=this.parentNode,f=b.querySelectorAll('img'),n=+this.value;"
         "for(var i=0;i<f.length;i++)f[i].style.display=i===n?'block':'none';"
         "b.querySelector('output').textContent=f[n].title")


class Slider:
    """What `slider` returns: shown by a notebook as HTML, elsewhere as its sentence."""

    def __init__(self, markup, alt):
        self.markup, self.alt = markup, alt

    def _repr_html_(self):
        return self.markup

    def __repr__(self):
        return self.alt


def slider(figures, labels, alt, *, first=0):
    """Move the slider: one picture at a time, all drawn beforehand.                                     -> Slider

    figures [n] pictures of one size, at least two;   labels [n] a few words for each place of the slider
    alt     a sentence that says what the pictures show;   first  the place it starts at
    Show a picture of the same kind beside it: on paper, and in a notebook that is not trusted, nothing moves.
    Raises PlotError for lengths that differ or a place that is none.
    """
    figures, labels = list(figures), [str(label) for label in labels]
    if len(figures) < 2 or len(labels) != len(figures) or not 0 <= first < len(figures):
        raise PlotError(f"slider: figures and labels must have one length, at least 2, and first must lie within it, "
                        f"but {len(figures)} figures, {len(labels)} labels and first = {first} came")
    width = round(max(figure.get_size_inches()[0] for figure in figures) * 96)
    frames = "\n".join(
        f'<img src="data:image/png;base64,{_frame(figure)}" title="{html.escape(label)}" '
        f'alt="{html.escape(f"{alt}; {label}")}" style="display:{"block" if i == first else "none"};width:100%">'
        for i, (figure, label) in enumerate(zip(figures, labels, strict=True)))
    control = (f'<input type="range" min="0" max="{len(figures) - 1}" value="{first}" step="1" '
               f'aria-label="{html.escape(alt)}" style="width:60%;vertical-align:middle" oninput="{_MOVE}">')
    return Slider(f'<div style="max-width:{width}px">\n{control}\n<output style="margin-left:1em;font-weight:bold">'
                  f"{html.escape(labels[first])}</output>\n{frames}\n</div>", alt)


def _frame(figure):
    """PNG as base64; the same picture gives the same letters."""
    stream = io.BytesIO()
    with settings():
        figure.savefig(stream, format="png", dpi=DPI, facecolor="white", metadata={"Software": None},
                       pil_kwargs={"optimize": True})
    return base64.b64encode(stream.getvalue()).decode("ascii")
