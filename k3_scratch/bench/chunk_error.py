"""Why a tile is split in its middle: float32 errors against the length of the chunk, all gates at -5.

e^(G_i - G_j) has to become a product of a row factor and a column factor. Three places to split:

    start    e^(G_i) e^(-G_j): the column factor leaves the range of float32 at 18 tokens of -5
    centred  e^(G_i - r) e^(r - G_j), r half-way between the first and the last G: twice as far
    dyadic   pairs of half tiles, split at their border: no exponent is ever positive
"""

import torch

from k3_scratch.bench.goals import Row, finite
from k3_scratch.bench.inputs import kda_inputs
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.truth import relative_error, true_output


def start_tile(rows, columns, G):
    """sum_c rows_ic columns_jc e^(G_ic - G_jc) for j <= i, else 0.                 3 x [..., C, K] -> [..., C, C]"""
    return ((rows * G.exp()) @ (columns * (-G).exp()).mT).tril()


def centred_tile(rows, columns, G):
    """The same with exponents of half the size, positive and negative."""
    r = (G[..., :1, :] + G[..., -1:, :]) / 2
    return ((rows * (G - r).exp()) @ (columns * (r - G).exp()).mT).tril()


def dyadic_tile(rows, columns, G):
    """The same from its two halves and the square below the diagonal."""
    C = G.shape[-2]
    if C == 1:
        return rows @ columns.mT
    half, border = C // 2, G[..., C // 2 - 1:C // 2, :]
    first, second = (tuple(x[..., part, :] for x in (rows, columns, G)) for part in
                     (slice(None, half), slice(half, None)))
    below = (second[0] * (second[2] - border).exp()) @ (first[1] * (border - first[2]).exp()).mT
    above = below.new_zeros(*below.shape[:-2], half, C - half)
    return torch.cat([torch.cat([dyadic_tile(*first), above], -1), torch.cat([below, dyadic_tile(*second)], -1)], -2)


TILES = {"split at the start": start_tile, "centred": centred_tile, "dyadic": dyadic_tile}


def chunk_form(q, k, v, g, beta, tile, C):
    """KDA in chunks of C in few lines, for any way to make a tile.  q, k, g [B, T, H, K], v, beta -> o [B, T, H, V]"""
    S, outputs = q.new_zeros(*q[:, 0].shape, v.shape[-1]), []            # [B, H, K, V]
    for part in zip(*(x.split(C, 1) for x in (q * q.shape[-1] ** -0.5, k, v, g, beta.unsqueeze(-1))), strict=True):
        q_c, k_c, v_c, g_c, b_c = (x.transpose(1, 2) for x in part)      # [B, H, C, .]
        G = g_c.cumsum(-2)
        L = torch.tril(tile(b_c * k_c, k_c, G), -1)
        written = torch.linalg.solve_triangular(L, b_c * v_c - (b_c * k_c * G.exp()) @ S, upper=False,
                                                unitriangular=True)
        outputs.append((q_c * G.exp()) @ S + tile(q_c, k_c, G) @ written)
        end = G[..., -1:, :]
        S = end.mT.exp() * S + (k_c * (end - G).exp()).mT @ written
    return torch.cat(outputs, 2).transpose(1, 2)


@torch.no_grad()
def measure(plan, peers=None):
    """Errors of the outputs, None where they are not finite; the row says how far the centred split reaches."""
    inputs = kda_inputs(plan.error_shape, "all -5")
    want = true_output(inputs)
    errors = {name: [relative_error(chunk_form(*inputs, tile, C), want) for C in plan.chunk_lengths]
              for name, tile in TILES.items()}
    reach = {name: max((C for C, e in zip(plan.chunk_lengths, line, strict=True) if e < 1e-4), default=0)
             for name, line in errors.items()}
    row = Row("longest exact chunk at gates of -5, centred split over start", reach["centred"] / max(1, reach[
        "split at the start"]), note=", ".join(f"{name}: {C}" for name, C in reach.items()))
    return Measured([row], {"error": {"chunks": list(plan.chunk_lengths), "errors": {
        name: [finite(e) for e in line] for name, line in errors.items()}}})
