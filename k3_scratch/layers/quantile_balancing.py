"""Quantile Balancing: one step that sets the selection bias so that every expert gets its share.  K3 report, MoE.

m tokens, n experts, k per token; every expert should get q = m k / n tokens. A token takes expert i when its score
plus bias beats the token's (k+1)-th best, so the bias that gives expert i exactly q tokens can be read off the sorted
margins.
"""

import torch

from k3_scratch.shapes import check_shapes


@torch.no_grad()
def quantile_bias(scores, bias, k):
    """The bias for the *next* batch, centred on 0.                                       [m, E], [E] -> [E]

    scores [m, E] of the router without the bias. With m = 0, or k = E (no token is ever refused), bias is unchanged.
    """
    sizes = check_shapes("quantile_bias", scores=(scores, "m E"), bias=(bias, "E"))
    m, n = sizes["m"], sizes["E"]
    if k < 1:
        raise ValueError(f"quantile_bias: k must be at least 1, but {k} came")
    if m == 0 or k >= n:
        return bias.clone()
    threshold = (scores + bias).topk(k + 1, -1).values[:, -1:]           # alpha, the best score not chosen  [m, 1]
    margin = scores - threshold                                          # [m, E]
    rank = min(m * k // n + 1, m)                                        # the (floor(q) + 1)-th largest margin
    new = -margin.topk(rank, dim=0).values[-1]
    return new - new.mean()
