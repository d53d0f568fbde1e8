"""Broken and foreign folders: one clear line that names the tensor, field or file, before any model is built."""

import json

import pytest
import torch

import k3_scratch.export.huggingface as huggingface
from k3_scratch.export.files import ExportError
from k3_scratch.export.huggingface import from_huggingface, to_huggingface
from k3_scratch.export.verify import verify

HEAD, NORM = "language_model.lm_head.weight", "language_model.model.norm.weight"
A_LOG, CONV = (f"language_model.model.layers.1.self_attn.{name}" for name in ("A_log", "q_conv1d.weight"))
EXPERT = "language_model.model.layers.2.block_sparse_moe.experts.5.w3.weight"


@pytest.fixture
def refuses(monkeypatch):
    """refuses(folder, *patterns): reading fails with one line that has them all, and no model is made."""
    def check(folder, *parts):
        monkeypatch.setattr(huggingface, "K3", None)
        with pytest.raises(ExportError) as caught:
            from_huggingface(folder)
        message = str(caught.value)
        assert "\n" not in message and str(folder) in message
        for part in parts:
            assert part in message
    return check


def test_everything_wrong_is_listed(folder, edit_tensors, refuses):
    def damage(tensors):
        del tensors[HEAD], tensors[EXPERT]
        tensors["language_model.model.layers.4.input_layernorm.weight"] = torch.ones(24)
        tensors[NORM] = torch.ones(25)
        tensors[CONV] = tensors[CONV].reshape(16, 4)
        tensors[A_LOG] = tensors[A_LOG].half()
    edit_tensors(folder, damage)
    refuses(folder, f"missing: {EXPERT}, {HEAD}; ",
            "unexpected: language_model.model.layers.4.input_layernorm.weight; ",
            f"misshapen: {CONV} (wanted [16, 1, 4], got [16, 4]), {NORM} (wanted [24], got [25]); ",
            f"wrong dtype: {A_LOG} (wanted F32 or F64, got F16)")


@pytest.mark.parametrize(("damage", "part"), [
    (lambda t: t.update({A_LOG: t[A_LOG][:2]}), f"misshapen: {A_LOG} (wanted [128], got [2])"),
    (lambda t: t.update({EXPERT: t[EXPERT].T.contiguous()}), f"misshapen: {EXPERT} (wanted [18, 16], got [16, 18])"),
    (lambda t: t.update({NORM: t[NORM].bfloat16()}), "the matrices have several dtypes, BF16, F32"),
    (lambda t: t.update({NORM: t[NORM].long()}), f"{NORM} (wanted F64 or F32 or BF16 or F16, got I64)"),
    (lambda t: t.update({name: x.to(torch.uint8) for name, x in t.items()}), "got U8"),
    (lambda t: t.update({EXPERT + "_packed": torch.zeros(18, 8, dtype=torch.uint8)}), "multiple of 32"),
    (lambda t: t.clear(), "missing: language_model.model.embed_tokens.weight"),
    (lambda t: t[A_LOG][5:].fill_(1.0), f"{A_LOG}: wanted zeros after the first 2 values"),
], ids=["unpadded", "transposed", "two dtypes", "whole numbers", "bytes", "half packed", "empty", "dirty padding"])
def test_tensors_that_do_not_fit(damage, part, folder, edit_tensors, refuses):
    edit_tensors(folder, damage)
    refuses(folder, part)


def test_a_long_list_is_cut(folder, edit_tensors, refuses):
    edit_tensors(folder, lambda tensors: [tensors.pop(name) for name in list(tensors)[3:]])
    refuses(folder, " more")


@pytest.mark.parametrize("left", [0, 4, 100, -1])
def test_truncated_weights(left, folder, refuses):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:left])
    refuses(folder, "model.safetensors: not readable safetensors")


def test_weights_of_another_kind_or_none(folder, refuses):
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04 a zip file, perhaps from torch.save")
    refuses(folder, "model.safetensors: not readable safetensors")
    (folder / "model.safetensors").unlink()
    refuses(folder, "model.safetensors: not readable safetensors")


def test_configurations(folder, edit_json, refuses, tmp_path):
    good = (folder / "config.json").read_text(encoding="utf-8")

    def with_change(change, *parts):
        (folder / "config.json").write_text(good, encoding="utf-8")
        edit_json(folder / "config.json", change)
        refuses(folder, "config.json: ", *parts)
    with_change(lambda f: f.update(model_type="llama", architectures=["LlamaForCausalLM"]), "model_type", "'llama'")
    with_change(lambda f: f["text_config"].update(rope_factor=2), "rope_factor: unknown field")
    with_change(lambda f: f["text_config"].update(num_experts=0), "num_experts")
    for text in ("", good[:-20], "[1, 2]", "null", '{"a": NaN'):
        (folder / "config.json").write_text(text, encoding="utf-8")
        refuses(folder, "config.json: ")
    (folder / "config.json").write_bytes(b"\xff\xfe")
    refuses(folder, "config.json: not readable JSON")
    (folder / "config.json").unlink()
    refuses(folder, "config.json: not readable JSON")
    refuses(tmp_path / "nowhere", "no such folder")


