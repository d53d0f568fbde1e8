"""Two results side by side: are they the same, and if not, what would a beginner want to be told?"""

import numpy as np

from k3_scratch.shapes import ShapeError, check_shapes

SMALL = 12                   # arrays up to this size are shown whole


def blank(answer):
    """Is this a place where nothing has been filled in yet?  `...` or None, alone or as every part of a tuple."""
    if answer is ... or answer is None:
        return True
    return isinstance(answer, tuple) and len(answer) > 0 and all(part is ... or part is None for part in answer)


def plain(thing):
    """An array of what came (tensors too), or the thing itself when NumPy makes no rectangular array of it."""
    if hasattr(thing, "detach"):
        thing = thing.detach().cpu()
        return (thing.float() if str(thing.dtype) in ("torch.bfloat16", "torch.float16") else thing).numpy()
    if isinstance(thing, tuple) and any(hasattr(part, "shape") for part in thing):
        return [plain(part) for part in thing]
    try:
        return np.asarray(thing)
    except ValueError:
        return thing


def form(thing):
    """What must be equal before numbers are compared: number of parts, shapes and kinds."""
    array = plain(thing)
    if isinstance(array, list):
        return [form(part) for part in array]
    return (array.shape, array.dtype.kind) if isinstance(array, np.ndarray) else type(array).__name__


def same(one, other, tolerance):
    """Equal arrays: numbers within `tolerance` times the largest of them, all else exactly."""
    if isinstance(one, list) or isinstance(other, list):
        return (isinstance(one, list) and isinstance(other, list) and len(one) == len(other)
                and all(same(a, b, tolerance) for a, b in zip(one, other, strict=True)))
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray) or one.shape != other.shape:
        return False
    if one.dtype.kind not in "iufc" or other.dtype.kind not in "iufc":
        return bool(np.all(one == other))
    return bool(np.all(_close(one, other, tolerance)))


def difference(name, got, wanted, letters, sizes, tolerance, show):
    """A sentence that says how `got` differs from `wanted`, or "".

    letters   contract of the shape, with `sizes` by letter, for the message; None: no letters are known
    show      write both out when they are small
    """
    if hasattr(wanted, "detach") != hasattr(got, "detach"):
        kind = "a torch tensor" if hasattr(wanted, "detach") else "a NumPy array or a number"
        return f"{name} must be {kind}, but a {type(got).__name__} came"
    right, came = plain(wanted), plain(got)
    if not isinstance(came, np.ndarray):
        return f"{name} must be an array, but a {type(got).__name__} with parts of different lengths came"
    if right.dtype.kind in "US":
        return "" if str(came).strip().casefold() == str(right).casefold() else f"{name} is not {str(came)!r}"
    return (_shape_fault(name, came, right, letters, sizes) or _kind_fault(name, came, right)
            or _number_fault(name, came, right, tolerance, show))


def _shape_fault(name, came, right, letters, sizes):
    if came.shape == right.shape:
        return ""
    if letters is not None:
        try:
            fixed = {"sizes": (np.empty([sizes[letter] for letter in _plain_letters(letters, sizes)]),
                               " ".join(_plain_letters(letters, sizes)))}
            check_shapes("check", **fixed, **{name: (came, letters)})
        except ShapeError as error:
            return str(error).removeprefix("check: ")
    return f"{name} must have shape {list(right.shape)}, but {list(came.shape)} came"


def _plain_letters(letters, sizes):
    """The letters of a contract whose sizes are known, each once."""
    return list(dict.fromkeys(letter for letter in letters.split() if letter in sizes and letter != "..."))


def _kind_fault(name, came, right):
    """A sentence about dtypes: whole numbers where fractions belong, text, objects, less precision."""
    wanted, got = right.dtype, came.dtype
    if wanted.kind == "f" and got.kind == "f":
        if got.itemsize < wanted.itemsize and right.ndim:
            return f"{name} must be {wanted}, as the inputs are, but {got} came: something rounds on the way"
        return ""
    if wanted.kind == "f" and got.kind in "iu":
        return f"{name} must be {wanted}, but {got} came: whole numbers lose what is behind the point" if right.ndim \
            else ""
    if wanted.kind in "iu" and (got.kind in "iu" or (got.kind == "f" and not right.ndim)):
        return ""
    return "" if wanted.kind == got.kind else f"{name} must hold {_kind(wanted)}, but it holds {_kind(got)}"


def _kind(dtype):
    kinds = {"f": "numbers", "i": "whole numbers", "u": "whole numbers", "b": "True and False", "U": "text",
             "S": "text", "c": "complex numbers", "O": "Python objects"}
    return f"{kinds.get(dtype.kind, 'something else')} ({dtype})"


def _close(came, right, tolerance):
    if came.size == 0:
        return np.ones(came.shape, dtype=bool)
    with np.errstate(all="ignore"):
        finite = np.abs(right[np.isfinite(right)])
        size = finite.max() if finite.size and finite.max() > 0 else 1.0
        near = np.abs(came.astype(np.complex128) - right) <= tolerance * size
    return near | (came == right) | ((came != came) & (right != right))


def _number_fault(name, came, right, tolerance, show):
    if came.dtype.kind == "b":
        close = came == right
    else:
        close = _close(came, right, tolerance)
    if np.all(close):
        return ""
    if came.dtype.kind in "fc" and np.any(np.isnan(came) & ~np.isnan(right)):
        return f"{name} holds nan (not a number){_at(np.isnan(came))}: look for 0/0, inf - inf or the log of a negative"
    if not right.ndim:
        return f"{name} should be {_short(right)}, but {_short(came)} came" if show else f"{name} is not {_short(came)}"
    if show and right.size <= SMALL:
        return f"{name} should be {_short(right)}, but {_short(came)} came"
    where = tuple(int(i) for i in np.argwhere(~close)[0])
    return (f"{int((~close).sum())} of {right.size} numbers of {name} are wrong; the first, {name}{list(where)}, "
            f"should be {_short(right[where])}, but {_short(came[where])} came")


def _at(mask):
    return f" at {[int(i) for i in np.argwhere(mask)[0]]}" if mask.ndim else ""


def _short(array):
    return np.array2string(np.asarray(array), precision=5, suppress_small=True, separator=", ").replace("\n", "")
