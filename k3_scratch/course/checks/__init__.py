"""The checks, one module a notebook: `chNN.py` declares `EXERCISES`, a tuple of `Exercise` (see ch01.py)."""
