"""The released layout: names, shapes and dtypes as spec 3 has them, there and back without a bit lost."""

import json
import re

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch_helpers import VARIANTS, live_model, tokens_for, variant

import k3_scratch.export.huggingface as huggingface
from k3_scratch.config import preset
from k3_scratch.export.files import ExportError, tensor_digest, write_folder
from k3_scratch.export.huggingface import from_huggingface, hf_tensors, to_huggingface
from k3_scratch.export.mxfp4 import pack, unpack
from k3_scratch.export.names import places
from k3_scratch.pretrained import pretrained

CONFIGS = {**{name: variant(name) for name in VARIANTS}, "nano": preset("nano")}
FILES = ["config.json", "k3_export.json", "model.safetensors"]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", CONFIGS)
def test_there_and_back(name, tmp_path, same_weights):
    model = live_model(CONFIGS[name], 1, torch.float32)
    to_huggingface(model, tmp_path / "deep" / "out")
    assert names_in(tmp_path / "deep") == ["out"] and names_in(tmp_path / "deep" / "out") == FILES
    back = from_huggingface(tmp_path / "deep" / "out")
    assert back.config == model.config and not back.training
    same_weights(model, back)


def test_the_trained_miniature(tmp_path, same_weights):
    mini = pretrained("mini")
    to_huggingface(mini, tmp_path / "out")
    back = from_huggingface(tmp_path / "out")
    same_weights(mini, back)
    tokens = tokens_for(mini.config, 1, 20)
    assert torch.equal(mini(tokens), back(tokens))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes(dtype, tmp_path, same_weights):
    """What the release stores in float32 is float32 in the file, or wider; the model comes back in its own dtype."""
    model = live_model(variant("k3"), 2, torch.float32).to(dtype)
    to_huggingface(model, tmp_path / "out")
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as file:
        kinds = {name: file.get_tensor(name).dtype for name in file.keys()}          # noqa: SIM118
    wide = {name for name in kinds if name.endswith(("A_log", "dt_bias", "conv1d.weight", "o_norm.weight",
                                                     "e_score_correction_bias"))}
    assert {kinds[name] for name in wide} == {torch.promote_types(dtype, torch.float32)}
    assert {kinds[name] for name in set(kinds) - wide} == {dtype}
    same_weights(model, from_huggingface(tmp_path / "out"))


def test_float32_beside_bfloat16_is_not_rounded(tmp_path, edit_tensors):
    """A released checkpoint: matrices in bfloat16, A_log in float32 with values that bfloat16 cannot hold."""
    model = live_model(variant("k3"), 2, torch.float32).to(torch.bfloat16)
    to_huggingface(model, tmp_path / "out")
    name = "language_model.model.layers.0.self_attn.A_log"
    edit_tensors(tmp_path / "out", lambda tensors: tensors[name][:2].fill_(0.1))
    back = from_huggingface(tmp_path / "out")
    assert back.layers[0].self_attn.A_log.tolist() == torch.tensor([0.1, 0.1]).tolist()
    assert {x.dtype for x in back.state_dict().values()} == {torch.float32}
    assert torch.equal(back.lm_head.weight.bfloat16(), model.lm_head.weight)


