"""The syllabus of a course with these notebooks: made from their metadata and a small plan; no minute is typed.

The plan (`notebooks/teaching/plan.json`) says which sections and which exercises belong into which session; titles,
minutes, needs, objectives and exercises come from the masters. A session is an opening quiz, the sections and exercises
in the order of the notebook, and a closing round; its minutes add up to the length that the plan names.
"""

import functools
import json
import re
from dataclasses import dataclass

from k3_scratch.course.chapters import CHAPTERS, NOTEBOOKS, masters
from k3_scratch.course.master import DOTS, read_master

TEACHING = NOTEBOOKS / "teaching"
STEP = 5                     # minutes: sections are taught for a multiple of it, and the closing round takes no less
SECTION = re.compile(r"^## (\d+) · (.+)$", re.MULTILINE)


class PlanError(ValueError):
    """The plan asks for something that is not there, or for more than fits; the message names the place."""


@dataclass(frozen=True)
class Task:
    """An exercise as its master announces it."""

    id: str              # "1.3"
    title: str
    minutes: int         # for a student
    difficulty: int      # 1 to 3


@dataclass(frozen=True)
class Section:
    """A numbered section of a notebook; `words` of prose, without exercises, say how long it is."""

    number: int
    title: str
    words: int


@dataclass(frozen=True)
class Chapter:
    """What the metadata say about a notebook. `steps`: its sections and exercises in their order."""

    name: str
    title: str
    minutes: dict
    needs: tuple
    objectives: tuple
    steps: tuple

    @property
    def number(self):
        return self.name[:2]

    @property
    def tasks(self):
        return [step for step in self.steps if isinstance(step, Task)]

    @property
    def sections(self):
        return [step for step in self.steps if isinstance(step, Section)]


def written(folder=None):
    """The chapters that are written, by their two digits.                                    -> {"00": Chapter, ...}"""
    return {master.stem[:2]: chapter_of_master(master) for master in masters(folder)}


def chapter_of_master(master):
    """Read one master.                                                                       Path -> Chapter"""
    return _chapter(master, master.read_bytes())


@functools.lru_cache(maxsize=64)
def _chapter(master, content):
    """The same, once for each content of the file."""
    notebook = read_master(master)
    k3, steps = notebook.metadata.k3, []
    for i, cell in enumerate(notebook.cells):
        hidden = "hint" in cell.metadata.get("tags", ()) or cell.source.startswith("## Summary")
        if cell.cell_type == "markdown" and not hidden:
            asked = re.match(r"### Exercise (\S+): (.+)", cell.source)
            if asked:
                data = notebook.cells[i + 2].metadata
                steps.append(Task(asked[1], asked[2].strip(), data["minutes"], data["difficulty"]))
                continue
            head, *rest = SECTION.split(cell.source)
            _more_words(steps, head)
            for number, title, text in zip(*[iter(rest)] * 3, strict=True):
                steps.append(Section(int(number), title.strip(), 0))
                _more_words(steps, text)
    return Chapter(master.stem, k3.title, dict(k3.minutes), tuple(k3.needs), tuple(k3.objectives), tuple(steps))


def _more_words(steps, text):
    at = [i for i, step in enumerate(steps) if isinstance(step, Section)]
    if at:
        last = steps[at[-1]]
        steps[at[-1]] = Section(last.number, last.title, last.words + len(text.split()))


# ---- a session

