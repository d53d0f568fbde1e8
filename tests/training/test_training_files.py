"""Files of a run: written whole or not at all, read back, and refused in one line when something is wrong."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch_helpers import write_run

from k3_scratch.config import preset
from k3_scratch.model import K3
from k3_scratch.training.checkpoint import CheckpointError, load_checkpoint, save_checkpoint, write_atomically
from k3_scratch.training.run_folder import RunError, RunFolder, load_model, save_weights


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_failing_save_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    file = tmp_path / "checkpoint.pt"
    save_checkpoint(file, {"step": 1})
    before = file.read_bytes()

    def disk_full(contents, path):
        path.write_bytes(b"half a ch")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", disk_full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(file, {"step": 2})
    assert file.read_bytes() == before and names(tmp_path) == ["checkpoint.pt"]


def test_the_name_never_holds_a_half_written_file(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("old", encoding="utf-8")

    def write(temporary):
        temporary.write_text("ne", encoding="utf-8")
        assert temporary.parent == tmp_path                               # the same disk, so that moving is one act
        assert file.read_text(encoding="utf-8") == "old"
        temporary.write_text("new", encoding="utf-8")

    write_atomically(file, write)
    assert file.read_text(encoding="utf-8") == "new" and names(tmp_path) == ["notes.txt"]


def test_a_failing_save_of_the_weights_leaves_none(tmp_path, monkeypatch):
    def broken(path, data):
        path.write_text("half", encoding="utf-8")
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "write_bytes", broken)
    with pytest.raises(OSError, match="No space"):
        save_weights(K3(preset("nano")), tmp_path / "model.safetensors")
    assert names(tmp_path) == []


def test_a_checkpoint_loads_with_the_safe_defaults(trainer, step, tmp_path):
    run = trainer()
    step(run)
    run.save(0.0)
    contents = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert set(contents) == {"step", "seconds", "model", "optimizers", "counts"} and contents["step"] == 1
    again = load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    assert all(torch.equal(again["model"][name], value) for name, value in run.model.state_dict().items())


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path):
    torch.save({"model": print}, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="checkpoint.pt: not a readable checkpoint") as caught:
        load_checkpoint(tmp_path / "checkpoint.pt")
    assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointError, match="nothing.pt: not a readable checkpoint"):
        load_checkpoint(tmp_path / "nothing.pt")


@pytest.fixture
def finished(tmp_path):
    """A folder as a finished run leaves it, as far as `load_model` looks."""
    return write_run(tmp_path / "run", K3(preset("nano"), seed=4))


def change(folder, act):
    tensors = load_file(folder / "model.safetensors")
    act(tensors)
    save_file(tensors, folder / "model.safetensors")


def refusal(kind, folder):
    with pytest.raises(kind) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)
    return str(caught.value)


def test_weights_come_back(finished):
    model, other = load_model(finished), K3(preset("nano"), seed=4)
    assert not model.training and model.config == preset("nano")
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items())
    assert "layers.1.block_sparse_moe.gate.e_score_correction_bias" in load_file(finished / "model.safetensors")


@pytest.mark.parametrize("size", [0, 7, 200, -1, -1000])
def test_truncated_weights(finished, size):
    file = finished / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    assert "model.safetensors: not readable safetensors" in refusal(CheckpointError, finished)


def test_missing_more_and_misshapen_tensors(finished):
    original = (finished / "model.safetensors").read_bytes()
    change(finished, lambda tensors: tensors.pop("norm.weight"))
    assert "1 tensors do not fit config.json, first norm.weight: wanted (24,), got none" in refusal(
        CheckpointError, finished)
    (finished / "model.safetensors").write_bytes(original)
    change(finished, lambda tensors: tensors.update(bonus=torch.zeros(3)))
    assert "first bonus: wanted none, got (3,)" in refusal(CheckpointError, finished)
    (finished / "model.safetensors").write_bytes(original)
    change(finished, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(260, 25)}))
    assert "first lm_head.weight: wanted (260, 24), got (260, 25)" in refusal(CheckpointError, finished)


def test_weights_of_another_configuration(finished):
    (finished / "config.json").write_text(preset("nano").replace(num_experts=7).to_json(), encoding="utf-8")
    message = refusal(CheckpointError, finished)
    assert "tensors do not fit config.json, first layers.1.block_sparse_moe.experts.w1: wanted (7, " in message


def test_missing_files(finished):
    (finished / "config.json").write_text('{"num_heads": 0}', encoding="utf-8")
    assert "config.json: num_heads must be a whole number" in refusal(RunError, finished)
    (finished / "model.safetensors").unlink()
    (finished / "config.json").write_text(preset("nano").to_json(), encoding="utf-8")
    assert "the run is not finished (it has no model.safetensors)" in refusal(RunError, finished)
    (finished / "config.json").unlink()
    assert "not a run folder (it has no config.json)" in refusal(RunError, finished)
    assert "not a run folder" in refusal(RunError, finished / "nowhere")


def test_finished_means_summary_and_weights(finished):
    folder = RunFolder(finished)
    assert folder.finished
    folder.weights.unlink()
    assert not folder.finished
    save_weights(K3(preset("nano")), folder.weights)
    folder.summary.unlink()
    assert not folder.finished


def test_metrics_are_lines_in_order_and_cut_at_a_step(tmp_path):
    folder = RunFolder(tmp_path)
    for step in range(1, 6):
        folder.log(step=step, loss=1 / step)
    with folder.metrics.open("a", encoding="utf-8") as file:
        file.write('{"step": 6, "loss"')
    folder.keep_metrics_until(3)
    assert [entry["step"] for entry in folder.read_metrics()] == [1, 2, 3]
    assert folder.metrics.read_text(encoding="utf-8").count("\n") == 3
    folder.log(step=4, loss=0.25)
    assert json.loads(folder.metrics.read_text(encoding="utf-8").splitlines()[-1]) == {"step": 4, "loss": 0.25}
    RunFolder(tmp_path / "nowhere").keep_metrics_until(3)


def test_clear_removes_only_the_files_of_a_run(tmp_path):
    kept = ["config.json", "loss.png", "mine.txt"]
    for name in [*kept, "summary.json", "model.safetensors", "checkpoint.pt", "metrics.jsonl"]:
        (tmp_path / name).write_text("x", encoding="utf-8")
    RunFolder(tmp_path).clear()
    assert names(tmp_path) == kept
