"""figures/README.md, the gallery of all results: a section an experiment, made from the JSON files alone."""

from pathlib import Path

from k3_scratch.analysis.spread import fewest_seeds, seeds_text, table
from k3_scratch.files import write_text
from k3_scratch.lab.experiment import FOLDER, LabError, load, names
from k3_scratch.lab.results import prose, read_results, stale, write_result

HEAD = """# Results of the lab

Written by `k3 experiment --gallery` from the files in `results/`; do not edit it by hand. Every number is a toy's: it
says what happens at this size, not what happens at 2.8 T. Claims and the rules that judge them were written before the
first run and stand in `k3_scratch/lab/experiments/`; what did not show is said as plainly as what did.
"""


def gallery_text(results):
    """The whole gallery as Markdown.                                                    [result] -> str"""
    contents = "".join(f"- [{_head(result)}](#{_anchor(_head(result))}): {_words(result)}\n" for result in results)
    return "\n".join([HEAD, contents, *map(section, results)])


def section(result):
    """One experiment: question, set-up, picture, table, sentence.                                     -> str"""
    name, paper, verdicts = result["name"], result["paper"], result["verdicts"]
    parts = [f"## {_head(result)}", f"**Question.** {result['question']}",
             f"**Set-up.** {result['setup']} {_facts(result)}", f"**Expected.** {result['expected']}"]
    picture = f"![{result['alt']}](lab_{name}.png)"
    if paper and paper["values"]:
        numbers = ", ".join(f"{label} {value:g}" for label, value in paper["values"].items())
        beside = f"![{paper['label']} in the paper: {numbers}](lab_{name}_paper.png)"
        parts.append(f"| measured here | in the paper |\n| --- | --- |\n| {picture} | {beside} |")
    else:
        parts.append(picture)
    if paper:
        parts.append(f"**In the paper.** {paper['says']} ({paper['source']})")
    parts.append(table(result).rstrip())
    parts.append("**What came out.** " + " ".join(
        f"**{each['word'][0].upper()}{each['word'][1:]}**: {each['sentence']}." for each in verdicts))
    hardware, versions = result["hardware"], result["versions"]
    close = " --close" if fewest_seeds(result) < result["seeds"] else ""
    parts.append(f"<sub>`k3 experiment {name}{close}` · {result['cpu_seconds'] / 60:.1f} CPU minutes on "
                 f"{hardware['cpu']} · torch {versions['torch']}, NumPy {versions['numpy']} · "
                 f"[numbers](results/lab_{name}.json)</sub>")
    return "\n\n".join(parts) + "\n"


def write_gallery(out, folder=FOLDER, redraw=False):
    """Write README.md under `out`; returns its path.

    redraw   take the prose from the experiments' files again and draw the figures again. LabError when what was
             measured is no longer what the file says: then it has to be run again
    """
    results = read_results(out)
    if redraw:
        for result in results:
            if result["name"] not in names(folder):
                raise LabError(f"{out}/results/lab_{result['name']}.json: there is no such experiment")
            experiment = load(result["name"], folder)
            if different := stale(result, experiment):
                raise LabError(f"{result['name']}: the result was made with another {', '.join(different)}; "
                               f"run `k3 experiment {result['name']}` again")
            result.update(prose(experiment))
            write_result(result, experiment, out)
    path = Path(out) / "README.md"
    write_text(path, gallery_text(results))
    return path


def _head(result):
    return f"({result['letter']}) {result['title']}"


def _anchor(head):
    """The anchor that Markdown pages give a heading."""
    kept = "".join(character for character in head.lower() if character.isalnum() or character in " -_")
    return kept.replace(" ", "-")


def _words(result):
    words = [each["word"] for each in result["verdicts"]]
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def _facts(result):
    """Seeds, steps, and what the variants are equal in."""
    facts = [seeds_text(result)]
    if result["ran_steps"]:
        facts.append(f"at most {result['ran_steps']} steps")
    if result["matched"].startswith("nothing: "):
        facts.append(f"not matched: {result['matched'].removeprefix('nothing: ')}")
    else:
        facts.append(f"matched in {result['matched']} within {result['tolerance']:.0%}")
    return "(" + "; ".join(facts) + ".)"
