"""An experiment without a model: numbers that follow from the seed."""

import os

import numpy as np

from k3_scratch.lab.experiment import Experiment, Paper, Quick, Size, Variant
from k3_scratch.lab.pictures import dots
from k3_scratch.lab.summary import Above, Within


def measure(job):
    """The variant's height plus noise of the seed; BROKEN in the environment names a variant that fails."""
    if os.environ.get("BROKEN") == job.variant.name:
        raise RuntimeError("broken on purpose")
    noise = np.random.default_rng(job.seed).normal(0, 0.01)
    return {"values": {"height": job.arguments["height"] + job.arguments["lift"] + noise},
            "curve": {"step": [1, 2], "height": [0.0, job.arguments["height"]]}}


EXPERIMENT = Experiment(
    name="counting", letter="a", title="Counting: a test", question="Which is higher?", setup="Two heights.",
    variants=(Variant("low", "the height", {"height": 1.0}), Variant("high", "the height", {"height": 2.0})),
    measure=measure, sizes=(Size("plain", {"lift": 0.0}), Size("lifted", {"lift": 5.0}, only=("high",))), seeds=3,
    matched="nothing: there is no model", seconds=0.1, expected="High is higher.",
    claims=(Above("high is higher", "height", ("high",), ("low",)),
            Within("low is above three", "height", ("low",), low=3.0)),
    draw=dots("height", title="Heights", x_label="height"), alt="Dots of heights.",
    paper=Paper("Nobody", "Heights were found.", {"low": 1.5, "high": 2.5}, "height"),
    quick=Quick(seeds=1, seconds=0.1))
