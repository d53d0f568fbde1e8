"""A blank sheet to draw diagrams on: boxes, pills, lines and arrows in tenths of an inch.

The picture of the architecture is drawn with these few strokes. Text inside a box remembers its box (`text.box`), so
that `fit` can shrink what is too wide and a test can ask whether anything sticks out.
"""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Polygon

from k3_scratch.plots.style import FAINT, INK, new_figure, tint

HEAD = 0.85         # length of an arrow head
SMALLEST = 5.5      # points; below this nobody reads


class Sheet:
    """`width` x `height` units, one unit a tenth of an inch, origin bottom left."""

    def __init__(self, width, height):
        self.width, self.height = width, height
        self.figure = new_figure(width / 10, height / 10, layout=None)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_xlim(0, width)
        self.axes.set_ylim(0, height)
        self.axes.set_axis_off()

    def frame(self, x, y, width, height, *, face="white", edge=FAINT, line=1.0, corner=0.8, order=0, dashed=False):
        """A rounded rectangle from its lower left corner."""
        patch = FancyBboxPatch((x + corner, y + corner), width - 2 * corner, height - 2 * corner,
                               boxstyle=f"round,pad={corner}", facecolor=face, edgecolor=edge, linewidth=line,
                               linestyle=(0, (4, 2)) if dashed else "-", zorder=order)
        patch.extent = (x, y, width, height)
        self.axes.add_artist(patch)
        return patch

    def box(self, x, y, width, height, text, colour, *, size=8.5, bold=False, strong=False, order=4, dashed=False):
        """A box of a part's colour with its text in the middle; `strong` fills it more deeply."""
        patch = self.frame(x, y, width, height, face=tint(colour, 0.62 if strong else 0.85), edge=colour, line=1.4,
                           corner=min(0.7, height / 2.1, width / 2.1), order=order, dashed=dashed)
        if text:
            self.text(x + width / 2, y + height / 2, text, size=size, bold=bold, box=patch, order=order + 1)
        return patch

    def text(self, x, y, text, *, size=8.5, bold=False, colour=INK, across="center", up="center", box=None, turn=0,
             order=8, slant=False, space=1.25):
        """Words at a point; `across` and `up` say where they hang from it, `box` is the patch they must fit into."""
        label = self.axes.text(x, y, text, fontsize=size, fontweight="bold" if bold else "normal", color=colour,
                               ha=across, va=up, rotation=turn, zorder=order, linespacing=space,
                               style="italic" if slant else "normal")
        label.box = box
        return label

    def line(self, points, *, colour=INK, width=1.3, order=2, dashed=False):
        """A line through points [(x, y), ...]."""
        across, up = zip(*points, strict=True)
        self.axes.add_artist(Line2D(across, up, color=colour, linewidth=width, zorder=order, solid_capstyle="butt",
                                    solid_joinstyle="miter", linestyle=(0, (3, 2)) if dashed else "-"))

    def arrow(self, points, *, colour=INK, width=1.3, order=2):
        """A line through points with a head at the last one; the last piece is level or upright."""
        (x0, y0), (x1, y1) = points[-2:]
        length = abs(x1 - x0) + abs(y1 - y0)
        along = ((x1 - x0) / length, (y1 - y0) / length)                # unit vector of the last piece
        base = (x1 - HEAD * along[0], y1 - HEAD * along[1])
        side = (0.42 * HEAD * along[1], 0.42 * HEAD * along[0])
        self.line([*points[:-1], base], colour=colour, width=width, order=order)
        corners = [(x1, y1), (base[0] + side[0], base[1] + side[1]), (base[0] - side[0], base[1] - side[1])]
        self.axes.add_artist(Polygon(corners, closed=True, facecolor=colour, edgecolor="none", zorder=order))

    def dot(self, x, y, *, colour=INK, radius=0.38, hollow=False, order=5):
        """A small disc, where lines branch."""
        self.axes.add_artist(Circle((x, y), radius, facecolor="white" if hollow else colour, edgecolor=colour,
                                   linewidth=1.0, zorder=order))

    def operator(self, x, y, sign, *, colour=INK, radius=0.95, order=5):
        """A circle with + or × in it."""
        self.axes.add_artist(Circle((x, y), radius, facecolor="white", edgecolor=colour, linewidth=1.3, zorder=order))
        arm = radius * 0.55
        ends = ((arm, 0), (0, arm)) if sign == "+" else ((0.71 * arm, 0.71 * arm), (0.71 * arm, -0.71 * arm))
        for dx, dy in ends:
            self.line([(x - dx, y - dy), (x + dx, y + dy)], colour=colour, width=1.4, order=order + 1)

    def fit(self):
        """Shrink the text of boxes that are too narrow for it; returns the figure."""
        renderer = FigureCanvasAgg(self.figure).get_renderer()
        unit = self.figure.dpi / 10
        for label in self.axes.texts:
            if getattr(label, "box", None) is not None:
                x, _, room, _ = label.box.extent
                room -= 0.5
                if label.get_ha() == "left":
                    room -= label.get_position()[0] - x
                width = label.get_window_extent(renderer).width / unit
                if width > room:
                    label.set_fontsize(max(SMALLEST, label.get_fontsize() * room / width))
        return self.figure


def side_by_side(x, width, shares, *, margin, gap):
    """Lanes of a panel from x to x + width, as wide as their shares of it.      -> [(left edge, width)], [middle]

    margin   left and right of all lanes;   gap  left and right of each
    """
    inner, start, lanes = width - 2 * margin, x + margin, []
    for share in shares:
        lanes.append((start + gap, inner * share - 2 * gap))
        start += inner * share
    return lanes, [left + lane / 2 for left, lane in lanes]
