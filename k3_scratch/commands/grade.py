"""`k3 grade FOLDER`: mark submitted notebooks."""

import argparse
from pathlib import Path


def add_to(subparsers):
    parser = subparsers.add_parser(
        "grade", help="mark submitted notebooks: a table and a page of feedback per student",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="""Mark submitted notebooks.

FOLDER holds a folder for each student with notebooks in it (FOLDER/anna/01_delta_rule_rnn.ipynb), or one file for
each student (FOLDER/ben.ipynb), or both. Which chapter a notebook is of it says itself, in its metadata; if they are
lost, its file's name or its exercises say it, or --notebook.

Only the answers are taken from a notebook; exercises and checks are those of this course. Each answer runs in a
process of its own. A second call goes on where the first was interrupted. One that is unreadable or breaks off stops
none of the others.""",
        epilog="""Not protected against: the solutions are public, and who copies their text gets the marks; and an
answer runs as the user who calls this. For exams, mark under a user of its own or in a container.
See notebooks/teaching/marking.md.""")
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--out", metavar="FOLDER", help="where marks.csv and feedback/ go (default: FOLDER-marks)")
    parser.add_argument("--notebook", metavar="NAME", default="", help="all are of this chapter: 01 or a file name")
    parser.add_argument("--seconds", type=_positive, default=30, help="of processor time for one answer (30)")
    parser.add_argument("--memory", type=_positive, default=1000, metavar="MB", help="for one answer (1000)")
    parser.add_argument("--output", type=_positive, default=10, metavar="MB", help="that one answer may print (10)")
    parser.add_argument("--jobs", type=_positive, default=1, help="submissions at a time (1)")
    parser.add_argument("--write-for", choices=["nbgrader", "otter"],
                        help="mark nothing: write the chapter --notebook for that program to FOLDER/NAME.ipynb")
    parser.set_defaults(run=run)


def run(arguments):
    try:
        from k3_scratch.course import grade  # here: it needs jupytext, which readers need not have
    except ImportError as error:
        raise ValueError(f"marking needs {error.name}: pip install -r requirements-tests.txt") from error
    if arguments.write_for:
        from k3_scratch.course import build, other_graders
        for pair in build.plan([arguments.notebook]):                    # says which names there are
            file = Path(arguments.folder) / f"{pair.master.stem}.ipynb"
            other_graders.write(arguments.write_for, pair.master, file)
            print(f"wrote {file}")
        return 0
    limits = grade.Limits(arguments.seconds, arguments.memory * 10 ** 6, arguments.output * 10 ** 6)
    marks = grade.grade(arguments.folder, arguments.out, notebook=arguments.notebook, limits=limits,
                        jobs=arguments.jobs, tell=lambda line: print(line, flush=True))
    print(f"{marks.now} marked, {marks.before} marked before: see marks.csv and feedback/")
    missing = [what for what in grade.HOLDS if what not in marks.held]
    if missing:
        print("Here an answer is not kept from: " + "; ".join(grade.HOLDS[what] for what in missing)
              + ". Mark in a container or under a user of its own.")
    return 0


def _positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number from 1 on is wanted, but {text} came")
    return number
