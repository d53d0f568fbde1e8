"""What is done, kept between restarts in `.progress.json` beside the notebooks.

The file lies in the folder the notebook runs in when that folder holds notebooks of the course, otherwise in the
course's own `notebooks/`. The variable K3_PROGRESS names another file; set but empty, nothing is kept. A folder that
cannot be written costs the memory, never an error. A script keeps nothing, unless K3_PROGRESS is set.
"""

import json
import os
from pathlib import Path

from k3_scratch.course.chapters import NOTEBOOKS, TITLES
from k3_scratch.course.display import in_a_notebook
from k3_scratch.course.exercise import chapters_with_checks, exercises_of

SIGNS = {"done": "✓", "wrong": "✗", "open": "·"}
_RANK = {"open": 0, "wrong": 1, "done": 2}
_session = {}                                          # what this kernel has seen, should the file not be writable


def progress():
    """Print a table: for each chapter how many exercises are done, and a sign for each of them."""
    states = recall()
    rows = [(chapter, [states.get(exercise.id, "open") for exercise in exercises_of(chapter)])
            for chapter in chapters_with_checks()]
    titles = {name[:2]: title for name, title in TITLES.items()}
    width = max((len(titles[chapter]) for chapter, _ in rows), default=0)
    for chapter, found in rows:
        signs = "".join(SIGNS[state] for state in found)
        print(f"{chapter}  {titles[chapter].ljust(width)}  {found.count('done'):2d} of {len(found)}  {signs}")
    done, total = sum(found.count("done") for _, found in rows), sum(len(found) for _, found in rows)
    print(f"{done} of {total} exercises done ({SIGNS['done']} done, {SIGNS['wrong']} tried, {SIGNS['open']} open)")


def progress_file():
    """Where it is kept; None: nowhere.                                                          -> Path or None"""
    if "K3_PROGRESS" in os.environ:
        return Path(os.environ["K3_PROGRESS"]) if os.environ["K3_PROGRESS"] else None
    here = Path.cwd()
    if any((here / f"{name}.ipynb").exists() for name in TITLES):
        return here / ".progress.json"
    return (NOTEBOOKS if NOTEBOOKS.is_dir() else here) / ".progress.json"


def recall():
    """{exercise id: "done", "wrong" or "open"}; {} when nothing readable is there."""
    file, kept = progress_file(), {}
    if file is not None:
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            kept = {}
    kept = kept if isinstance(kept, dict) else {}
    return _best({name: state for name, state in kept.items() if state in _RANK}, _session)


def record(exercise_id, state):
    """Remember how an exercise stands. Once done it stays done; a stub that is run again takes nothing away."""
    _session.update(_best(_session, {exercise_id: state}))
    file, before = progress_file(), recall()
    if file is None or not ("K3_PROGRESS" in os.environ or in_a_notebook()):
        return
    try:
        from k3_scratch.training.checkpoint import write_text  # here: it loads torch
        write_text(file, json.dumps(dict(sorted(_best(before, _session).items())), indent=1) + "\n")
    except OSError:
        pass                                           # a read-only folder


def _best(one, other):
    return {name: max(one.get(name, "open"), other.get(name, "open"), key=_RANK.get) for name in {*one, *other}}
