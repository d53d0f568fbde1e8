"""The GGUF writer refuses what is incomplete or does not fit, and the reader what is not as it was written."""

import re
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from k3_scratch.config import preset
from k3_scratch.export.gguf import CONFIG, RECORD, read_gguf, to_gguf, write_gguf
from k3_scratch.export.gguf_keys import ARCHITECTURE, GGUFError, gguf_keys, remarks
from k3_scratch.export.gguf_tensors import gguf_shapes, gguf_tensors, is_expert
from k3_scratch.export.mxfp4 import pack, unpack
from k3_scratch.model import K3

CONFIG_HERE = preset("nano").replace(kda_value_dim=8, vocab_size=260, num_layers=5)
PACKABLE = CONFIG_HERE.replace(moe_latent_size=32, moe_intermediate_size=64)


@pytest.fixture(scope="module")
def model():
    return K3(CONFIG_HERE, seed=3)


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_was_written_is_read_back(model, tmp_path):
    seen, path = [], tmp_path / "deep" / "m.gguf"
    assert to_gguf(model, path, progress=lambda *step: seen.append(step)) == remarks(CONFIG_HERE)
    fields, tensors, record = read_gguf(path)
    wanted = gguf_tensors(model, CONFIG_HERE)
    assert fields["general.architecture"] == ARCHITECTURE
    assert tensors.keys() == wanted.keys() == record.keys() == gguf_shapes(CONFIG_HERE).keys()
    for name, x in wanted.items():
        assert tensors[name].dtype == np.float32 and np.array_equal(tensors[name], x), name
    for key, value in gguf_keys(CONFIG_HERE).items():
        assert fields[key] == pytest.approx(value) if isinstance(value, float) else fields[key] == value, key
    assert [step[1:] for step in seen] == [(i, len(wanted)) for i in range(1, len(wanted) + 1)]
    assert left_in(tmp_path / "deep") == ["m.gguf"]


