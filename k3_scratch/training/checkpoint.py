"""Checkpoints that cannot be half-written."""

import torch

from k3_scratch.files import write_atomically, write_text

__all__ = ["CheckpointError", "load_checkpoint", "save_checkpoint", "write_atomically", "write_text"]


class CheckpointError(ValueError):
    """A checkpoint cannot be read or does not fit; the message names the file."""


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
