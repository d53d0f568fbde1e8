"""Read an export again from disk and compare it, tensor by tensor, with what was written and with a run's weights.

Whoever writes an export stores a record {tensor name: digest} with it. A tensor passes when its bytes on disk have the
recorded digest and, when a model is given, when they are what that model's weights map to.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from k3_scratch.config import K3Config
from k3_scratch.export import gguf
from k3_scratch.export.files import ExportError, digest, tensor_digest
from k3_scratch.export.folder import RECORD, open_folder, read_json, short
from k3_scratch.export.gguf_tensors import gguf_tensors, is_expert
from k3_scratch.export.huggingface import hf_tensors
from k3_scratch.export.mxfp4 import pack, unpack
from k3_scratch.export.text_part import text_part

__all__ = ["Report", "digest", "verify"]


@dataclass(frozen=True)
class Report:
    """What `verify` found."""

    path: Path
    tensors: int                                 # compared with their digests
    nbytes: int                                  # on disk, everything together
    with_run: bool                               # compared with a run's weights too
    problems: tuple[str, ...] = ()               # one sentence each; empty: all equal

    @property
    def ok(self):
        """Nothing differs."""
        return not self.problems


def verify(path, model=None):
    """Compare an export, a Hugging Face folder or a `.gguf` file, with its record and with `model`.         -> Report

    Raises ExportError (GGUFError for a GGUF file) when it is no whole export: unreadable, foreign, incomplete.
    """
    path = Path(path)
    if not path.exists():
        raise ExportError(f"{path}: no such file or folder")
    model = None if model is None else text_part(model)[0]               # an export is of the text part
    return _verify_folder(path, model) if path.is_dir() else _verify_gguf(path, model)


def _verify_folder(folder, model):
    found = open_folder(folder)                                          # names, shapes, dtypes, completeness
    record = read_json(folder / RECORD)
    written, problems = record.get("tensors"), []
    if not isinstance(written, dict):
        raise ExportError(f"{folder / RECORD}: tensors: wanted names with their digests, got {written!r:.60}")
    if digest((folder / "config.json").read_bytes()) != record.get("config.json"):
        problems.append("config.json is not as it was written")
    tensors = {name: found.read(name) for name in found.places}
    problems += _listed("not as written", [name for name, x in tensors.items()
                                           if written.get(name) != tensor_digest(x)])
    problems += _listed("no longer there", [name for name in written if name not in tensors])
    if model is not None:
        problems += _other_fields(model.config, found.config) or _listed(
            "not the run's", [_difference(name, x, tensors[name]) for name, x in
                              hf_tensors(model, model.config, mxfp4=found.packed).items()
                              if tensor_digest(x) != tensor_digest(tensors[name]) or x.dtype != tensors[name].dtype])
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    return Report(folder, len(tensors), size, model is not None, tuple(problems))


def _verify_gguf(path, model):
    fields, tensors, record = gguf.read_gguf(path)                       # raises when a digest differs
    problems = []
    if model is not None:
        config = K3Config.from_dict(json.loads(fields[gguf.CONFIG]))
        problems += _other_fields(model.config, config) or _listed("not the run's", [
            _difference(name, torch.from_numpy(x), torch.from_numpy(tensors[name]))
            for name, x in _gguf_values(model, tensors).items() if not np.array_equal(x, tensors[name])])
    return Report(path, len(record), path.stat().st_size, model is not None, tuple(problems))


def _gguf_values(model, tensors):
    """What a model's weights map to as float32; the experts on the four-bit grid when the file's are."""
    values = gguf_tensors(model, model.config)
    experts = [name for name in tensors if is_expert(name)]
    if all(np.array_equal(_on_grid(tensors[name]), tensors[name]) for name in experts):
        values |= {name: _on_grid(values[name]) for name in experts}
    return values


def _on_grid(x):
    return unpack(*pack(torch.from_numpy(x)), columns=x.shape[-1]).numpy()


def _other_fields(wanted, given):
    """The fields in which two configurations differ, but for how experts are stored."""
    wanted, given = wanted.to_dict(), given.to_dict()
    names = [name for name in wanted if wanted[name] != given[name] and name != "expert_dtype"]
    return [f"{name} is {given[name]!r}, but {wanted[name]!r} in the run" for name in names]


def _difference(name, wanted, given):
    """The name of a tensor with how much of it differs."""
    if wanted.dtype != given.dtype:
        return f"{name} ({given.dtype}, the run has {wanted.dtype})".replace("torch.", "")
    return f"{name} ({(wanted != given).sum().item()} of {wanted.numel()} values)"


def _listed(title, names):
    return [f"{title}: {short(names)}"] if names else []
