"""README says what is so: its numbers, links and commands."""

import json
import os
import re
import shutil
import tomllib
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest

from k3_scratch.__main__ import main
from k3_scratch.commands.readme import filled
from k3_scratch.course.buttons import BUTTONS, repository

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MISSED_FLOORS = []                                                       # of the committed benchmark


def test_the_tables_are_those_of_the_results():
    where = repository(ROOT / "pyproject.toml")
    assert filled(README, ROOT / "figures/results", ROOT / "notebooks", where) == README, "run `k3 readme`"


def test_a_table_is_written_from_its_result(tmp_path, capsys):
    """Another number in the result is another number in README; a missing mark is an error that names it."""
    for file in ("mini_seeds.json", "vision_seeds.json", "oracles.json", "bench.json"):
        shutil.copy(ROOT / "figures/results" / file, tmp_path / file)
    runs = json.loads((tmp_path / "mini_seeds.json").read_text(encoding="utf-8"))
    runs[1]["accuracy"]["copy"], runs[1]["mean_accuracy"] = 0.1234, 0.811
    (tmp_path / "mini_seeds.json").write_text(json.dumps(runs), encoding="utf-8")
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    assert main(["readme", "--file", str(tmp_path / "README.md"), "--results", str(tmp_path),
                 "--notebooks", str(ROOT / "notebooks")]) == 0
    changed = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| 0.123 |" in changed and "seed 1 misses it (mean 0.811, lowest 0.123)" in changed
    (tmp_path / "README.md").write_text(README.replace("<!-- oracles -->", ""), encoding="utf-8")
    assert main(["readme", "--file", str(tmp_path / "README.md"), "--results", str(tmp_path)]) == 2
    assert "<!-- oracles -->" in capsys.readouterr().err


def test_the_table_of_seeds_holds_the_numbers_of_the_runs():
    runs = json.loads((ROOT / "figures/results/mini_seeds.json").read_text(encoding="utf-8"))
    assert [run["seed"] for run in runs] == [0, 1, 2]
    for family in runs[0]["accuracy"]:
        accuracy = [run["accuracy"][family] for run in runs]
        cells = [f"{value:.3f}" for value in (*accuracy, np.mean(accuracy))]
        assert f"| {family} | " + " | ".join(cells) + " |" in README


def test_no_floor_is_missed_in_silence_and_no_oracle_is_over_its_limit():
    rows = json.loads((ROOT / "figures/results/bench.json").read_text(encoding="utf-8"))["rows"]
    assert len(rows) > 30 and [row["name"] for row in rows if row["met_floor"] is False] == MISSED_FLOORS
    assert README.count("(floor missed)") == len(MISSED_FLOORS)
    rows = json.loads((ROOT / "figures/results/oracles.json").read_text(encoding="utf-8"))["rows"]
    assert {row["oracle"].split()[0] for row in rows} == {"llama.cpp", "mlx-lm", "transformers",
                                                          "flash-linear-attention"}
    assert all(row["limit"] is None or row["value"] <= row["limit"] for row in rows)


def test_seed_0_is_the_published_one():
    runs = json.loads((ROOT / "figures/results/mini_seeds.json").read_text(encoding="utf-8"))
    summary = json.loads((ROOT / "k3_scratch/pretrained/mini/summary.json").read_text(encoding="utf-8"))
    assert runs[0] == summary


def test_the_published_seed_reaches_the_goal_and_the_others_are_told_as_they_are():
    runs = json.loads((ROOT / "figures/results/mini_seeds.json").read_text(encoding="utf-8"))
    accuracies = [list(run["accuracy"].values()) for run in runs]
    reached = [np.mean(values) >= 0.95 and min(values) >= 0.90 for values in accuracies]
    told = ["no of the", "one of the", "two of the", "all"][sum(reached)]
    assert reached[0] and f"is reached by {told} three seeds" in " ".join(README.split())
    for run in runs:
        assert run["peak_memory_bytes"] < 2 * 2 ** 30


