"""`k3 demo`: what it prints, how it ends, and that bad input costs one line."""

import doctest
import os
import re
import sys
from importlib.metadata import version

import pytest
import torch
from torch_helpers import write_run

import k3_scratch.export.llama_cpp as llama_cpp
from k3_scratch.__main__ import main
from k3_scratch.commands import demo
from k3_scratch.config import preset
from k3_scratch.model import K3
from k3_scratch.pretrained import pretrained


@pytest.fixture
def run_folder(tmp_path):
    """make(name, **changes): a finished run with the weights of a fresh nano model."""
    def make(name, **changes):
        return write_run(tmp_path / name, K3(preset("nano").replace(kda_value_dim=8, **changes), seed=1))
    return make


def test_the_pretrained_miniature(capsys, tmp_path):
    out = tmp_path / "kept.gguf"
    assert main(["demo", "--pretrained", "--prompts", "2", "--max-new-tokens", "45", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"the pretrained miniature as GGUF: {out.stat().st_size:,} bytes, {out}\n")
    assert said.count("note: ") == 2 and said.endswith("\n90 of 90 tokens equal\n")
    ours, theirs = (re.findall(rf"^  {name} +(\S+)$", said, re.MULTILINE) for name in ("ours", r"llama\.cpp"))
    assert ours == theirs and [len(row) for row in ours] == [40, 5, 40, 5]
    assert re.findall(r"^ +([=!]+)$", said, re.MULTILINE) == ["=" * 40, "=" * 5] * 2
    assert re.search(r"^ours [\d,]+ tokens/s, llama\.cpp [\d,]+ tokens/s", said, re.MULTILINE)
    assert main(["demo", "--pretrained", "--out", str(out)]) == 2
    assert "exists; --force replaces it" in capsys.readouterr().err


def test_the_last_finished_run_is_taken(run_folder, tmp_path, monkeypatch, capsys):
    older, newer, unfinished = run_folder("runs/a"), run_folder("runs/b"), run_folder("runs/c")
    (unfinished / "model.safetensors").unlink()
    os.utime(older / "summary.json", (5_000, 5_000))
    monkeypatch.chdir(tmp_path)
    assert demo.last_run() == newer.relative_to(tmp_path)
    assert main(["demo", "--prompts", "1", "--max-new-tokens", "3"]) == 0
    assert "runs/b as GGUF" in capsys.readouterr().out.replace("\\", "/")
    assert main(["demo", str(older), "--prompts", "1", "--max-new-tokens", "3"]) == 0
    assert f"{older} as GGUF" in capsys.readouterr().out


def test_a_difference_is_marked_and_costs_the_status(capsys, tmp_path, monkeypatch):
    """llama.cpp runs another model than we do."""
    from k3_scratch.export.gguf import to_gguf
    other = pretrained("mini")
    with torch.no_grad():
        other.lm_head.weight.copy_(other.lm_head.weight.flip(0))
    to_gguf(other, tmp_path / "other.gguf")
    assert demo.compare(pretrained("mini"), tmp_path / "other.gguf", ["2+2="], 6) == 1
    said = capsys.readouterr().out
    assert re.search(r"^ +!{3,6}=?", said, re.MULTILINE) and not said.endswith("6 of 6 tokens equal\n")


@pytest.mark.parametrize(("arguments", "message"), [
    (["nowhere"], "nowhere: not a run folder"), ([], "no finished run in runs/: train one"),
    (["--pretrained", "--prompts", "0"], "--prompts must be at least 1, but 0 came"),
    (["--pretrained", "--max-new-tokens", "-2"], "--max-new-tokens must be at least 1, but -2 came")])
def test_what_the_user_can_mend(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("k3: " + message) and said.err.count("\n") == 1


def test_a_model_of_symbols_is_refused(run_folder, capsys):
    assert main(["demo", str(run_folder("symbols", vocab_size=40))]) == 2
    assert "needs a model of text, 260 tokens, not 40" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["xllamacpp", "gguf"])
def test_a_missing_package_is_told_with_the_line_to_type(package, monkeypatch, capsys):
    monkeypatch.setattr(llama_cpp, "_library", [])
    if package == "xllamacpp":
        monkeypatch.setitem(sys.modules, "xllamacpp.xllamacpp", None)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["demo", "--pretrained"]) == 2
    said = capsys.readouterr()
    assert said.err == f"k3: the {package} package is needed: pip install {package}=={version(package)}\n"


def test_the_example_in_the_docstring():
    assert doctest.testmod(demo).failed == 0
