import functools
from collections import Counter

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from picture_helpers import drawn_texts, overlapping

from k3_scratch.config import PRESETS, K3Config
from k3_scratch.plots.architecture import architecture
from k3_scratch.plots.figures import write_architecture_figures
from k3_scratch.plots.stack_rows import compress, kinds_of, plan
from k3_scratch.plots.style import PARTS, PlotError, to_bytes

K, M = ("KDA", "MoE"), ("MLA", "MoE")
# Configs that lack a part, beside the presets.
OTHERS = {
    "no MoE": K3Config(first_k_dense=4), "no MLA": K3Config(mla_layers=()),
    "attention alone": K3Config(mla_layers=(0, 1, 2, 3), first_k_dense=4),
    "no KDA, nothing shared": K3Config(mla_layers=(0, 1, 2, 3), num_shared_experts=0, qk_rope_head_dim=0),
    "one layer": K3Config(num_layers=1, first_k_dense=0), "block of one": K3Config(attn_res_block_size=1),
}
ALL = {**PRESETS, **OTHERS}


@functools.cache
def drawn(name):
    figure = architecture(ALL[name])
    return figure, drawn_texts(figure)


def words(name):
    return [text.get_text() for text, _ in drawn(name)[1]]


def spelled(blocks):
    """Every layer of a plan again, one by one."""
    return [row.kind for block in blocks for _ in range(block.times) for segment in block.segments
            for _ in range(segment.times) for row in segment.rows for _ in range(row.count)]


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_clipped_and_no_texts_touch(name):
    figure, texts = drawn(name)
    outside = [text.get_text() for text, box in texts
               if min(box.x0, box.y0) < 0 or box.x1 > figure.bbox.x1 or box.y1 > figure.bbox.y1]
    assert outside == []
    assert overlapping(texts) == []


@pytest.mark.parametrize("name", ALL)
def test_text_stays_in_its_box_and_is_readable(name):
    figure, texts = drawn(name)
    for text, box in texts:
        assert text.get_fontsize() >= 7, text.get_text()
        if getattr(text, "box", None) is not None:
            frame = text.box.get_window_extent()
            assert frame.x0 <= box.x0 and box.x1 <= frame.x1, text.get_text()
            assert frame.y0 <= box.y0 and box.y1 <= frame.y1, text.get_text()


@pytest.mark.parametrize("name", PRESETS)
def test_a_plan_spells_every_layer(name):
    assert spelled(plan(PRESETS[name])) == kinds_of(PRESETS[name])


def test_compress_finds_the_shortest_spelling():
    segments = compress([K, K, K, M] * 2 + [M], start=84)
    assert [(segment.times, [(row.kind, row.count, row.first) for row in segment.rows]) for segment in segments] == [
        (2, [(K, 3, 84), (M, 1, 87)]), (1, [(M, 1, 92)])]
    random = np.random.default_rng(0)
    for _ in range(20):
        kinds = [(K, M)[i] for i in random.integers(0, 2, 11)]
        assert [row.kind for segment in compress(kinds) for _ in range(segment.times) for row in segment.rows
                for _ in range(row.count)] == kinds


def test_k3_is_grouped():
    blocks = plan(PRESETS["kimi_k3"])
    assert [(block.index, block.times, block.layers) for block in blocks] == [(0, 1, 12), (1, 6, 12), (7, 1, 9)]
    assert "AttnRes blocks 1 to 6\n6 × 12 layers" in words("kimi_k3")


def test_kimi_linear_repeats_end_with_mla():
    [block] = plan(PRESETS["kimi_linear_48b"])
    repeats = [segment for segment in block.segments if segment.times > 1]
    assert [(s.times, [(row.kind, row.count) for row in s.rows]) for s in repeats] == [(5, [(K, 3), (M, 1)])]


