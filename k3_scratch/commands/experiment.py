"""`k3 experiment`: run the lab's experiments and write their results, figures and gallery."""

from pathlib import Path

from k3_scratch.analysis.spread import table
from k3_scratch.lab.cells import BUILD
from k3_scratch.lab.close import SEEDS, TIMES, with_close
from k3_scratch.lab.experiment import LabError, load, load_all
from k3_scratch.lab.gallery import write_gallery
from k3_scratch.lab.plan import jobs_of, plan, seconds_of
from k3_scratch.lab.runner import run_planned


def add_to(subparsers):
    parser = subparsers.add_parser("experiment", help="measure what each part of K3 is for")
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments to run, see --list")
    parser.add_argument("--all", action="store_true", help="run all of them")
    parser.add_argument("--list", action="store_true", help="say which there are and what they cost")
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N - 1 (default: the experiment's own)")
    parser.add_argument("--close", action="store_true", help=f"afterwards {SEEDS} seeds for what a claim compares and "
                        f"what differs by less than {TIMES} times its spread")
    parser.add_argument("--quick", action="store_true", help="the same code in seconds; its numbers mean nothing")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cells that run at the same time, one thread "
                        "each; the numbers do not depend on it (default %(default)s)")
    parser.add_argument("--force", action="store_true", help="run finished cells again")
    parser.add_argument("--gallery", action="store_true", help="draw figures and gallery again from the results")
    parser.add_argument("--out", metavar="FOLDER", help="where results, figures and gallery go (default figures; "
                        f"with --quick or fewer seeds than the experiment asks for {BUILD}/figures)")
    parser.set_defaults(run=run)


def run(arguments):
    if arguments.list:
        for experiment in load_all():
            jobs = jobs_of(experiment)
            print(f"{experiment.letter}  {experiment.name:20} {len(jobs):4} cells "
                  f"{sum(map(seconds_of, jobs)) / 60:6.1f} CPU minutes   {experiment.title}")
        return
    if arguments.gallery:
        print(write_gallery(arguments.out or "figures", redraw=True))
        return
    if arguments.jobs < 1:
        raise LabError(f"jobs must be at least 1, but {arguments.jobs} came")
    if bool(arguments.names) == arguments.all:
        raise LabError("say which experiments, or --all; --list shows those there are")
    if arguments.close and arguments.quick:
        raise LabError("--close adds seeds to what was measured, and --quick measures nothing")
    experiments = load_all() if arguments.all else [load(name) for name in arguments.names]
    planned = plan(experiments, arguments.seeds, arguments.quick)
    seconds = sum(each.seconds for each in planned)
    print(f"{sum(len(each.jobs) for each in planned)} cells, {seconds / 60:.1f} CPU minutes when none is done yet")
    fewer = arguments.seeds is not None and any(arguments.seeds < each.seeds for each in experiments)
    out = Path(arguments.out or (BUILD / "figures" if arguments.quick or fewer else "figures"))
    results = run_planned(planned, out, jobs=arguments.jobs, force=arguments.force)
    if arguments.close:
        more = [with_close(each, results[each.experiment.name]) for each in planned]
        results = run_planned(more, out, jobs=arguments.jobs)            # finds all cells that are done
    for name, result in results.items():
        print(f"\n{name}\n{table(result)}{result['sentence']}")
    print(write_gallery(out))
