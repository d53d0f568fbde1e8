"""Shape contracts in letters, checked when a function runs, with errors that teach.

A contract is a text such as ``"B T H K"``. Every letter that occurs twice must have the same size twice; a number must
be that size exactly; one ``...`` stands for any number of batch axes, which must agree between the arguments.

    >>> import numpy as np
    >>> check_shapes("write", k=(np.zeros((3, 5)), "H K"), v=(np.zeros((3, 2)), "H V"))
    {'H': 3, 'K': 5, 'V': 2}

Letters used everywhere: B batch, T tokens, H heads, K key channels, V value channels, D model width, C chunk length,
R latent rank (MLA), L latent width (MoE), E experts, F expert hidden width, N sources over depth.
"""

from functools import lru_cache


class ShapeError(ValueError):
    """An argument has another shape than its contract says."""


def check_shapes(function, /, **arguments):
    """Compare each `name=(array, contract)` with its contract and return the sizes by letter.

    function   name shown in the error
    arguments  name=(array, "B T H K"); NumPy arrays and torch tensors alike (anything with `.shape`)
    Raises ShapeError that names the argument, the shape wanted (letters and numbers) and the shape given.
    """
    try:
        given = [(name, contract, array.shape) for name, (array, contract) in arguments.items()]
    except AttributeError:
        name, (array, contract) = next(pair for pair in arguments.items() if not hasattr(pair[1][0], "shape"))
        raise ShapeError(f"{function}: {name} must be an array of shape {_brackets(contract.split())}, "
                         f"but a {type(array).__name__} came") from None
    return dict(_sizes(function, *given))


@lru_cache(maxsize=4096)                                                 # a model asks for the same shapes all the time
def _sizes(function, *given):
    """Sizes by letter of (name, contract, shape), ..."""
    sizes = {}
    for name, contract, whole in given:
        shape, letters = tuple(whole), contract.split()
        if "..." in letters:
            start, many = letters.index("..."), len(shape) - (len(letters) - 1)
            batch = shape[start:start + many]
            if many < 0 or sizes.setdefault("...", batch) != batch:
                raise ShapeError(_message(function, name, letters, shape, sizes))
            letters, shape = letters[:start] + letters[start + 1:], shape[:start] + shape[start + many:]
        if len(shape) != len(letters) or not all(_fits(letter, size, sizes)
                                                 for letter, size in zip(letters, shape, strict=True)):
            raise ShapeError(_message(function, name, contract.split(), tuple(whole), sizes))
    return sizes


def _fits(letter, size, sizes):
    """Does `size` agree with what the letter already means? Remember it when it is new."""
    return size == (int(letter) if letter.isdigit() else sizes.setdefault(letter, size))


def _message(function, name, letters, shape, sizes):
    known = {letter: sizes[letter] for letter in letters if letter in sizes and letter != "..."}
    numbers = ", ".join(f"{letter} = {size}" for letter, size in known.items())
    if "..." in letters and "..." in sizes:
        numbers = ", ".join(filter(None, [f"... = {list(sizes['...'])}", numbers]))
    wanted = _brackets(letters) + (f" with {numbers}" if numbers else "")
    return f"{function}: {name} must have shape {wanted}, but {list(shape)} came"


def _brackets(letters):
    return "[" + ", ".join(letters) + "]"
