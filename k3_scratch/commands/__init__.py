"""The commands of `k3`, one a file: `add_to(subparsers)` declares one and sets `run`, a function of its arguments."""
