"""`k3 notebooks`: build the course's notebooks from their masters, or say which are stale."""

import sys
import time


def add_to(subparsers):
    parser = subparsers.add_parser("notebooks", help="build the notebooks from notebooks/src, run and with figures")
    parser.add_argument("names", nargs="*", metavar="NAME", help="two digits or a file name (default: all)")
    parser.add_argument("--check", action="store_true", help="build nothing; exit status 1 when one is stale")
    parser.add_argument("--force", action="store_true", help="build also what is not stale")
    parser.set_defaults(run=run)


def run(arguments):
    try:
        from k3_scratch.course import build  # here: authors have jupytext, readers need not
    except ImportError as error:
        raise ValueError(f"building notebooks needs {error.name}: pip install -r requirements-tests.txt") from error
    reasons = {pair: build.stale(pair) for pair in build.plan(arguments.names)}
    lost = [] if arguments.names else build.orphans()
    if arguments.check:
        faults = [*filter(None, reasons.values()), *(f"{file.name} has no master" for file in lost)]
        print("\n".join(faults) or f"{len(reasons)} notebooks are up to date")
        return 1 if faults else 0
    for pair, reason in reasons.items():
        if not reason and not arguments.force:
            print(f"{pair.master.stem}: up to date")
            continue
        if reason and not arguments.force and build.refresh(pair):
            print(f"{pair.master.stem}: prose and links written anew, the outputs still hold")
            continue
        start = time.perf_counter()
        sizes = build.build(pair)
        print(f"{pair.master.stem}: built in {time.perf_counter() - start:.0f} s, "
              + " and ".join(f"{size / 1000:,.0f} kB" for size in sizes.values()), flush=True)
    for file in lost:
        print(f"{file.name} has no master: remove it", file=sys.stderr)
    return 0
