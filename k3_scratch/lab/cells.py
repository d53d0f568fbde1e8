"""One cell: a variant at a size with a seed. Its result is written the moment it is there, and found again later."""

import ast
import dataclasses
import functools
import hashlib
import inspect
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch

from k3_scratch.files import write_text
from k3_scratch.lab.experiment import Job, describe, load
from k3_scratch.lab.models import SMALL
from k3_scratch.lab.recipe import recipe_of
from k3_scratch.training.loop import versions

BUILD = Path("build/lab")


def fingerprint(job):
    """What decides a cell's numbers, as 16 hexadecimal digits: settings, seed, versions and code, but no prose.

    Code is that of the modules in which `measure`, the model and the task are written. A change of the layers below is
    not seen: after one of those, `--force`.
    """
    here = versions()
    code = {_code_of(part.__module__) for part in (job.experiment.measure, job.experiment.model, type(job.task))}
    decides = {"measure": job.experiment.measure.__qualname__, "code": sorted(code), "arguments": job.arguments,
               "task": describe(job.task),
               "lengths": {name: describe(task) for name, task in job.lengths.items()}, "steps": job.steps,
               "seed": job.seed, "versions": {name: here[name] for name in ("k3_scratch", "torch", "numpy", "machine")}}
    if job.task is not None:                                             # defaults that the arguments do not name
        decides |= {"recipe": repr(recipe_of(job.arguments, job.steps)), "model": repr(SMALL)}
    text = json.dumps(decides, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode("utf-8"), digest_size=8).hexdigest()


@functools.cache
def _code_of(module):
    """A module's statements without docstrings, comments and `EXPERIMENT = ...`, as a short hash."""
    if module == "builtins":
        return ""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    tree.body = [node for node in tree.body if not (isinstance(node, ast.Assign) and "EXPERIMENT" in
                                                    [getattr(target, "id", "") for target in node.targets])]
    return hashlib.blake2b(ast.dump(tree).encode("utf-8"), digest_size=8).hexdigest()


def cell_file(job, build=BUILD):
    """Where a cell is kept. The name is for people; the fingerprint inside decides whether it still holds."""
    name = "--".join(filter(None, [job.variant.name, job.size.name, f"seed{job.seed}"]))
    plain = "".join(character if character.isalnum() or character in "-." else "_" for character in name)
    short = hashlib.blake2b(name.encode("utf-8"), digest_size=3).hexdigest()      # two names may look alike when plain
    return Path(build) / ("quick" if job.quick else "full") / job.experiment.name / f"{plain}-{short}.json"


def read_cell(job, build=BUILD):
    """The finished cell, or None when there is none, it is not readable, or it was made by other settings."""
    try:
        cell = json.loads(cell_file(job, build).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return cell if isinstance(cell, dict) and cell.get("fingerprint") == fingerprint(job) else None


def run_cell(job, build=BUILD):
    """Measure, write, and return the cell. It depends on the job alone: global generators start from its seed."""
    torch.set_num_threads(1)
    before = torch.get_rng_state()
    torch.manual_seed(job.seed)
    began, cpu = time.perf_counter(), time.process_time()
    try:
        measured = job.experiment.measure(job)
    finally:
        torch.set_rng_state(before)
    cell = {"variant": job.variant.name, "size": job.size.name, "seed": job.seed, **_plain(measured),
            "cpu_seconds": round(time.process_time() - cpu, 2), "seconds": round(time.perf_counter() - began, 2),
            "fingerprint": fingerprint(job)}
    path = cell_file(job, build)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(cell, allow_nan=False) + "\n")
    return cell


def run_cell_by_name(folder, name, variant, size, seed, quick, build):
    """`run_cell` in a worker process, which is told names alone."""
    experiment = load(name, folder)
    return run_cell(Job(experiment, experiment.variant(variant), experiment.size(size), seed, quick), build)


def _plain(value):
    """Arrays and NumPy numbers as lists and numbers, floats to 6 digits that count: the JSON stays small."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return _plain(value.tolist())
    if isinstance(value, (float, np.floating)):
        return float(f"{float(value):.6g}")
    if isinstance(value, np.integer):
        return int(value)
    if dataclasses.is_dataclass(value):
        return _plain(dataclasses.asdict(value))
    return value
