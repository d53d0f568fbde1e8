"""The experiments over all sequence mixers: who is in them, and how steps to learn are counted."""

import numpy as np
import pytest

from k3_scratch.baselines.mixers import MIXERS
from k3_scratch.lab.cells import run_cell
from k3_scratch.lab.experiment import load
from k3_scratch.lab.learning import GOAL, STEPS, first_step
from k3_scratch.lab.plan import jobs_of


def test_every_mixer_there_is_takes_part_in_rewrite():
    experiment = load("rewrite")
    layers = [experiment.arguments(variant)["layers"].split(",") for variant in experiment.variants]
    assert sorted(first for first, _ in layers) == sorted(MIXERS) and all(first == second for first, second in layers)


@pytest.mark.parametrize(("accuracy", "step"), [([.2, .95, .8, .97], 20), ([.2, .3, .9, .91], 30), ([.9], 10),
                                                ([.1, .2, .3, .89], 40)])
def test_the_first_step_at_the_goal(accuracy, step):
    steps = np.arange(10, 50, 10)[:len(accuracy)].tolist()
    assert first_step(steps, accuracy, GOAL) == step


def test_a_cell_counts_its_own_steps(tmp_path):
    """With nothing learned in four updates the number is that of all updates."""
    job = next(job for job in jobs_of(load("rewrite"), quick=True) if job.variant.name == "KDA")
    cell = run_cell(job, tmp_path)
    assert max(cell["curve"]["accuracy"]) < GOAL and cell["values"][STEPS] == cell["steps"] == 4
