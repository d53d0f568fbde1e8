"""`k3 readme`: write README's tables again from figures/results/*.json, so that no number there is typed."""

import json
import re
from pathlib import Path

import numpy as np

from k3_scratch.bench.report import number
from k3_scratch.files import write_text

NUMBERS = ("no", "one", "two", "three")


def add_to(subparsers):
    parser = subparsers.add_parser("readme", help="write README's tables again from figures/results (authors)")
    parser.add_argument("--file", default="README.md", help="(default %(default)s)")
    parser.add_argument("--results", default="figures/results", metavar="FOLDER", help="(default %(default)s)")
    parser.set_defaults(run=run)


def run(arguments):
    path = Path(arguments.file)
    write_text(path, filled(path.read_text(encoding="utf-8"), arguments.results))
    print(f"{path}: {', '.join(SECTIONS)}")


def filled(text, folder):
    """`text` with everything between `<!-- NAME -->` and `<!-- /NAME -->` written anew, for each name in SECTIONS.

    Raises ValueError when a mark is missing or comes twice.
    """
    for name, (file, section) in SECTIONS.items():
        result = json.loads((Path(folder) / file).read_text(encoding="utf-8"))
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise ValueError(f"README must have one section from <!-- {name} --> to <!-- /{name} -->")
        lines = "\n".join(section(result)) + "\n"
        text = pattern.sub(lambda found, lines=lines: found[1] + lines + found[2], text)
    return text


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
        f"The goal, a mean of at least .95 and no family below .90, is reached by {NUMBERS[sum(reached)]} of the three "
        f"seeds{'; ' + misses if misses else ''}.", "",
        "| family | " + " | ".join(f"seed {run['seed']}" for run in runs) + " | mean | whole answers, mean |",
        "|---|" + "---|" * (len(runs) + 2), *rows]


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
    """The benchmark's rows that have a goal."""
    signs = {">=": "≥", "<=": "≤"}
    lines = ["| measurement | floor | target | measured |", "|---|---:|---:|---:|"]
    for row in result["rows"]:
        if row["floor"] is None and row["target"] is None:
            continue
        floor, target = (("–" if row[each] is None else f"{signs[row['direction']]} {row[each]:g}")
                         for each in ("floor", "target"))
        met = " (floor missed)" if row["met_floor"] is False else "" if row["met_target"] else " (target missed)"
        lines.append(f"| {row['name']} | {floor} | {target} | {number(row['value'], row['unit'])}{met} |")
    return lines


def _common(covers):
    """One phrase for several: what they begin with, and how many there are."""
    if len(covers) == 1:
        return covers[0]
    kinds = sorted({each.split(",")[0] for each in covers})
    return f"{'; '.join(kinds)} ({len(covers)} set-ups)"


# mark in README -> (file under figures/results, its JSON -> lines)
SECTIONS = {"seeds": ("mini_seeds.json", seeds), "oracles": ("oracles.json", oracles), "bench": ("bench.json", bench)}
