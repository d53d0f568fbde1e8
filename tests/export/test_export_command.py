"""`k3 export` and `k3 verify`: what they print, how they end, and that a mistake costs one line and no file."""

import builtins
import re
import sys

import pytest
import torch
from safetensors.torch import load_file
from torch_helpers import write_run

import k3_scratch.commands.export as export_command
from k3_scratch.__main__ import main
from k3_scratch.config import preset
from k3_scratch.export.huggingface import from_huggingface
from k3_scratch.model import K3
from k3_scratch.pretrained import pretrained

OUT = {"hf": "out", "gguf": "out.gguf"}


@pytest.fixture
def nano_run(tmp_path):
    """A finished run of nano, weights as drawn."""
    return write_run(tmp_path / "run", K3(preset("nano"), seed=5))


@pytest.fixture
def k3(capsys):
    """k3(*arguments): exit status, standard output, standard error."""
    def call(*arguments):
        status = main([str(argument) for argument in arguments])
        return status, *capsys.readouterr()
    return call


def refused(result, *parts):
    status, out, err = result
    assert status == 2 and out == "" and err.startswith("k3: ") and err.count("\n") == 1
    for part in parts:
        assert part in err
    return True


@pytest.mark.parametrize("kind", ["hf", "gguf"])
@pytest.mark.parametrize("packed", [False, True], ids=["floats", "mxfp4"])
def test_the_published_model(kind, packed, k3, tmp_path):
    out = tmp_path / OUT[kind]
    status, printed, err = k3("export", "--format", kind, *(["--mxfp4"] if packed else []), "mini", out)
    assert (status, err) == (0, "")                                      # no bar where there is no terminal
    tensors, size = re.search(r": (\d+) tensors, ([\d,]+) bytes\n", printed).groups()
    files = list(out.iterdir()) if kind == "hf" else [out]
    assert int(size.replace(",", "")) == sum(file.stat().st_size for file in files)
    if kind == "hf":
        assert int(tensors) == len(load_file(out / "model.safetensors"))
    lost = re.search(r"MXFP4: relative error 0\.1\d+ \(1\d\.\d dB\), largest .*saturate.*become zero\n", printed)
    assert (lost is not None) == packed
    for run in ([], ["mini"]):
        status, printed, err = k3("verify", out, *run)
        assert (status, err) == (0, "")
        assert printed == f"{out}: {tensors} tensors equal what was written" \
            + (" and the weights of mini\n" if run else "\n")
    assert [path.name for path in tmp_path.iterdir()] == [OUT[kind]]


def test_a_run_folder_and_force(nano_run, k3, tmp_path, same_weights):
    out = tmp_path / "out"
    assert k3("export", "--format", "hf", nano_run, out)[0] == 0
    same_weights(from_huggingface(out), K3(preset("nano"), seed=5))
    assert refused(k3("export", "--format", "hf", "mini", out), "out exists; --force replaces it")
    assert k3("verify", out, nano_run)[0] == 0
    assert refused(k3("verify", out, "mini"), "hidden_size is 24, but 64 in the run")
    assert k3("export", "--format", "hf", "--force", "mini", out)[0] == 0
    assert k3("verify", out, "mini")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]


def test_an_earlier_gguf_needs_force(k3, tmp_path):
    out = tmp_path / "out.gguf"
    out.write_text("mine", encoding="utf-8")
    assert refused(k3("export", "--format", "gguf", "mini", out), "out.gguf exists; --force replaces it")
    assert out.read_text(encoding="utf-8") == "mine"
    assert k3("export", "--format", "gguf", "--force", "mini", out)[0] == 0
    assert k3("verify", out)[0] == 0


