"""`k3 readme`: write README's tables again from figures/results/*.json and the notebooks: no number there is typed."""

import json
import re
from pathlib import Path

import numpy as np

from k3_scratch.bench.report import number
from k3_scratch.course.buttons import buttons, repository
from k3_scratch.files import write_text

NUMBERS = ("no", "one", "two")
HOSTED = ("The buttons open a chapter on somebody else's machine. Binder installs everything by itself, which takes "
          "some minutes; in Colab [three lines come first](notebooks/troubleshooting.md#colab-and-binder).")
VISION_GOALS = {"shape": 0.95, "colour": 0.95, "count": 0.90, "relation": 0.90}           # whole answers


def add_to(subparsers):
    parser = subparsers.add_parser("readme", help="write README's tables again from figures/results (authors)")
    parser.add_argument("--file", default="README.md", help="(default %(default)s)")
    parser.add_argument("--results", default="figures/results", metavar="FOLDER", help="(default %(default)s)")
    parser.add_argument("--notebooks", default="notebooks", metavar="FOLDER", help="(default %(default)s)")
    parser.add_argument("--project", default="pyproject.toml", metavar="FILE",
                        help="whose Repository the buttons lead to (default %(default)s)")
    parser.set_defaults(run=run)


def run(arguments):
    path = Path(arguments.file)
    where = repository(arguments.project)
    write_text(path, filled(path.read_text(encoding="utf-8"), arguments.results, arguments.notebooks, where))
    print(f"{path}: {', '.join(SECTIONS)}; {f'buttons for {where}' if where else 'no repository, no buttons'}")


def filled(text, results, notebooks, where=""):
    """`text` with everything between `<!-- NAME -->` and `<!-- /NAME -->` written anew, for each name in SECTIONS.

    where   OWNER/NAME of the repository for the course's buttons; "": none
    Raises ValueError when a mark is missing or comes twice.
    """
    folders = {"results": Path(results), "notebooks": Path(notebooks)}
    for name, (folder, files, section) in SECTIONS.items():
        result = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folders[folder].glob(files))]
        if not result:
            raise ValueError(f"{folders[folder]} must have {files}")
        more = {"where": where} if section is course else {}
        text = between(text, name, section(*result, **more), "README")
    return text


def between(text, name, lines, page):
    """`text` with `lines` between `<!-- NAME -->` and `<!-- /NAME -->`. ValueError when a mark is missing or double.

    >>> between("<!-- a -->\\nold\\n<!-- /a -->", "a", ["new", "lines"], "README")
    '<!-- a -->\\nnew\\nlines\\n<!-- /a -->'
    """
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"{page} must have one section from <!-- {name} --> to <!-- /{name} -->")
    return pattern.sub(lambda found: found[1] + "\n".join([*lines, ""]) + found[2], text)


def seeds(runs):
    """Accuracy of the trained miniature, a column a seed; whether each reached the goal; time and memory of seed 0."""
    values = np.array([[*run["accuracy"].values(), run["mean_accuracy"]] for run in runs])
    exact = np.array([[run["exact_match"][name] for name in run["accuracy"]] for run in runs]).mean(0)
    reached = [mean >= 0.95 and min(families) >= 0.90 for *families, mean in values.tolist()]
    misses = "; ".join(f"seed {run['seed']} misses it (mean {run['mean_accuracy']:.3f}, lowest "
                       f"{min(run['accuracy'].values()):.3f})" for run, ok in zip(runs, reached, strict=True) if not ok)
    names = [*runs[0]["accuracy"], "**mean**"]
    rows = [f"| {name} | " + " | ".join(f"{x:.3f}" for x in (*column, column.mean(), written)) + " |"
            for name, column, written in zip(names, values.T, [*exact, exact.mean()], strict=True)]
    first = runs[0]
    return [
        f"{first['steps']:,} updates took {first['train_seconds'] / 60:.1f} minutes (seed 0, two otherwise idle cores) "
        f"and {first['peak_memory_bytes'] / 2 ** 20:,.0f} MiB of memory.",
        f"The goal, a mean of at least .95 and no family below .90, is reached by {_among(reached)}"
        f"{'; ' + misses if misses else ''}.", "",
        "| family | " + " | ".join(f"seed {run['seed']}" for run in runs) + " | mean | whole answers, mean |",
        "|---|" + "---|" * (len(runs) + 2), *rows]


