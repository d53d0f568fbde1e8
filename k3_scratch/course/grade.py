"""Marking submitted notebooks: `grade(folder)`, or `k3 grade FOLDER`.

From a submission only the cells of the answers are taken (and cells of the student that these need). Import cell,
exercises and checks are the course's. Each answer runs in a process of its own (grade_inside.py), while the judge and
the right results stay in this one (grade_judge.py): whatever an answer prints, patches or destroys, all it can hand
over is the result of a call.

What this does not protect against. (1) The solutions are public: who copies their text has the mark. Calling the
package's functions is noticed, unless somebody hides it with skill. (2) An answer runs as the user who marks. Where the
system allows it (Linux), it has no network, sees no other process, writes nowhere else and does not see the other
submissions; where it does not, `Marks.held` says so. Mark under a user of its own, or in a container, when it matters
and for exams.
"""

import csv
import functools
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

import k3_scratch
from k3_scratch.course import chapters
from k3_scratch.course.exercise import exercises_of
from k3_scratch.course.grade_inside import Limits, serve
from k3_scratch.course.grade_judge import judged
from k3_scratch.course.grade_own import is_given
from k3_scratch.course.grade_read import modules_of, paper, read
from k3_scratch.course.grade_room import Stopped, place, room
from k3_scratch.course.grade_wire import clean
from k3_scratch.course.master import read_master
from k3_scratch.course.sources import digest
from k3_scratch.files import write_text

COLUMNS = ("student", "file", "notebook", "exercise", "difficulty", "points", "mark", "state", "said")
SIGNS = {"done": "✓", "open": "·"}
HOLDS = {"network": "the network", "processes": "other processes", "files": "writing outside its own folder",
         "other students": "reading the other submissions"}
READING = Limits(seconds=60, memory=3_000_000_000)     # for taking a file apart, which may hold many pictures


@dataclass(frozen=True)
class Marks:
    """What came out: rows (dicts with COLUMNS), files marked now and before, what the answers were kept from."""

    rows: list
    now: int
    before: int
    held: tuple


@dataclass(frozen=True)
class _Work:
    """All that marking one file needs."""

    folder: Path
    out: Path
    papers: dict
    notebook: str
    limits: Limits
    place: object


def grade(folder, out=None, *, notebook="", limits=None, jobs=1, masters=None, tell=print):
    """Mark every notebook below a folder and write marks.csv and feedback/STUDENT.html.                      -> Marks

    folder    FOLDER/STUDENT/.../FILE.ipynb, or FOLDER/FILE.ipynb, whose student is called FILE
    out       where the marks go; None: FOLDER-marks, beside it
    notebook  the name of the chapter's file: all files are of it; "": each says itself what it is
    masters   folder of masters; None: the course's own
    What is in `out` from before and of the same files, course and limits is not run again. Raises ValueError without
    a notebook in the folder, or for an unknown name.
    """
    folder, limits = Path(folder).resolve(), limits or Limits()
    out = Path(out).resolve() if out else folder.with_name(folder.name + "-marks")
    papers = {one.name: one for one in map(paper, chapters.masters(masters))}
    notebook = next((name for name in papers if notebook and notebook in (name, name[:2], name + ".ipynb")), notebook)
    if notebook and notebook not in papers:
        raise ValueError(f"notebook must be one of {', '.join(papers)}, but {notebook!r} came")
    files = submissions(folder)
    if not files:
        raise ValueError(f"folder must hold notebooks (FILE.ipynb or STUDENT/FILE.ipynb), but {folder} has none")
    (out / "files").mkdir(parents=True, exist_ok=True)
    (out / "feedback").mkdir(exist_ok=True)
    chosen = [papers[notebook]] if notebook else list(papers.values())
    modules = sorted({name for one in chosen for name in modules_of(one.imports)})
    work = _Work(folder, out, papers, notebook, limits, place(limits, modules, _unseen(folder, out)))
    done = []
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(_one, work, file) for file in files]
        try:
            for file, future in zip(files, futures, strict=True):
                marked = future.result()
                done.append(marked)
                tell(f"{file.relative_to(folder).as_posix()}: {_sum(marked['rows'])}"
                     + ("" if marked["now"] else " (marked before)"))
        except BaseException:
            work.place.leaving.set()
            pool.shutdown(cancel_futures=True)
            raise
    rows = [row for marked in done for row in marked["rows"]]
    write_text(out / "marks.csv", _table(rows))
    for student in sorted({row["student"] for row in rows}):
        mine = [row for row in rows if row["student"] == student]
        write_text(out / "feedback" / f"{_plain(student)}.html", page(mine))
    now = sum(marked["now"] for marked in done)
    held = [set(kept) for marked in done for kept in marked["held"]]
    return Marks(rows, now, len(done) - now, tuple(sorted(set.intersection(*held))) if held else tuple(HOLDS))


def submissions(folder):
    """The notebooks below a folder, in order; hidden folders and links do not count.                       -> [Path]"""
    return sorted(file for file in Path(folder).rglob("*.ipynb") if file.is_file() and not file.is_symlink()
                  and not any(part.startswith(".") for part in file.relative_to(folder).parts))


def student_of(file, folder):
    """FOLDER/anna/x/01.ipynb -> anna;  FOLDER/ben.ipynb -> ben"""
    parts = file.relative_to(folder).parts
    return parts[0] if len(parts) > 1 else file.stem


# ---- one submission

