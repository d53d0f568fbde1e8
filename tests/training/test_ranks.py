"""Data-parallel training: several processes make the run that one makes, and a lost process is no lost run."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import rank_helpers
import torch
import torch.distributed as dist
from rank_helpers import SMALL, biases, metrics
from torch.distributed.fsdp import fully_shard

from k3_scratch.config import preset
from k3_scratch.layers.quantile_balancing import quantile_bias
from k3_scratch.model import K3
from k3_scratch.tasks.corpus import Corpus
from k3_scratch.training.checkpoint import load_checkpoint
from k3_scratch.training.loop import Interrupted, Trainer
from k3_scratch.training.processes import run_processes
from k3_scratch.training.rank_gradient import LossOf, RankGradient
from k3_scratch.training.ranks import RankLost, Ranks, ranks_of_this_process
from k3_scratch.training.run_folder import RunError, load_model, read_json
from k3_scratch.training.shards import ShardedGradient
from k3_scratch.training.together import train_together

HELPERS = Path(rank_helpers.__file__)


@pytest.fixture
def alone_in_a_group():
    """A gloo group of this process alone, as `torchrun --nproc-per-node 1` makes it."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """{world: what `train_together` returns on each rank} of 2 and of 4 processes."""
    folder = tmp_path_factory.mktemp("ranks")
    return {world: run_processes(train_together, world, preset("nano"), SMALL, str(folder / str(world)))
            for world in (2, 4)}


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The same run in one process without torchrun, which sorts in place of counting: losses, biases at the end."""
    trainer = Trainer(preset("nano"), SMALL, tmp_path_factory.mktemp("one") / "run", device="cpu", quiet=True)
    trainer.run()
    losses = torch.tensor([line["loss"] for line in metrics(trainer.folder.path)], dtype=torch.float64)
    return losses, torch.stack(list(biases(trainer.model).values()))     # [steps], [layers, E]


def test_the_loss_curve_of_one_process(several, one):
    """Same global batches: the same loss after each of 50 updates."""
    losses, _ = one
    assert len(losses) == 50 and losses[-1] < losses[0] - 0.5
    for world, ranks in several.items():
        torch.testing.assert_close(ranks[0]["losses"], losses, rtol=0, atol=1e-4, msg=f"{world} processes")


def test_biases_within_one_bin_of_one_process(several, one):
    """After 50 updates, a bin being one of the 1,000."""
    _, wanted = one
    width = (2 + wanted.amax(1) - wanted.amin(1)) / 1000                 # [layers]
    for ranks in several.values():
        off = (ranks[0]["biases"][-1] - wanted).abs().amax(1)
        assert (off <= width).all(), (off / width).tolist()


def test_all_ranks_hold_the_same_bits(several):
    """Biases after every update, and every weight and bias at the end."""
    for ranks in several.values():
        assert ranks[0]["biases"].shape == (50, 3, 6) and ranks[0]["biases"].abs().max() > 0.01
        for other in ranks[1:]:
            assert torch.equal(other["biases"], ranks[0]["biases"])
            assert torch.equal(other["losses"], ranks[0]["losses"])
            assert [name for name, value in other["weights"].items()
                    if not torch.equal(value, ranks[0]["weights"][name])] == []


def test_the_run_folder_of_several_is_that_of_one(several):
    """Rank 0 alone wrote it: each line once."""
    for world, ranks in several.items():
        folder = Path(ranks[0]["folder"])
        assert [line["step"] for line in metrics(folder)] == list(range(1, 51))
        assert [line["loss"] for line in metrics(folder)] == ranks[0]["losses"].tolist()
        assert [sum(line["load"]["1"]) for line in metrics(folder) if "load" in line] == pytest.approx([6, 6])
        assert read_json(folder / "summary.json")["processes"] == world
        assert sorted(path.name for path in folder.iterdir()) == [
            "config.json", "metrics.jsonl", "model.safetensors", "options.json", "summary.json"]


def test_pooled_balancing_is_exact_every_time(alone_in_a_group, tmp_path):
    """Update by update from the same scores, where nothing else can differ."""
    ranks = Ranks.of_group()
    trainer = Trainer(preset("nano"), replace(SMALL, steps=5), tmp_path / "run", device="cpu", quiet=True, ranks=ranks)
    with ranks.gradient(trainer.model, 1, trainer.device) as gradient:
        for _ in range(5):
            before = {layer: bias.clone() for layer, bias in biases(trainer.model).items()}
            trainer.train_step(gradient)
            for layer, moe in trainer.model.moe_layers().items():
                exact = quantile_bias(moe.observed_scores, before[layer], moe.gate.k)
                assert (moe.gate.e_score_correction_bias - exact).abs().max() <= 1e-7      # the last digit


def gradients(rank, world, rows):
    """Loss and gradients of a batch from this rank's part, with DDP and with FSDP2; of FSDP2 also this rank's share."""
    batch = Corpus(80).batch(np.random.default_rng(4), rows)
    results = {}
    model = K3(preset("nano").replace(initializer_range=0.2), seed=1).train()
    with RankGradient(model, rank, world, torch.device("cpu")) as gradient:
        loss = gradient(batch)
    results["ddp"] = loss, {name: p.grad for name, p in model.named_parameters()}
    model = K3(preset("nano").replace(initializer_range=0.2), seed=1).train()
    for part in (*model.layers, whole := LossOf(model, "cpu")):
        fully_shard(part, mesh=dist.device_mesh.init_device_mesh("cpu", (world,)))
    part = batch.rows(slice(rank, None, world))
    (whole(part) * (len(part.tokens) / rows * world)).backward()
    results["fsdp2"] = sum(p.to_local().numel() for p in model.parameters()), {
        name: None if p.grad is None else p.grad.full_tensor() for name, p in model.named_parameters()}
    return results


