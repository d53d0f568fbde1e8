"""Marking, what passes between the two sides: results as plain data (JSON), which no code can hide in."""

import base64
import json
import math

import numpy as np

LARGEST = 64_000_000         # bytes of one message


def say(connection, message):
    """Send `message`, plain data that JSON can hold, through a `Connection` of multiprocessing."""
    connection.send_bytes(json.dumps(message).encode())


def encode(thing, depth=0):
    """Plain data for a result: numbers, text, arrays, tensors, tuples and lists of them; else the type's name."""
    if thing is None or isinstance(thing, (bool, str)):
        return thing if not isinstance(thing, str) else str(thing)[:100_000]
    if thing is ...:
        return {"is": "dots"}
    if hasattr(thing, "detach") and hasattr(thing, "cpu"):
        thing = thing.detach().cpu()
        small = str(thing.dtype) in ("torch.bfloat16", "torch.float16")
        return {**encode((thing.float() if small else thing).numpy()), "is": "tensor", "torch": str(thing.dtype)}
    thing = np.complex128(thing) if type(thing) is complex else thing
    if isinstance(thing, (np.ndarray, np.generic)) and thing.dtype.kind in "biufcUS":
        array = np.ascontiguousarray(thing)
        if array.nbytes > LARGEST // 2:
            return {"is": "other", "name": f"array of {array.nbytes:,} bytes", "callable": False}
        return {"is": "scalar" if isinstance(thing, np.generic) else "array", "dtype": array.dtype.str,
                "shape": np.shape(thing), "data": base64.b64encode(array.tobytes()).decode()}
    if isinstance(thing, int) and thing.bit_length() < 10_000:
        return {"is": "int", "value": str(int(thing))}
    if isinstance(thing, float):
        return {"is": "float", "value": float(thing).hex()}
    if isinstance(thing, (tuple, list)) and depth < 8 and len(thing) < 100_000:
        return {"is": "tuple" if isinstance(thing, tuple) else "list", "parts": [encode(x, depth + 1) for x in thing]}
    return {"is": "other", "name": type(thing).__name__, "callable": callable(thing)}


def decode(told):
    """What `encode` made plain. ValueError for anything else."""
    if told is None or isinstance(told, (bool, str)):
        return told
    try:
        kind = told["is"]
        if kind in ("array", "scalar", "tensor"):
            return _array(told, kind)
        if kind in ("tuple", "list"):
            return (tuple if kind == "tuple" else list)(decode(part) for part in told["parts"])
        simple = {"dots": lambda: ..., "int": lambda: int(told["value"]), "float": lambda: float.fromhex(told["value"]),
                  "other": lambda: type(clean(str(told["name"])), (), {"__call__": None} if told["callable"] else {})()}
        return simple[kind]()
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no result: {error}") from None


def _array(told, kind):
    dtype = np.dtype(told["dtype"])
    shape = tuple(int(size) for size in told["shape"])
    data = base64.b64decode(told["data"])
    if dtype.kind not in "biufcUS" or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError("no array")
    array = np.frombuffer(data, dtype).reshape(shape).copy()
    if kind == "tensor":
        import torch
        return torch.from_numpy(array).to(getattr(torch, str(told["torch"]).removeprefix("torch."), None))
    return array[()] if kind == "scalar" else array


def clean(text):
    """Text from a room, fit for a file: no half characters, no addresses, at most 600 characters."""
    text = text[:600].encode("utf-8", "replace").decode()
    return " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in text).split())
