"""What all pictures share: colours, fonts, labels that do not collide, and saving.

No function here keeps state. `styled` gives a picture function matplotlib's defaults plus `STYLE` while it runs,
whatever the caller has set before, and puts the caller's settings back; so the same arrays give the same bytes.
Nothing imports pyplot: pictures need no display.
"""

import functools
import io
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

DPI = 150

# The ten colours of Petroff (arXiv 2107.02270), chosen to stay apart under colour-vision deficiency too.
PETROFF10 = ("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581",
             "#92dadd")

# One colour for each part of the model, the same in every picture.
PARTS = {"KDA": "#3f90da", "MLA": "#ffa90e", "MoE": "#832db6", "dense": "#a96b59", "mix": "#bd1f01", "plain": "#717581"}

# Colour and marker of each family of tasks; a family that is not listed takes the next free pair.
FAMILIES = {"recall": ("#3f90da", "o"), "copy": ("#ffa90e", "s"), "reverse": ("#bd1f01", "^"),
            "brackets": ("#832db6", "D"), "addition": ("#a96b59", "v"), "stories": ("#717581", "P")}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
DASHES = ("-", (0, (5, 1.5)), (0, (2, 1.2)), (0, (6, 1.5, 1.5, 1.5)))

INK = "#22262b"      # text and axes
FAINT = "#c9ced3"    # grids and frames

STYLE = {
    "font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.labelsize": 10, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
    "grid.color": FAINT, "grid.linewidth": 0.6, "axes.axisbelow": True, "lines.linewidth": 1.8, "lines.markersize": 5,
    "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white", "figure.dpi": DPI,
    "savefig.dpi": DPI, "svg.hashsalt": "k3_scratch", "svg.fonttype": "path",
}


class PlotError(ValueError):
    """The arrays given cannot be drawn; the message names the argument, what was wanted and what came."""


class Picture(Figure):
    """A matplotlib Figure that shows itself as the last value of a notebook cell, without pyplot."""

    def _repr_png_(self):
        return to_bytes(self)


@contextmanager
def settings():
    """matplotlib's defaults and STYLE inside the block, the caller's settings after it."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def styled(function):
    """Run a picture function under `settings`, then settle its layout, so that every later drawing is the same."""
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with settings():
            figure = function(*args, **kwargs)
            if figure.get_layout_engine() is not None:
                figure.get_layout_engine().execute(figure)
                figure.set_layout_engine("none")
            return figure
    return wrapper


def new_figure(width, height, layout="constrained"):
    """An empty opaque white picture of `width` x `height` inches."""
    return Picture(figsize=(width, height), dpi=DPI, facecolor="white", layout=layout)


def to_bytes(figure, kind="png"):
    """The picture as the bytes of a PNG or SVG file; the same picture gives the same bytes."""
    if kind not in ("png", "svg"):
        raise PlotError(f"to_bytes: kind must be 'png' or 'svg', but {kind!r} came")
    stream = io.BytesIO()
    with settings():
        figure.savefig(stream, format=kind, dpi=DPI, facecolor="white",
                       metadata={"Date": None} if kind == "svg" else {"Software": None})
    return stream.getvalue()


def save(figure, path):
    """Write a picture to `path` (.png or .svg), all or nothing; returns the Path.

    The bytes go to another name in the same folder first and are then moved, so nobody reads half a picture.
    """
    path = Path(path)
    if path.suffix not in (".png", ".svg"):
        raise PlotError(f"save: path must end in .png or .svg, but {path.name!r} came")
    content = to_bytes(figure, path.suffix[1:])
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def as_array(function, name, values):
    """`values` as a float64 array; raises PlotError when they are not numbers of one rectangular shape."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PlotError(f"{function}: {name} must be an array of numbers, but {type(values).__name__} came ({error})") \
            from error
    if array.size == 0:
        raise PlotError(f"{function}: {name} must hold at least one number, but shape {list(array.shape)} came")
    return array


def tint(colour, amount=0.82):
    """The colour mixed with white: amount 0 leaves it, 1 is white."""
    return tuple(1 - (1 - channel) * (1 - amount) for channel in to_rgb(colour))


