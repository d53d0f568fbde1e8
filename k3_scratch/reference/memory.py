"""What all matrix memories of this folder share: the starting state and the scale of the query."""

import numpy as np

from k3_scratch.shapes import check_shapes


def as_float64(*arrays):
    """Each argument as a float64 array; one that already is float64 is passed on, never modified."""
    return tuple(np.asarray(array, dtype=np.float64) for array in arrays)


def start_state(function, state, k, v, name="state"):
    """The state before the first token, as a fresh array.   k [..., T, H, K], v [..., T, H, V] -> [..., H, K, V]

    None means an empty memory: zeros. A given state is copied, so that the caller's array never changes and is never
    returned. `function` and `name` appear in the ShapeError of a wrong one.
    """
    if state is None:
        *batch, _, H, K = k.shape
        return np.zeros((*batch, H, K, v.shape[-1]))         # [..., H, K, V]
    state = np.array(state, dtype=np.float64)
    check_shapes(function, k=(k, "... T H K"), v=(v, "... T H V"), **{name: (state, "... H K V")})
    return state


def query_scale(scale, K):
    """The factor on q: K^(-1/2) unless given. It sits on q alone, so the state does not depend on it."""
    return K ** -0.5 if scale is None else float(scale)
