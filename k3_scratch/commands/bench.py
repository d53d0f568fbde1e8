"""`k3 bench`: time and check the layers against public implementations."""

from k3_scratch.bench.peers import FOLDER
from k3_scratch.bench.plan import FULL, QUICK
from k3_scratch.bench.report import failed_floors, missed_targets, table, write_result
from k3_scratch.bench.suite import MEASUREMENTS, chosen, run_suite


def add_to(subparsers):
    parser = subparsers.add_parser("bench", help="time and check the layers against public implementations")
    parser.add_argument("--quick", action="store_true", help="fewer shapes and three rounds, under a minute")
    parser.add_argument("--only", action="append", metavar="NAME", help="run one measurement, may be repeated: "
                        + ", ".join(MEASUREMENTS))
    parser.add_argument("--out", metavar="FOLDER", help="write results/bench.json, results/bench.md and the figures "
                        "there (default figures; with --quick or --only nothing is written unless this is given)")
    parser.add_argument("--peers", default=str(FOLDER), metavar="FOLDER", help="where fla-core lies "
                        "(default build/peers)")
    parser.add_argument("--strict", action="store_true", help="exit status 1 when a row misses its floor")
    parser.set_defaults(run=run)


def run(arguments):
    chosen(arguments.only)                                               # a wrong name is told before any work
    rows, result = run_suite(QUICK if arguments.quick else FULL, arguments.only, folder=arguments.peers,
                             say=lambda line: print(line, flush=True))
    print("\n" + table(rows))
    missed = failed_floors(rows)
    for name in missed:
        print(f"misses its floor: {name}")
    for line in missed_targets(rows):
        print(f"misses its target: {line}")
    if result["gemm_gflops"]:
        print(f"GEMM 1024³: {result['gemm_gflops']:.1f} GFLOP/s on one thread")
    out = arguments.out or (None if arguments.quick or arguments.only else "figures")
    if out is not None:
        for path in write_result(rows, result, out):
            print(path)
    return 1 if missed and arguments.strict else 0
