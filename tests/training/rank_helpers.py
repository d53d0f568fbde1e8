"""The small run of these tests, and a script that torchrun starts: `k3` with a process that kills itself."""

import json
import os
import signal
import sys
from pathlib import Path

from k3_scratch.__main__ import main
from k3_scratch.training.loop import Trainer
from k3_scratch.training.options import TrainOptions

SMALL = TrainOptions(steps=50, batch_size=8, validate_every=25, validation_rows=1, test_rows=1, exact_examples=1,
                     checkpoint_every=20, learning_rate=0.002, shards=1, seed=3)


def biases(model):
    """{layer: selection bias [E]}"""
    return {layer: moe.gate.e_score_correction_bias for layer, moe in model.moe_layers().items()}


def metrics(folder):
    """The lines of a run's metrics."""
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":                         # under torchrun: rank 1 kills itself in update KILL_AT
    step_number, original = int(os.environ["KILL_AT"]), Trainer.train_step

    def train_step(self, gradient):
        if self.step == step_number and self.ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, gradient)

    Trainer.train_step = train_step
    sys.exit(main(sys.argv[1:]))