def timeline(session, version, chapters, before=()):
    """The rows of one session.                            -> [(minutes, text)], whose minutes add up to the version's

    session   {"title", "parts": [{"chapter", "sections" (default: all), "in_class" (default: none)}], "when"}
    version   {"minutes": of a session, "opening": of its quiz};  before  chapters that the opening quiz asks about
    Raises PlanError for a section or exercise that is not there, and when less than STEP minutes a section are left.
    """
    parts = [part for part in session["parts"] if part["chapter"] in chapters]
    steps = [step for part in parts for step in _chosen(part, chapters[part["chapter"]], session["title"])]
    source = {id(step): f"{part['chapter']} " for part in parts for step in chapters[part["chapter"]].steps
              if len(parts) > 1}
    sections = [step for step in steps if isinstance(step, Section)]
    left = version["minutes"] - version["opening"] - sum(step.minutes for step in steps if isinstance(step, Task))
    units = (left - STEP) // STEP
    if units < max(1, len(sections)):
        raise PlanError(f"{session['title']}: {left} minutes are left for {len(sections)} sections and a closing round")
    taught = iter(shares([section.words for section in sections], units))
    rows = [(version["opening"], "opening: " + _opening(before, [part["chapter"] for part in parts]))]
    rows += [(STEP * next(taught), f"{source.get(id(step), '')}§{step.number} {step.title}")
             if isinstance(step, Section)
             else (step.minutes, f"**exercise {step.id}** {step.title} {DOTS[step.difficulty]}") for step in steps]
    rows.append((version["minutes"] - sum(minutes for minutes, _ in rows), "closing round: what is still open; home"
                 if version.get("home") else "closing round: what is still open"))
    return rows


def _opening(before, here):
    past = [chapter for chapter in before if chapter not in here]
    if not before:
        return "what the course is, and what it expects"
    return f"quiz on chapter{'s' * (len(past) > 1)} {' and '.join(past)}" if past else "what is still open from before"


def _chosen(part, chapter, where):
    wanted = part.get("sections", [section.number for section in chapter.sections])
    in_class = part.get("in_class", [])
    missing = ({*wanted} - {section.number for section in chapter.sections},
               {*in_class} - {task.id for task in chapter.tasks})
    if any(missing):
        raise PlanError(f"{where}: chapter {chapter.number} has no section or exercise "
                        f"{', '.join(map(str, sorted(missing[0]) + sorted(missing[1])))}")
    return [step for step in chapter.steps
            if (step.number in wanted if isinstance(step, Section) else step.id in in_class)]


def shares(weights, units):
    """Whole numbers that add up to `units`, at least 1 each, as near to the weights' shares as whole numbers are.

    >>> shares([10, 30, 60], 10)
    [1, 3, 6]
    >>> shares([1, 1, 100], 5)
    [1, 1, 3]
    """
    found = [1] * len(weights)
    while weights and sum(found) < units:
        ideal = [weight * units / max(1, sum(weights)) for weight in weights]
        furthest = max(range(len(weights)), key=lambda i: ideal[i] - found[i])
        found[furthest] += 1
    return found


def rest_of(version, chapters):
    """For each chapter of a version the exercises that no session does in class.         -> {"00": [Task, ...], ...}"""
    parts = [part for group in version["groups"] for session in group["sessions"] for part in session["parts"]]
    done = {id for part in parts for id in part.get("in_class", [])}
    return {part["chapter"]: [task for task in chapters[part["chapter"]].tasks if task.id not in done]
            for part in parts if part["chapter"] in chapters}


# ---- the page

def page(plan, chapters):
    """The whole of syllabus.md.                                                              -> text"""
    lines = ["# Syllabus", "",
             "Made by `k3 teaching` from the notebooks' metadata and [plan.json](plan.json): change those, not this.",
             "Reading minutes are an estimate from the length of the text, exercise minutes the sum of the exercises', "
             "and the time to run all cells is measured. The minutes of a section are its share of the words taught in "
             f"that session, in steps of {STEP}; those of an exercise are the notebook's.", "", *_overview(chapters)]
    for version in plan["versions"]:
        lines += ["", *_version(version, chapters)]
    return "\n".join(lines) + "\n"


def _overview(chapters):
    lines = ["## The chapters", "", "| chapter | read | exercises | together | run all cells | for the teacher |",
             "|---|---:|---:|---:|---|---|"]
    for chapter in chapters.values():
        read, exercises = chapter.minutes["read"], chapter.minutes["exercises"]
        lines.append(f"| {_link(chapter)} | {read} | {len(chapter.tasks)} in {exercises} | {read + exercises} | "
                     f"{chapter.minutes['run']} | [page]({chapter.name}.md) |")
    read, exercises = (sum(c.minutes[kind] for c in chapters.values()) for kind in ("read", "exercises"))
    number = sum(len(chapter.tasks) for chapter in chapters.values())
    lines.append(f"| **all** | **{read}** | **{number} in {exercises}** | **{read + exercises}** | | |")
    lines += [f"\nNot written yet: {', '.join(_missing(chapters))}."] if _missing(chapters) else []
    for chapter in chapters.values():
        lines += ["", f"**{chapter.number} · {chapter.title}**. Needs {'; '.join(map(_here, chapter.needs))}. "
                  "Afterwards one can", *(f"- {_here(objective)}" for objective in chapter.objectives)]
    return lines


