"""What the lab has measured, as pages of the course show it."""

import re

import pytest
from course_helpers import MASTERS, cells_of, code, stem

from k3_scratch.course import lab_table, results
from k3_scratch.course.chapters import ROOT
from k3_scratch.course.lab_results import alt_text, claim_of, lab_text
from k3_scratch.course.master import MasterError, read_master, with_texts

NAMES = sorted(file.stem.removeprefix("lab_") for file in (ROOT / "figures" / "results").glob("lab_*.json"))
every_master = pytest.mark.parametrize("master", MASTERS, ids=stem)


@pytest.mark.parametrize("name", NAMES)
def test_every_result_makes_a_page(name):
    result, text = results(f"lab_{name}"), lab_text(results(f"lab_{name}"))
    assert result["title"] in text and f"`k3 experiment {name}`" in text and result["setup"].strip() in text
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert len(rows) == 2 + len({cell["variant"] for cell in result["cells"]})
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1
    words = re.findall(r"^- \*\*(.*?)\*\*: ", text, re.MULTILINE)
    assert words == [verdict["word"] for verdict in result["verdicts"]]
    for claim, verdict in zip(result["claims"], result["verdicts"], strict=True):
        assert verdict["sentence"].startswith(claim_of(claim) + ": ")
    assert len(alt_text(name).split()) > 8 and not re.search(r"[\[\]]", alt_text(name))


def test_a_part_of_the_table_and_its_verdicts(capsys):
    lab_table("capacity", values=["error at 16"], variants=["addition"])                 # a script: it is printed
    printed = capsys.readouterr().out
    assert "**Measured by the lab: How much a matrix memory holds** (10 seeds, mean ± standard deviation; " in printed
    assert "\n|  | error at 16 |\n| --- | ---: |\n| addition | 0.683 ± 0.0508 |\n" in printed
    assert "- **contrary**: in one pass it also finds more beyond the size of the memory, at 2K pairs " in printed
    assert "(in 0 of 10 comparisons seed by seed)" in printed


def test_one_run_has_no_spread():
    result = {**results("lab_capacity"), "seeds": 1}
    assert "(one run, nothing is random; " in lab_text(result)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: lab_table("nothing"), "name must be one of .*lab_capacity"),
    (lambda: lab_table("capacity", values=["height"]), "values must be among .*'hits at 16'.*but 'height' came")])
def test_what_is_not_there_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_picture_gets_the_text_of_its_result():
    given = "Look.\n\n![](../figures/lab_order.png) and ![a text](../figures/lab_order.png)"
    assert with_texts(given) == given.replace("![]", f"![{alt_text('order')}]")
    with pytest.raises(MasterError, match=r"lab_nothing\.png.*name must be one of .*lab_order"):
        with_texts("![](../figures/lab_nothing.png)")


@every_master
def test_a_page_names_the_results_it_shows_and_has_their_picture(master):
    """So that a new measurement makes the notebook stale, and no table stands without its picture and sentence."""
    data = read_master(master).metadata.k3.get("data", [])
    source = "\n".join(cell.source for cell in code(master))
    shown = re.findall(r"\blab_table\(\s*\"(\w+)\"", source)
    assert {f"figures/results/lab_{name}.json" for name in shown} <= set(data)
    assert all(f"/{name}.json" in "".join(data) for name in re.findall(r"\bresults\(\s*\"(\w+)\"", source))
    assert [name for name in data if not (ROOT / name).exists()] == []
    cells = cells_of(master)
    for i, cell in enumerate(cells):
        if cell.cell_type == "code" and "lab_table(" in cell.source:
            name, = re.findall(r"\blab_table\(\s*\"(\w+)\"", cell.source)
            following = cells[i + 1]
            assert following.cell_type == "markdown" and not following.source.startswith(("#", "!", "|", "$"))
            assert f"![](../figures/lab_{name}.png)" in following.source