def test_names_shapes_and_values(live):
    """Layer 0 is KDA with a dense FFN, layer 3 MLA with experts; written out from spec 3."""
    tensors, c = hf_tensors(live, live.config), live.config
    D, H, K, V, F, L = 24, 2, 8, 10, 18, 16
    shapes = {name.removeprefix("language_model."): list(x.shape) for name, x in tensors.items()}
    assert all(name.startswith("language_model.") for name in tensors)
    assert {name: shape for name, shape in shapes.items() if ".layers." not in name} == {
        "model.embed_tokens.weight": [23, D], "lm_head.weight": [23, D], "model.norm.weight": [D],
        "model.output_attn_res_norm.weight": [D], "model.output_attn_res_proj.weight": [1, D]}
    around = {f"{name}.weight": [D] for name in ("input_layernorm", "post_attention_layernorm",
                                                 "self_attention_res_norm", "mlp_res_norm")}
    around |= {"self_attention_res_proj.weight": [1, D], "mlp_res_proj.weight": [1, D]}
    kda = {"q_proj.weight": [H * K, D], "k_proj.weight": [H * K, D], "v_proj.weight": [H * V, D],
           "g_proj.weight": [H * V, D], "q_conv1d.weight": [H * K, 1, 4], "k_conv1d.weight": [H * K, 1, 4],
           "v_conv1d.weight": [H * V, 1, 4], "f_a_proj.weight": [K, D], "f_b_proj.weight": [H * K, K],
           "b_proj.weight": [H, D], "o_proj.weight": [D, H * V], "A_log": [128], "dt_bias": [H * K],
           "o_norm.weight": [V]}
    dense = {"gate_proj.weight": [40, D], "up_proj.weight": [40, D], "down_proj.weight": [D, 40]}
    mla = {"q_a_proj.weight": [14, D], "q_a_layernorm.weight": [14], "q_b_proj.weight": [H * 10, 14],
           "kv_a_proj_with_mqa.weight": [16, D], "kv_a_layernorm.weight": [12], "kv_b_proj.weight": [H * 11, 12],
           "g_proj.weight": [H * 5, D], "o_proj.weight": [D, H * 5]}
    moe = {"gate.weight": [6, D], "gate.e_score_correction_bias": [6], "routed_expert_down_proj.weight": [L, D],
           "routed_expert_norm.weight": [L], "routed_expert_up_proj.weight": [D, L],
           "shared_experts.gate_proj.weight": [2 * F, D], "shared_experts.up_proj.weight": [2 * F, D],
           "shared_experts.down_proj.weight": [D, 2 * F]}
    for expert in range(6):
        moe |= {f"experts.{expert}.w1.weight": [F, L], f"experts.{expert}.w3.weight": [F, L],
                f"experts.{expert}.w2.weight": [L, F]}
    for number, attention, ffn in ((0, kda, {f"mlp.{name}": shape for name, shape in dense.items()}),
                                   (3, mla, {f"block_sparse_moe.{name}": shape for name, shape in moe.items()})):
        wanted = {**around, **{f"self_attn.{name}": shape for name, shape in attention.items()}, **ffn}
        start = f"model.layers.{number}."
        assert {name.removeprefix(start): shape for name, shape in shapes.items() if name.startswith(start)} == wanted

    weights = live.state_dict()

    def given(name):
        return tensors[f"language_model.model.{name}"]

    def ours(name):
        return weights[f"layers.{name}"]
    a_log = given("layers.1.self_attn.A_log")
    assert torch.equal(a_log[:2], ours("1.self_attn.A_log")) and not a_log[2:].any()
    assert torch.equal(given("layers.1.self_attn.v_conv1d.weight")[:, 0], ours("1.self_attn.v_conv1d.weight"))
    assert torch.equal(given("layers.2.self_attention_res_proj.weight")[0], ours("2.self_attention_res.query"))
    assert torch.equal(given("layers.2.mlp_res_norm.weight"), ours("2.mlp_res.weight"))
    assert torch.equal(given("output_attn_res_proj.weight")[0], weights["output_attn_res.query"])
    assert torch.equal(given("layers.3.block_sparse_moe.experts.4.w2.weight"),
                       ours("3.block_sparse_moe.experts.w2")[4])
    assert c.num_layers == 4


@pytest.mark.parametrize(("heads", "length"), [(96, 128), (128, 128), (130, 256)])
def test_a_log_is_padded_to_a_multiple_of_128(heads, length):
    config = preset("nano").replace(num_heads=heads, kda_key_dim=1, kda_value_dim=1, num_layers=2)
    assert places(config)["language_model.model.layers.0.self_attn.A_log"].shape == (length,)


