"""The teaching kit: its generated pages are those of the sources, its minutes and sums add up, its links resolve."""

import json
import re
import shutil
from collections import Counter

import pytest
from course_helpers import MASTERS, stem

from k3_scratch.__main__ import main
from k3_scratch.commands.teaching import pages
from k3_scratch.course import quizzes, syllabus, wrong_answers
from k3_scratch.course.chapters import CHAPTERS
from k3_scratch.course.exercise import exercises_of

KIT = syllabus.TEACHING
WRITTEN = syllabus.written()
PLAN = syllabus.read_plan()
QUESTIONS = quizzes.read(KIT / "quizzes")
SESSIONS = [(version, session) for version in PLAN["versions"] for group in version["groups"]
            for session in group["sessions"] if any(part["chapter"] in WRITTEN for part in session["parts"])]
LINK = re.compile(r"\[([^\[\]]*)\]\(([^()\s]+)\)")
COMMENT = re.compile(r"^- \*\*(\d+\.\d+)\*\* \*([^*]+)\*: ", re.MULTILINE)
HEADINGS = ["The story in one minute", "What goes wrong in class", "Wrong answers, and what they reveal",
            "On the board", "Questions to ask", "When time is short"]


def text_of(file):
    return file.read_text(encoding="utf-8")


# ---- nothing generated is stale

def test_the_generated_pages_are_up_to_date():
    stale = [file.name for file, text in pages().items() if not file.exists() or text_of(file) != text]
    assert stale == [], "run `k3 teaching`"


def test_a_stale_page_is_named_and_written_again(tmp_path, capsys):
    kit = tmp_path / "teaching"
    shutil.copytree(KIT, kit)
    assert main(["teaching", "--check", "--folder", str(kit)]) == 0
    quiz = kit / "quizzes" / "01.toml"
    quiz.write_text(text_of(quiz).replace("An adding memory", "One adding memory"), encoding="utf-8")
    (kit / "syllabus.md").unlink()
    capsys.readouterr()
    assert main(["teaching", "--check", "--folder", str(kit)]) == 1
    told = capsys.readouterr().out
    assert "syllabus.md: stale" in told and "quizzes.md: stale" in told and "00_the_map.md" not in told
    assert main(["teaching", "--folder", str(kit)]) == 0
    assert text_of(kit / "syllabus.md") == text_of(KIT / "syllabus.md")
    assert "One adding memory" in text_of(kit / "quizzes.md")
    assert main(["teaching", "--check", "--folder", str(kit)]) == 0