def test_mini_draws_every_layer():
    count = Counter(words("mini"))
    assert [count[f"layer\n{i}"] for i in range(4)] == [1, 1, 1, 1]
    assert (count["mix"], count["pass"], count["norm"] >= 9) == (8, 1, True)       # the first of 9 mixes has one source
    assert (count["KDA"], count["MLA"], count["MoE"], count["dense FFN"]) == (3 + 1, 1 + 1, 3, 1)   # and panel titles


def taps(name):
    """How many red dots lie at each height, from the bottom up: the number of sources of each mix."""
    dots = [patch for patch in drawn(name)[0].axes[0].patches if type(patch).__name__ == "Circle"
            and to_rgb(patch.get_facecolor()) == to_rgb(PARTS["mix"])]
    rows = Counter(round(patch.center[1], 3) for patch in dots)
    return [rows[height] for height in sorted(rows)]


@pytest.mark.parametrize("name", ["mini", "nano", "block of one"])
def test_each_mix_reads_the_vectors_that_exist(name):
    """Recount the sources by running the recipe of the depth attention on a list."""
    config, bank, wanted = ALL[name], 0, []
    for layer in range(config.num_layers):
        wanted.append(bank + 1)                        # the bank and the running sum
        bank += layer % config.attn_res_block_size == 0
        wanted.append(bank + 1)
    assert taps(name) == [*wanted, bank + 1]


def test_real_k3_ends_with_nine_sources():
    assert taps("kimi_k3")[-1] == 9
    assert taps("kimi_k3")[0] == 1


def test_no_mix_without_depth_attention():
    assert taps("kimi_linear_48b") == [] and "mix" not in words("kimi_linear_48b")


@pytest.mark.parametrize(("name", "texts"), [
    ("kimi_k3", ["$W_q$\n7,168 → 12,288", "$W_f$\n7,168 → 128 → 12,288", "$W_{kva}$\n7,168 → 512 + 64",
                 "norm\ncache 512", "$W_{qb}$\n1,536 → 96 × 192", "$W_{kvb}$\n512 → 96 × 256",
                 "512 + 64 = 576 values cached per token",
                 "$W_r$\n7,168 → 896", "top 16 of s + b", "SiTU-GLU\n3,584 → 3,072 → 3,584", "→ 6,144", "LatentMoE",
                 "S ← diag(α) S", "S ← S + β k (v − Sᵀk)ᵀ", "o = Sᵀ q", "g = −5 · σ($e^A$ z)", "33,792 wide"]),
    ("kimi_linear_48b", ["$W_q$\n2,304 → 32 × 192", "$W_g$\n2,304 → 128 → 4,096", "g = −$e^A$ softplus(z)",
                         "SwiGLU\n2,304 → 1,024 → 2,304", "p = s / Σ s · 2.446"]),
    ("mini", ["$W_{down}$\n64 → 32", "$W_o$\n64 → 64", "32 + 8 = 40 values cached per token", "64 → 260"]),
])
def test_the_numbers_are_those_of_the_config(name, texts):
    assert [text for text in texts if text not in words(name)] == []


def test_kimi_linear_has_no_gate_on_mla_and_no_latent_in_the_moe():
    assert words("kimi_linear_48b").count("output gate") == 1
    assert not any("down" in text or "{up}" in text for text in words("kimi_linear_48b"))


def test_title_and_bytes():
    again = architecture(PRESETS["nano"], title="The whole model: 4 layers of width 24")
    assert "The whole model: 4 layers of width 24" in words("nano")
    assert to_bytes(again) == to_bytes(drawn("nano")[0])
    assert "Tiny" in [text.get_text() for text in architecture(ALL["one layer"], title="Tiny").axes[0].texts]


def test_refuses_a_name():
    with pytest.raises(PlotError, match="K3Config.*str came"):
        architecture("mini")


def test_figures_are_written(tmp_path):
    paths = write_architecture_figures(tmp_path)
    assert sorted(paths) == ["architecture.png", "architecture_k3.png"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(paths)
