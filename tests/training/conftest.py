"""Runs of a second or two: the nano model on a short text, or on the corpus with the smallest tests."""

import dataclasses

import pytest

from k3_scratch.config import preset
from k3_scratch.training.loop import Trainer
from k3_scratch.training.options import TrainOptions
from k3_scratch.training.shards import ShardedGradient


@pytest.fixture(scope="session")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "fox.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 40, encoding="utf-8")
    return path


@pytest.fixture
def options(text_file):
    """options(**changes): a run of a few short steps on the text; corpus=True: on the corpus."""
    def make(corpus=False, **changes):
        small = {"steps": 9, "batch_size": 2, "validate_every": 5, "validation_rows": 1, "test_rows": 1,
                 "exact_examples": 1, "checkpoint_every": 4, "learning_rate": 0.004, "shards": 1}
        if not corpus:
            small |= {"text": str(text_file), "length": 16}
        return dataclasses.replace(TrainOptions(), **{**small, **changes})
    return make


@pytest.fixture
def trainer(tmp_path, options):
    """trainer(folder name, **options): a Trainer of nano on the CPU, without a progress bar."""
    def make(name="run", *, config=None, force=False, **changes):
        return Trainer(config or preset("nano"), options(**changes), tmp_path / name, device="cpu", force=force,
                       quiet=True)
    return make


@pytest.fixture
def step():
    """step(trainer): one update in training mode, its line for the metrics."""
    def make(run):
        run.model.train()
        with ShardedGradient(run.model, run.options.shards, run.device) as gradient:
            return run.train_step(gradient)
    return make
