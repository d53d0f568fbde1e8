"""Kimi Delta Attention in chunks: the same numbers as the token loop, as a few matrix products per chunk of C tokens.

With G_r = g_1 + ... + g_r inside a chunk and S the state that enters it (K3 report, KDA; Kimi Linear, section 3):

    L_ij = beta_i sum_c k_ic k_jc e^(G_ic - G_jc)  (j < i)      A_ij = sum_c q_ic k_jc e^(G_ic - G_jc)  (j <= i)
    (I + L) [W | U] = [beta e^G k | beta v]                     one triangular solve for every chunk at once
    V~ = U - W S          S <- e^(G_C) S + (e^(G_C - G) k)^T V~          the only loop: over chunks (kda_scan.py)
    O  = (e^G q) S + A V~                                       all chunks at once again

How e^(G_i - G_j) becomes a product of two finite factors is the subject of kda_tiles.py.
"""

import torch
import torch.nn.functional as F

from k3_scratch.layers.kda_inputs import kda_inputs
from k3_scratch.layers.kda_scan import kda_scan
from k3_scratch.layers.kda_tiles import centred_tiles, dyadic_tiles, fits_centred


def kda_chunk(q, k, v, g, beta, state=None, *, scale=None, chunk=None, documents=None):
    """The chunk form of `kda_recurrent`: same arguments, same results, finite for any gate.

    q, k, g    [B, T, H, K]     v [B, T, H, V]     beta [B, T, H]
    state      [B, H, K, V]     what was remembered before; None: nothing
    chunk      C, tokens per chunk; None: 16 for small heads or large batches, else 32
    documents  [B, T]           the state is cleared where the number changes; None: one document
    returns    o [B, T, H, V] in v's dtype and the state after the last token.
    """
    dtype = v.dtype
    q, k, v, g, beta, state = kda_inputs("kda_chunk", q, k, v, g, beta, state, documents)
    B, T, H, K = k.shape
    if T == 0:
        return v.to(dtype), state
    C = min(chunk or (16 if B * H >= 32 or K <= 32 else 32), T)
    scale = K ** -0.5 if scale is None else scale
    # A chunk that is not full ends in tokens that change nothing: k = v = g = beta = 0.
    q, k, v, g = (_cut(x, C) for x in (q * scale, k, v, g))              # [B, H, N, C, .]
    beta = _cut(beta.unsqueeze(-1), C)                                   # [B, H, N, C, 1]
    tiles = centred_tiles if fits_centred(g, C) else dyadic_tiles
    L, A, q_in, k_in, k_end, enter, through = tiles(q, k, beta * k, g)
    if documents is not None:
        same, entering, leaving = _document_masks(documents, C)
        L, A = L * same, A * same
        q_in, k_in, k_end = q_in * entering, k_in * entering, k_end * leaving
        through = through * (entering & leaving)[..., -1, :]
    right = torch.cat([k_in, beta * v], -1)                              # [B, H, N, C, K + V]
    W, U = torch.linalg.solve_triangular(L, right, upper=False, unitriangular=True).split([K, v.shape[-1]], -1)
    states, written, state = kda_scan(W, U, k_end, through, enter.unsqueeze(-1) * state)
    o = q_in @ states + A @ written                                      # [B, H, N, C, V]
    return o.flatten(2, 3)[:, :, :T].transpose(1, 2).to(dtype), state


def _cut(x, C):
    """Pad T with zeros to a multiple of C and cut it.                          [B, T, H, X] -> [B, H, N, C, X]"""
    x = F.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % C))
    return x.unflatten(1, (-1, C)).permute(0, 3, 1, 2, 4).contiguous()


def _document_masks(documents, C):
    """Who may see whom when documents are packed.                                                     [B, T] ->

    same      [B, 1, N, C, C]   both tokens of a pair belong to one document
    entering  [B, 1, N, C, 1]   the token continues the document that was open when its chunk began
    leaving   [B, 1, N, C, 1]   the token belongs to the document that is open when its chunk ends
    """
    changes = documents[:, 1:] != documents[:, :-1]
    run = F.pad(changes.cumsum(1), (1, 0))                               # [B, T] documents counted from 0
    run = torch.cat([run, run[:, -1:].expand(-1, -run.shape[1] % C)], 1).unflatten(1, (-1, C)).unsqueeze(1)
    open_before = F.pad(run[..., :-1, -1], (1, 0))                       # run of the token before  [B, 1, N]
    entering = (run == open_before.unsqueeze(-1)).unsqueeze(-1)
    leaving = (run == run[..., -1:]).unsqueeze(-1)
    return run.unsqueeze(-1) == run.unsqueeze(-2), entering, leaving
