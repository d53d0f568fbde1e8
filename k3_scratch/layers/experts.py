"""Dispatch: every token visits its own k experts, and each expert sees its tokens as one matrix."""

import torch

from k3_scratch.shapes import check_shapes


def expert_mixture(z, experts, weights, w1, w3, w2, act):
    """sum_e p_e w2_e act(w1_e z, w3_e z) over the experts of each token.

    z [m, L], experts [m, k] numbers, weights [m, k], w1 and w3 [E, F, L], w2 [E, L, F], act(gate, up)  ->  [m, L]
    Tokens are sorted by expert, so the work is that of k experts per token; idle experts get a gradient of zero.
    """
    sizes = check_shapes("expert_mixture", z=(z, "m L"), experts=(experts, "m k"), weights=(weights, "m k"),
                         w1=(w1, "E F L"), w3=(w3, "E F L"), w2=(w2, "E L F"))
    m, k, E = sizes["m"], sizes["k"], sizes["E"]
    if m == 1:                                                           # decoding: nothing to sort
        chosen = experts[0]
        hidden = act(w1[chosen] @ z[0], w3[chosen] @ z[0])               # [k, F]
        return (weights[0].to(z.dtype) @ (w2[chosen] @ hidden.unsqueeze(-1)).squeeze(-1)).unsqueeze(0)
    order = experts.flatten().argsort(stable=True)                       # visits, expert by expert  [m k]
    token = order // k
    ends = torch.bincount(experts.flatten(), minlength=E).cumsum(0)
    product = grouped_product if can_group(z, w1) else looped_product
    visits = z.index_select(0, token)                                    # [m k, L]
    out = product(act(product(visits, w1, ends), product(visits, w3, ends)), w2, ends)
    out = out * weights.flatten()[order].unsqueeze(-1).to(z.dtype)
    return torch.zeros_like(z).index_add(0, token, out)


def can_group(x, w):
    """True when PyTorch's grouped product takes these operands: float32 or bfloat16, rows a multiple of 16 bytes."""
    aligned = all(size * x.element_size() % 16 == 0 for size in w.shape[1:])
    return hasattr(torch, "_grouped_mm") and x.dtype in (torch.float32, torch.bfloat16) and aligned and x.shape[0] > 0


def grouped_product(x, w, ends):
    """x_i w_e^T for the rows of each expert e, rows sorted by expert.     [M, X], [E, Y, X], [E] -> [M, Y]"""
    return torch._grouped_mm(x, w.mT, offs=ends.to(torch.int32))


def looped_product(x, w, ends):
    """The same by a loop over the experts, for any dtype and width."""
    starts = torch.cat([ends.new_zeros(1), ends])
    rows = x.split((starts[1:] - starts[:-1]).tolist())
    return torch.cat([part @ w_e.mT for part, w_e in zip(rows, w.unbind(), strict=True)])