def ink_on(colour):
    """Black or white, whichever is easier to read on `colour` (relative luminance)."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.2126 * red ** 2.2 + 0.7152 * green ** 2.2 + 0.0722 * blue ** 2.2 > 0.22 else "white"


def family_style(name, position):
    """(colour, marker) of a family; `position` decides for one that FAMILIES does not know."""
    return FAMILIES.get(name, (PETROFF10[(position + 6) % 10], MARKERS[(position + 6) % 10]))


def spread(wanted, gap, low=-np.inf, high=np.inf):
    """Places for labels: as near to `wanted` [n] as possible, at least `gap` apart, within low ... high.

    Subtracting i * gap from the i-th smallest place turns "at least gap apart" into "never falling"; neighbours that
    fall are pooled to their mean, and the gap is added back. Too many labels for the room share it evenly.
    """
    wanted = np.asarray(wanted, dtype=np.float64)
    count = len(wanted)
    if count == 0:
        return wanted
    if count > 1:
        gap = min(gap, (high - low) / (count - 1))
    order = np.argsort(wanted, kind="stable")
    pools = []                                         # [mean, members], means never falling
    for i, value in enumerate(wanted[order]):
        pools.append([value - i * gap, 1])
        while len(pools) > 1 and pools[-1][0] < pools[-2][0]:
            mean, members = pools.pop()
            pools[-1] = [(pools[-1][0] * pools[-1][1] + mean * members) / (pools[-1][1] + members),
                         pools[-1][1] + members]
    flat = np.concatenate([np.full(members, mean) for mean, members in pools])
    places = np.empty(count)
    places[order] = np.clip(flat, low, high - (count - 1) * gap) + gap * np.arange(count)
    return places


def label_ends(axes, ends, labels, colours, *, size=9):
    """Write each label right of the axes at the height of its line's end, moved apart where they would touch.

    ends [n] in data units of the y axis, whose limits and scale must be final. Execute the figure's layout engine
    before: the height of the axes decides how near labels may come. A thin line joins label and end.
    """
    to_unit = axes.transData + axes.transAxes.inverted()
    heights = [to_unit.transform((axes.get_xlim()[1], end))[1] for end in ends]
    height_inches = axes.get_position().height * axes.figure.get_size_inches()[1]
    lines = 1 + max((label.count("\n") for label in labels), default=0)
    gap = 1.35 * lines * size / 72 / max(height_inches, 0.5)
    for height, place, label, colour in zip(heights, spread(heights, gap, 0.0, 1.0), labels, colours, strict=True):
        axes.annotate(label, xy=(1.0, height), xytext=(1.035, place), xycoords="axes fraction",
                      textcoords="axes fraction", fontsize=size, color=darker(colour), va="center", ha="left",
                      fontweight="bold", clip_on=False, annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 1,
                                  "relpos": (0.0, 0.5)})                 # from the label's left edge: crosses no other


def edges(centres):
    """n + 1 cell borders around n rising centres, for maps whose steps are not evenly spaced."""
    centres = np.asarray(centres, dtype=np.float64)
    if len(centres) == 1:
        return centres[0] + np.array([-0.5, 0.5])
    middle = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])


def need_rising(function, name, steps):
    """Raise PlotError unless `steps` never repeat and never fall."""
    if np.any(np.diff(steps) <= 0):
        where = int(np.argmax(np.diff(steps) <= 0))
        raise PlotError(f"{function}: {name} must rise from entry to entry, but {steps[where]:g} is followed by "
                        f"{steps[where + 1]:g}")


def need_named(function, argument, given, holds, most=None):
    """Raise PlotError unless `given` is a dict {label: ...} of 1 to `most` entries (None: any number).

    holds   what an entry must be, in words for the message, such as "[n]"
    """
    if not isinstance(given, dict) or not 1 <= len(given) <= (most or len(given)):
        came = f"{type(given).__name__} of length {len(given)}" if hasattr(given, "__len__") else repr(given)
        raise PlotError(f"{function}: {argument} must be a dict {{label: {holds}}} with "
                        f"{'at least one entry' if most is None else f'1 to {most} entries'}, but {came} came")


def darker(colour):
    """A darker shade for text: pale line colours are hard to read as letters."""
    return tuple(channel * 0.72 for channel in to_rgb(colour))