def test_another_size_in_the_configuration(folder, edit_json, refuses):
    def change(fields):
        fields["text_config"]["num_experts"] = fields["k3_scratch"]["num_experts"] = 7
    edit_json(folder / "config.json", change)
    refuses(folder, "missing: language_model.model.layers.1.block_sparse_moe.experts.6.w1.weight",
            "gate.weight (wanted [7, 24], got [6, 24])")


@pytest.fixture
def packed(packable, tmp_path):
    to_huggingface(packable, tmp_path / "packed", mxfp4=True)
    return tmp_path / "packed"


@pytest.mark.parametrize(("damage", "part"), [
    (lambda t: t.pop(EXPERT + "_scale"), f"missing: {EXPERT}_scale"),
    (lambda t: t.update({EXPERT + "_packed": t[EXPERT + "_packed"][:, :15].contiguous()}), "(wanted [64, 16], got"),
    (lambda t: t.update({EXPERT + "_scale": t[EXPERT + "_scale"].float()}), f"{EXPERT}_scale (wanted U8, got F32)"),
    (lambda t: t[EXPERT + "_scale"].fill_(255), f"{EXPERT}_packed: scale 255 means not a number"),
    (lambda t: t.update({EXPERT: torch.zeros(64, 32)}), f"unexpected: {EXPERT}"),
], ids=["no scale", "narrow", "scale in float", "scale 255", "both forms"])
def test_packed_experts_that_do_not_fit(damage, part, packed, edit_tensors, refuses):
    edit_tensors(packed, damage)
    refuses(packed, part)


def test_floats_where_the_configuration_says_packed(packable, tmp_path, edit_json, refuses):
    to_huggingface(packable, tmp_path / "out")
    edit_json(tmp_path / "out" / "config.json", lambda fields: fields["k3_scratch"].update(expert_dtype="mxfp4"))
    refuses(tmp_path / "out", "missing: ", "w1.weight_packed", "unexpected: ", "w1.weight")


# ---- verify

def problems(folder, model=None):
    report = verify(folder, model)
    assert report.ok == (report.problems == ()) and report.with_run == (model is not None)
    return "; ".join(report.problems)


def test_verify_finds_nothing_in_a_good_export(folder, live, packed, packable):
    assert problems(folder) == problems(folder, live) == problems(packed) == problems(packed, packable) == ""
    report = verify(packed)
    assert report.tensors == len(json.loads((packed / "k3_export.json").read_text(encoding="utf-8"))["tensors"])
    assert report.nbytes == sum(file.stat().st_size for file in packed.iterdir())


def test_verify_sees_one_changed_bit(folder, edit_tensors):
    data = bytearray((folder / "model.safetensors").read_bytes())
    header = int.from_bytes(data[:8], "little")
    fields = json.loads(data[8:8 + header])
    fields.pop("__metadata__")
    for name, field in list(fields.items())[::7]:
        place = 8 + header + field["data_offsets"][0]
        data[place] ^= 1
        (folder / "model.safetensors").write_bytes(data)
        data[place] ^= 1
        assert problems(folder) == f"not as written: {name}"


def test_verify_compares_with_the_run(folder, live, packed, packable):
    weights = {name: x.clone() for name, x in live.state_dict().items()}
    other = type(live)(live.config).eval()
    other.load_state_dict(weights)
    assert problems(folder, other) == ""
    with torch.no_grad():
        other.layers[2].block_sparse_moe.experts.w3[5, 1, 2] += 1e-6
        other.norm.weight[:2] = -other.norm.weight[:2]
    assert problems(folder, other) == f"not the run's: {EXPERT} (1 of 288 values), {NORM} (2 of 24 values)"
    assert "float32, the run has float64" in problems(folder, type(live)(live.config).double())
    assert "moe_latent_size is 16, but 32 in the run" in problems(folder, packable)
    changed = type(live)(packable.config).eval()
    changed.load_state_dict(packable.state_dict())
    with torch.no_grad():
        changed.layers[2].block_sparse_moe.experts.w3[5, 1, 2] *= -1                  # a sign is a bit of the code
    assert problems(packed, changed) == f"not the run's: {EXPERT}_packed (1 of 1024 values)"


def test_verify_sees_another_configuration_and_record(folder, edit_json):
    edit_json(folder / "config.json", lambda fields: fields["k3_scratch"].update(dt_max=0.3))
    assert problems(folder) == "config.json is not as it was written"
    edit_json(folder / "k3_export.json", lambda record: record["tensors"].pop(NORM))
    assert f"not as written: {NORM}" in problems(folder)
    edit_json(folder / "k3_export.json", lambda record: record["tensors"].update(extra="00"))
    assert "no longer there: extra" in problems(folder)
    edit_json(folder / "k3_export.json", lambda record: record.update(tensors=3))
    with pytest.raises(ExportError, match="k3_export.json: tensors: wanted"):
        verify(folder)
    (folder / "k3_export.json").unlink()
    with pytest.raises(ExportError, match="k3_export.json: not readable"):
        verify(folder)
    with pytest.raises(ExportError, match="no such file or folder"):
        verify(folder / "nothing")
