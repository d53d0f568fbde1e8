"""The result of an experiment: one JSON file, from which figure, table and sentence are made."""

import json
import os
from pathlib import Path

from k3_scratch.bench.suite import cpu_name
from k3_scratch.files import write_text
from k3_scratch.lab.experiment import LabError, describe
from k3_scratch.lab.summary import sentence
from k3_scratch.plots.lab_paper import lab_paper
from k3_scratch.plots.style import save
from k3_scratch.training.loop import versions

_FIELDS = ("name", "letter", "title", "question", "setup", "expected", "alt", "paper", "quick", "seeds", "ran_steps",
           "matched", "tolerance", "table", "verdicts", "versions", "hardware", "cpu_seconds", "cells")


def make_result(planned, cells, matching):
    """The JSON of one experiment as a dict: what was asked, what came out, what it ran on."""
    experiment, job = planned.experiment, planned.jobs[0]
    result = {
        **prose(experiment), "quick": job.quick, "seeds": len({cell["seed"] for cell in cells}), "ran_steps": job.steps,
        **settings(experiment), "matching": matching,
        "verdicts": [], "versions": versions(), "hardware": {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": 1},
        "planned_cpu_seconds": round(planned.seconds, 1),
        "cpu_seconds": round(sum(cell["cpu_seconds"] for cell in cells), 1),
        "cells": [{key: value for key, value in cell.items() if key != "fingerprint"} for cell in cells],
    }
    result = json.loads(json.dumps(result, default=repr))                # plain lists and texts, as they will be read
    verdicts = [claim.judge(result) for claim in experiment.claims]
    result["verdicts"] = [{"word": each.word, "sentence": each.sentence} for each in verdicts]
    result["sentence"] = sentence(verdicts)
    return result


def prose(experiment):
    """The words of an experiment that no number depends on: they may be mended without running it again."""
    paper = experiment.paper
    return {"name": experiment.name, "letter": experiment.letter, "title": experiment.title,
            "question": experiment.question, "setup": experiment.setup, "expected": experiment.expected,
            "alt": experiment.alt,
            "paper": None if paper is None else {"source": paper.source, "says": paper.says, "values": paper.values,
                                                 "label": paper.label}}


def settings(experiment):
    """What the numbers and the verdicts follow from, as plain JSON."""
    sizes = {size.name: {"arguments": size.build, "task": describe(experiment.task_at(size)), "only": size.only}
             for size in experiment.sizes}
    variants = {variant.name: {"differs": variant.differs, "arguments": experiment.arguments(variant)}
                for variant in experiment.variants}
    lengths = {name: describe(experiment.task_at(experiment.sizes[0], changes))
               for name, changes in experiment.lengths.items()}
    return json.loads(json.dumps({
        "matched": experiment.matched, "tolerance": experiment.tolerance, "task": describe(experiment.task),
        "steps": experiment.steps, "variants": variants, "sizes": sizes, "lengths": lengths,
        "table": experiment.table, "claims": [repr(claim) for claim in experiment.claims]}, default=repr))


def write_result(result, experiment, out):
    """results/lab_NAME.json and lab_NAME.png under `out`, and the paper's numbers where it has some.     -> [Path]"""
    out = Path(out)
    file = out / "results" / f"lab_{experiment.name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, _compact(result))
    return [file, *draw(result, experiment, out)]


def draw(result, experiment, out):
    """The figures of a result, from the JSON alone.                                                      -> [Path]"""
    paths = [save(experiment.draw(result), Path(out) / f"lab_{experiment.name}.png")]
    paper = result["paper"]
    if paper and paper["values"]:
        figure = lab_paper(list(paper["values"]), list(paper["values"].values()), paper["label"], paper["source"])
        paths.append(save(figure, Path(out) / f"lab_{experiment.name}_paper.png"))
    return paths


def read_results(out):
    """The results under `out` in the gallery's order. LabError names a file that is none, or one of another version."""
    results = []
    for file in sorted((Path(out) / "results").glob("lab_*.json")):
        try:
            result = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LabError(f"{file}: not a result of the lab ({error})") from error
        if missing := [name for name in _FIELDS if name not in result]:
            raise LabError(f"{file}: not a result of this version of the lab, it has no {', '.join(missing)}; "
                           f"delete it or run `k3 experiment {file.stem.removeprefix('lab_')}` again")
        results.append((result["letter"], result["name"], result))
    return [result for _, _, result in sorted(results, key=lambda each: each[:2])]


def stale(result, experiment):
    """What differs between a result and the experiment as it is written now, apart from prose.       -> [text]"""
    return [name for name, value in settings(experiment).items() if result.get(name) != value]


def _compact(result):
    """Indented, but with a line a cell: short diffs and a small file."""
    cells = ",\n".join("  " + json.dumps(cell, allow_nan=False, ensure_ascii=False) for cell in result["cells"])
    head = json.dumps({**result, "cells": []}, indent=1, allow_nan=False, ensure_ascii=False)
    return head.replace('"cells": []', f'"cells": [\n{cells}\n ]') + "\n"
