"""Opening a checkpoint folder: one safetensors file or several, compared with its configuration before use."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from k3_scratch.config import ConfigError, K3Config
from k3_scratch.export.files import ExportError
from k3_scratch.export.names import PREFIX, places
from k3_scratch.export.released_config import MODEL_TYPE, config_from_hf

WEIGHTS, INDEX, RECORD = "model.safetensors", "model.safetensors.index.json", "k3_export.json"
FLOATS = ("F64", "F32", "BF16", "F16")


def is_export_file(name):
    """Whether a file of this name can be a part of an export."""
    return name in ("config.json", INDEX, RECORD) or bool(re.fullmatch(r"model[-\w]*\.safetensors", name))


@dataclass(frozen=True)
class OpenFolder:
    """A checkpoint whose names, shapes and dtypes fit its configuration."""

    folder: Path
    config: K3Config
    places: dict                                 # released name -> names.Place
    files: dict                                  # released name -> (file that holds it, the same, opened)
    packed: bool                                 # routed experts in MXFP4

    def read(self, name):
        """The tensor of this released name, as stored."""
        file, opened = self.files[name]
        try:
            return opened.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ExportError(f"{file}: {name}: not readable ({error})") from error


def open_folder(folder):
    """Read configuration and headers of a checkpoint folder and compare them.                      -> OpenFolder

    Raises ExportError naming the file or field, or listing the tensors that are missing, unexpected and misshapen.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ExportError(f"{folder}: no such folder")
    fields = read_json(folder / "config.json")
    try:
        config = config_from_hf(fields)
    except (ConfigError, ExportError) as error:
        raise ExportError(f"{folder / 'config.json'}: {error}") from error
    found, files = {}, {}                                                # found: name -> (shape, dtype)
    for file in _weight_files(folder):
        opened, header = _open(file)
        for name in header:
            if name in found:
                raise ExportError(f"{file}: {name} is in {files[name][0].name} too")
            files[name] = file, opened
        found |= header
    packed = config.expert_dtype == "mxfp4" or any(name.endswith(".weight_packed") for name in found)
    try:
        wanted = places(config, mxfp4=packed, prefix=PREFIX if fields["model_type"] == MODEL_TYPE else "")
    except ExportError as error:
        raise ExportError(f"{folder}: {error}") from error
    complaint = _differences(wanted, found)
    if complaint:
        raise ExportError(f"{folder}: the tensors do not fit config.json; {complaint}")
    if packed:
        config = config.replace(expert_dtype="mxfp4", mla_layers=config.mla_layers)
    return OpenFolder(folder, config, wanted, files, packed)


def read_json(path):
    """The object of fields in a JSON file. Raises ExportError when it is missing or something else."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExportError(f"{path}: not readable JSON ({error})") from error
    if not isinstance(fields, dict):
        raise ExportError(f"{path}: wanted an object of fields, got a {type(fields).__name__}")
    return fields


def _weight_files(folder):
    """The one file, or those that the index of a sharded checkpoint names."""
    if (folder / WEIGHTS).exists() or not (folder / INDEX).exists():
        return [folder / WEIGHTS]
    names = read_json(folder / INDEX).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ExportError(f"{folder / INDEX}: weight_map: wanted tensor names with their files, got {names!r:.60}")
    outside = [name for name in names.values() if Path(name).name != name]
    if outside:
        raise ExportError(f"{folder / INDEX}: weight_map: {outside[0]} is not a file of this folder")
    return [folder / name for name in sorted(set(names.values()))]


def _open(file):
    """A safetensors file, opened, and {name: (shape, dtype)} from its header; values are read when asked for."""
    try:
        opened = safe_open(file, framework="pt")
        parts = {name: opened.get_slice(name) for name in opened.keys()}         # noqa: SIM118  (it is no dict)
        return opened, {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in parts.items()}
    except (SafetensorError, OSError) as error:
        raise ExportError(f"{file}: not readable safetensors ({error})") from error


def _differences(wanted, found):
    """What is missing, unexpected, misshapen and of a wrong dtype, as one line; empty when all is well."""
    widths = {dtype for name, (_, dtype) in found.items() if name in wanted
              and not wanted[name].wide and not wanted[name].packed}
    plain = next(iter(widths)) if len(widths) == 1 else " or ".join(FLOATS)      # all matrices have one dtype
    lists = {
        "missing": [name for name in wanted if name not in found],
        "unexpected": [name for name in found if name not in wanted],
        "misshapen": [f"{name} (wanted {list(place.shape)}, got {list(found[name][0])})"
                      for name, place in wanted.items() if name in found and place.shape != found[name][0]],
        "wrong dtype": [f"{name} (wanted {_dtypes(place, plain)}, got {found[name][1]})"
                        for name, place in wanted.items()
                        if name in found and found[name][1] not in _dtypes(place, plain).split(" or ")],
    }
    if len(widths) > 1:
        lists["wrong dtype"].append(f"the matrices have several dtypes, {', '.join(sorted(widths))}")
    return "; ".join(f"{title}: {short(names)}" for title, names in lists.items() if names)


def _dtypes(place, plain):
    return "U8" if place.packed else "F32 or F64" if place.wide else plain if plain in FLOATS else " or ".join(FLOATS)


def short(names, most=8):
    """Names in one line, the first few of a long list."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
