"""More seeds where few decide nothing: what a claim compares and what differs by little has five."""

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest

from k3_scratch.analysis.spread import spread
from k3_scratch.lab.close import SEEDS, close_cells, with_close
from k3_scratch.lab.experiment import LabError, Size, Variant, load, load_all
from k3_scratch.lab.gallery import section
from k3_scratch.lab.plan import plan
from k3_scratch.lab.runner import run_planned
from k3_scratch.lab.summary import Above

RESULTS = Path(__file__).resolve().parents[2] / "figures" / "results"


def measured(planned, tiny, tmp_path):
    return run_planned([planned], tmp_path, jobs=0, build=tmp_path, folder=tiny, quiet=True,
                       say=lambda _: None)["counting"]


def _noisy(tiny, heights):
    """The tiny experiment with the heights given, its noise of .01 and a claim on every pair of neighbours."""
    names = [f"at {height}" for height in heights]
    return dataclasses.replace(
        load("counting", tiny), sizes=(Size("plain", {"lift": 0.0}),),
        variants=tuple(Variant(name, "the height", {"height": height})
                       for name, height in zip(names, heights, strict=True)),
        claims=tuple(Above("higher", "height", (high,), (low,)) for low, high in zip(names, names[1:], strict=False)))


def test_what_differs_by_little_gets_five_seeds(tiny, tmp_path):
    experiment = _noisy(tiny, (1.0, 1.001, 2.0))
    first = plan([experiment])
    result = measured(first[0], tiny, tmp_path)
    sd = spread(result, "at 1.0", "height").sd
    assert 0.001 < 3 * sd < 0.9                                          # so the first pair is close, the second not
    assert close_cells(result, experiment) == {("at 1.0", "plain"), ("at 1.001", "plain")}
    more = with_close(first[0], result)
    assert [(job.variant.name, job.seed) for job in more.jobs[9:]] == [
        ("at 1.0", 3), ("at 1.001", 3), ("at 1.0", 4), ("at 1.001", 4)]
    again = measured(more, tiny, tmp_path)
    assert again["seeds"] == 5 and len(again["cells"]) == 13
    assert close_cells(again, experiment) == close_cells(result, experiment)
    assert "in 5 of 5" in again["verdicts"][0]["sentence"] or again["verdicts"][0]["word"] != "shown"
    assert "in 3 of 3 comparisons" in again["verdicts"][1]["sentence"]   # over the seeds that both have
    assert "3 seeds, 5 where" in section(again) and "`k3 experiment counting --close`" in section(again)


def test_added_seeds_count_against_the_minutes(tiny, tmp_path):
    experiment = dataclasses.replace(_noisy(tiny, (1.0, 1.001)), seconds=290.0)
    first = plan([experiment])
    result = measured(first[0], tiny, tmp_path)
    with pytest.raises(LabError, match="counting: 10 cells .* at most 15 are allowed"):
        with_close(first[0], result)


def test_committed_results_have_five_seeds_where_they_are_close():
    lacking = set()
    for experiment in load_all():
        result = json.loads((RESULTS / f"lab_{experiment.name}.json").read_text(encoding="utf-8"))
        counts = Counter((cell["variant"], cell["size"]) for cell in result["cells"])
        if any(counts[cell] < SEEDS for cell in close_cells(result, experiment)):
            lacking.add(experiment.name)
    assert lacking == set()                                              # else: k3 experiment NAME --close
