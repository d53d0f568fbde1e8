"""The two C x C tiles of a KDA chunk, and the decays towards its two ends.

Both functions take q, k, g [..., C, K] and return

    L           [..., C, C]   sum_c k_ic k_jc e^(G_ic - G_jc)  for j < i, else 0
    A           [..., C, C]   sum_c q_ic k_jc e^(G_ic - G_jc)  for j <= i, else 0
    from_start  [..., C, K]   e^(G_i), the decay from the chunk's start to token i
    to_end      [..., C, K]   e^(G_C - G_i), the decay from token i to the chunk's end

A product of matrices needs e^(G_i - G_j) split into a row factor and a column factor. Where the split is made decides
whether the factors stay inside the range of float32.
"""

import torch
import torch.nn.functional as F

LARGEST_EXPONENT = 80.0   # e^80 is still far from float32's largest number, about e^88


def fits_centred(g, C):
    """True when the centred split of a chunk of C tokens keeps both factors below e^80.             [..., K] -> bool"""
    return g.numel() == 0 or -g.amin().item() * (C - 1) / 2 <= LARGEST_EXPONENT


def centred_tiles(q, k, g):
    """Split at r, half-way between the first and the last G: e^(G_i - r) * e^(r - G_j), one product per tile.

    For K3's g >= -5 both factors stay below e^78 in chunks of 32. The upper triangle may overflow; it is cut away.
    """
    G = g.cumsum(-2)
    r = (G[..., :1, :] + G[..., -1:, :]) / 2
    row, column = (G - r).exp(), (r - G).exp()
    earlier = (k * column).mT                                            # [..., K, C]
    return (((k * row) @ earlier).tril(-1), ((q * row) @ earlier).tril(),
            row * r.exp(), column * (G[..., -1:, :] - r).exp())


def dyadic_tiles(q, k, g):
    """For any gate: pair neighbouring blocks of 1, 2, 4, ... tokens and split at the border between the two.

    Rows come from the later block, columns from the earlier one, so no exponent is ever positive; and since decays are
    summed from the border outwards, nothing large is subtracted from anything large.
    """
    C = k.shape[-2]
    padding = (0, 0, 0, (1 << (C - 1).bit_length()) - C)                 # up to a power of two, with empty tokens
    q, k, g = (F.pad(x, padding).unsqueeze(-2) for x in (q, k, g))       # [..., blocks, 1, K]
    L = torch.zeros_like(k[..., :1])                                     # [..., blocks, 1, 1]
    A = (q * k).sum(-1, keepdim=True)                                    # a token reads what it has just written
    until, after = g, torch.zeros_like(g)                                # decays from the block's start / to its end
    while k.shape[-3] > 1:
        (q0, q1), (k0, k1) = _pairs(q), _pairs(k)
        (until0, until1), (after0, after1) = _pairs(until), _pairs(after)
        row, earlier = until1.exp(), (k0 * after0.exp()).mT
        L = _join(L, (k1 * row) @ earlier)
        A = _join(A, (q1 * row) @ earlier)
        until, after = (torch.cat([until0, until0[..., -1:, :] + until1], -2),
                        torch.cat([after0 + until1[..., -1:, :], after1], -2))
        q, k = torch.cat([q0, q1], -2), torch.cat([k0, k1], -2)
    L, A, until, after = (x.squeeze(-3)[..., :C, :] for x in (L, A, until, after))
    return L[..., :C], A[..., :C], until.exp(), after.exp()


def _pairs(x):
    """Earlier and later block of each pair.                     [..., blocks, s, X] -> 2 x [..., blocks/2, s, X]"""
    return x[..., 0::2, :, :], x[..., 1::2, :, :]


def _join(tile, below):
    """[[earlier, 0], [below, later]]          [..., blocks, s, s], [..., blocks/2, s, s] -> [..., blocks/2, 2s, 2s]"""
    earlier, later = _pairs(tile)
    return torch.cat([torch.cat([earlier, torch.zeros_like(below)], -1), torch.cat([below, later], -1)], -2)
