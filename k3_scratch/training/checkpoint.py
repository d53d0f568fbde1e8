"""Checkpoints that cannot be half-written: to a temporary name, then moved."""

import os
from pathlib import Path

import torch


class CheckpointError(ValueError):
    """A checkpoint cannot be read or does not fit; the message names the file."""


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
    """`text` as UTF-8, atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def save_checkpoint(path, contents):
    """Tensors and plain numbers only, so that torch.load's safe defaults read it."""
    write_atomically(path, lambda temporary: torch.save(contents, temporary))


def load_checkpoint(path, device="cpu"):
    """What `save_checkpoint` wrote. Raises CheckpointError when the file is missing, truncated or something else."""
    try:
        return torch.load(path, map_location=device)
    except Exception as error:                                           # the zip reader raises many kinds
        reason = (str(error).strip().splitlines() or ["no message"])[0]
        raise CheckpointError(f"{path}: not a readable checkpoint ({type(error).__name__}: {reason})") from error
