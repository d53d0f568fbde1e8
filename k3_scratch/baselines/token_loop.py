"""What the recurrent operators share: checked inputs, and the loop that is their definition.

    S_t = write(S_{t-1}, k_t, v_t, ...)      o_t = S_t^T (scale q_t)

They differ in `write` alone: linear attention adds, scalar decay forgets first, the delta rule corrects.
"""

import torch

from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def operator_inputs(function, q, k, v, state, documents, scale, **gates):
    """Check, raise to at least float32, scale q (None: K^-0.5), start the state.

    q, k [B, T, H, K], v [B, T, H, V], state [B, H, K, V] or None, documents [B, T] or None, gates name=[B, T, H]
    returns q, k, v, state and the gates in their order.  Raises ShapeError that names the argument.
    """
    contracts = {"k": (k, "B T H K"), "q": (q, "B T H K"), "v": (v, "B T H V")}
    contracts |= {name: (gate, "B T H") for name, gate in gates.items()}
    if state is not None:
        contracts["state"] = (state, "B H K V")
    if documents is not None:
        contracts["documents"] = (documents, "B T")
    sizes = check_shapes(function, **contracts)
    q, k, v = raised(q), raised(k), raised(v)
    state = v.new_zeros(*(sizes[letter] for letter in "BHKV")) if state is None else raised(state)
    q = q * (sizes["K"] ** -0.5 if scale is None else scale)
    return q, k, v, state, *(raised(gate) for gate in gates.values())


def token_loop(write, q, tokens, state, documents=None):
    """`write(state, *token)`, then read, one token after the other.                -> o [B, T, H, V], state

    q [B, T, H, K] scaled already; tokens: tuple of [B, T, H, ...]; state [B, H, K, V], cleared where documents change.
    """
    outputs = []
    # unbind once: indexing x[:, t] in the loop would make its backward quadratic in T
    for t, (q_t, *token) in enumerate(zip(*(x.unbind(1) for x in (q, *tokens)), strict=True)):
        if documents is not None and t > 0:
            kept = documents[:, t] == documents[:, t - 1]
            state = torch.where(kept[:, None, None, None], state, 0.0)
        state = write(state, *token)
        outputs.append((q_t.unsqueeze(-2) @ state).squeeze(-2))          # S^T q             [B, H, V]
    B, T, H, V = *q.shape[:3], state.shape[-1]
    return torch.stack(outputs, 1) if outputs else q.new_zeros(B, T, H, V), state
