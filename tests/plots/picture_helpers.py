"""Arrays to draw and questions to ask a picture, for the tests of plots/."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from k3_scratch.plots.style import settings


def run_arrays():
    """Small plausible arrays of one training run, every size another."""
    random = np.random.default_rng(5)
    at = np.arange(10, 61, 10)
    depth = np.full((5, 3), np.nan)
    for row, sources in enumerate((1, 2, 2, 3, 3)):
        weights = random.random(sources)
        depth[row, :sources] = weights / weights.sum()
    return {
        "train_steps": np.arange(1, 61), "train_loss": 2 * np.exp(-np.arange(60) / 20),
        "learning_rate": np.full(60, 1e-3),
        "validation_steps": at, "validation_loss": 2.1 * np.exp(-at / 20),
        "accuracy": {name: np.linspace(0.1, end, 6) for name, end in
                     (("recall", 0.91), ("copy", 0.92), ("reverse", 0.9), ("brackets", 0.93), ("addition", 0.4),
                      ("stories", 0.41))},
        "load_steps": np.arange(0, 60, 15), "load": random.integers(1, 30, (4, 2, 7)),
        "load_layers": ["layer 1", "layer 2"],
        "depth_weights": depth, "depth_queries": [f"sublayer {i}" for i in range(5)],
        "depth_sources": ["embedding", "block 0", "running sum"],
        "decay": {"layer 0": random.uniform(0.3, 0.99, (2, 8)), "layer 1": random.uniform(0.3, 0.99, (2, 8))},
        "magnitude_names": ["0 KDA", "0 FFN", "1 MLA"], "magnitude_input": [0.1, 0.2, 0.3],
        "magnitude_output": [0.2, 0.3, 0.25],
    }


def drawn_texts(figure):
    """[(text, bounding box in pixels)] of what is written in the axes and on the figure, without tick labels."""
    with settings():
        renderer = FigureCanvasAgg(figure).get_renderer()
        texts = [text for axes in figure.axes for text in axes.texts] + list(figure.texts)
        return [(text, Text.get_window_extent(text, renderer)) for text in texts if text.get_text().strip()]


def words(figure):
    """What is written in the picture, as `drawn_texts` finds it."""
    return [text.get_text() for text, _ in drawn_texts(figure)]


def clipped(figure):
    """By how many pixels the drawing reaches over each side of the figure: {} when nothing is cut off."""
    with settings():
        box = figure.get_tightbbox(FigureCanvasAgg(figure).get_renderer())     # in inches
    width, height = figure.get_size_inches()
    over = {"left": -box.x0, "bottom": -box.y0, "right": box.x1 - width, "top": box.y1 - height}
    return {side: round(inches * figure.dpi, 1) for side, inches in over.items() if inches * figure.dpi > 0.5}


def overlapping(texts):
    """Pairs of texts whose bounding boxes share more than a hair."""
    return [(one.get_text(), other.get_text()) for i, (one, a) in enumerate(texts) for other, b in texts[i + 1:]
            if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1]


def assert_readable(figure):
    """Nothing is cut off at the edges, and no texts lie on top of each other."""
    faults = clipped(figure), overlapping(drawn_texts(figure))
    assert faults == ({}, []), faults


def line(axes, label):
    """The one line of the axes with this label."""
    found = [line for line in axes.lines if line.get_label() == label]
    assert len(found) == 1, [line.get_label() for line in axes.lines]
    return found[0]
