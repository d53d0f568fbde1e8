"""How long the notebooks that train (09 and 10) train: fully for readers, a few updates in `make test`.

One parameter decides it for a whole notebook, the environment variable K3_STEPS: a divisor such as 40.
"""

import os


def steps(full):
    """The number of updates to make: `full`, or with K3_STEPS=40 a fortieth of it, at least two.

    full   the updates that the text speaks of.  Raises ValueError for a divisor that is no whole number from 1 on.
    """
    return full if full_run() else max(2, full // _divisor())


def full_run():
    """Is every training carried to its end? Only then do the numbers that the text names have to come out."""
    return _divisor() == 1


def _divisor():
    given = os.environ.get("K3_STEPS") or "1"
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"K3_STEPS must be a whole number from 1 on, but {given!r} came")
    return int(given)
