"""`k3 verify`: read an export again and compare every tensor."""

from pathlib import Path

from k3_scratch.commands.export import checked, trained_model


def add_to(subparsers):
    parser = subparsers.add_parser("verify", help="compare an export with its record and with a run")
    parser.add_argument("out", metavar="OUT", type=Path, help="what `k3 export` wrote, a folder or a .gguf file")
    parser.add_argument("run_folder", metavar="RUN", nargs="?", help="compare with this run's weights too")
    parser.set_defaults(run=run)


def run(arguments):
    model = trained_model(arguments.run_folder) if arguments.run_folder else None
    report = checked(arguments.out, model)
    print(f"{arguments.out}: {report.tensors} tensors equal what was written"
          + (f" and the weights of {arguments.run_folder}" if report.with_run else ""))
