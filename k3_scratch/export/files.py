"""What every writer and reader of exports needs: the error, digests, and folders that appear whole or not at all."""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

import torch


class ExportError(ValueError):
    """An export cannot be written, read or trusted; the message names the file, field or tensor."""


def digest(tensor_bytes):
    """SHA-256 in hex of the contiguous little-endian bytes of a tensor."""
    return hashlib.sha256(tensor_bytes).hexdigest()


def tensor_digest(tensor):
    """`digest` of a torch tensor of any dtype."""
    return digest(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def write_folder(folder, write, *, mine, force=False):
    """Call write(temporary folder beside `folder`), then put that in the place of `folder`.

    mine     names of files that an export may consist of, as a function name -> bool
    force    True: replace an earlier export; a folder that holds anything else is never touched
    On any error nothing is left behind and an earlier export stays as it was. Raises ExportError.
    """
    folder = Path(folder).resolve()
    _refuse(folder, mine, force)
    made = [parent for parent in folder.parents if not parent.exists()]  # the inner ones first
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    earlier = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    try:
        temporary.mkdir()
        write(temporary)
        if folder.exists():
            os.replace(folder, earlier)
        os.replace(temporary, folder)
    finally:
        if earlier.exists() and not folder.exists():                     # the second move failed
            os.replace(earlier, folder)
        for left in (temporary, earlier):
            shutil.rmtree(left, ignore_errors=True)
        if not folder.exists():
            for parent in made:
                with contextlib.suppress(OSError):
                    parent.rmdir()


def _refuse(folder, mine, force):
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ExportError(f"{folder} is a file, not a folder")
    inside = sorted(path.name for path in folder.iterdir())
    foreign = [name for name in inside if not mine(name)]
    if foreign:
        raise ExportError(f"{folder} holds {foreign[0]}, which is no part of an export; choose another folder")
    if inside and not force:
        raise ExportError(f"{folder} exists; --force replaces it")
