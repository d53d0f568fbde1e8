"""A run that was interrupted and resumed ends with the same bits as one that was not."""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file

from k3_scratch.config import preset
from k3_scratch.training.checkpoint import CheckpointError, load_checkpoint
from k3_scratch.training.loop import Interrupted, Trainer
from k3_scratch.training.run_folder import RunError

SMALL = preset("nano").replace(num_layers=2, attn_res_block_size=1)      # one layer of each kind
TIMES = ("train_seconds", "tokens_per_second", "peak_memory_bytes")


@pytest.fixture
def trainer(trainer):
    """The fixture of this folder, with a smaller model."""
    return lambda name="run", **changes: trainer(name, **{"config": SMALL, **changes})


def results(folder):
    """Weights, metrics and summary of a finished run, without what a clock measured."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return (load_file(folder / "model.safetensors"),
            [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in lines],
            {key: value for key, value in summary.items() if key not in TIMES})


def assert_same_bits(one, other):
    (weights, metrics, summary), (weights2, metrics2, summary2) = results(one), results(other)
    assert sorted(weights) == sorted(weights2)
    assert [name for name in weights if not torch.equal(weights[name], weights2[name])] == []
    assert any(name.endswith("e_score_correction_bias") and value.any() for name, value in weights.items())
    assert metrics == metrics2
    assert summary == summary2


def act_at(monkeypatch, step, act):
    """Call act() inside the update that ends at `step`, once."""
    original, waiting = Trainer.train_step, [True]

    def train_step(self, *arguments):
        entry = original(self, *arguments)
        if self.step == step and waiting:
            waiting.clear()
            act()
        return entry

    monkeypatch.setattr(Trainer, "train_step", train_step)


@pytest.mark.parametrize(("step", "changes"), [
    (6, {}),                                                              # not a multiple of checkpoint_every = 4
    (4, {}),                                                              # at a checkpoint
    (5, {}),                                                              # at a validation
    (1, {"corpus": True, "recompute": True, "shards": 2, "steps": 4}),
    (3, {"optimizer": "adamw", "checkpoint_every": 100}),                 # before any checkpoint
    (7, {"batch_size": 5, "shards": 3}),
])
def test_interrupted_and_resumed_is_uninterrupted(step, changes, trainer, tmp_path, monkeypatch):
    trainer("whole", **changes).run()
    handler = signal.getsignal(signal.SIGINT)
    act_at(monkeypatch, step, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted, match=f"saved after {step} updates; the same command resumes"):
        trainer("parts", **changes).run()
    assert signal.getsignal(signal.SIGINT) is handler
    assert load_checkpoint(tmp_path / "parts" / "checkpoint.pt")["step"] == step
    assert not (tmp_path / "parts" / "summary.json").exists()
    resumed = trainer("parts", **changes)
    assert resumed.step == step
    resumed.run()
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")
    assert not (tmp_path / "parts" / "checkpoint.pt").exists()


def test_interrupted_twice(trainer, tmp_path, monkeypatch):
    trainer("whole").run()
    for step in (2, 7):
        act_at(monkeypatch, step, lambda: signal.raise_signal(signal.SIGINT))
        with pytest.raises(Interrupted):
            trainer("parts").run()
    trainer("parts").run()
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")


def test_a_killed_run_goes_on_from_its_last_checkpoint(trainer, tmp_path, monkeypatch):
    """Nothing is saved at the end of the world: steps 5 and 6 are done again, and their lines written again."""
    def power_cut():
        raise SystemError("power cut")

    trainer("whole").run()
    act_at(monkeypatch, 7, power_cut)
    with pytest.raises(SystemError):
        trainer("parts").run()
    metrics = tmp_path / "parts" / "metrics.jsonl"
    assert len(metrics.read_text(encoding="utf-8").splitlines()) == 6
    with metrics.open("a", encoding="utf-8") as file:
        file.write('{"step": 7, "lo')                                     # and the last line was cut in two
    resumed = trainer("parts")
    assert resumed.step == 4
    resumed.run()
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")


def test_killed_before_the_first_checkpoint_starts_anew(trainer, tmp_path, monkeypatch):
    def power_cut():
        raise SystemError("power cut")

    trainer("whole").run()
    act_at(monkeypatch, 3, power_cut)
    with pytest.raises(SystemError):
        trainer("parts").run()
    trainer("parts").run()
    assert_same_bits(tmp_path / "whole", tmp_path / "parts")


def test_an_interrupt_in_the_last_update_finishes(trainer, tmp_path, monkeypatch):
    act_at(monkeypatch, 9, lambda: signal.raise_signal(signal.SIGINT))
    assert trainer().run()["steps"] == 9
    assert (tmp_path / "run" / "summary.json").exists()


def test_an_interrupt_during_the_final_test_keeps_the_training(trainer, tmp_path, monkeypatch):
    """The final test of a large run takes a while; Ctrl-C in it must not throw the last updates away."""
    def impatient(*arguments, **settings):
        signal.raise_signal(signal.SIGINT)
        raise KeyboardInterrupt                                           # if nobody caught the signal

    with monkeypatch.context() as patch:
        patch.setattr("k3_scratch.training.loop.exact_match", impatient)
        with pytest.raises((Interrupted, KeyboardInterrupt)):
            trainer(checkpoint_every=100).run()
    assert load_checkpoint(tmp_path / "run" / "checkpoint.pt")["step"] == 9


def test_same_seed_same_bits_other_seed_others(trainer, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.manual_seed(len(name) + seed)                               # the global generator says nothing
        torch.rand(seed + 1)
        trainer(name, seed=seed).run()
    assert_same_bits(tmp_path / "a", tmp_path / "b")
    first, other = results(tmp_path / "a"), results(tmp_path / "c")
    assert not torch.equal(first[0]["layers.0.self_attn.q_proj.weight"], other[0]["layers.0.self_attn.q_proj.weight"])
    assert [line["loss"] for line in first[1]] != [line["loss"] for line in other[1]]


def test_the_seed_decides_the_batches_too(trainer, step):
    """Same weights, other batches: the first losses differ although nothing else does."""
    a, b = trainer("a", seed=0), trainer("b", seed=1)
    b.model.load_state_dict(a.model.state_dict())
    assert step(a)["loss"] != step(b)["loss"]


def test_a_finished_run_is_refused_without_force(trainer, tmp_path):
    trainer().run()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with pytest.raises(RunError, match="run holds a finished run; --force trains it anew"):
        trainer()
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    (tmp_path / "run" / "notes.txt").write_text("mine", encoding="utf-8")
    again = trainer(force=True, seed=2)
    assert again.step == 0 and not (tmp_path / "run" / "summary.json").exists()
    again.run()
    assert [line["step"] for line in results(tmp_path / "run")[1]] == list(range(1, 10))
    assert results(tmp_path / "run")[2]["seed"] == 2
    assert (tmp_path / "run" / "notes.txt").read_text(encoding="utf-8") == "mine"


@pytest.fixture
def unfinished(trainer, tmp_path, monkeypatch):
    """The folder of a run that was interrupted after 2 of 9 updates."""
    act_at(monkeypatch, 2, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted):
        trainer().run()
    return tmp_path / "run"


@pytest.mark.parametrize(("changes", "message"), [
    ({"seed": 4}, "seed is 0 there and 4 now"),
    ({"steps": 10}, "steps is 9 there and 10 now"),
    ({"learning_rate": 0.01}, "learning_rate is 0.004 there and 0.01 now"),
    ({"corpus": True}, "length is 16 there and 80 now"),
])
def test_an_unfinished_run_with_other_options_is_refused(changes, message, unfinished, trainer):
    before = {path.name: path.read_bytes() for path in unfinished.iterdir()}
    with pytest.raises(RunError) as caught:
        trainer(**changes)
    assert f"holds an unfinished run with other settings: {message}" in str(caught.value)
    assert "--force" in str(caught.value) and "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in unfinished.iterdir()} == before
    assert trainer(force=True, **changes).step == 0


def test_an_unfinished_run_of_another_model_is_refused(unfinished, trainer):
    with pytest.raises(RunError, match="num_experts is 6 there and 7 now"):
        trainer(config=SMALL.replace(num_experts=7))


@pytest.mark.parametrize("keep", [0, 100, 0.5, 0.99])
def test_a_truncated_checkpoint_is_named_and_left_alone(keep, unfinished, trainer):
    file = unfinished / "checkpoint.pt"
    data = file.read_bytes()
    file.write_bytes(data[:int(len(data) * keep) if keep < 1 else keep])
    before = {path.name: path.read_bytes() for path in unfinished.iterdir()}
    with pytest.raises(CheckpointError, match="checkpoint.pt: not a readable checkpoint") as caught:
        trainer()
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in unfinished.iterdir()} == before


@pytest.mark.parametrize("kind", ["another model", "no model", "a list", "one optimiser"])
def test_a_checkpoint_of_something_else_is_named_in_one_line(kind, unfinished, trainer):
    file = unfinished / "checkpoint.pt"
    contents = torch.load(file)
    if kind == "another model":
        other = trainer("other", config=SMALL.replace(hidden_size=32))
        contents["model"] = other.model.state_dict()
    elif kind == "no model":
        del contents["model"]
    elif kind == "one optimiser":
        contents["optimizers"] = contents["optimizers"][:1]
    else:
        contents = [1, 2]
    torch.save(contents, file)
    with pytest.raises(CheckpointError, match="checkpoint.pt: not a checkpoint of this run") as caught:
        trainer()
    assert "\n" not in str(caught.value)
