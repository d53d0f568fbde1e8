"""Pictures of chapter 10: what is drawn, where, and what is refused."""

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from picture_helpers import assert_readable, clipped, words

from k3_scratch.plots.control_bars import control_bars
from k3_scratch.plots.picture_answers import picture_answers
from k3_scratch.plots.picture_looks import picture_looks
from k3_scratch.plots.picture_sequence import picture_sequence
from k3_scratch.plots.style import PlotError
from k3_scratch.plots.vision_curves import vision_curves
from k3_scratch.shapes import ShapeError

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (3, 8, 12, 3), np.uint8)
LOOKS = (IMAGES, RNG.uniform(0, 2, (3, 2, 3)), ["a? b", "c? d", "e? f"], [(0, 0), (1, 2), None])
CURVES = (["one", "two"], [10, 20, 30], RNG.uniform(0, 1, (4, 3, 2)), [5, 9], RNG.uniform(0, 1, (2, 2)))


def test_a_sequence_numbers_the_squares_twice():
    figure = picture_sequence(IMAGES[0], 2, 2, "red? ")
    texts = words(figure)
    for number in range(6):                                              # 2 x 3 tokens: in the picture and in the row
        assert texts.count(str(number)) == 2
    assert [text for text in texts if len(text) == 1 and not text.isdigit()] == ["r", "e", "d", "?", "␣"]
    row = figure.axes[-1]
    assert len(row.images) == 6
    assert (row.images[4].get_array() == IMAGES[0][4:8, 4:8]).all()      # token 4: second line, second square
    assert_readable(figure)
    with pytest.raises(PlotError, match="multiples of 10, but 8 x 12 came"):
        picture_sequence(IMAGES[0], 5, 2, "a")
    with pytest.raises(ShapeError, match="image"):
        picture_sequence(IMAGES, 2, 2, "a")


def test_answers_are_ticked_or_corrected():
    lines = [[("red?", "box", "box"), ("things?", "2", "3")], [("left of plus?", "tee", "tee")], []]
    figure = picture_answers(IMAGES, lines, columns=2)
    assert words(figure) == ["red? box ✓", "things? 2 ✗ (3)", "left of plus? tee ✓"]
    assert len(figure.axes) == 3
    assert_readable(figure)
    with pytest.raises(PlotError, match="at least one question"):
        picture_answers(IMAGES, [[], [], []])
    with pytest.raises(ShapeError):
        picture_answers(IMAGES, lines[:2])


def test_bars_show_means_and_every_seed():
    scores = {"pictures": [[1.0, 0.9], [0.96, 0.8]], "blanked": [[0.2, 0.3], [0.3, 0.5]]}
    figure = control_bars(["shape", "count"], scores, goals={"count": 0.9}, title="t")
    [axes] = figure.axes
    assert [round(bar.get_height(), 6) for bar in axes.patches if isinstance(bar, Rectangle)] == [0.98, 0.85, 0.25, 0.4]
    assert words(figure) == [".98", ".85", ".25", ".40"]
    dots = sorted(float(y) for line in axes.lines if line.get_marker() == "o" for y in line.get_ydata())
    assert dots == sorted([1.0, 0.9, 0.96, 0.8, 0.2, 0.3, 0.3, 0.5])
    assert sum(line.get_linestyle() == "--" for line in axes.lines) == 1
    assert_readable(figure)
    with pytest.raises(ShapeError):
        control_bars(["shape"], scores, title="t")


def test_looks_write_what_is_large_and_frame_what_is_wanted():
    figure = picture_looks(*LOOKS, label="nats", columns=2)
    largest = LOOKS[1].max()
    assert sum(text.replace(".", "").isdigit() for text in words(figure)) == (LOOKS[1] >= 0.05 * largest).sum()
    frames = [patch for axes in figure.axes for patch in axes.get_children()
              if isinstance(patch, Rectangle) and patch is not axes.patch and not patch.get_fill()]
    assert len(frames) == 4                                              # two wanted, in the picture and in the map
    assert clipped(figure) == {}
    with pytest.raises(PlotError, match="maps must not be negative"):
        picture_looks(IMAGES, -LOOKS[1], *LOOKS[2:], label="nats")
    with pytest.raises(ShapeError):
        picture_looks(IMAGES, LOOKS[1], LOOKS[2][:2], LOOKS[3], label="nats")


def test_curves_have_a_panel_a_family_and_a_line_a_seed():
    figure = vision_curves(*CURVES)
    assert [axes.get_title() or axes.get_title(loc="left") for axes in figure.axes] == ["one", "two"]
    for number, axes in enumerate(figure.axes):
        drawn = [line.get_ydata() for line in axes.lines if len(line.get_ydata())]
        assert len(drawn) == 5
        np.testing.assert_array_equal(drawn[-1], CURVES[4][:, number])
        np.testing.assert_array_equal(np.array(drawn[:4]), CURVES[2][:, :, number])
    assert clipped(figure) == {}
    with pytest.raises(PlotError, match="steps must rise"):
        vision_curves(CURVES[0], [10, 10, 30], *CURVES[2:])
    with pytest.raises(PlotError, match="between 0 and 1"):
        vision_curves(*CURVES[:4], CURVES[4] + 1)
    with pytest.raises(ShapeError):
        vision_curves(["one"], *CURVES[1:])
