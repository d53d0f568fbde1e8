import numpy as np
import pytest
from picture_helpers import clipped, drawn_texts, line, overlapping, run_arrays

from k3_scratch.plots.accuracy_curves import accuracy_curves
from k3_scratch.plots.decay_spectrum import decay_spectrum, half_life
from k3_scratch.plots.depth_triangle import depth_triangle
from k3_scratch.plots.expert_load import expert_load
from k3_scratch.plots.loss_curve import loss_curve, running_mean
from k3_scratch.plots.magnitudes import magnitudes
from k3_scratch.plots.style import PlotError
from k3_scratch.shapes import ShapeError

A = run_arrays()


def words(axes):
    return [text.get_text() for text in axes.texts]


def test_running_mean():
    assert running_mean(np.array([1.0, 3, 5, 7]), 2) == pytest.approx([1, 2, 4, 6])
    assert running_mean(np.array([1.0, 3, 5]), 1) == pytest.approx([1, 3, 5])


def test_loss_curve_holds_the_data():
    figure = loss_curve(A["train_steps"], A["train_loss"], validation_steps=A["validation_steps"],
                        validation_loss=A["validation_loss"], learning_rate=A["learning_rate"], marks={20: "here"})
    axes, below = figure.axes
    assert np.array_equal(line(axes, "each step").get_ydata(), A["train_loss"])
    assert np.array_equal(line(axes, "validation").get_xdata(), A["validation_steps"])
    assert np.array_equal(line(axes, "validation").get_ydata(), A["validation_loss"])
    assert line(axes, "each step").get_alpha() < 1 and line(axes, "running mean").get_linewidth() > 2
    assert np.array_equal(line(below, "learning rate").get_ydata(), A["learning_rate"])
    assert "here" in words(axes) and "validation" in words(axes)
    assert clipped(figure) == {}


def test_loss_curve_alone():
    figure = loss_curve([1, 2, 3], [3.0, 2.0, 1.0])
    assert len(figure.axes) == 1 and clipped(figure) == {}


@pytest.mark.parametrize(("arguments", "more", "error", "says"), [
    (([1, 2], [1, 2, 3]), {}, ShapeError, "loss must have shape .*n = 2"),
    (([1, 1], [1, 2]), {}, PlotError, "steps must rise"),
    (([1, 2], [1, 2]), {"validation_loss": [1]}, PlotError, "together"),
    (([1, 2], [1, 2]), {"validation_steps": [1, 2], "validation_loss": [1]}, ShapeError, "validation_loss"),
    (([1, 2], [1, 2]), {"learning_rate": [1]}, ShapeError, "learning_rate"),
])
def test_loss_curve_refuses(arguments, more, error, says):
    with pytest.raises(error, match=says):
        loss_curve(*arguments, **more)


def test_accuracy_curves():
    figure = accuracy_curves(A["validation_steps"], A["accuracy"])
    axes = figure.axes[0]
    for family, values in A["accuracy"].items():
        assert np.array_equal(line(axes, family).get_ydata(), values)
    assert any(np.array_equal(each.get_ydata(), [0.9, 0.9]) and each.is_dashed() for each in axes.lines)
    labels = [(text, box) for text, box in drawn_texts(figure) if text.get_text().split()[0] in A["accuracy"]]
    assert len(labels) == 6 and overlapping(labels) == []
    assert clipped(figure) == {}
    assert axes.get_title(loc="left").startswith("4 of 6")


@pytest.mark.parametrize(("steps", "accuracy", "error", "says"), [
    ([1, 2], {}, PlotError, "at least one entry"), ([1, 2], {"copy": [0.1]}, ShapeError, "copy"),
    ([1, 2], {"copy": [0.1, 90]}, PlotError, "between 0 and 1"), ([2, 1], {"copy": [0.1, 0.2]}, PlotError, "rise"),
])
def test_accuracy_curves_refuse(steps, accuracy, error, says):
    with pytest.raises(error, match=says):
        accuracy_curves(steps, accuracy)


def test_expert_load_is_relative_to_the_mean():
    figure = expert_load(A["load_steps"], A["load"], A["load_layers"])
    share = A["load"] / A["load"].mean(axis=2, keepdims=True)
    maps = [axes for axes in figure.axes if axes.get_title(loc="left") in A["load_layers"]]
    below = [axes for axes in figure.axes if any(each.get_label() == "busiest" for each in axes.lines)]
    for layer in range(2):
        assert np.allclose(maps[layer].collections[0].get_array(), share[:, layer].T)
        assert np.allclose(line(below[layer], "busiest").get_ydata(), share[:, layer].max(axis=1))
        assert np.allclose(line(below[layer], "idlest").get_ydata(), share[:, layer].min(axis=1))
    assert clipped(figure) == {}


