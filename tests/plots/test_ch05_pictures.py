"""The pictures of chapter 05: they hold what they are given, nothing is cut off, and bad arrays are refused."""

import numpy as np
import pytest
from picture_helpers import assert_readable, clipped, line, words

from k3_scratch.config import preset
from k3_scratch.plots.balance_race import balance_race
from k3_scratch.plots.expert_families import expert_families
from k3_scratch.plots.ffn_memory import ffn_memory
from k3_scratch.plots.latent_moe_panel import latent_moe_panel
from k3_scratch.plots.latent_tradeoff import latent_tradeoff
from k3_scratch.plots.number_cells import plain_number
from k3_scratch.plots.situ_curves import situ_curves
from k3_scratch.plots.style import PlotError
from k3_scratch.plots.token_expert_map import token_expert_map
from k3_scratch.shapes import ShapeError

X, MATCH = np.array([1.0, -0.5, 2.0]), np.array([0.0, 1.25, 3.0, 0.0])
KEYS = np.arange(12.0).reshape(4, 3) - 6
SCORES = np.random.default_rng(0).random((5, 4))


def chosen(scores, k):
    mask = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(mask, np.argsort(-scores, axis=1)[:, :k], True, axis=1)
    return mask


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (-0.001, "0"), (-1.0, "−1"), (0.25, "0.25"), (10.0, "10")])
def test_plain_number(value, text):
    assert plain_number(value) == text


def test_ffn_memory_writes_matches_and_output():
    figure = ffn_memory(X, KEYS, -KEYS, MATCH, MATCH @ -KEYS)
    bars = [patch.get_width() for axes in figure.axes for patch in axes.patches]
    assert bars == list(MATCH)
    assert "1.25" in words(figure) and plain_number((MATCH @ -KEYS)[0]) in words(figure)
    assert_readable(figure)


def test_ffn_memory_refuses():
    with pytest.raises(ShapeError, match="values"):
        ffn_memory(X, KEYS, KEYS[:3], MATCH, X)
    with pytest.raises(PlotError, match="smallest weight -1"):
        ffn_memory(X, KEYS, KEYS, MATCH - 1, X)


@pytest.mark.parametrize("name", ["nano", "kimi_k3", "kimi_linear_48b"])
def test_latent_moe_panel_has_the_numbers_of_the_config(name):
    config, figure = preset(name), latent_moe_panel(preset(name))
    text = " ".join(words(figure))
    assert f"{config.num_experts_per_token} of {config.num_experts}" in text and f"{config.hidden_size:,}" in text
    assert clipped(figure) == {}


def test_latent_moe_panel_refuses():
    with pytest.raises(PlotError, match="K3Config"):
        latent_moe_panel("kimi_k3")


def test_latent_tradeoff():
    figure = latent_tradeoff([1, 2, 4], {"work": [1, 0.6, 0.3], "sent": [1, 0.5, 0.25]}, [3.2, 7.1, 15.0],
                             ["1 of 8", "2 of 16", "4 of 32"])
    left, right = figure.axes
    assert list(line(left, "sent").get_ydata()) == [1, 0.5, 0.25]
    assert [bar.get_height() for bar in right.patches] == [3.2, 7.1, 15.0]
    assert_readable(figure)
    with pytest.raises(ShapeError, match="digits"):
        latent_tradeoff([1, 2, 4], {"work": [1, 2, 3]}, [1, 2], ["a", "b", "c"])
    with pytest.raises(PlotError, match="savings"):
        latent_tradeoff([1, 2], {}, [1, 2], ["a", "b"])


def test_situ_curves():
    both = {"SwiGLU": np.array([0.0, 1, 4]), "SiTU": np.array([0.0, 0.9, 2])}
    figure = situ_curves([0, 1, 2], both, both, [-1, 0, 1], both, [1, 2, 4], both, 100)
    assert [list(line(axes, "SiTU").get_ydata()) for axes in figure.axes] == [[0, 0.9, 2]] * 3
    assert clipped(figure) == {}
    with pytest.raises(ShapeError, match=r"SwiGLU must have shape \[p\]"):
        situ_curves([0, 1, 2], both, both, [0, 1], both, [1, 2, 4], both, 100)


def test_token_expert_map_draws_loads_and_frames():
    mask = chosen(SCORES, 2)
    figure = token_expert_map([{"title": "a", "scores": SCORES, "chosen": mask},
                               {"title": "b", "scores": SCORES - 0.5, "chosen": mask, "bias": np.full(4, -0.5)}])
    bars, cells = figure.axes[:2]
    assert [patch.get_height() for patch in bars.patches] == list(mask.sum(axis=0))
    frames = {(round(patch.get_y() + 0.46), round(patch.get_x() + 0.46)) for patch in cells.patches}
    assert frames == {tuple(place) for place in np.argwhere(mask).tolist()}
    assert f"{SCORES[3, 1]:.2f}" in [text.get_text() for text in cells.texts]
    assert figure.axes[3].get_xticklabels()[0].get_text() == "1\n−0.50"
    assert clipped(figure) == {}


def test_token_expert_map_of_many_tokens():
    scores = np.random.default_rng(1).random((70, 16))
    figure = token_expert_map([{"title": "a", "scores": scores, "chosen": chosen(scores, 2)}] * 2)
    assert len(figure.axes[1].texts) == 0 and clipped(figure) == {}
    whole = np.arange(100, 116)                                          # the loads of a batch of which this is a part
    figure = token_expert_map([{"title": "a", "scores": scores, "chosen": chosen(scores, 2), "load": whole}])
    assert [patch.get_height() for patch in figure.axes[0].patches] == list(whole)


def test_token_expert_map_refuses():
    with pytest.raises(PlotError, match="none came"):
        token_expert_map([])
    with pytest.raises(ShapeError, match="chosen"):
        token_expert_map([{"title": "a", "scores": SCORES, "chosen": chosen(SCORES, 2)[:4]}])
    uneven = chosen(SCORES, 2)
    uneven[0, :] = True
    with pytest.raises(PlotError, match="equally many"):
        token_expert_map([{"title": "a", "scores": SCORES, "chosen": uneven}])


def test_balance_race():
    runs = {"fast": np.array([[1.0, 0.2, 0.02], [1.4, 0.1, 0.03]]), "slow": np.full((2, 7), 0.9)}
    figure = balance_race(runs, goal=0.05)
    axes = figure.axes[0]
    assert np.allclose(line(axes, "fast").get_ydata(), np.sqrt(runs["fast"][0] * runs["fast"][1]))
    assert "within 5%" in words(figure) and clipped(figure) == {}
    for bad in ({}, {"a": np.ones(3)}, {"a": np.zeros((1, 3))}):
        with pytest.raises(PlotError, match="balance_race"):
            balance_race(bad, goal=0.05)


def test_expert_families():
    counts = np.random.default_rng(2).integers(1, 9, (2, 3, 5))
    figure = expert_families(counts, ["x", "y", "z"], ["layer 1", "layer 2"])
    share = counts / counts.sum(axis=2, keepdims=True) * 5
    assert np.allclose(figure.axes[0].images[0].get_array(), share[0])
    assert [tick.get_text() for tick in figure.axes[1].get_yticklabels()] == ["x", "y", "z"]
    assert clipped(figure) == {}
    with pytest.raises(ShapeError, match="families"):
        expert_families(counts, ["x", "y"], ["layer 1", "layer 2"])
    with pytest.raises(PlotError, match="visits"):
        expert_families(counts * 0, ["x", "y", "z"], ["layer 1", "layer 2"])
