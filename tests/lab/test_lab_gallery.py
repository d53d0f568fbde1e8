"""The gallery is made from the JSON alone, and the committed one is what they give."""

import json
from pathlib import Path

import pytest

from k3_scratch.lab.experiment import LabError, load, names
from k3_scratch.lab.gallery import gallery_text, write_gallery
from k3_scratch.lab.plan import jobs_of, plan
from k3_scratch.lab.results import draw, make_result, prose, read_results, stale
from k3_scratch.lab.runner import run_planned

FIGURES = Path(__file__).resolve().parents[2] / "figures"
COMMITTED = read_results(FIGURES)


@pytest.fixture(scope="module")
def out(tiny, tmp_path_factory):
    """A folder with the results of both small experiments."""
    folder = tmp_path_factory.mktemp("lab")
    run_planned(plan([load(name, tiny) for name in names(tiny)], quick=True), folder / "out", jobs=0,
                build=folder / "build", folder=tiny, quiet=True, say=lambda path: None)
    return folder / "out"


def test_the_committed_gallery_is_what_the_results_give():
    assert COMMITTED
    assert (FIGURES / "README.md").read_text(encoding="utf-8") == gallery_text(COMMITTED)


@pytest.mark.parametrize("result", COMMITTED, ids=lambda result: result["name"])
def test_a_committed_result_belongs_to_its_experiment(result):
    experiment = load(result["name"])
    assert stale(result, experiment) == [] and not result["quick"] and result["seeds"] >= experiment.seeds
    assert {key: result[key] for key in prose(experiment)} == json.loads(json.dumps(prose(experiment)))
    assert len(result["cells"]) >= len(jobs_of(experiment))
    assert [claim.judge(result).__dict__ for claim in experiment.claims] == result["verdicts"]


@pytest.mark.parametrize("result", COMMITTED, ids=lambda result: result["name"])
def test_a_committed_experiment_took_what_its_file_says(result):
    """Stated seconds decide whether a plan fits; both numbers are stored, nothing is timed here."""
    assert result["cpu_seconds"] <= 1.5 * result["planned_cpu_seconds"]


@pytest.mark.parametrize("result", COMMITTED, ids=lambda result: result["name"])
def test_committed_figures_are_drawn_from_the_result(result, tmp_path):
    for path in draw(result, load(result["name"]), tmp_path):
        assert (FIGURES / path.name).exists() and path.stat().st_size > 5000


def test_a_section_holds_everything(out, tiny):
    text = write_gallery(out, tiny).read_text(encoding="utf-8")
    assert text.index("## (a) Counting: a test") < text.index("## (c) Learning: a test")
    assert "- [(a) Counting: a test](#a-counting-a-test): 1 shown, 1 contrary" in text
    for part in ("**Question.** Which is higher?", "![Dots of heights.](lab_counting.png)",
                 "![height in the paper: low 1.5, high 2.5](lab_counting_paper.png)", "**Shown**: high is higher",
                 "**Contrary**: low is above three", "matched in parameters within 15%", "| low | plain |"):
        assert part in text, part


def test_redrawing_takes_new_prose_and_refuses_other_settings(out, tiny, tmp_path):
    (tmp_path / "results").mkdir()
    for name in names(tiny):
        result = json.loads((out / f"results/lab_{name}.json").read_text(encoding="utf-8"))
        (tmp_path / f"results/lab_{name}.json").write_text(json.dumps({**result, "question": "Old?"}), encoding="utf-8")
    text = write_gallery(tmp_path, tiny, redraw=True).read_text(encoding="utf-8")
    assert "Old?" not in text and "Which is higher?" in text and (tmp_path / "lab_learning.png").exists()
    (tmp_path / "results/lab_learning.json").write_text(json.dumps({**result, "steps": 99}), encoding="utf-8")
    with pytest.raises(LabError, match="learning: the result was made with another steps; run `k3 experiment learn"):
        write_gallery(tmp_path, tiny, redraw=True)


def test_a_file_that_is_no_result_is_named(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/lab_x.json").write_text("[]", encoding="utf-8")
    with pytest.raises(LabError, match="lab_x.json: not a result of this version of the lab, it has no name, letter"):
        write_gallery(tmp_path)
    (tmp_path / "results/lab_x.json").write_text("{", encoding="utf-8")
    with pytest.raises(LabError, match="lab_x.json: not a result of the lab"):
        read_results(tmp_path)


def test_results_are_plain_json(tiny, out):
    result = read_results(out)[0]
    assert make_result(plan([load("counting", tiny)], quick=True)[0], result["cells"], {})["cells"] == result["cells"]
