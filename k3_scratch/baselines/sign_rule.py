"""Balancing experts by small steps: the rule that Quantile Balancing replaces. Twin of reference/sign_rule.py.

Used by: DeepSeek-V3.
Differs from Quantile Balancing by: b <- b + rate * sign(mean load - load), a step of fixed size in place of a quantile.
"""

import torch

from k3_scratch.shapes import check_shapes


@torch.no_grad()
def sign_rule(bias, counts, rate):
    """b + rate * sign(mean load - load): an idle expert becomes easier to choose.                   [E], [E] -> [E]

    bias [E] in units of the router's score, counts [E] tokens an expert got in the last batch, rate in units of the
    score.  Returns a new bias, for the *next* batch.  Raises ShapeError.  Wang et al., arXiv 2408.15664; DeepSeek-V3.
    """
    check_shapes("sign_rule", bias=(bias, "E"), counts=(counts, "E"))
    counts = counts.double()                                             # whole numbers: an even load is exactly even
    return bias + rate * torch.sign(counts.mean() - counts).to(bias.dtype)
