"""`k3 figures`: draw the pictures that come from configurations alone."""

from k3_scratch.plots.figures import write_architecture_figures


def add_to(subparsers):
    parser = subparsers.add_parser("figures", help="draw the architecture pictures again")
    parser.add_argument("--out", default="figures", metavar="FOLDER", help="(default %(default)s)")
    parser.set_defaults(run=run)


def run(arguments):
    for path in write_architecture_figures(arguments.out).values():
        print(path)