def vision(runs):
    """Whole answers about held-out pictures, a column a seed, and the means of the controls."""
    families, controls = list(runs[0]["exact_match"]), list(runs[0]["controls"])
    lines = ["| question | " + " | ".join(f"seed {run['seed']}" for run in runs) + " | "
             + " | ".join(name.replace("_", " ") for name in controls) + " |",
             "|---|" + "---|" * len([*runs, *controls])]
    for family in families:
        means = [np.mean([run["controls"][name][family] for run in runs]) for name in controls]
        right = [run["exact_match"][family] for run in runs]
        lines.append(f"| {family} | " + " | ".join(f"{value:.3f}" for value in (*right, *means)) + " |")
    reached = [all(run["exact_match"][name] >= goal for name, goal in VISION_GOALS.items()) for run in runs]
    minutes = runs[0]["train_seconds"] / 60
    return [f"{runs[0]['steps']:,} updates took {minutes:.1f} minutes (seed 0, two otherwise idle cores).",
            f"The goal, {', '.join(f'{name} {goal:.2f}' for name, goal in VISION_GOALS.items())}, is reached by "
            f"{_among(reached)}.", "", *lines]


def _among(reached):
    """How many of the three seeds, in words."""
    return "all three seeds" if all(reached) else f"{NUMBERS[sum(reached)]} of the three seeds"


def oracles(result):
    """What outside programs made of the same weights: a line per program and quantity."""
    groups = {}
    for row in result["rows"]:
        groups.setdefault((row["oracle"], row["version"], row["quantity"]), []).append(row)
    lines = ["| program | version | what was compared | quantity | measured | limit |", "|---|---|---|---|---|---|"]
    for (oracle, version, quantity), rows in groups.items():
        limits = sorted({row["limit"] for row in rows if row["limit"] is not None})
        limit = " / ".join(f"{each:g}" for each in limits) or "–"
        value = max(row["value"] for row in rows)
        lines.append(f"| {oracle} | {version} | {_common([row['covers'] for row in rows])} | {quantity} | "
                     f"{f'{value:.1e}' if value else '0'} | {limit} |")
    return lines


def bench(result):
    """The benchmark's rows that have a goal; of several shapes only the median."""
    signs, lines = {">=": "≥", "<=": "≤"}, ["| measurement | floor | target | measured |", "|---|---:|---:|---:|"]
    medians = tuple(row["name"].split(", median of")[0] for row in result["rows"] if ", median of" in row["name"])
    for row in result["rows"]:
        one_of_many = row["name"].startswith(medians) and ", median of" not in row["name"]
        if one_of_many or (row["floor"] is None and row["target"] is None):
            continue
        floor, target = (("–" if row[each] is None else f"{signs[row['direction']]} {row[each]:g}")
                         for each in ("floor", "target"))
        missed = "floor" if row["met_floor"] is False else "target" if row["met_target"] is False else ""
        lines.append(f"| {row['name']} | {floor} | {target} | {number(row['value'], row['unit'])}"
                     f"{f' ({missed} missed)' if missed else ''} |")
    return lines


def _common(covers):
    """One phrase for several: what they begin with, and how many there are."""
    if len(covers) == 1:
        return covers[0]
    kinds = sorted({each.split(",")[0] for each in covers})
    return f"{'; '.join(kinds)} ({len(covers)} set-ups)"


def course(*notebooks, where=""):
    """The chapters that are written: title, minutes, exercises, what the reader can do afterwards, perhaps buttons."""
    head, rule = ("", "") if not where else (" without installing |", "---|")
    lines = [f"| chapter | minutes to read | exercises (minutes) | afterwards you can, among other things, |{head}",
             f"|---|---:|---:|---|{rule}"]
    totals = np.zeros(3, dtype=int)
    for notebook in notebooks:
        k3 = notebook["metadata"]["k3"]
        path, minutes = f"notebooks/{k3['name']}.ipynb", k3["minutes"]
        exercises = sum("id" in cell["metadata"] for cell in notebook["cells"])
        totals += (minutes["read"], exercises, minutes["exercises"])
        lines.append(f"| [{k3['name'][:2]} · {k3['title']}]({path}) | {minutes['read']} | {exercises} "
                     f"({minutes['exercises']}) | {'; '.join(k3['objectives'][:2])} |"
                     f"{f' {buttons(where, path)} |' if where else ''}")
    lines.append(f"| together | {totals[0]} | {totals[1]} ({totals[2]}) | |{' |' if where else ''}")
    return lines + (["", HOSTED] if where else [])


# mark in README -> (folder, files, their JSON -> lines)
SECTIONS = {"seeds": ("results", "mini_seeds.json", seeds), "vision": ("results", "vision_seeds.json", vision),
            "oracles": ("results", "oracles.json", oracles), "bench": ("results", "bench.json", bench),
            "course": ("notebooks", "[0-9][0-9]_*.ipynb", course)}
