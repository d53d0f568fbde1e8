"""The trained weights that come with the package: they are there, and they score what their summary says."""

import json

import numpy as np
import pytest

from k3_scratch.config import preset
from k3_scratch.pretrained import FOLDER, pretrained
from k3_scratch.tasks.corpus import FAMILIES, Corpus
from k3_scratch.training.evaluate import accuracy
from k3_scratch.training.run_folder import RunError


def summary():
    return json.loads((FOLDER / "mini" / "summary.json").read_text(encoding="utf-8"))


def test_mini_is_there_and_is_the_mini_preset():
    assert sorted(path.name for path in (FOLDER / "mini").iterdir()) == [
        "config.json", "model.safetensors", "options.json", "summary.json"]
    model = pretrained("mini")
    assert model.config == preset("mini") and not model.training
    assert sum(p.numel() for p in model.parameters()) == summary()["parameters"]
    assert (FOLDER / "mini" / "model.safetensors").stat().st_size < 4e6


def test_the_summary_is_good_enough():
    assert summary()["mean_accuracy"] >= 0.95
    assert set(summary()["accuracy"]) == set(FAMILIES)
    assert min(summary()["accuracy"].values()) >= 0.90


def test_mini_scores_what_its_summary_says():
    """64 rows per family of the test split, in 8 draws of 8 rows that the summary's own test did not use.

    The characters of a row are right or wrong together, so the spread is taken from the draws themselves: the mean of 8
    draws has a standard error of their deviation over sqrt(8), and the summary's, from 512 rows, an eighth of that
    variance more. Five of these, and .01 for a family in which all 8 draws happen to be equal.
    """
    model, data, told = pretrained("mini"), Corpus(80), summary()["accuracy"]
    draws = [accuracy(model, data, "test", 8, seed=seed)[0] for seed in range(1, 9)]
    means = {}
    for family in FAMILIES:
        values = np.array([draw[family] for draw in draws])
        means[family] = values.mean()
        tolerance = 5 * values.std(ddof=1) * np.sqrt((1 + 1 / 8) / 8) + 0.01
        assert abs(means[family] - told[family]) <= tolerance, (family, means[family], told[family], tolerance)
        assert means[family] >= 0.90 - tolerance
    assert np.mean(list(means.values())) >= 0.95 - 0.01


def test_an_unknown_name_lists_the_known():
    with pytest.raises(RunError, match="pretrained: name must be one of .*, but 'huge' came"):
        pretrained("huge")
    with pytest.raises(RunError, match=r"but '\.\./pretrained/mini' came"):
        pretrained("../pretrained/mini")