def test_a_state_dict_will_do_and_a_wrong_one_will_not(live):
    weights = dict(live.state_dict())
    assert all(torch.equal(x, y) for x, y in zip(hf_tensors(weights, live.config).values(),
                                                 hf_tensors(live, live.config).values(), strict=True))
    for changes, named in (({"norm.weight": None}, r"norm.weight: .* wants \(24,\), the model has none"),
                           ({"extra": torch.ones(2)}, r"extra: .* wants no such tensor, the model has \(2,\)"),
                           ({"norm.weight": torch.ones(25)}, r"norm.weight: .*\(24,\).*\(25,\)")):
        wrong = {name: x for name, x in {**weights, **changes}.items() if x is not None}
        with pytest.raises(ExportError, match=named):
            hf_tensors(wrong, live.config)


# ---- packed experts

def test_packed_experts_come_back_as_grid_values(packable, tmp_path):
    to_huggingface(packable, tmp_path / "out", mxfp4=True)
    fields = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert fields["quantization_config"]["format"] == "mxfp4-pack-quantized"
    stored = load_file(tmp_path / "out" / "model.safetensors")
    stem = "language_model.model.layers.2.block_sparse_moe.experts.5.w2.weight"
    assert stored[f"{stem}_packed"].dtype == stored[f"{stem}_scale"].dtype == torch.uint8
    assert stored[f"{stem}_packed"].shape == (32, 32) and stored[f"{stem}_scale"].shape == (32, 2)
    assert not any(re.search(r"\.experts\..*weight$", name) for name in stored)
    back = from_huggingface(tmp_path / "out")
    assert back.config == packable.config.replace(expert_dtype="mxfp4")
    for name, x in packable.state_dict().items():
        wanted = unpack(*pack(x)) if ".experts." in name else x
        assert torch.equal(back.state_dict()[name], wanted) and wanted.dtype == torch.float32
        assert torch.equal(wanted, x) == (".experts." not in name), name


def test_packing_twice_changes_nothing(packable, tmp_path, same_weights):
    to_huggingface(packable, tmp_path / "once", mxfp4=True)
    once = from_huggingface(tmp_path / "once")
    to_huggingface(once, tmp_path / "twice", mxfp4=True)
    assert (tmp_path / "once" / "model.safetensors").read_bytes() == \
        (tmp_path / "twice" / "model.safetensors").read_bytes()
    to_huggingface(once, tmp_path / "floats")                            # the grid values as plain float32
    back = from_huggingface(tmp_path / "floats")
    same_weights(once, back)
    assert back.config.expert_dtype == "float32"


def test_packed_experts_of_a_bfloat16_model_come_back_in_float32(packable, tmp_path):
    model = live_model(packable.config, 3, torch.float32).to(torch.bfloat16)
    to_huggingface(model, tmp_path / "out", mxfp4=True)
    back = from_huggingface(tmp_path / "out").state_dict()
    assert {x.dtype for x in back.values()} == {torch.float32}
    for name, x in model.state_dict().items():
        assert torch.equal(back[name], unpack(*pack(x)) if ".experts." in name else x.float())


def test_rows_that_are_no_whole_blocks_are_refused(live, tmp_path):
    with pytest.raises(ExportError, match=r"experts.0.w1.weight_packed: rows .* multiple of 32 wide, but 16 came"):
        to_huggingface(live, tmp_path / "new" / "out", mxfp4=True)
    assert names_in(tmp_path) == []


# ---- the folder

def test_never_over_anything_without_force(live, packable, tmp_path):
    out = tmp_path / "out"
    to_huggingface(live, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ExportError, match="out exists; --force replaces it"):
        to_huggingface(packable, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    to_huggingface(packable, out, force=True)
    assert from_huggingface(out).config == packable.config and names_in(tmp_path) == ["out"]
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ExportError, match="out holds notes.txt, which is no part of an export"):
        to_huggingface(live, out, force=True)                            # not even then
    assert (out / "notes.txt").exists()
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(ExportError, match="file is a file, not a folder"):
        to_huggingface(live, tmp_path / "file", force=True)
    (tmp_path / "empty").mkdir()
    to_huggingface(live, tmp_path / "empty")
    assert names_in(tmp_path / "empty") == FILES


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_and_keeps_the_earlier_export(error, live, packable, tmp_path, monkeypatch):
    to_huggingface(live, tmp_path / "out")
    before = (tmp_path / "out" / "model.safetensors").read_bytes()

    def fails(tensors, path, **settings):
        path.write_bytes(b"half")
        raise error
    monkeypatch.setattr(huggingface, "save_file", fails)
    for target in (tmp_path / "out", tmp_path / "a" / "b" / "new"):
        with pytest.raises(type(error)):
            to_huggingface(packable, target, force=True)
    assert names_in(tmp_path) == ["out"] and names_in(tmp_path / "out") == FILES
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before


