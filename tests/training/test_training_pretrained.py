"""The trained weights that come with the package: they are there, and they score what their summary says."""

import json

import numpy as np
import pytest

from k3_scratch.commands.readme import VISION_GOALS as GOALS
from k3_scratch.config import preset
from k3_scratch.pretrained import FOLDER, pretrained, run_or_pretrained
from k3_scratch.tasks.corpus import FAMILIES, Corpus
from k3_scratch.tasks.pictures import Pictures
from k3_scratch.training.answers import CONTROLS, answers, whole_answers
from k3_scratch.training.evaluate import accuracy
from k3_scratch.training.run_folder import RunError


def summary(name="mini"):
    return json.loads((FOLDER / name / "summary.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["mini", "vision"])
def test_it_is_there_and_is_its_preset(name):
    assert sorted(path.name for path in (FOLDER / name).iterdir()) == [
        "config.json", "model.safetensors", "options.json", "summary.json"]
    model = pretrained(name)
    assert model.config == preset(name) and not model.training
    assert sum(p.numel() for p in model.parameters()) == summary(name)["parameters"]
    assert (FOLDER / name / "model.safetensors").stat().st_size < 3e6


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


def test_the_summary_of_vision_is_good_enough():
    told = summary("vision")
    assert set(told["exact_match"]) == set(GOALS) and set(told["controls"]) == {*CONTROLS, "text_only"}
    for family, goal in GOALS.items():
        assert told["exact_match"][family] >= goal
        for scores in told["controls"].values():                         # chance: a quarter; for counts about a half
            assert scores[family] < (0.75 if family == "count" else 0.45), (family, told["controls"])


def test_vision_scores_what_its_summary_says():
    """In 6 draws of 8 rows a family that the summary's own test did not use; tolerance as for the mini.

    The summary has 128 rows: 6 * 8 / 128 of the variance of a mean of 6 draws. Six draws without a mistake show no
    spread, yet a share p of n answers has one, sqrt(p (1 - p) / n): the larger of both counts.
    """
    model, data, told = pretrained("vision"), Pictures(), summary("vision")
    draws = [whole_answers(model, data, "test", 8, seed) for seed in range(1, 7)]
    for family, goal in GOALS.items():
        values, right = np.array([draw[family] for draw in draws]), told["exact_match"][family]
        asked = len(answers(data.batch(np.random.default_rng(0), 8, "test", family)))
        spread = max(values.std(ddof=1), np.sqrt(right * (1 - right) / asked))
        tolerance = 5 * spread * np.sqrt((1 + 48 / 128) / 6) + 0.01
        assert tolerance < 0.2 and abs(values.mean() - right) <= tolerance, (family, values)
        assert values.mean() >= goal - tolerance
    for change in CONTROLS.values():
        blind = whole_answers(model, data, "test", 16, 1, change=change)
        assert all(blind[family] < (0.8 if family == "count" else 0.5) for family in GOALS), blind


def test_a_name_is_a_run_or_a_published_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_or_pretrained().config == run_or_pretrained("mini").config == preset("mini")
    assert run_or_pretrained("vision").config == preset("vision")
    (tmp_path / "vision").mkdir()                                        # a folder of that name comes first
    with pytest.raises(RunError, match="vision: not a run folder"):
        run_or_pretrained("vision")
    with pytest.raises(RunError, match="nowhere: not a run folder"):
        run_or_pretrained("nowhere")


def test_an_unknown_name_lists_the_known():
    with pytest.raises(RunError, match="pretrained: name must be one of .*, but 'huge' came"):
        pretrained("huge")
    with pytest.raises(RunError, match=r"but '\.\./pretrained/mini' came"):
        pretrained("../pretrained/mini")