@pytest.mark.parametrize("rows", [5])
def test_the_gradient_of_unequal_parts(rows):
    """Five rows on two processes: three and two. A plain mean of the two gradients would be wrong."""
    model = K3(preset("nano").replace(initializer_range=0.2), seed=1).train()
    with ShardedGradient(model, 1, torch.device("cpu")) as gradient:
        loss = gradient(Corpus(80).batch(np.random.default_rng(4), rows))
    wanted = {name: p.grad for name, p in model.named_parameters()}
    total = sum(p.numel() for p in model.parameters())
    for found in run_processes(gradients, 2, rows):
        torch.testing.assert_close(found["ddp"][0], loss, rtol=1e-6, atol=0)
        for kind in ("ddp", "fsdp2"):
            for name, gradient in wanted.items():
                got = found[kind][1][name]
                if gradient is None:
                    assert got is None or not got.any(), name
                else:
                    assert (got - gradient).abs().max() <= 1e-5 * gradient.abs().max(), (kind, name)
        assert 0.4 * total < found["fsdp2"][0] < 0.6 * total             # each process holds about half of the numbers


# ---- what ends a run

def torchrun(folder, text, *, kill_at):
    """The command of a reader, on two processes; rank 1 is killed in update `kill_at` (never: 99)."""
    environment = {**os.environ, "KILL_AT": str(kill_at), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(HELPERS), "train",
         "--preset", "nano", "--out", str(folder), "--text", str(text), "--length", "16", "--batch-size", "4",
         "--steps", "9", "--checkpoint-every", "4", "--validate-every", "100", "--device", "cpu", "--quiet"],
        env=environment, capture_output=True, text=True, encoding="utf-8", timeout=300)


def test_a_killed_rank_ends_the_run_and_the_same_command_resumes(tmp_path, text_file):
    folder = tmp_path / "run"
    killed = torchrun(folder, text_file, kill_at=6)
    assert killed.returncode != 0
    line, = (line for line in killed.stderr.splitlines() if line.startswith("k3: "))     # one line, not one a rank
    assert line == ("k3: rank 1 of 2 ended (killed, or by an error of its own) after 6 updates: the checkpoint after 4 "
                    "updates is good, and the same command resumes")
    assert load_checkpoint(folder / "checkpoint.pt")["step"] == 4
    assert [line["step"] for line in metrics(folder)] == [1, 2, 3, 4, 5, 6]
    assert not list(folder.glob(".*tmp")) and not (folder / "summary.json").exists()

    resumed = torchrun(folder, text_file, kill_at=99)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count("resuming after 4 of 9 updates") == 1
    assert [line["step"] for line in metrics(folder)] == list(range(1, 10))
    assert load_model(folder).config == preset("nano")


def test_ctrl_c_on_one_rank_is_agreed_on(alone_in_a_group, options, tmp_path):
    """The signal may reach the ranks in different updates; what all hear of in this one stops all."""
    ranks = Ranks.of_group()
    trainer = Trainer(preset("nano"), options(batch_size=4), tmp_path / "run", device="cpu", quiet=True, ranks=ranks)
    ranks.asked_to_stop = True                                           # what torchrun's SIGTERM sets
    with pytest.raises(Interrupted, match="saved after 1 updates"):
        trainer.run()
    assert load_checkpoint(tmp_path / "run" / "checkpoint.pt")["step"] == 1


def test_what_the_lost_are_called(alone_in_a_group, monkeypatch):
    ranks, broken = Ranks("cpu", dist.HashStore(), 0, 3), RuntimeError("gloo: connection closed")
    monkeypatch.setattr("k3_scratch.training.ranks.ROLL_CALL", 0.0)
    told = ranks.explain(broken, 7, lambda: 0)
    assert isinstance(told, RankLost)
    assert str(told) == ("rank 1, 2 of 3 ended (killed, or by an error of its own) after 7 updates: no checkpoint had "
                         "been written; the same command starts anew")
    for rank in (1, 2):
        ranks.store.set(f"left/{rank}", "here")
    told = str(ranks.explain(broken, 7, lambda: 4))
    assert "did not answer for 0:10:00 after 7 updates: the checkpoint after 4" in told
    other = RuntimeError("mat1 and mat2 shapes cannot be multiplied")
    assert ranks.explain(other, 7, lambda: 4) is other                # a fault of ours is shown as it is
    ranks.rank = 1
    assert isinstance(ranks.explain(broken, 7, lambda: 4), SystemExit)          # rank 0 says it


def test_what_several_processes_cannot_do(alone_in_a_group, options, tmp_path):
    ranks = Ranks("cpu", dist.HashStore(), 0, 3)
    with pytest.raises(RunError, match="batch_size must be at least the 3 processes, but 2 came"):
        Trainer(preset("nano"), options(batch_size=2), tmp_path / "run", quiet=True, ranks=ranks)
    with pytest.raises(RunError, match="--device must be cpu or cuda under torchrun"):
        Trainer(preset("nano"), options(batch_size=4), tmp_path / "run", device="mps", quiet=True, ranks=ranks)
    assert not (tmp_path / "run").exists()


def test_without_torchrun_there_are_no_ranks():
    ranks = ranks_of_this_process()
    assert (ranks.rank, ranks.world, ranks.first) == (0, 1, True) and not isinstance(ranks, Ranks)
    with ranks as same:
        assert same.first_then_all(lambda: 3) == 3 and same.any(True) and not same.any(False)
