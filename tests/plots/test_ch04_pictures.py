import numpy as np
import pytest
from picture_helpers import assert_readable, clipped, drawn_texts, line

from k3_scratch.config import preset
from k3_scratch.plots.absorption import absorption
from k3_scratch.plots.attention_map import attention_map
from k3_scratch.plots.cache_lines import bytes_name, cache_lines, length_name
from k3_scratch.plots.mla_layer import mla_layer
from k3_scratch.plots.style import PARTS, PlotError
from k3_scratch.plots.two_forms import two_forms
from k3_scratch.shapes import ShapeError

LENGTHS = np.array([256, 4096, 2 ** 20])
SIZE = {"MHA": 3e5 * LENGTHS, "MLA": 3e3 * LENGTHS, "KDA": np.full(3, 4e8)}


def test_cache_lines_hold_the_bytes():
    figure = cache_lines(LENGTHS, SIZE, crossing=(130_000, 4e8, "here"), limit=(80e9, "80 GB"))
    axes = figure.axes[0]
    for name, values in SIZE.items():
        assert np.array_equal(line(axes, name).get_ydata(), values)
    assert line(axes, "MLA").get_color() == PARTS["MLA"] and line(axes, "KDA").get_color() == PARTS["KDA"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["256", "4k", "1M"]
    assert {"here", "80 GB", "MHA", "MLA", "KDA"} <= {text.get_text() for text in axes.texts}
    assert_readable(figure)


@pytest.mark.parametrize(("contexts", "size", "error", "says"), [
    ([2, 1], {"a": [1, 2]}, PlotError, "contexts must rise"), ([1, 2], {}, PlotError, "1 to 8 entries"),
    ([1, 2], {"a": [1, 2, 3]}, ShapeError, "n = 2"), ([1, 2], {"a": [0, 2]}, PlotError, "above 0"),
])
def test_cache_lines_refuse(contexts, size, error, says):
    with pytest.raises(error, match=says):
        cache_lines(contexts, size)


def test_names_of_sizes():
    assert [bytes_name(size) for size in (512, 1024, 2 ** 35, 1.5 * 2 ** 40)] == ["512 B", "1 KiB", "32 GiB", "1.5 TiB"]
    assert [length_name(tokens) for tokens in (7, 1024, 1500, 2 ** 21)] == ["7", "1k", "1500", "2M"]


@pytest.mark.parametrize("name", ["kimi_k3", "mini", "kimi_linear_48b"])
def test_mla_layer_reads_its_config(name):
    config = preset(name)
    figure = mla_layer(config)
    words = " ".join(text.get_text() for text, _ in drawn_texts(figure))
    assert f"cache {config.kv_lora_rank}" in words and f"√{config.qk_head_dim}" in words
    assert ("output gate" in words) == config.mla_output_gate
    assert clipped(figure) == {}


def test_absorption_names_its_sizes():
    figure = absorption(512, 127, 129)
    texts = drawn_texts(figure)
    words = [text.get_text() for text, _ in texts]
    assert any("S × 512" in text for text in words) and any("S × 127" in text for text in words)
    assert any("129 × 512" in text for text in words) and any("512 × 127" in text for text in words)
    assert_readable(figure)
    with pytest.raises(PlotError, match="n must be at least 1"):
        absorption(512, 0, 128)


def test_two_forms():
    new = [1, 4, 16]
    counts = {"naive": [5e6, 6e6, 9e6], "absorbed": [1e6, 4e6, 16e6]}
    timed = {"naive": [[5, 6, 9], [7, 8, 9], [6, 7, 20]], "absorbed": [[1, 4, 16], [1, 5, 15], [2, 3, 14]]}
    figure = two_forms(new, counts, timed, 6.4)
    left, right = figure.axes
    assert np.allclose(line(left, "naive").get_ydata(), [5, 6, 9])
    assert np.allclose(line(right, "naive").get_ydata(), [6, 7, 9])
    assert np.allclose(line(right, "absorbed").get_ydata(), [1, 4, 15])
    assert any("6" in text.get_text() for text in left.texts) and clipped(figure) == {}
    for bad, error, says in (({"naive": [1, 2, 3]}, PlotError, "same two forms"),
                             ({**counts, "naive": [1, 2]}, ShapeError, "n = 3"),
                             ({**counts, "naive": [0, 1, 2]}, PlotError, "above 0")):
        with pytest.raises(error, match=says):
            two_forms(new, bad, timed, 6.4)


def test_attention_map_writes_large_weights_and_frames_answers():
    weights = np.array([[0.9, 0.06, 0.04, np.nan], [0.0, 0.0, 0.001, 0.999]])
    figure = attention_map(weights, ["a", "b"], list("wxyz"), [0, 2], title="one head")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == [".90", "1"]
    frames = [artist.get_xy() for artist in axes.patches]
    assert frames == [(-0.5, -0.5), (1.5, 0.5)]
    assert np.array_equal(np.ma.getmaskarray(axes.images[0].get_array()), np.isnan(weights))
    assert clipped(figure) == {}
    with pytest.raises(PlotError, match="row 1 sums to 0.5"):
        attention_map([[1.0, 0.0], [0.5, 0.0]], ["a", "b"], ["x", "y"], [0, 1], title="t")
    with pytest.raises(PlotError, match="columns from 0 to 1"):
        attention_map([[1.0, 0.0]], ["a"], ["x", "y"], [2], title="t")
    with pytest.raises(ShapeError, match="wanted"):
        attention_map([[1.0, 0.0]], ["a"], ["x", "y"], [0, 1], title="t")
