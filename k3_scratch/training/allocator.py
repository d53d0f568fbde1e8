"""Keep freed memory in the process.

A training step frees and takes the same large blocks again and again. The C library hands blocks above 128 KiB back to
the system, which must clear every page before it gives them out again: a good part of the time of a small model's step.
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3       # names of mallopt's parameters in glibc


def keep_freed_memory():
    """Ask glibc to keep what is freed; where there is none (Windows, macOS, musl) do nothing and return False."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, 2 ** 25) and mallopt(M_TRIM_THRESHOLD, 2 ** 31 - 1))
