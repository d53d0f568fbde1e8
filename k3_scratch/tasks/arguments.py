"""Checks on arguments, with errors that name the argument, what was wanted and what came."""

from numbers import Integral


def need(condition, name, wanted, value):
    """Raise ValueError unless `condition` holds.

    >>> need(3 > 5, "keys", "a number above 5", 3)
    Traceback (most recent call last):
    ValueError: keys must be a number above 5, but 3 came
    """
    if not condition:
        raise ValueError(f"{name} must be {wanted}, but {value!r} came")


def need_whole(name, value, least):
    """Raise ValueError unless `value` is a whole number of at least `least`. True and False are not numbers here."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    need(whole and value >= least, name, f"a whole number, at least {least}", value)