@pytest.mark.parametrize(("file", "old", "new", "told"), [
    ("01_delta_rule_rnn.md", "<!-- checks -->", "", "<!-- checks -->"),
    ("quizzes/01.toml", 'right = "8"', 'right = "9"', "01.toml, question 1"),
    ("plan.json", '"in_class": ["0.1"', '"in_class": ["0.9"', "no section or exercise 0.9"),
    ("plan.json", '"minutes": 90', '"minutes": 60', "minutes are left"),
    ("plan.json", '"versions"', "versions", "plan.json: not readable"),
    ("quizzes/02.toml", "[[question]]", "[[question]", "02.toml: not readable"),
])
def test_a_fault_ends_in_one_line_that_names_it(file, old, new, told, tmp_path, capsys):
    kit = tmp_path / "teaching"
    shutil.copytree(KIT, kit)
    (kit / file).write_text(text_of(kit / file).replace(old, new, 1), encoding="utf-8")
    assert main(["teaching", "--folder", str(kit)]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


# ---- the syllabus

@pytest.mark.parametrize(("version", "session"), SESSIONS, ids=[f"{v['name'][:6]}: {s['title']}" for v, s in SESSIONS])
def test_the_minutes_of_a_session_add_up(version, session):
    rows = syllabus.timeline(session, version, WRITTEN, ("00",))
    assert sum(minutes for minutes, _ in rows) == version["minutes"]
    assert min(minutes for minutes, _ in rows) >= 2 and rows[-1][0] >= syllabus.STEP
    asked = [id for part in session["parts"] for id in part.get("in_class", [])]
    assert sum("**exercise " in text for _, text in rows) == len(asked)


def test_the_printed_clock_runs_through():
    """Every row of the page begins where the one before ended."""
    clock, tables = None, 0
    for at, minutes in re.findall(r"^\| (\d+:\d\d) \| (\**\d+\**) \|", text_of(KIT / "syllabus.md"), re.MULTILINE):
        begins = int(at.split(":")[0]) * 60 + int(at.split(":")[1])
        if minutes.startswith("*"):
            assert begins == clock == int(minutes.strip("*"))
            clock, tables = None, tables + 1
        else:
            assert begins == (clock or 0)
            clock = begins + int(minutes)
    assert tables == len(SESSIONS)


def test_lengths_of_the_three_versions():
    number = {version["name"]: sum(len(group["sessions"]) for group in version["groups"])
              for version in PLAN["versions"]}
    assert list(number.values()) == [12, 20, 8] and {version["minutes"] for version in PLAN["versions"]} == {90}


@pytest.mark.parametrize("version", PLAN["versions"], ids=lambda version: version["name"])
def test_every_exercise_is_once_in_class_or_in_the_rest(version):
    parts = [part for _, session in SESSIONS if _ is version for part in session["parts"]]
    in_class = [id for part in parts for id in part.get("in_class", [])]
    rest = [task.id for tasks in syllabus.rest_of(version, WRITTEN).values() for task in tasks]
    chapters = {part["chapter"] for part in parts} & set(WRITTEN)
    assert Counter(in_class + rest) == Counter(task.id for name in chapters for task in WRITTEN[name].tasks)


def test_the_twelve_lessons_cover_all_chapters():
    lessons = PLAN["versions"][0]["groups"][0]["sessions"]
    assert sorted({part["chapter"] for lesson in lessons for part in lesson["parts"]}) == [n[:2] for n, _ in CHAPTERS]


def test_titles_minutes_and_objectives_come_from_the_masters():
    page = text_of(KIT / "syllabus.md")
    for chapter in WRITTEN.values():
        assert [task.id for task in chapter.tasks] == [exercise.id for exercise in exercises_of(chapter.number)]
        assert f"| {chapter.minutes['read']} | {len(chapter.tasks)} in {chapter.minutes['exercises']} | " in page
        assert all(chapter.objectives) and chapter.objectives[0].split("[")[0] in page


def test_shares_add_up_and_follow_the_weights():
    for weights, units in (([5], 3), ([1, 2, 3, 4], 20), ([800, 90, 90, 20], 9), ([1, 1, 1], 3)):
        found = syllabus.shares(weights, units)
        assert sum(found) == units and min(found) >= 1
        assert all(a <= b for (x, a) in zip(weights, found, strict=True)
                   for (y, b) in zip(weights, found, strict=True) if x < y)


# ---- the pages of the chapters

@pytest.mark.parametrize("master", MASTERS, ids=stem)
def test_each_written_chapter_has_its_page(master):
    page = text_of(KIT / f"{master.stem}.md")
    assert page.startswith(f"# {master.stem[:2]} · {WRITTEN[master.stem[:2]].title}: for the teacher\n")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == HEADINGS
    for heading in HEADINGS:
        assert len(page.split(f"## {heading}\n")[1].split("\n## ")[0].split()) > 25, heading


@pytest.mark.parametrize("master", MASTERS, ids=stem)
def test_a_comment_belongs_to_one_wrong_answer(master):
    """The words in italics are words of exactly one hint of that exercise."""
    page, hints = text_of(KIT / f"{master.stem}.md"), {}
    for exercise in exercises_of(master.stem[:2]):
        hints[exercise.id] = [mistake.hint for mistake in exercise.mistakes]
    comments = COMMENT.findall(page)
    assert len(comments) >= min(4, sum(map(len, hints.values())))
    assert len(comments) == len(re.findall(r"^- \*\*\d+\.\d+\*\*", page, re.MULTILINE))
    for exercise, words in comments:
        assert sum(words in hint for hint in hints[exercise]) == 1, (exercise, words)


NUMBER = re.compile(r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d*\.\d+|\d{3,})(?![\w]|[.,]\d)")
NOT_IN_THE_NOTEBOOK = {"00_the_map": {0.28}}              # MB of cache after ten tokens


@pytest.mark.parametrize("master", MASTERS, ids=stem)
def test_the_numbers_of_a_page_are_those_of_its_notebook(master):
    """What is longer than two digits stands in the master, or in a table that is made from the checks."""
    def numbers(text, pattern=NUMBER):
        return {float(found.replace(",", "")) for found in pattern.findall(text.replace("{,}", ","))}
    page = text_of(KIT / f"{master.stem}.md")
    hand = re.sub(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", "", page, flags=re.DOTALL)
    made = "".join(re.findall(r"<!-- \w+ -->\n(.*?)<!-- /", page, re.DOTALL))
    known = numbers(text_of(master).replace("_", "") + made, re.compile(r"\d[\d,]*\d\.\d+|\d[\d,]*\d|\d?\.\d+"))
    assert numbers(hand) - known - NOT_IN_THE_NOTEBOOK.get(master.stem, set()) == set()


def test_a_table_holds_every_wrong_answer_the_checks_know():
    for number, chapter in WRITTEN.items():
        page = text_of(KIT / f"{chapter.name}.md")
        for exercise in exercises_of(number):
            for mistake in exercise.mistakes:
                assert mistake.hint.replace("|", "\\|") in page


def test_what_a_table_says_is_what_the_wrong_function_gives():
    rows = "\n".join(wrong_answers.tables("02"))
    assert "2.3 one KDA step**, right in the case for paper (K = 2, V = 1, S = (4, 2)" in rows
    assert "): 3.536; 5, 2\n" in rows and "| 2.121; 3, 2 | You decayed after the write. |" in rows
    assert "| the same here | The norm's weight is missing" in rows


# ---- quizzes

def test_how_many_questions_there_are():
    by_chapter = Counter(question.chapter for question in QUESTIONS)
    assert all(4 <= by_chapter[number] <= 6 for number in WRITTEN) and set(by_chapter) >= set(WRITTEN)
    assert len(QUESTIONS) >= 60 or len(WRITTEN) < len(CHAPTERS)
    assert 3 * sum(bool(question.check) for question in QUESTIONS) >= len(QUESTIONS)


def test_the_letters_are_evenly_spread():
    letters = Counter(quizzes.letters(QUESTIONS).values())
    assert set(letters) == set(quizzes.LETTERS) and max(letters.values()) - min(letters.values()) <= 1


def test_the_right_choice_does_not_give_itself_away_by_its_length():
    asked = [question for question in QUESTIONS if question.choices]
    longest = sum(len(question.right) > max(len(text) for text, _, _ in question.wrong) for question in asked)
    shortest = sum(len(question.right) < min(len(text) for text, _, _ in question.wrong) for question in asked)
    assert longest <= 0.4 * len(asked) and shortest <= 0.4 * len(asked)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
def test_a_question(question):
    """Choices differ, each wrong one has its reason, and the calculations give what the answers say."""
    texts = [question.right, *(text for text, _, _ in question.wrong)]
    assert len(set(texts)) == len(texts) and all(text.strip() for text in texts)
    assert len(question.wrong) == 3 if question.choices else len(question.wrong) >= 1
    assert question.ask.endswith(("?", ".")) and len(question.why.split()) >= 4
    assert all(len(why.split()) >= 3 and why.endswith(".") for _, why, _ in question.wrong)
    for text, check in [(question.right, question.check), *((text, check) for text, _, check in question.wrong)]:
        assert not check or quizzes.agrees(text, check), (text, check)
    if not question.choices:
        assert question.check, "a short answer is calculated"


def test_numbers_that_stand_in_a_larger_one_do_not_count():
    assert quizzes.agrees("about 35 tokens", "35") and quizzes.agrees("-0.8", "-0.8")
    for text in ("350", "1,035", "35.5", "0.35", "135"):
        assert not quizzes.agrees(text, "35"), text
    with pytest.raises(quizzes.QuizError, match="NameError"):
        quizzes.shown("__import__('os')")


@pytest.mark.parametrize(("row", "told"), [
    ('ask = "a?"\nright = "b"\nwhy = "c"', "three wrong"),
    ('ask = "a?"\nwhy = "c"', "wanted ask, why"),
    ('ask = "a?"\nanswer = "5"\nwhy = "c"\ncheck = "2 + 2"', "is 4"),
    ('ask = "a?"\nanswer = "5"\nwhy = "c"\ncheck = "2 +"', "SyntaxError"),
    ('ask = "a?"\nanswer = "5"\nwhy = "c"\nhint = "d"', "hint"),
])
def test_a_faulty_question_is_refused(row, told, tmp_path):
    (tmp_path / "03.toml").write_text(f"[[question]]\n{row}\n", encoding="utf-8")
    with pytest.raises(quizzes.QuizError, match=told):
        quizzes.read(tmp_path)


# ---- all pages

ALL = sorted(KIT.glob("*.md"))


def test_the_kit_is_complete():
    names = {file.name for file in ALL}
    assert {"README.md", "syllabus.md", "quizzes.md", "quiz_answers.md", "projects.md"} <= names
    assert json.loads(text_of(KIT / "plan.json"))["versions"]


@pytest.mark.parametrize("file", ALL, ids=lambda file: file.name)
def test_links_resolve(file):
    """Links to chapters that are not built yet may wait for `k3 notebooks`: what counts is their master."""
    for text, target in LINK.findall(text_of(file)):
        assert text.strip() and not target.startswith("/")
        if target.startswith("http") or re.search(r"/(\w+)\.ipynb", target) and target.split("/")[-1][:-6] in {
                master.stem for master in MASTERS}:
            continue
        assert (file.parent / target.split("#")[0]).exists(), target


def test_eight_projects_have_four_levels_each():
    projects = re.split(r"^## \d+ · ", text_of(KIT / "projects.md"), flags=re.MULTILINE)[1:]
    assert len(projects) == 8
    for project in projects:
        for part in ("**Hours.**", "**Read.**", "**Measure.**", "**Pitfalls.**"):
            assert project.count(part) == 1, (project[:40], part)
        assert len(re.findall(r"^\| [1-4] \| .{20,} \|$", project, re.MULTILINE)) == 4, project[:40]


@pytest.mark.parametrize("file", [f for f in ALL if f.stem[:2].isdigit() or f.stem in ("projects", "README")],
                         ids=lambda file: file.name)
def test_hand_written_lines_are_short(file):
    text = re.sub(r"<!-- (\w+) -->\n.*?<!-- /\1 -->", "", text_of(file), flags=re.DOTALL)
    assert [line for line in text.split("\n") if len(line) > 125 and not line.startswith("|")] == []
