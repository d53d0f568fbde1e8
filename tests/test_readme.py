"""README says what is so: its numbers, links and commands."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from k3_scratch.__main__ import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_holds_the_numbers_of_the_runs():
    runs = json.loads((ROOT / "figures/results/mini_seeds.json").read_text(encoding="utf-8"))
    assert [run["seed"] for run in runs] == [0, 1, 2]
    for family in runs[0]["accuracy"]:
        accuracy = [run["accuracy"][family] for run in runs]
        exact = np.mean([run["exact_match"][family] for run in runs])
        cells = [f"{value:.3f}" for value in (*accuracy, np.mean(accuracy), exact)]
        assert f"| {family} | " + " | ".join(cells) + " |" in README
    means = [run["mean_accuracy"] for run in runs]
    assert "| **mean** | " + " | ".join(f"{value:.3f}" for value in (*means, np.mean(means))) in README
    assert f"It took {runs[0]['train_seconds'] / 60:.1f} minutes" in README
    assert f"{runs[0]['peak_memory_bytes'] / 2 ** 20:,.0f} MiB" in README


def test_seed_0_is_the_published_one():
    runs = json.loads((ROOT / "figures/results/mini_seeds.json").read_text(encoding="utf-8"))
    summary = json.loads((ROOT / "k3_scratch/pretrained/mini/summary.json").read_text(encoding="utf-8"))
    assert runs[0] == summary


def test_the_published_seed_reaches_the_goal_and_the_others_are_told_as_they_are():
    runs = json.loads((ROOT / "figures/results/mini_seeds.json").read_text(encoding="utf-8"))
    accuracies = [list(run["accuracy"].values()) for run in runs]
    reached = [np.mean(values) >= 0.95 and min(values) >= 0.90 for values in accuracies]
    number = ["no", "one", "two", "three"][sum(reached)]
    assert reached[0] and f"is reached by {number} of the three seeds" in " ".join(README.split())
    for run in runs:
        assert run["peak_memory_bytes"] < 2 * 2 ** 30


def test_links_and_pictures_exist_and_pictures_have_a_text():
    for text, target in re.findall(r"!?\[([^\[\]]*)\]\(([^)]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
            assert text or not target.endswith(".png")


def test_the_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


COMMANDS = re.findall(r"bin/k3 (sample --prompt .*?|count .*?)\s*(?:#|$)", README, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_need_no_training_run(command, capsys):
    words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
    assert main(words) == 0
    assert capsys.readouterr().out.strip()


def test_the_python_example_says_what_its_comment_says(capsys):
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == re.search(r"# (\w+)\s*$", code).group(1)
