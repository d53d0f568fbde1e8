"""The command line: `k3 COMMAND` or `python -m k3_scratch COMMAND`."""

import argparse
import sys

from k3_scratch import __version__
from k3_scratch.commands import (
    bench,
    chat,
    count,
    demo,
    experiment,
    export,
    figures,
    grade,
    notebooks,
    readme,
    sample,
    site,
    teaching,
    train,
    verify,
)

COMMANDS = (train, sample, chat, count, export, verify, demo, figures, notebooks, grade, bench, experiment, readme,
            teaching, site)


def main(arguments=None):
    """Run one command. What the user can mend ends in one line on standard error and exit status 2."""
    parser = argparse.ArgumentParser(prog="k3", description="A miniature Kimi K3, built from scratch, for a laptop.")
    parser.add_argument("--version", action="version", version=f"k3_scratch {__version__}")
    subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_to(subparsers)
    parsed = parser.parse_args(arguments)
    try:
        return parsed.run(parsed) or 0
    except KeyboardInterrupt:
        print("k3: stopped", file=sys.stderr)
        return 130
    except (ValueError, RuntimeError, OSError) as error:
        if type(error) is RuntimeError:                                  # PyTorch's own: a fault of ours, shown whole
            raise
        print(f"k3: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
