"""`k3 count`: parameters, active parameters, bytes, caches and FLOPs of a configuration."""

import json

from k3_scratch.accounting import as_json, table
from k3_scratch.config import K3Config, preset


def add_to(subparsers):
    parser = subparsers.add_parser("count", help="count parameters, bytes, caches and FLOPs of a configuration")
    add_config_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.set_defaults(run=run)


def add_config_arguments(parser):
    """--preset NAME or --config FILE."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--preset", default="mini", metavar="NAME", help="a named configuration (default %(default)s)")
    group.add_argument("--config", metavar="FILE", help="a JSON file with the fields of K3Config")


def chosen_config(arguments):
    """The configuration that --config or --preset names."""
    return K3Config.from_json(arguments.config) if arguments.config else preset(arguments.preset)


def run(arguments):
    config = chosen_config(arguments)
    name = arguments.config or arguments.preset
    print(json.dumps(as_json(config), indent=2) if arguments.json else table(config, name))
