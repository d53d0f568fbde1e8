import numpy as np
import pytest
from picture_helpers import assert_readable, clipped, drawn_texts

from k3_scratch.config import preset
from k3_scratch.plots.decay_gates import decay_gates
from k3_scratch.plots.frame_slider import frame_slider
from k3_scratch.plots.kda_layer import kda_layer
from k3_scratch.plots.memory_step import memory_step
from k3_scratch.plots.state_film import state_film
from k3_scratch.plots.style import PlotError, to_bytes
from k3_scratch.plots.token_weights import token_weights
from k3_scratch.shapes import ShapeError


def number(text):
    return float(text.get_text().replace("−", "-"))


def matrices(figure):
    """[rows, columns] -> the numbers written into each grid of the picture, in order."""
    found = []
    for axes in figure.axes:
        if axes.images:
            shape = axes.images[0].get_array().shape
            found.append(np.array([number(text) for text in axes.texts[:np.prod(shape)]]).reshape(shape))
    return found


def film_arrays(T=4, K=3, V=2, seed=0):
    """A run of the three steps, written here once more, with numbers of two digits."""
    rng = np.random.default_rng(seed)
    keys = np.round(rng.uniform(-1, 1, (T, K)), 1)
    values, beta = np.round(rng.uniform(-4, 4, (T, V)), 1), np.round(rng.uniform(0.2, 1, T), 1)
    decay, states = np.round(rng.uniform(0.2, 1, (T, K)), 1), [np.zeros((K, V))]
    for k, v, a, b in zip(keys, values, decay, beta, strict=True):
        faded = np.diag(a) @ states[-1]
        states.append((np.eye(K) - b * np.outer(k, k)) @ faded + b * np.outer(k, v))
    return np.array(states), keys, values, decay, beta


def test_state_film_adds_up():
    """In each column: faded + erased + written = the memory afterwards, within the two digits that are written."""
    states, keys, values, decay, beta = film_arrays()
    figure = state_film(states, keys, values, decay, beta, titles=["one", "two", "three", "four"])
    shown = matrices(figure)
    assert len(shown) == 4 * 8
    for t in range(4):
        faded, recalled, erased, value, written, after, key, key_again = shown[8 * t:8 * t + 8]
        np.testing.assert_allclose(faded + erased + written, after, atol=0.02)
        np.testing.assert_allclose(after, states[t + 1], atol=0.005)
        np.testing.assert_allclose(faded, decay[t][:, None] * states[t], atol=0.005)
        np.testing.assert_allclose(recalled[0], keys[t] @ (decay[t][:, None] * states[t]), atol=0.005)
        np.testing.assert_allclose(value[0], values[t], atol=0.005)
        np.testing.assert_allclose(key[:, 0], keys[t], atol=0.005)
        np.testing.assert_allclose(key_again, key)
    bars = [axes for axes in figure.axes if axes.get_title(loc="center") == "kept"]
    assert [[bar.get_width() for bar in axes.patches] for axes in bars] == decay.tolist()
    assert_readable(figure)


def test_state_film_refuses():
    states, keys, values, decay, beta = film_arrays()
    with pytest.raises(ShapeError, match="decay"):
        state_film(states, keys, values, decay.T, beta)
    with pytest.raises(PlotError, match=r"states must be \[T \+ 1, K, V\]"):
        state_film(states[1:], keys, values, decay, beta)
    with pytest.raises(PlotError, match="at most 8 rows"):
        state_film(*film_arrays(K=9))