def _version(version, chapters):
    sessions = [session for group in version["groups"] for session in group["sessions"]]
    lines = [f"## {version['name']}", "", version["about"], "",
             f"{len(sessions)} sessions of {version['minutes']} minutes: {len(sessions) * version['minutes']} minutes "
             f"in class{_home_total(version, chapters)}.", ""]
    rest, before, number = rest_of(version, chapters), (), 0
    last = {part["chapter"]: session["title"] for session in sessions for part in session["parts"]}
    for group in version["groups"]:
        lines += [f"### {group['name']}", ""] if group["name"] else []
        for session in group["sessions"]:
            number += 1
            here = [part["chapter"] for part in session["parts"]]
            names = [_link(chapters[c]) if c in chapters else f"{c} (not written yet)" for c in here]
            lines += [f"**{number} · {session['title']}** ({', '.join(names)})", ""]
            if any(c in chapters for c in here):
                lines += _table(timeline(session, version, chapters, before))
                over = [c for c in here if last[c] == session["title"]]
                lines += _left(version, over, rest, chapters, session.get("when", "At home"))
            lines.append("")
            before = tuple(here)
    return lines


def facts(chapter):
    """What stands at the head of a chapter's page for the teacher.                            -> lines of Markdown"""
    minutes = chapter.minutes
    return [f"[Notebook](../{chapter.name}.ipynb) · [solutions](../solutions/{chapter.name}.ipynb) · "
            f"[quiz](quizzes.md) · reading {minutes['read']} minutes · exercises {minutes['exercises']} minutes · "
            f"running all cells {minutes['run']}", "",
            "Exercises: " + " · ".join(f"**{task.id}** {task.title} ({task.minutes} min {DOTS[task.difficulty]})"
                                       for task in chapter.tasks)]


def _table(rows):
    lines, clock = ["| at | minutes | |", "|---:|---:|---|"], 0
    for minutes, text in rows:
        lines.append(f"| {clock // 60}:{clock % 60:02d} | {minutes} | {text} |")
        clock += minutes
    return [*lines, f"| {clock // 60}:{clock % 60:02d} | **{clock}** | |"]


def _left(version, here, rest, chapters, when):
    """What follows the table of a session: homework (when: at home or before it), or what is left for later."""
    tasks = [task for chapter in here for task in rest.get(chapter, [])]
    names = ", ".join(f"{task.id} ({task.minutes})" for task in tasks)
    minutes = sum(task.minutes for task in tasks)
    if not version.get("home"):
        return ["", f"Left for later: exercises {names}: {minutes} minutes."] if tasks else []
    reading = sum(chapters[chapter].minutes["read"] for chapter in here if chapter in chapters)
    if not reading:
        return []
    work = f", then exercises {names}: {minutes} minutes" if tasks else ""
    return ["", f"{when}: read the notebook, {reading} minutes{work}. Together {reading + minutes} minutes."]


def _home_total(version, chapters):
    rest = rest_of(version, chapters)
    minutes = sum(task.minutes for tasks in rest.values() for task in tasks)
    if not version.get("home"):
        return f", exercises of {minutes} minutes left for later" if minutes else ""
    return f", and {sum(chapters[c].minutes['read'] for c in rest) + minutes} minutes at home"


def _missing(chapters):
    return [f"{name[:2]} {title}" for name, title in CHAPTERS if name[:2] not in chapters]


def _link(chapter):
    return f"[{chapter.number} · {chapter.title}](../{chapter.name}.ipynb)"


def _here(text):
    """Links of a master are relative to notebooks/, those of the page to notebooks/teaching/."""
    return re.sub(r"\]\((?!http)", "](../", text)


def read_plan(file=None):
    """The plan of lessons. Raises PlanError when it is not readable JSON."""
    file = file or TEACHING / "plan.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PlanError(f"{file.name}: not readable JSON ({error})") from error