def test_the_earlier_export_returns_when_the_new_one_cannot_be_moved(tmp_path, monkeypatch):
    import os
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json").write_text("earlier", encoding="utf-8")
    replace = os.replace

    def moves(source, target):
        if str(source).endswith(".tmp"):
            raise OSError("no")
        replace(source, target)
    monkeypatch.setattr(os, "replace", moves)
    with pytest.raises(OSError, match="no"):
        write_folder(tmp_path / "out", lambda folder: (folder / "config.json").write_text("new", encoding="utf-8"),
                     mine=lambda name: True, force=True)
    assert names_in(tmp_path) == ["out"]
    assert (tmp_path / "out" / "config.json").read_text(encoding="utf-8") == "earlier"


def test_progress_is_told(live, packable, tmp_path):
    for model, mxfp4 in ((live, False), (packable, True)):
        told = []
        to_huggingface(model, tmp_path / str(mxfp4), mxfp4=mxfp4, progress=lambda *news: told.append(news))  # noqa: B023
        wanted = places(model.config, mxfp4=mxfp4)
        assert told == [(name, number, len(wanted)) for number, name in enumerate(wanted, 1)]


def test_the_record(folder):
    record = json.loads((folder / "k3_export.json").read_text(encoding="utf-8"))
    stored = load_file(folder / "model.safetensors")
    assert record["tensors"] == {name: tensor_digest(x) for name, x in stored.items()}


# ---- what others wrote

def split_in_two(folder, edit=lambda index: None):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    files = {name: f"model-0000{1 + (i >= len(names) // 2)}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in names if files[name] == file}, folder / file)
    index = {"metadata": {"total_size": 1}, "weight_map": files}
    edit(index)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (folder / "model.safetensors").unlink()


def test_a_checkpoint_in_several_files(folder, live, same_weights):
    split_in_two(folder)
    (folder / "k3_export.json").unlink()
    same_weights(live, from_huggingface(folder))


def test_a_wrong_index(folder):
    def outside(index):
        index["weight_map"]["language_model.lm_head.weight"] = "../model.safetensors"
    split_in_two(folder, outside)
    with pytest.raises(ExportError, match="weight_map: ../model.safetensors is not a file of this folder"):
        from_huggingface(folder)


@pytest.mark.parametrize("weight_map", [None, [], {"a": 3}])
def test_an_index_without_a_map(folder, weight_map):
    split_in_two(folder, lambda index: index.update(weight_map=weight_map))
    with pytest.raises(ExportError, match="index.json: weight_map: wanted"):
        from_huggingface(folder)


def test_a_missing_part(folder):
    split_in_two(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ExportError, match="model-00002-of-00002.safetensors: not readable"):
        from_huggingface(folder)


def test_kimi_linear_without_prefix(tmp_path, edit_json, same_weights):
    """Its own files: flat config, no prefix, A_log [1, 1, H, 1]."""
    config = variant("kimi_linear").replace(kda_value_dim=8, initializer_range=0.02)
    model = live_model(config, 6, torch.float32)
    to_huggingface(model, tmp_path / "out")
    edit_json(tmp_path / "out" / "config.json",
              lambda fields: (fields.update(fields.pop("text_config")), fields.pop("k3_scratch")))
    tensors = {}
    for name, x in load_file(tmp_path / "out" / "model.safetensors").items():
        x = x[:2].reshape(1, 1, 2, 1) if name.endswith("A_log") else x
        tensors[name.removeprefix("language_model.")] = x
    save_file(tensors, tmp_path / "out" / "model.safetensors")
    back = from_huggingface(tmp_path / "out")
    assert back.config == config
    same_weights(model, back)
