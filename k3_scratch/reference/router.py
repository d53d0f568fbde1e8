"""The router of the mixture of experts: which k of E experts see a token, and with which weights.

Two numbers an expert must not be confused. The *score* s says how well the expert fits; the *selection bias* b only
balances the load. b takes part in the choice and in nothing else.
"""

import numpy as np

from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.shapes import check_shapes


def route(x, w_router, bias, k, scale=1.0):
    """s = sigmoid(W x); choose the k largest of s + b; weights = s / sum of the chosen s * scale.

    [..., D], [E, D], [E] -> experts [..., k] whole numbers, weights [..., k], scores [..., E]

    x         [..., D]  the *full-width* token, also when the experts work in a latent space
    w_router  [E, D]    one row an expert
    bias      [E]       selection bias, in units of the score
    k         experts a token, 1 ... E;  scale: routed_scaling_factor, the sum of each token's weights
    experts are ordered by s + b, largest first; on a tie the lower number comes first, so that the choice does not
    depend on the batch.  Raises ShapeError; ValueError for k outside 1 ... E.
    Source: DeepSeek-V3, arXiv 2412.19437 (sigmoid scores, bias for selection only); K3 report, Stable LatentMoE.
    """
    x, w_router, bias = (np.asarray(a, dtype=np.float64) for a in (x, w_router, bias))
    sizes = check_shapes("route", x=(x, "... D"), w_router=(w_router, "E D"), bias=(bias, "E"))
    if not 1 <= k <= sizes["E"]:
        raise ValueError(f"route: k must be between 1 and E = {sizes['E']}, but {k} came")
    scores = sigmoid(x @ w_router.T)                                             # [..., D] @ [D, E] -> [..., E]
    biased = scores + bias                                                       # a new array: scores stay clean
    experts = np.argsort(-biased, axis=-1, kind="stable")[..., :k]               # [..., E] -> [..., k]
    chosen = np.take_along_axis(scores, experts, axis=-1)                        # [..., k], without the bias
    total = chosen.sum(axis=-1, keepdims=True) + 1e-20                           # [..., 1]; scores may underflow to 0
    return experts, chosen / total * scale, scores
