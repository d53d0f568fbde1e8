"""`k3 teaching`: write the generated pages of notebooks/teaching again, or say which are stale."""

from pathlib import Path

from k3_scratch.commands.readme import between
from k3_scratch.files import write_text


def add_to(subparsers):
    parser = subparsers.add_parser("teaching", help="write the teacher's syllabus, quizzes and tables again (authors)")
    parser.add_argument("--folder", default=None, help="(default: notebooks/teaching)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 when a page is stale")
    parser.set_defaults(run=run)


def run(arguments):
    folder = Path(arguments.folder) if arguments.folder else None
    stale = {file: text for file, text in pages(folder).items()
             if not file.exists() or file.read_text(encoding="utf-8") != text}
    for file, text in stale.items():
        if not arguments.check:
            write_text(file, text)
        print(f"{file.name}: {'stale, run `k3 teaching`' if arguments.check else 'written anew'}")
    if not stale:
        print("the teaching kit is up to date")
    return 1 if arguments.check and stale else 0


def pages(folder=None):
    """All pages with generated parts, as they should be.                                   -> {file: text}

    Whole pages: syllabus.md, quizzes.md, quiz_answers.md. In a chapter's page only what stands between
    `<!-- facts -->`, or `<!-- checks -->`, and its end mark. Raises ValueError for a fault in the plan or a quiz.
    """
    try:
        from k3_scratch.course import quizzes, syllabus, wrong_answers  # here: authors have jupytext, readers need not
    except ImportError as error:
        raise ValueError(f"the teaching kit needs {error.name}: pip install -r requirements-tests.txt") from error
    folder = folder or syllabus.TEACHING
    chapters, questions = syllabus.written(), quizzes.read(folder / "quizzes")
    made = {folder / "syllabus.md": syllabus.page(syllabus.read_plan(folder / "plan.json"), chapters),
            folder / "quizzes.md": quizzes.questions_page(questions),
            folder / "quiz_answers.md": quizzes.answers_page(questions)}
    for chapter in chapters.values():
        file = folder / f"{chapter.name}.md"
        if not file.exists():
            raise ValueError(f"{file.name} is missing in {folder.name}: each chapter has a page for the teacher")
        text = between(file.read_text(encoding="utf-8"), "facts", syllabus.facts(chapter), file.name)
        made[file] = between(text, "checks", wrong_answers.tables(chapter.number), file.name)
    return made