def test_memory_step_shows_one_change():
    states, keys, values, decay, beta = film_arrays(V=4)
    faded = decay[2][:, None] * states[2]
    before, after = matrices(memory_step(states[2], faded, "title", "$S$", kept=decay[2], limit=4))
    np.testing.assert_allclose(decay[2][:, None] * before, after, atol=0.01)
    figure = memory_step(faded, faded + np.outer(keys[2], values[2]), "a title", "$S$", column=keys[2], row=values[2])
    before, column, row, change, after = matrices(figure)
    np.testing.assert_allclose(column @ row, change, atol=0.01)
    np.testing.assert_allclose(before + change, after, atol=0.02)
    assert_readable(figure)
    figure = memory_step(faded, faded.T @ keys[2], "a title", "$o$", column=keys[2], names=("$q$", ""))
    memory, query, out = matrices(figure)
    np.testing.assert_allclose((query.T @ memory)[0], out[0], atol=0.05)
    assert clipped(figure) == {}
    for wrong in ({"kept": decay[2][:2]}, {"column": keys[2], "row": values[2][:3]}):
        with pytest.raises(ShapeError):
            memory_step(faded, faded, "a title", "$S$", **wrong)


def test_frame_slider_holds_every_picture():
    frames = [memory_step(np.eye(2), np.eye(2) * i, f"frame {i}", "$S$", kept=[1, i / 3]) for i in range(3)]
    slider = frame_slider(frames, ["the first & best", "the second", "the third"], "step")
    page = slider._repr_html_()
    assert page.count("<img ") == page.count("data:image/png;base64,") == 3
    assert page.count("display:block;") == 1 and 'max="2"' in page and 'alt="the first &amp; best"' in page
    assert "http" not in page.replace("data:", "")                # nothing is fetched
    assert page == frame_slider(frames, ["the first & best", "the second", "the third"], "step")._repr_html_()
    assert "0x" not in repr(slider)
    with pytest.raises(PlotError, match="as many"):
        frame_slider(frames, ["one"], "step")
    with pytest.raises(PlotError, match="two or more"):
        frame_slider(frames[:1], ["one"], "step")


def test_decay_gates():
    z = np.linspace(-4, 4, 33)
    curves = {"bounded": -5 / (1 + np.exp(-z)), "free": -np.log1p(np.exp(z))}
    figure = decay_gates(z, curves, -5)
    left, right = figure.axes
    for label, g in curves.items():
        line, = (each for each in left.lines if each.get_label() == label)
        assert np.array_equal(line.get_ydata(), g)
        line, = (each for each in right.lines if each.get_label() == label)
        np.testing.assert_allclose(line.get_ydata(), np.log(2) / -g)
    assert clipped(figure) == {}
    for wrong, error in (({}, PlotError), ({"a": [1.0]}, ShapeError), ({"a": z}, PlotError)):
        with pytest.raises(error):
            decay_gates(z, wrong, -5)


def test_token_weights_hide_the_future():
    rng = np.random.default_rng(1)
    weights = {"one": np.tril(rng.normal(size=(5, 5))), "two": np.tril(rng.normal(size=(5, 5)))}
    figure = token_weights(weights, list("abcde"))
    for shown, wanted in zip(matrices(figure), weights.values(), strict=True):
        np.testing.assert_allclose(shown, wanted, atol=0.006)
    for axes in figure.axes:                                      # white over the rest of every row but the last
        assert [(patch.get_x(), patch.get_y(), patch.get_width()) for patch in axes.patches] == \
            [(row + 0.5, row - 0.5, 4 - row) for row in range(4)]
    assert clipped(figure) == {}
    for wrong, labels, error in (({}, "abcde", PlotError), ({"a": np.eye(3)}, "abcde", ShapeError),
                                 ({"a": np.eye(9)}, "abcdefghi", PlotError)):
        with pytest.raises(error):
            token_weights(wrong, list(labels))


@pytest.mark.parametrize("name", ["kimi_k3", "kimi_linear_48b", "nano"])
def test_kda_layer_names_its_gate(name):
    config = preset(name)
    figure = kda_layer(config)
    words = " ".join(text.get_text() for text, _ in drawn_texts(figure))
    assert ("softplus" in words) == (config.gate_lower_bound is None)
    assert f"{config.hidden_size:,}" in words and clipped(figure) == {}
    assert to_bytes(figure) == to_bytes(kda_layer(config))