def test_verify_names_what_differs(k3, tmp_path):
    out, mini = tmp_path / "out", pretrained("mini")
    k3("export", "--format", "hf", "mini", out)
    data = bytearray((out / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (out / "model.safetensors").write_bytes(data)
    assert refused(k3("verify", out), f"{out}: not as written: language_model.")
    with torch.no_grad():
        mini.layers[1].mlp_res.query[3] += 0.25
    other = write_run(tmp_path / "run", mini)
    k3("export", "--format", "gguf", "mini", tmp_path / "out.gguf")
    assert refused(k3("verify", tmp_path / "out.gguf", other), "not the run's: blk.1.ffn_res_score.weight (1 of 64")
    k3("export", "--format", "hf", "--force", "mini", out)
    assert refused(k3("verify", out, other), "language_model.model.layers.1.mlp_res_proj.weight (1 of 64 values)")


def test_verify_of_a_damaged_gguf(k3, tmp_path):
    out = tmp_path / "out.gguf"
    k3("export", "--format", "gguf", "mini", out)
    data = bytearray(out.read_bytes())
    data[-1] ^= 1
    out.write_bytes(data)
    assert refused(k3("verify", out), "out.gguf", "the bytes are not those that were written")
    out.write_bytes(data[:len(data) // 2])
    assert refused(k3("verify", out), "out.gguf")
    out.write_bytes(b"GGML")
    assert refused(k3("verify", out), "not a readable GGUF file")


@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_mistakes_leave_no_file(kind, nano_run, k3, tmp_path):
    out = tmp_path / "new" / OUT[kind]
    assert refused(k3("export", "--format", kind, "nobody", out), "nobody: no such run folder", "(mini, vision)")
    assert refused(k3("export", "--format", kind, tmp_path / "none", out), "no such run folder")
    assert refused(k3("export", "--format", kind, "--mxfp4", nano_run, out),
                   "kda_value_dim" if kind == "gguf" else "multiple of 32 wide, but 16 came")
    (nano_run / "model.safetensors").write_bytes(b"short")
    assert refused(k3("export", "--format", kind, nano_run, out), "model.safetensors: not readable safetensors")
    (nano_run / "model.safetensors").unlink()
    assert refused(k3("export", "--format", kind, nano_run, out), "the run is not finished")
    assert refused(k3("verify", out), "no such file or folder")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_export_that_reads_back_otherwise_is_an_error(k3, tmp_path, monkeypatch):
    """A disk that loses a byte between writing and reading."""
    write = export_command.to_huggingface

    def loses_a_byte(model, folder, **options):
        write(model, folder, **options)
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    monkeypatch.setattr(export_command, "to_huggingface", loses_a_byte)
    assert refused(k3("export", "--format", "hf", "mini", tmp_path / "out"), "not as written")


def test_without_the_gguf_package(k3, tmp_path, monkeypatch):
    load = builtins.__import__

    def without(name, *rest):
        if name == "gguf":
            raise ImportError("No module named 'gguf'")
        return load(name, *rest)
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    monkeypatch.delitem(sys.modules, "gguf", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    for command in (("export", "--format", "gguf", "mini", tmp_path / "out.gguf"), ("verify", tmp_path / "some.gguf")):
        assert refused(k3(*command), "the gguf package is needed: pip install gguf==")
    assert k3("export", "--format", "hf", "mini", tmp_path / "out")[0] == 0        # which needs none


@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_progress_on_a_terminal(kind, k3, tmp_path, monkeypatch):
    bars = []

    class Bar(export_command.tqdm):
        def __init__(self, *rest, **settings):
            super().__init__(*rest, **settings)
            bars.append((self, settings["disable"]))

        def close(self):
            self.seen = self.n, self.total
            super().close()
    monkeypatch.setattr(export_command, "tqdm", Bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert k3("export", "--format", kind, "mini", tmp_path / OUT[kind])[0] == 0
    (bar, disabled), = bars
    assert not disabled and bar.seen[0] == bar.seen[1] > 100


def test_usage(capsys):
    for wrong in (["export", "mini", "out"], ["export", "--format", "onnx", "mini", "out"], ["verify"]):
        with pytest.raises(SystemExit) as caught:
            main(wrong)
        assert caught.value.code == 2
        capsys.readouterr()
