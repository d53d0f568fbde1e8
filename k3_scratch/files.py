"""Files that cannot be half-written: to a temporary name, then moved."""

import os
from pathlib import Path


def write_atomically(path, write):
    """Call write(temporary path) and move the result to `path`; on any error nothing is left behind."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path, text):
    """Write `text` to `path` as UTF-8, all or nothing: see `write_atomically`."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
