"""The pictures of chapter 08: they hold the numbers, nothing is cut off, wrong arguments are refused."""

import numpy as np
import pytest
from picture_helpers import assert_readable, drawn_texts

from k3_scratch.config import preset
from k3_scratch.plots.kept_memory import kept_memory
from k3_scratch.plots.pass_trace import pass_trace
from k3_scratch.plots.silence_map import silence_map
from k3_scratch.plots.style import PlotError
from k3_scratch.plots.two_shares import two_shares
from k3_scratch.shapes import ShapeError

NAN = np.nan
READERS = [("0 KDA", "KDA"), ("0 dense", "dense"), ("1 MLA", "MLA"), ("output", "plain")]
NAMES = ["embedding", "layer 0", "layer 1"]
SHARES = np.array([[1, NAN, NAN], [0.25, 0.75, NAN], [0.6, 0.4, NAN], [0.05, 0.35, 0.6]])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_pass_trace(count):
    figure = pass_trace(READERS, NAMES, {f"token {i}": SHARES for i in range(count)}, [0.5, 1.25, 0.03, NAN],
                        title="One pass")
    texts = drawn_texts(figure)
    words = [text.get_text() for text, _ in texts]
    assert words.count(".75") == words.count(".35") == count and words.count("1") == count
    assert ".05" not in words and {"0.50", "1.25", "0.03", "One pass"} <= set(words)
    assert [axes.get_title(loc="left") for axes in figure.axes[:count]] == [f"token {i}" for i in range(count)]
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    np.testing.assert_allclose(widths, SHARES[np.isfinite(SHARES)])
    assert_readable(figure)


@pytest.mark.parametrize(("changed", "error", "says"), [
    ({0: [("0 KDA", "RNN")] * 4}, PlotError, "parts of readers"), ({1: ["one"]}, PlotError, "2 to 5"),
    ({2: {}}, PlotError, "1 to 3 panels"), ({2: {"a": SHARES[:3]}}, ShapeError, "Q"),
    ({2: {"a": 2 * SHARES}}, PlotError, "sum to 1"), ({3: [1.0]}, ShapeError, "written"),
])
def test_pass_trace_refuses(changed, error, says):
    right = (READERS, NAMES, {"a": SHARES}, [0.5, 1.0, 0.1, NAN])
    with pytest.raises(error, match=says):
        pass_trace(*[changed.get(i, given) for i, given in enumerate(right)], title="x")


PARTS = [("embedding", "plain"), ("KDA", "KDA"), ("experts", "MoE")]
PAIR = (np.array([0.25, 0.15, 0.6]), np.array([0.0, 0.9996, 0.0004]))


@pytest.mark.parametrize("count", [1, 2])
def test_two_shares(count):
    figure = two_shares({f"model {i}": PAIR for i in range(count)}, PARTS, first="held", second="done")
    texts = drawn_texts(figure)
    assert [text.get_text() for text, _ in texts][:6] == ["25 %", "0", "15 %", "100 %", "60 %", "0.04 %"]
    for axes in figure.axes[:count]:
        assert [bar.get_width() for bar in axes.patches[:6]] == [0.25, 0.0, 0.15, 0.9996, 0.6, 0.0004]
    assert_readable(figure)


@pytest.mark.parametrize(("models", "parts", "error", "says"), [
    ({}, PARTS, PlotError, "1 to 3 models"), ({"a": PAIR}, [("x", "RNN")] * 3, PlotError, "parts among"),
    ({"a": PAIR}, PARTS[:2], ShapeError, "n"), ({"a": (PAIR[0], 2 * PAIR[1])}, PARTS, PlotError, "sum 1"),
])
def test_two_shares_refuses(models, parts, error, says):
    with pytest.raises(error, match=says):
        two_shares(models, parts, first="held", second="done")


def test_silence_map():
    right = np.random.default_rng(0).uniform(size=(3, 2))
    figure = silence_map(right, READERS[:3], ["recall", "copy"], [0.9, 1.0], title="Silent")
    texts = drawn_texts(figure)
    wanted = [f"{value:.2f}".removeprefix("0") for value in [0.9, 1.0, *right.ravel()]]
    assert [text.get_text() for text, _ in texts] == wanted
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["nothing silent", "0 KDA silent", "0 dense silent", "1 MLA silent"]
    assert_readable(figure)


@pytest.mark.parametrize(("right", "silent", "whole", "error", "says"), [
    (np.ones((3, 2)), READERS[:2], [1, 1], ShapeError, "n"),
    (np.ones((3, 2)), READERS[:3], [1, 1.5], PlotError, "0 ... 1"),
    (np.ones((1, 2)), [("x", "RNN")], [1, 1], PlotError, "among"), (np.ones((3, 2)), READERS[:3], [1], ShapeError, "F"),
])
def test_silence_map_refuses(right, silent, whole, error, says):
    with pytest.raises(error, match=says):
        silence_map(right, silent, ["recall", "copy"], whole, title="x")


@pytest.mark.parametrize(("name", "tokens", "numbers"), [
    ("mini", 80, ("= 1,024", "= 576", "80 rows of 32 + 8", "= 3,200")),
    ("nano", 7, ("= 160", "= 156", "7 rows of 12 + 4", "= 112"))])
def test_kept_memory(name, tokens, numbers):
    config = preset(name)
    figure = kept_memory(config, tokens)
    texts = drawn_texts(figure)
    everything = "\n".join(text.get_text() for text, _ in texts)
    assert all(number in everything for number in numbers)
    assert everything.count("state: ") == everything.count("tail: ") == len(config.kda_layers)
    assert len(figure.axes[0].containers) == 2 * tokens * len(config.mla_layers)      # latent and slice of each token
    assert_readable(figure)


@pytest.mark.parametrize(("config", "tokens", "says"), [
    (preset("kimi_k3"), 10, "at most 64"), ("mini", 10, "K3Config"), (preset("mini"), 0, "at least 1")])
def test_kept_memory_refuses(config, tokens, says):
    with pytest.raises(PlotError, match=says):
        kept_memory(config, tokens)
