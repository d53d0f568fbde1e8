"""The real experiments: each runs end to end in its quick form, and the command that runs them."""

import pytest
import torch

from k3_scratch.__main__ import main
from k3_scratch.lab.cells import run_cell
from k3_scratch.lab.experiment import load, names
from k3_scratch.lab.matching import check_matching
from k3_scratch.lab.plan import Planned, jobs_of
from k3_scratch.lab.results import draw, make_result


@pytest.mark.parametrize("name", names())
def test_the_quick_form_runs_end_to_end(name, tmp_path):
    """Every variant and size once; claims, table and figure are made of what comes out."""
    experiment = load(name)
    jobs = jobs_of(experiment, seeds=1, quick=True)
    before = torch.get_rng_state()
    cells = [run_cell(job, tmp_path / "build") for job in jobs]
    assert torch.equal(torch.get_rng_state(), before)
    result = make_result(Planned(experiment, jobs, 1.0), cells, {})
    assert len(result["verdicts"]) == len(experiment.claims) >= 1
    assert set(experiment.table) <= {value for cell in cells for value in cell["values"]}
    for claim in experiment.claims:
        assert any(claim.value in cell["values"] for cell in cells), claim.value
    assert all(path.exists() for path in draw(result, experiment, tmp_path))


@pytest.mark.parametrize("name", names())
def test_the_variants_are_matched(name):
    check_matching(load(name))


def test_the_command_runs_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["experiment", "overwriting", "--quick", "--jobs", "1"]) == 0
        assert "addition" in capsys.readouterr().out
    assert (tmp_path / "build/lab/figures/README.md").exists()           # a quick run touches no committed result
    assert not (tmp_path / "figures").exists()
    assert main(["experiment", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in names())


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "say which experiments"), (["order", "--all"], "say which experiments"),
    (["nothing"], "experiment must be one"), (["order", "--jobs", "0"], "jobs must be at least 1"),
    (["order", "--seeds", "0"], "seeds must be at least 1"),
    (["order", "--seeds", "1000"], "but at most 15 are allowed")])
def test_bad_input_costs_one_line(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["experiment", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1 and list(tmp_path.iterdir()) == []