def _one(work, file):
    """Mark one file, or read what it got before.                            -> {"rows": [...], "held": [...], "now"}"""
    name = file.relative_to(work.folder).as_posix()
    kept = work.out / "files" / f"{_plain(name)}.json"
    try:
        before = json.loads(kept.read_text(encoding="utf-8"))
        if before["key"] == _key(work, file, before["rows"][0]["notebook"]):
            return {**before, "now": False}
    except (OSError, ValueError, LookupError, TypeError):
        pass
    found, answers, problem, held = "", {}, "", []
    try:
        with room(_reading(work.place), read, str(file), work.papers, work.notebook) as opened:
            told = opened.hear()
        found, answers, problem = told["notebook"], told.get("answers", {}), clean(told["problem"])
    except Stopped as stopped:
        found, problem = work.notebook, f"it could not be read: {stopped}"
    rows = []
    for asked in work.papers[found].asked if found in work.papers else (None,):
        state, said = ("unreadable", problem) if problem or asked is None else _mark(
            work, work.papers[found], asked, answers.get(asked.id, {"open": True, "missing": True}), held)
        points = asked.difficulty if asked else 0
        rows.append({"student": student_of(file, work.folder), "file": name, "notebook": found,
                     "exercise": asked.id if asked else "", "difficulty": points, "points": points,
                     "mark": points if state == "done" else 0, "state": state, "said": said})
    write_text(kept, json.dumps({"key": _key(work, file, found), "held": held, "rows": rows}, indent=1) + "\n")
    return {"rows": rows, "held": held, "now": True}


def _mark(work, paper, asked, answer, held):
    """One exercise.                                 -> state: done, wrong, open, stopped or not own work; a sentence"""
    if answer.get("open"):
        return "open", "there is no cell that answers it" if answer.get("missing") else "not attempted"
    if answer.get("problem"):
        return "wrong", clean(answer["problem"])
    if answer["foreign"]:
        return "not own work", clean("; ".join(answer["foreign"]))
    exercise, = (one for one in exercises_of(paper.name[:2]) if one.id == asked.id)
    try:
        with room(work.place, serve, paper.imports, answer["cells"], asked.name) as opened:
            held.append(opened.held)
            verdict = judged(opened, exercise)
            taken = sorted({name for name in opened.foreign if not is_given(name, asked)})
    except Stopped as stopped:
        return "stopped", str(stopped)
    if verdict.state == "done" and taken:
        return "not own work", f"it calls {', '.join(name.rpartition('.')[2] for name in taken)} of the package"
    if verdict.state == "wrong":
        return "wrong", f"{verdict.found}. {verdict.hint}"
    return verdict.state, asked.title if verdict.state == "done" else "not attempted"


def _key(work, file, found):
    """What a result depends on: the file, its chapter's sources, the limits, the marking itself."""
    total = hashlib.sha256()
    with file.open("rb") as content:
        while part := content.read(1 << 20):
            total.update(part)
    chapter = _sources(work.papers[found].master) if found in work.papers else ""
    total.update(repr([work.notebook, work.limits, sorted(work.papers), chapter]).encode())
    return total.hexdigest()


@functools.cache
def _sources(master):
    own = sorted(Path(__file__).parent.glob("grade*.py"))
    return digest(Path(master), read_master(Path(master))) + repr(
        [hashlib.sha256(each.read_bytes()).hexdigest() for each in own])


def _reading(where):
    """The same rooms, for our own code that reads a file: it must see the submissions."""
    return replace(where, limits=READING, hidden=())


def _unseen(folder, out):
    """Folders that no answer needs: submissions, marks, solutions."""
    needed = [Path(path).resolve() for path in (tempfile.gettempdir(), sys.prefix, k3_scratch.__path__[0])]
    solutions = [chapters.NOTEBOOKS / "solutions", chapters.NOTEBOOKS / "src"]
    return [place for place in (folder, out, *solutions)
            if place.is_dir() and not any(path.is_relative_to(place) for path in needed)]


# ---- what is written

def _table(rows):
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _no_formula(row[name]) for name in COLUMNS} for row in rows)
    return text.getvalue()


def _no_formula(value):
    """A text that a spreadsheet does not take for a formula."""
    return "'" + value if isinstance(value, str) and value[:1] in tuple("=+-@\t") else value


def _plain(name):
    """A file's name for a student or a file, different for different ones."""
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', name)[:60]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:6]}"


def _sum(rows):
    return f"{sum(row['mark'] for row in rows)} of {sum(row['points'] for row in rows)} points"


def page(rows):
    """The page of feedback for one student: HTML that needs nothing else.                                     -> str"""
    parts = []
    for name in dict.fromkeys(row["file"] for row in rows):
        mine = [row for row in rows if row["file"] == name]
        lines = "".join(f"<tr><td>{SIGNS.get(row['state'], '✗')}</td><td>{escape(row['exercise'])}</td>"
                        f"<td>{row['mark']} of {row['points']}</td><td>{escape(row['state'])}</td>"
                        f"<td>{escape(row['said'])}</td></tr>\n" for row in mine)
        parts.append(f"<h2>{escape(mine[0]['notebook'] or name)}: {_sum(mine)}</h2>\n<p>{escape(name)}</p>\n"
                     "<table>\n<tr><th></th><th>exercise</th><th>points</th><th>result</th><th>what the check said</th>"
                     f"</tr>\n{lines}</table>\n")
    head = escape(rows[0]["student"])
    return ("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
            f"<title>{head}</title>\n<style>body {{font-family: sans-serif; max-width: 60em; margin: 2em auto; "
            "padding: 0 1em} td, th {text-align: left; vertical-align: top; padding: .3em .6em; "
            "border-bottom: 1px solid #ccc}</style></head>\n"
            f"<body>\n<h1>{head}: {_sum(rows)}</h1>\n{''.join(parts)}</body></html>\n")
