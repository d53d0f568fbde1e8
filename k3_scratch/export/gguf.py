"""GGUF, the file that llama.cpp runs: written whole or not at all, and read back with every byte compared.

Beside llama.cpp's own keys the file carries two of ours: the configuration, and a digest of each tensor as written.
"""

import json
from pathlib import Path

import numpy as np

from k3_scratch.config import ConfigError, K3Config
from k3_scratch.export import files
from k3_scratch.export.gguf_keys import ARCHITECTURE, GGUFError, gguf_keys, remarks
from k3_scratch.export.gguf_tensors import check_tensors, gguf_shapes, gguf_tensors
from k3_scratch.export.text_part import text_part
from k3_scratch.files import write_atomically

CONFIG, RECORD = "k3_scratch.config", "k3_scratch.tensors"
INSTALL = "pip install gguf==0.19.0"


def to_gguf(model, path, *, mxfp4=False, force=False, progress=None):
    """Write a model as one GGUF file, float32 throughout; returns the remarks (see `gguf_keys.remarks`), often none.

    Of a model with eyes the text part is written, and a remark says so.

    mxfp4      True: the routed experts in four bits, GGML type MXFP4
    force      True: replace a file that is there
    progress   called with (tensor name, number written, number of all) after each tensor is prepared
    Raises GGUFError naming what does not fit; then nothing is left at `path`.
    """
    model, left_out = text_part(model)
    config = model.config
    tensors = gguf_tensors(model, config, mxfp4=mxfp4)
    write_gguf(path, gguf_keys(config), tensors, config, force=force, progress=progress)
    return [*left_out, *remarks(config)]


def write_gguf(path, keys, tensors, config, *, force=False, progress=None):
    """Write `keys` and `tensors` when they are those of `config` and no others; else GGUFError names the first."""
    gguf, path = package(), Path(path)
    if path.exists() and not force:
        raise GGUFError(f"{path} exists; --force replaces it")
    _check_keys(keys, gguf_keys(config))
    check_tensors(tensors, gguf_shapes(config))
    record = {name: digest(x) for name, x in tensors.items()}

    def write(temporary):
        writer = gguf.GGUFWriter(temporary, ARCHITECTURE)
        try:
            for key, value in {**keys, CONFIG: json.dumps(config.to_dict()), RECORD: json.dumps(record)}.items():
                _add(writer, key, value)
            for number, (name, x) in enumerate(tensors.items(), 1):
                writer.add_tensor(name, x, raw_dtype=gguf.GGMLQuantizationType.MXFP4 if x.dtype == np.uint8 else None)
                if progress is not None:
                    progress(name, number, len(tensors))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, write)


def read_gguf(path):
    """Read what `to_gguf` wrote and compare it with its own record.

    Returns {key: value} of all metadata, {tensor name: float32 array in NumPy order} with four-bit experts unpacked,
    and the record {tensor name: SHA-256 of its bytes as written}. Raises GGUFError naming the file and the field or
    tensor when it is truncated, foreign, incomplete, or when a byte of a tensor has changed.
    """
    gguf, path = package(), Path(path)
    try:
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        raw = {tensor.name: (tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    except Exception as error:                                           # the reader raises many kinds
        reason = (str(error).strip().splitlines() or ["no message"])[0]
        raise GGUFError(f"{path}: not a readable GGUF file ({type(error).__name__}: {reason})") from error
    try:
        config, record = _own_fields(fields)
        _check_keys({key: fields.get(key) for key in gguf_keys(config)}, gguf_keys(config))
        for name, (data, _) in raw.items():
            if record.get(name) != digest(data):
                raise GGUFError(f"{name}: the bytes are not those that were written")
        tensors = {name: np.array(gguf.quants.dequantize(data, kind), np.float32) for name, (data, kind) in raw.items()}
        check_tensors(tensors, gguf_shapes(config))
    except GGUFError as error:
        raise GGUFError(f"{path}: {error}") from error
    return fields, tensors, record


def digest(x):
    """SHA-256 of the contiguous little-endian bytes of an array, in hex."""
    return files.digest(np.ascontiguousarray(x, x.dtype.newbyteorder("<")).tobytes())


def package():
    """The `gguf` package; GGUFError with the line to type when it is not installed."""
    try:
        import gguf
    except ImportError as error:
        raise GGUFError(f"the gguf package is needed: {INSTALL}") from error
    return gguf


def _own_fields(fields):
    """Configuration and record of a file that this module wrote."""
    if fields.get("general.architecture") != ARCHITECTURE:
        raise GGUFError(f"general.architecture: wanted {ARCHITECTURE!r}, got {fields.get('general.architecture')!r}")
    for name in (CONFIG, RECORD):
        if not isinstance(fields.get(name), str):
            raise GGUFError(f"{name}: missing, this file was not written by k3 export")
    try:
        return K3Config.from_dict(json.loads(fields[CONFIG])), dict(json.loads(fields[RECORD]))
    except (ConfigError, TypeError, ValueError) as error:
        raise GGUFError(f"{CONFIG} or {RECORD}: {error}") from error


def _check_keys(given, wanted):
    for key, value in wanted.items():
        if given.get(key) is None:
            raise GGUFError(f"{key}: missing")
        same = np.float32(given[key]) == np.float32(value) if isinstance(value, float) else given[key] == value
        if not same:
            raise GGUFError(f"{key}: wanted {_short(value)}, got {_short(given[key])}")
    for key in given:
        if key not in wanted:
            raise GGUFError(f"{key}: unexpected, llama.cpp does not read such a key")


def _short(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _add(writer, key, value):
    """One key with the GGUF type that llama.cpp wants for the Python type."""
    kinds = ((bool, writer.add_bool), (int, writer.add_uint32), (float, writer.add_float32), (str, writer.add_string),
             (list, writer.add_array))
    next(add for kind, add in kinds if isinstance(value, kind))(key, value)