def test_expert_load_of_many_layers_and_of_one_step():
    figure = expert_load([3], np.ones((1, 5, 4)), [f"layer {i}" for i in range(5)])
    assert clipped(figure) == {}


@pytest.mark.parametrize(("load", "error", "says"), [
    (np.ones((4, 2)), ShapeError, "load must have shape"), (np.ones((3, 2, 7)), ShapeError, "n = 4"),
    (np.zeros((4, 2, 7)), PlotError, "above 0"), (np.ones((4, 3, 7)), ShapeError, "layer_names"),
])
def test_expert_load_refuses(load, error, says):
    with pytest.raises(error, match=says):
        expert_load(A["load_steps"], load, A["load_layers"])


def test_depth_triangle_writes_the_numbers():
    figure = depth_triangle(A["depth_weights"], A["depth_queries"], A["depth_sources"])
    axes = figure.axes[0]
    image = axes.images[0].get_array()
    there = np.isfinite(A["depth_weights"])
    assert np.array_equal(np.ma.getmaskarray(image), ~there)
    assert np.array_equal(image.compressed(), A["depth_weights"][there])
    assert sorted(words(axes)) == sorted(f"{value:.2f}" for value in A["depth_weights"][there])
    assert [tick.get_text() for tick in axes.get_yticklabels()] == A["depth_queries"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == A["depth_sources"]
    assert clipped(figure) == {}


def test_depth_triangle_of_the_real_k3_has_room():
    weights = np.full((187, 9), 1 / 9)
    figure = depth_triangle(weights, [f"sublayer {i}" for i in range(187)], [f"vector {i}" for i in range(9)])
    assert words(figure.axes[0]) == [] and clipped(figure) == {}


def test_depth_triangle_refuses():
    with pytest.raises(PlotError, match="row 1 .*sums to 1.5"):
        depth_triangle([[1.0, np.nan], [1.0, 0.5]], ["a", "b"], ["x", "y"])
    with pytest.raises(ShapeError, match="source_names"):
        depth_triangle([[1.0, np.nan]], ["a"], ["x"])


def test_half_life():
    assert half_life(np.array([0.5, np.sqrt(0.5)])) == pytest.approx([1, 2])
    assert np.isnan(half_life(np.array([1.0])))[0]


def test_decay_spectrum_sorts_each_head():
    figure = decay_spectrum(A["decay"])
    upper, lower = figure.axes[:2]
    alpha = np.sort(A["decay"]["layer 0"], axis=1)
    assert np.array_equal(line(upper, "head 1").get_ydata(), alpha[1])
    assert np.allclose(line(lower, "head 1").get_ydata(), np.log(0.5) / np.log(alpha[1]))
    assert lower.get_yscale() == "log"
    assert words(lower) == ["head 0", "head 1"] and clipped(figure) == {}


def test_decay_spectrum_of_many_heads_and_layers():
    figure = decay_spectrum({f"layer {i}": np.full((9, 3), 1 - 0.1 * i) for i in range(5)})
    assert clipped(figure) == {}
    assert clipped(decay_spectrum({"never forgets": np.ones((2, 3))})) == {}


@pytest.mark.parametrize(("decay", "error", "says"), [
    ({}, PlotError, "at least one entry"), ({"a": [0.5]}, ShapeError, "H, K"), ({"a": [[-0.1]]}, PlotError, "not g"),
])
def test_decay_spectrum_refuses(decay, error, says):
    with pytest.raises(error, match=says):
        decay_spectrum(decay)


def test_magnitudes():
    figure = magnitudes(["a", "b", "c"], {"input": [1, 2, 3], "output": [3, 2, 3]})
    axes = figure.axes[0]
    assert list(line(axes, "output").get_ydata()) == [3, 2, 3]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b", "c"]
    assert words(axes) == ["input", "output"] and clipped(figure) == {}
    assert overlapping([pair for pair in drawn_texts(figure) if pair[0].get_text() in ("input", "output")]) == []
    assert list(line(magnitudes(["a", "b"], [1, 2]).axes[0], "rms").get_ydata()) == [1, 2]


@pytest.mark.parametrize(("rms", "error", "says"), [
    ([1, 2], ShapeError, "n = 3"), ({}, PlotError, "at least one"), ({"input": [1, -2, 3]}, PlotError, "0 or more"),
])
def test_magnitudes_refuse(rms, error, says):
    with pytest.raises(error, match=says):
        magnitudes(["a", "b", "c"], rms)