def test_nothing_is_overwritten_without_force(model, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(GGUFError, match="exists; --force"):
        to_gguf(model, path)
    assert path.read_text(encoding="utf-8") == "mine"
    to_gguf(model, path, force=True)
    assert read_gguf(path)[2]


def test_the_writer_refuses_an_incomplete_file(model, tmp_path):
    """Every single tensor and key, left out; then one too many, one misshapen, one not finite, one of another value."""
    tensors, keys = gguf_tensors(model, CONFIG_HERE), gguf_keys(CONFIG_HERE)

    def refused(message, keys=keys, tensors=tensors):
        with pytest.raises(GGUFError, match=message):
            write_gguf(tmp_path / "m.gguf", keys, tensors, CONFIG_HERE)

    def without(x, name):
        return {other: value for other, value in x.items() if other != name}

    for name in tensors:
        refused(f"^{re.escape(name)}: missing", tensors=without(tensors, name))
    for key in keys:
        refused(f"^{re.escape(key)}: missing", keys=without(keys, key))
    x = tensors["blk.1.ssm_a"]
    refused("blk.1.ssm_b: unexpected", tensors={**tensors, "blk.1.ssm_b": x})
    refused(r"blk.1.ssm_a: wanted shape \[2\], got \[1\]", tensors={**tensors, "blk.1.ssm_a": x[:1]})
    refused("blk.1.ssm_a: not finite", tensors={**tensors, "blk.1.ssm_a": x * np.float32("nan")})
    refused("blk.1.ssm_a: wanted float32, got float64", tensors={**tensors, "blk.1.ssm_a": x.astype(float)})
    refused("blk.1.ssm_a: wanted float32, got uint8", tensors={**tensors, "blk.1.ssm_a": x.astype(np.uint8)})
    refused("kimi-k3.block_count: wanted 5, got 4", keys={**keys, "kimi-k3.block_count": 4})
    refused("kimi-k3.block_size: unexpected", keys={**keys, "kimi-k3.block_size": 4})
    assert left_in(tmp_path) == []


def test_an_error_while_writing_leaves_nothing(model, tmp_path):
    def stop(name, number, total):
        if number == 5:
            raise OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        to_gguf(model, tmp_path / "m.gguf", progress=stop)
    assert left_in(tmp_path) == []


def test_weights_that_do_not_fit(model):
    weights = {name: x.detach().numpy() for name, x in model.state_dict().items()}
    assert gguf_tensors(weights, CONFIG_HERE).keys() == gguf_shapes(CONFIG_HERE).keys()        # NumPy will do
    name = "layers.1.self_attn.q_proj.weight"
    for wrong, message in (({other: x for other, x in weights.items() if other != name}, f"{name}: the model has no"),
                           ({**weights, "layers.9.x": weights[name]}, "layers.9.x: a tensor that"),
                           ({**weights, name: weights[name][:-1]}, "blk.1.attn_q.weight: wanted shape"),
                           ({**weights, "layers.3.self_attn.kv_b_proj.weight": np.ones((5, 12))}, "do not fit")):
        with pytest.raises(GGUFError, match=message):
            gguf_tensors(wrong, CONFIG_HERE)


@pytest.mark.parametrize(("field", "value"), [
    ("kda_value_dim", 10), ("gate_lower_bound", None), ("use_full_rank_gate", False), ("attn_res_block_size", None),
    ("moe_latent_size", None), ("activation", "swiglu"), ("mla_layers", ()), ("mla_layers", (0, 1, 2, 3, 4))])
def test_configurations_that_llama_cpp_has_no_words_for(field, value, tmp_path):
    config = CONFIG_HERE.replace(**{field: value})
    with pytest.raises(GGUFError, match=f"^{field} must be"):
        to_gguf(K3(config), tmp_path / "m.gguf")
    assert left_in(tmp_path) == []


def test_damaged_and_foreign_files(model, tmp_path):
    import gguf
    to_gguf(model, tmp_path / "m.gguf")
    raw = (tmp_path / "m.gguf").read_bytes()
    path = tmp_path / "broken.gguf"

    def refused(contents, message):
        path.write_bytes(contents)
        with pytest.raises(GGUFError, match=message) as caught:
            read_gguf(path)
        assert str(path) in str(caught.value)

    for length in (0, 3, 30, 1000, 5000, len(raw) // 2, len(raw) - 40):  # in the header, the keys, the names, the data
        refused(raw[:length], "not a readable GGUF file|missing")
    refused(b"something else entirely", "not a readable GGUF file")
    start = gguf.GGUFReader(tmp_path / "m.gguf").tensors[4].data_offset
    refused(raw[:start] + bytes([raw[start] ^ 1]) + raw[start + 1:], "blk.0.*the bytes are not those that were written")
    refused(raw.replace(b"blk.1.ssm_a", b"blk.1.ssm_x"), "blk.1.ssm_a: missing")
    refused(raw.replace(b"kimi-k3.kda.head_dim", b"kimi-k3.kda.head_dix"), "kimi-k3.kda.head_dim: missing")
    refused(raw.replace(RECORD.encode(), b"x" * len(RECORD)), f"{RECORD}: missing, this file was not written by")
    refused(raw.replace(CONFIG.encode(), b"x" * len(CONFIG)), f"{CONFIG}: missing")
    refused(raw.replace(b'{"vocab_size"', b'{"vocab_sizf"'), f"{CONFIG} or {RECORD}: vocab_sizf")
    refused(raw.replace(b"general.architecture\x08\0\0\0\x07\0\0\0\0\0\0\0kimi-k3",
                        b"general.architecture\x08\0\0\0\x07\0\0\0\0\0\0\0kimi-k2"),
            "general.architecture: wanted 'kimi-k3', got 'kimi-k2'")
    with pytest.raises(GGUFError, match="nowhere.gguf: not a readable GGUF file"):
        read_gguf(tmp_path / "nowhere.gguf")


def test_experts_in_four_bits(tmp_path):
    """GGML's own reader finds exactly our values, zeros, tiny and huge blocks too; everything else stays float32."""
    model = K3(PACKABLE, seed=1)
    with torch.no_grad():
        w1 = model.layers[1].block_sparse_moe.experts.w1
        w1[0, 0], w1[0, 1], w1[0, 2], w1[0, 3, ::2] = 0, 1e-38, 1e30, -w1[0, 3, ::2]
        w1[0, 4] = torch.arange(32) - 16.0
    to_gguf(model, tmp_path / "m.gguf", mxfp4=True)
    tensors, plain = read_gguf(tmp_path / "m.gguf")[1], gguf_tensors(model, PACKABLE)
    packed = gguf_tensors(model, PACKABLE, mxfp4=True)
    assert sum(map(is_expert, tensors)) == 3 * (PACKABLE.num_layers - 1)
    for name, x in plain.items():
        if is_expert(name):
            x = unpack(*pack(torch.from_numpy(x))).numpy()
            assert packed[name].dtype == np.uint8 and packed[name].nbytes * 32 == 17 * x.size
        assert np.array_equal(tensors[name], x), name


def test_four_bits_need_whole_blocks(model, tmp_path):
    with pytest.raises(GGUFError, match="ffn_gate_exps.weight: rows of MXFP4 must be a multiple of 32 wide, but 16"):
        to_gguf(model, tmp_path / "m.gguf", mxfp4=True)
    assert left_in(tmp_path) == []


def test_the_missing_package_is_told(model, tmp_path, monkeypatch):
    assert find_spec("gguf") is not None
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(GGUFError, match="pip install gguf=="):
        to_gguf(model, tmp_path / "m.gguf")
