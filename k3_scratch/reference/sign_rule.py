"""Balancing experts by small steps: the rule that Quantile Balancing replaces."""

import numpy as np

from k3_scratch.shapes import check_shapes


def sign_rule(bias, counts, rate):
    """b + rate * sign(mean load - load): an idle expert becomes easier to choose.          [E], [E] -> [E]

    Only the direction counts, not how far off the load is: too small a rate balances late, too large a one oscillates.
    bias [E] in units of the router's score, counts [E] tokens an expert got in the last batch, rate in units of the
    score.  Returns a new bias, for the *next* batch.  Raises ShapeError.
    Source: Wang et al., arXiv 2408.15664 (auxiliary-loss-free balancing); DeepSeek-V3.
    """
    bias, counts = (np.asarray(a, dtype=np.float64) for a in (bias, counts))
    check_shapes("sign_rule", bias=(bias, "E"), counts=(counts, "E"))
    return bias + rate * np.sign(counts.mean() - counts)                         # [E]
