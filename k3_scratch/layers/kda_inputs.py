"""What both forms of KDA do with their arguments first: check the shapes, raise the precision, start the state."""

from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def kda_inputs(function, q, k, v, g, beta, state, documents):
    """q, k, g [B, T, H, K], v [B, T, H, V], beta [B, T, H], state [B, H, K, V] or None, in at least float32.

    Raises ShapeError that names the argument.
    """
    contracts = {"k": (k, "B T H K"), "q": (q, "B T H K"), "v": (v, "B T H V"), "g": (g, "B T H K"),
                 "beta": (beta, "B T H")}
    if state is not None:
        contracts["state"] = (state, "B H K V")
    if documents is not None:
        contracts["documents"] = (documents, "B T")
    sizes = check_shapes(function, **contracts)
    q, k, v, g, beta = (raised(x) for x in (q, k, v, g, beta))
    if state is None:
        state = v.new_zeros(*(sizes[letter] for letter in "BHKV"))
    return q, k, v, g, beta, raised(state)
