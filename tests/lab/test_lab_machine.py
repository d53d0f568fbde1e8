"""The lab's machine: declarations, plan, cells, runner, results."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from k3_scratch.lab import cells
from k3_scratch.lab.cells import cell_file, fingerprint, read_cell, run_cell
from k3_scratch.lab.experiment import Experiment, Job, LabError, Size, Variant, load, load_all
from k3_scratch.lab.matching import check_matching
from k3_scratch.lab.plan import jobs_of, plan
from k3_scratch.lab.runner import run_planned
from k3_scratch.lab.summary import Above, Within
from k3_scratch.tasks.corpus import Corpus


def run(names, folder, tmp_path, *, jobs=0, seeds=None, quick=False, force=False, out="out"):
    planned = plan([load(name, folder) for name in names], seeds, quick)
    return run_planned(planned, tmp_path / out, jobs=jobs, build=tmp_path / "build", folder=folder, quiet=True,
                       force=force, say=lambda path: None)


def numbers(result):
    """Everything in the cells but times."""
    return [{key: value for key, value in cell.items() if "seconds" not in key} for cell in result["cells"]]


# ---- declarations

def test_unknown_names_are_told(tiny):
    with pytest.raises(LabError, match="one of counting, learning, but 'none' came"):
        load("none", tiny)
    with pytest.raises(LabError, match="variant must be one of 'low', 'high'"):
        load("counting", tiny).variant("middle")


@pytest.mark.parametrize(("build", "found"), [({}, "none"), ({"height": 3, "lift": 1}, "height, lift")])
def test_variants_differ_in_exactly_one_argument(tiny, build, found):
    experiment = load("counting", tiny)
    wrong = dataclasses.replace(experiment, common={"lift": 0}, variants=(*experiment.variants[:1], Variant(
        "high", "two", {**experiment.variants[0].build, **build})))
    with pytest.raises(LabError, match=f"one argument, but it differs in {found}"):
        wrong.checked()


def test_tied_arguments_count_as_one_and_against_names_another(tiny):
    experiment = load("counting", tiny)
    third = Variant("third", "a", {"height": 2.0, "extra": 1}, against="high")
    assert dataclasses.replace(experiment, variants=(*experiment.variants, third)).checked()
    both = Variant("both", "a", {"height": 7.0, "extra": 1})
    tied = dataclasses.replace(experiment, variants=(*experiment.variants, both), tied=("height", "extra"))
    assert tied.checked().differences(both) == ["extra+height"]


@pytest.mark.parametrize(("change", "match"), [
    ({"matched": "somehow"}, "matched must be"), ({"variants": ()}, "variants must have different names"),
    ({"sizes": (Size("a"), Size("a"))}, "sizes must have different names"),
    ({"claims": (Within("x", "height", ("middle",)),)}, "variant must be one of"),
    ({"claims": (Above("x", "height", ("high",), ("low",), sizes=("huge",)),)}, "size must be one of")])
def test_wrong_declarations_are_refused(tiny, change, match):
    with pytest.raises(LabError, match=match):
        dataclasses.replace(load("counting", tiny), **change).checked()


def test_matching_is_asserted(tiny):
    experiment = load("learning", tiny)
    counted = check_matching(experiment)[""]
    assert counted["KDA"]["parameters"] > counted["delta rule"]["parameters"]
    for matched in ("parameters", "active compute"):
        tight = dataclasses.replace(experiment, tolerance=0.001, matched=matched)
        with pytest.raises(LabError, match=f"within 0% in {matched}, but 'delta rule' has"):
            check_matching(tight)
    assert check_matching(dataclasses.replace(experiment, tolerance=0.0, matched="nothing: a test"))[""] == counted
    with pytest.raises(LabError, match="without a task there is no model"):
        check_matching(dataclasses.replace(load("counting", tiny), matched="parameters"))


# ---- the plan

def test_jobs_are_the_cells_in_the_table(tiny):
    jobs = jobs_of(load("counting", tiny))
    assert [(job.variant.name, job.size.name, job.seed) for job in jobs[:3]] == [
        ("low", "plain", 0), ("high", "plain", 0), ("high", "lifted", 0)] and len(jobs) == 9
    assert len(jobs_of(load("counting", tiny), seeds=2)) == 6 and len(jobs_of(load("counting", tiny), quick=True)) == 3


def test_a_plan_that_does_not_fit_is_refused_with_its_sum(tiny):
    slow = dataclasses.replace(load("counting", tiny), seconds=201.0)
    with pytest.raises(LabError, match="counting: 9 cells of 201 s .* 30 CPU minutes, 15 minutes on 2 cores, but at "):
        plan([slow])
    fits = dataclasses.replace(slow, seconds={"plain": 200.0, "lifted": 199.0})
    assert plan([fits])[0].seconds == 6 * 200 + 3 * 199
    with pytest.raises(LabError, match="all together: 63 cells .* at most 90 are allowed"):
        plan([fits] * 7)
    with pytest.raises(LabError, match="counting: .* at most 8 are allowed"):
        plan([dataclasses.replace(slow, quick=dataclasses.replace(slow.quick, seconds=400.0))], quick=True)
    with pytest.raises(LabError, match="seeds must be at least 1"):
        plan([fits], seeds=0)


def test_all_real_experiments_fit_together():
    experiments = load_all()
    assert plan(experiments) and plan(experiments, quick=True)
    assert all(each.seeds >= 3 for each in experiments)


# ---- cells

def test_a_cell_is_kept_and_other_settings_are_not_taken_for_it(tiny, tmp_path):
    job = jobs_of(load("counting", tiny))[0]
    assert read_cell(job, tmp_path) is None
    assert read_cell(job, tmp_path) is None and run_cell(job, tmp_path) == read_cell(job, tmp_path)
    other = dataclasses.replace(job, variant=dataclasses.replace(job.variant, build={"height": 1.5}))
    assert cell_file(other, tmp_path) == cell_file(job, tmp_path) and read_cell(other, tmp_path) is None
    cell_file(job, tmp_path).write_text("{", encoding="utf-8")
    assert read_cell(job, tmp_path) is None


def test_fingerprints_see_settings_and_not_prose(tiny):
    experiment = load("learning", tiny)
    job = jobs_of(experiment)[0]

    def changed(**changes):
        return fingerprint(dataclasses.replace(job, experiment=dataclasses.replace(experiment, **changes)))
    assert changed(question="Other?", claims=(), seconds=9.0) == fingerprint(job)
    for changes in ({"steps": 6}, {"common": {}}, {"lengths": {}}, {"task": dataclasses.replace(job.task, writes=6)}):
        assert changed(**changes) != fingerprint(job)
    assert fingerprint(dataclasses.replace(job, seed=1)) != fingerprint(job)
    assert changed(task=Corpus(80), lengths={}) == changed(task=Corpus(80), lengths={}) != changed(task=Corpus(81),
                                                                                                lengths={})


def test_fingerprints_see_the_code_of_the_measurement(tiny, tmp_path):
    """Another constant in the file makes other cells; another question, comment or docstring does not."""
    source, found = (tiny / "counting.py").read_text(encoding="utf-8"), []
    changes = [("", ""), ("Which is higher?", "Which?"), ("normal(0, 0.01)", "normal(0, 0.02)"),
               ("import os\n", "import os  # a remark\n"), ("The variant's height", "Height")]
    for number, (old, new) in enumerate(changes):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"same{number}.py").write_text(source.replace(old, new).replace('"counting"', f'"same{number}"'),
                                                encoding="utf-8")
        found.append(fingerprint(jobs_of(load(f"same{number}", folder))[0]))
    assert found[0] == found[1] == found[3] == found[4] != found[2]


def test_names_that_look_alike_have_files_of_their_own(tiny, tmp_path):
    experiment, size = load("counting", tiny), Size("plain")
    files = {cell_file(Job(experiment, Variant(name, ""), size, 0), tmp_path) for name in ("a b", "a_b", "a/b", "a:b")}
    assert len(files) == 4


# ---- the runner

def test_numbers_do_not_depend_on_the_jobs(tiny, tmp_path):
    """In this process and in two workers, trained and not: the same values and curves."""
    here = run(["counting", "learning"], tiny, tmp_path / "a")
    there = run(["counting", "learning"], tiny, tmp_path / "b", jobs=2)
    assert {name: numbers(each) for name, each in here.items()} == {name: numbers(each) for name, each in there.items()}
    accuracies = {json.dumps(cell["curve"]) for cell in here["learning"]["cells"]}
    assert len(accuracies) == 4                                          # seeds and variants are really different
    assert set(here["learning"]["cells"][0]["values"]) == {"accuracy", "loss", "flat", "longer"}


def test_an_interrupted_run_goes_on_where_it_was(tiny, tmp_path, monkeypatch):
    asked = []

    def stops_at_fifth(job, build):
        asked.append(job)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return run_cell(job, build)
    monkeypatch.setattr("k3_scratch.lab.runner.run_cell", stops_at_fifth)
    with pytest.raises(KeyboardInterrupt):
        run(["counting"], tiny, tmp_path)
    assert not (tmp_path / "out").exists() and len(list((tmp_path / "build").rglob("*.json"))) == 4
    run(["counting"], tiny, tmp_path)
    assert len(asked) == 5 + 5                                           # the four finished ones are not run again
    assert len(json.loads((tmp_path / "out/results/lab_counting.json").read_text(encoding="utf-8"))["cells"]) == 9
    run(["counting"], tiny, tmp_path)
    assert len(asked) == 10
    run(["counting"], tiny, tmp_path, force=True)
    assert len(asked) == 19


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_cell_that_fails_is_named_and_the_others_are_kept(tiny, tmp_path, monkeypatch, jobs):
    monkeypatch.setenv("BROKEN", "low")
    with pytest.raises(LabError, match="3 cells failed, first counting / low / plain / seed [012]: broken on purpose"):
        run(["counting"], tiny, tmp_path, jobs=jobs)
    assert not (tmp_path / "out/results").exists() and len(list((tmp_path / "build").rglob("*.json"))) == 6
    monkeypatch.delenv("BROKEN")
    assert len(run(["counting"], tiny, tmp_path)["counting"]["cells"]) == 9


def test_what_a_result_holds(tiny, tmp_path):
    result = run(["counting"], tiny, tmp_path)["counting"]
    written = json.loads((tmp_path / "out/results/lab_counting.json").read_text(encoding="utf-8"))
    assert written == result and written["seeds"] == 3 and not written["quick"]
    assert {"torch", "numpy", "k3_scratch"} <= set(written["versions"]) and written["hardware"]["threads"] == 1
    assert [each["word"] for each in written["verdicts"]] == ["shown", "contrary"]
    assert all({"variant", "size", "seed", "values", "curve", "seconds"} <= set(cell) for cell in written["cells"])
    assert sorted(file.name for file in (tmp_path / "out").glob("*.png")) == ["lab_counting.png",
                                                                             "lab_counting_paper.png"]


def test_the_workers_environment_is_put_back(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    run(["counting"], tiny, tmp_path, jobs=1, seeds=1)
    assert os.environ["OMP_NUM_THREADS"] == "7" and "MKL_NUM_THREADS" not in os.environ


def test_floats_are_kept_to_six_digits():
    plain = cells._plain({"a": [1 / 3, 2], "b": (True, None, "x")})
    assert plain == {"a": [0.333333, 2], "b": [True, None, "x"]}


def test_experiment_is_the_declaration(tiny):
    assert isinstance(load("counting", tiny), Experiment)


def test_no_worker_outlives_its_parent(tiny, tmp_path):
    """The parent is killed outright: its workers see that and end, whatever they are doing."""
    script = ("import os, signal, time\nfrom k3_scratch.lab.runner import _pool\n"
              "if __name__ == '__main__':\n    with _pool(1) as pool:\n        print(pool.submit(os.getpid).result(), "
              "flush=True)\n        pool.submit(time.sleep, 600)\n        os.kill(os.getpid(), signal.SIGKILL)\n")
    (tmp_path / "parent.py").write_text(script, encoding="utf-8")
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(root)})
    worker = int(done.stdout)
    for _ in range(300):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"worker {worker} still runs")
