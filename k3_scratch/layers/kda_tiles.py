"""The two C x C tiles of a KDA chunk, and what carries the state across it.

Both functions take q, k, g [N, B, H, C, K] and beta [N, B, H, C, 1], chunks first, and return

    L        [.., C, C]   beta_i sum_c k_ic k_jc e^(G_ic - G_jc)  for j < i; only this part of L may be read
    A        [.., C, C]   sum_c q_ic k_jc e^(G_ic - G_jc)  for j <= i, else 0
    q_in     [.., C, K]   q, decayed since the state was read;   k_in: beta k likewise
    k_end    [.., C, K]   k, decayed until the state is read next
    enter    [B, H, K]    factor from the given state to the first one that is read
    through  [.., K]      factor from one state that is read to the next, and from the last to the final state

A product of matrices needs e^(G_i - G_j) split into a row factor and a column factor. Where the split is made decides
whether the factors stay inside the range of float32.
"""

import torch
import torch.nn.functional as F

from k3_scratch.layers.by_hand import ByHand

LARGEST_EXPONENT = 80.0   # e^80 is still far from float32's largest number, about e^88


def fits_centred(g, C):
    """True when the centred split of a chunk of C tokens keeps both factors below e^80.             [..., K] -> bool"""
    return g.numel() == 0 or -g.amin().item() * (C - 1) / 2 <= LARGEST_EXPONENT


def centred_tiles(q, k, beta, g):
    """Split at r, half-way between the first and the last G: e^(G_i - r) * e^(r - G_j), one product per tile.

    For K3's g >= -5 both factors stay below e^78 in chunks of 32. The state is read in the middle of the chunk, so to
    say, as e^r S: then the same row factors serve the tiles and the state.
    """
    return _CentredTiles.run(q, k, beta, g)


class _CentredTiles(ByHand):
    """In few passes over memory: q, k and g may be views, and each gradient has the strides of its view.

    With a = row d_k_in and b = column d_k_out the gradients by hand are: beta a + b for k, row d_q_in for q, and
    q d_q + k (beta a - b) for G, which enters through the row and the column factor alone. r gets none: where a chunk
    is split changes no result, so its gradients cancel over all chunks.
    """

    @staticmethod
    def forward(ctx, q, k, beta, g):
        G = torch.cumsum(g, -2, out=g.new_empty(g.shape))                # [N, B, H, C, K]
        r = (G[..., :1, :] + G[..., -1:, :]) / 2                         # [N, B, H, 1, K]
        leave = (G[..., -1:, :] - r).exp()                               # from the middle of a chunk to its end
        enter = F.pad(r.exp(), (0, 0) * 4 + (0, 1), value=1.0)           # to the middle of the next; 1 after the last
        row = G.sub_(r).exp_()
        column = row.reciprocal()
        q_in, k_in, k_out = (torch.mul(x, factor, out=torch.empty_like(row))
                             for x, factor in ((q, row), (k, row), (k, column)))
        k_in *= beta
        k_end = k_out * leave * enter[1:]                                # in this order: no factor leaves the range
        through = leave * enter[1:]
        ctx.save_for_backward(q, k, beta, row, column, leave, enter[1:], through, q_in, k_in, k_out, k_end)
        L, A = k_in @ k_out.mT, (q_in @ k_out.mT).tril_()
        return L, A, q_in, k_in, k_end, enter[0].squeeze(-2), through.squeeze(-2)

    @staticmethod
    def backward(ctx, d_L, d_A, d_q_in, d_k_in, d_k_end, _, d_through):
        q, k, beta, row, column, leave, enter, through, q_in, k_in, k_out, k_end = ctx.saved_tensors
        d_A, until = d_A.tril(), q.new_ones(q.shape[-2], q.shape[-2]).triu_()
        d_last = (k_end * d_k_end).sum(-2, keepdim=True) + through * d_through.unsqueeze(-2)     # through `leave`
        d_q = torch.mul(d_A @ k_out + d_q_in, row, out=torch.empty_like(q))
        a = (d_L @ k_out).add_(d_k_in).mul_(row)
        b = (d_L.mT @ k_in).add_(d_A.mT @ q_in).add_((d_k_end * leave).mul_(enter)).mul_(column)
        d_beta = (k * a).sum(-1, keepdim=True)
        a *= beta
        d_k = torch.add(a, b, out=torch.empty_like(k))
        d_G = a.sub_(b).mul_(k).addcmul_(q, d_q)
        d_G[..., -1:, :] += d_last
        return d_q, d_k, d_beta, until @ d_G                             # g_t is in every G from t on


def dyadic_tiles(q, k, beta, g):
    """For any gate: pair neighbouring blocks of 1, 2, 4, ... tokens and split at the border between the two.

    Rows come from the later block, columns from the earlier one, so no exponent is ever positive; and since decays are
    summed from the border outwards, nothing large is subtracted from anything large.
    """
    C, k_beta = k.shape[-2], beta * k
    padding = (0, 0, 0, (1 << (C - 1).bit_length()) - C)                 # up to a power of two, with empty tokens
    rows_q, rows_k, columns, g = (F.pad(x, padding).unsqueeze(-2) for x in (q, k_beta, k, g))   # [.., blocks, 1, K]
    A = (rows_q * columns).sum(-1, keepdim=True)                         # a token reads what it has just written
    L = torch.zeros_like(A)                                              # [.., blocks, 1, 1]
    until, after = g, torch.zeros_like(g)                                # decays from the block's start / to its end
    while g.shape[-3] // until.shape[-2] > 1:
        (_, q1), (_, k1), (k0, _) = _pairs(rows_q), _pairs(rows_k), _pairs(columns)
        (until0, until1), (after0, after1) = _pairs(until), _pairs(after)
        row, earlier = until1.exp(), (k0 * after0.exp()).mT
        L, A = _join(L, (k1 * row) @ earlier), _join(A, (q1 * row) @ earlier)
        until, after = (torch.cat([until0, until0[..., -1:, :] + until1], -2),
                        torch.cat([after0 + until1[..., -1:, :], after1], -2))
        rows_q, rows_k, columns = (torch.cat(_pairs(x), -2) for x in (rows_q, rows_k, columns))
    L, A, until, after = (x.squeeze(-3)[..., :C, :] for x in (L, A, until, after))
    from_start = until.exp()
    return (L[..., :C], A[..., :C], q * from_start, k_beta * from_start, k * after.exp(),
            torch.ones_like(from_start[0, :, :, 0]), from_start[..., -1, :])


def _pairs(x):
    """Earlier and later block of each pair.                     [..., blocks, s, X] -> 2 x [..., blocks/2, s, X]"""
    return x[..., 0::2, :, :], x[..., 1::2, :, :]


def _join(tile, below):
    """[[earlier, 0], [below, later]]          [..., blocks, s, s], [..., blocks/2, s, s] -> [..., blocks/2, 2s, 2s]"""
    earlier, later = _pairs(tile)
    return torch.cat([torch.cat([earlier, torch.zeros_like(below)], -1), torch.cat([below, later], -1)], -2)
