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
from k3_scratch.layers.kda_solve import kda_solve
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
    q, k, v, g, beta = (_cut(x, C) for x in (q * scale, k, v, g, beta.unsqueeze(-1)))
    L, A, q_in, k_in, k_end, enter, through = (centred_tiles if fits_centred(g, C) else dyadic_tiles)(q, k, beta, g)
    if documents is not None:
        same, entering, leaving = _document_masks(documents, C)
        L, A = L * same, A * same
        q_in, k_in, k_end = q_in * entering, k_in * entering, k_end * leaving
        through = through * (entering & leaving)[..., -1, :]
    solved = kda_solve(L, k_in, beta, v)                                 # [W | U]  [N, B, H, C, K + V]
    states, written, state = kda_scan(*(x.flatten(1, 2) for x in (solved, k_end, through)),
                                      (enter.unsqueeze(-1) * state).flatten(0, 1))
    o = _product_sum(A, written, q_in, states)                           # [N B H, C, V]
    o = o.unflatten(0, (-1, B, H)).permute(1, 0, 3, 2, 4).flatten(1, 2)[:, :T]
    return o.to(dtype), state.unflatten(0, (B, H))


def _cut(x, C):
    """Chunks first.                                                                   [B, T, H, X] -> [N, B, H, C, X]

    A chunk that is not full ends in tokens that change nothing: k = v = g = beta = 0.
    """
    if x.shape[1] % C:
        x = F.pad(x, (0, 0, 0, 0, 0, -x.shape[1] % C))
    return x.unflatten(1, (-1, C)).permute(1, 0, 3, 2, 4)


def _product_sum(A, written, q_in, states):
    """A V~ + q_in S of all chunks.                                                                -> [N B H, C, V]"""
    return torch.baddbmm(A.flatten(0, 2) @ written.flatten(0, 1), q_in.flatten(0, 2), states.flatten(0, 1))


def _document_masks(documents, C):
    """Who may see whom when documents are packed.                                                     [B, T] ->

    same      [N, B, 1, C, C]   both tokens of a pair belong to one document
    entering  [N, B, 1, C, 1]   the token continues the document that was open when its chunk began
    leaving   [N, B, 1, C, 1]   the token belongs to the document that is open when its chunk ends
    """
    changes = documents[:, 1:] != documents[:, :-1]
    run = F.pad(changes.cumsum(1), (1, 0))                               # [B, T] documents counted from 0
    run = torch.cat([run, run[:, -1:].expand(-1, -run.shape[1] % C)], 1).unflatten(1, (-1, C))
    run = run.transpose(0, 1).unsqueeze(2)                               # [N, B, 1, C]
    open_before = F.pad(run[:-1, ..., -1], (0, 0, 0, 0, 1, 0))           # run of the token before  [N, B, 1]
    entering = (run == open_before.unsqueeze(-1)).unsqueeze(-1)
    leaving = (run == run[..., -1:]).unsqueeze(-1)
    return run.unsqueeze(-1) == run.unsqueeze(-2), entering, leaving