def test_links_and_pictures_exist_and_pictures_have_a_text():
    for text, target in re.findall(r"!?\[([^\[\]]*)\]\(([^)]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
            assert text or not target.endswith(".png")


def test_the_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?:^    |`)make ([a-z-]+)", README, re.MULTILINE)):
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


# ---- buttons

def chapters_with(where):
    text = filled(README, ROOT / "figures/results", ROOT / "notebooks", where)
    return re.search(r"<!-- course -->\n(.*?)<!-- /course -->", text, re.DOTALL).group(1)


def test_buttons_lead_to_files_of_the_repository_and_show_local_pictures():
    notebooks = sorted(f"notebooks/{file.name}" for file in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    shown = chapters_with("some-body/k3.fork")
    links = re.findall(r"\[!\[([^\]]+)\]\(([^)]+)\)\]\(([^)]+)\)", shown)
    led = {"Open in Colab": [], "Launch Binder": []}
    starts = {"Open in Colab": "https://colab.research.google.com/github/some-body/k3.fork/blob/main/",
              "Launch Binder": "https://mybinder.org/v2/gh/some-body/k3.fork/main?labpath="}
    for words, picture, target in links:
        assert target.startswith(starts[words]) and (ROOT / picture).suffix == ".svg" and (ROOT / picture).is_file()
        led[words].append(unquote(target.removeprefix(starts[words])))
    assert led == dict.fromkeys(led, notebooks) and len(notebooks) == 14
    part, = re.findall(r"\(notebooks/troubleshooting\.md#([\w-]+)\)", shown)
    headings = re.findall(r"^## (.+)$", (ROOT / "notebooks/troubleshooting.md").read_text(encoding="utf-8"), re.M)
    assert part in {heading.lower().replace(" ", "-") for heading in headings}
    rows = [line for line in shown.splitlines() if line.startswith("|")]
    assert len(rows) == 17 and len({row.replace(r"\|", "").count("|") for row in rows}) == 1


def test_no_repository_no_buttons(tmp_path):
    assert "svg" not in chapters_with("") and "colab" not in chapters_with("").lower()
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n", encoding="utf-8")
    assert repository(tmp_path / "pyproject.toml") == ""
    for address in ("https://github.com/OWNER/NAME", "https://github.com/OWNER/NAME.git",
                    "https://github.com/OWNER/NAME/"):
        (tmp_path / "pyproject.toml").write_text(f"[project.urls]\nRepository = '{address}'\n", encoding="utf-8")
        assert repository(tmp_path / "pyproject.toml") == "OWNER/NAME"
    for address in ("https://gitlab.com/OWNER/NAME", "github.com/OWNER/NAME", "https://github.com/OWNER"):
        (tmp_path / "pyproject.toml").write_text(f"[project.urls]\nRepository = '{address}'\n", encoding="utf-8")
        with pytest.raises(ValueError, match="must be like https://github.com/OWNER/NAME"):
            repository(tmp_path / "pyproject.toml")


def test_the_address_stands_in_one_place():
    assert "repository-code" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    where = repository(ROOT / "pyproject.toml")
    assert not where or README.count(f"github.com/{where}") == 0


def test_pictures_are_local():
    assert not re.search(r"!\[[^\]]*\]\(\s*(?:https?:)?//|<img", README)
    for file in (ROOT / "figures").glob("*.svg"):
        drawing = ElementTree.parse(file).getroot()
        assert drawing.get("aria-label") in {words for words, _, _ in BUTTONS}
        assert not re.search(r"href|url\(|<image|<script", file.read_text(encoding="utf-8"))


def test_binder_gets_what_the_package_needs():
    """Everything that pyproject.toml names, and the package itself."""
    wanted = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"])
    text = (ROOT / ".binder/environment.yml").read_text(encoding="utf-8")
    given = set(re.findall(r"^  - ([\w-]+)", text.split("dependencies:")[1], re.MULTILINE))
    other_names = {"torch": "pytorch-cpu", "matplotlib": "matplotlib-base", "jupyter": "pip"}    # Jupyter is Binder's
    assert {other_names.get(name, name) for name in wanted} <= given
    build = ROOT / ".binder/postBuild"
    assert os.access(build, os.X_OK) and build.read_text(encoding="utf-8").startswith("#!")
    assert "pip install --no-deps --editable ." in build.read_text(encoding="utf-8")
