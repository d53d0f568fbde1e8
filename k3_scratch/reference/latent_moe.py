"""Stable LatentMoE: many small experts that work in a narrower space than the model.

    route on x (width D)  ->  z = W_down x (width L)  ->  u = sum_e p_e E_e(z)  ->  W_up RMSNorm(u)  +  shared(x)

One W_down and one W_up serve all experts, so an expert costs 3 L F parameters in place of 3 D F. The norm sits on the
*sum* of the experts, just before W_up; the shared experts see x at full width, with weight one.
Source: LatentMoE (Elango et al., arXiv 2601.18089); K3 report, Stable LatentMoE.
"""

import numpy as np

from k3_scratch.reference.ffn import gated_ffn
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.router import route
from k3_scratch.shapes import check_shapes


def latent_moe(x, w_router, bias, w_down, w1, w3, w2, latent_norm, w_up, shared_w1, shared_w3, shared_w2, *,
               k, scale=1.0, eps=1e-5, beta=4.0, linear_beta=25.0, activation="situ"):
    """The whole mixture for every token.          [..., D] -> [..., D]

    x             [..., D]   normed input of the sublayer
    w_router      [E, D], bias [E]: see `route`
    w_down, w_up  [L, D], [D, L]: into and out of the latent space; both None: plain MoE, L = D
    w1, w3, w2    [E, F, L], [E, F, L], [E, L, F]: gate, up and down matrix of each expert
    latent_norm   [L] weight of the norm on the summed experts; None: no norm
    shared_w1, shared_w3, shared_w2   [S, D], [S, D], [D, S]: the shared experts, fused into one network; all None: none
    k, scale      experts a token, sum of the mixing weights; eps of the norm; bounds and kind of the activation
    Raises ShapeError; ValueError when only a part of a group is None.
    """
    x = np.asarray(x, dtype=np.float64)
    arguments = {"w_router": (w_router, "E D"), "bias": (bias, "E"), "w_down": (w_down, "L D"), "w1": (w1, "E F L"),
                 "w3": (w3, "E F L"), "w2": (w2, "E L F"), "latent_norm": (latent_norm, "L"), "w_up": (w_up, "D L"),
                 "shared_w1": (shared_w1, "S D"), "shared_w3": (shared_w3, "S D"), "shared_w2": (shared_w2, "D S")}
    _all_or_none(w_down=w_down, w_up=w_up)
    _all_or_none(shared_w1=shared_w1, shared_w3=shared_w3, shared_w2=shared_w2)
    width = "L" if w_down is not None else "D"                                   # without a latent, L is D itself
    check_shapes("latent_moe", x=(x, "... D"), **{
        name: (np.asarray(array), letters.replace("L", width))
        for name, (array, letters) in arguments.items() if array is not None})
    form = {"activation": activation, "beta": beta, "linear_beta": linear_beta}

    tokens = x.reshape(-1, x.shape[-1])                                          # [..., D] -> [m, D]
    experts, weights, _ = route(tokens, w_router, bias, k, scale)                # [m, k], [m, k]: on the full width
    z = tokens if w_down is None else tokens @ np.asarray(w_down, dtype=np.float64).T      # [m, D] -> [m, L]
    u = np.zeros(z.shape)                                                        # [m, L]
    for e in range(len(w1)):
        token, place = np.nonzero(experts == e)                                  # a token names an expert at most once
        out = gated_ffn(z[token], w1[e], w3[e], w2[e], **form)                   # [tokens of e, L]
        u[token] += weights[token, place, None] * out                            # [tokens of e, 1] * [tokens of e, L]
    if latent_norm is not None:
        u = rms_norm(u, latent_norm, eps)                                        # the sum, not each expert
    y = u if w_up is None else u @ np.asarray(w_up, dtype=np.float64).T          # [m, L] -> [m, D]
    if shared_w1 is not None:
        y = y + gated_ffn(tokens, shared_w1, shared_w3, shared_w2, **form)       # [m, D]
    return y.reshape(x.shape)                                                    # [m, D] -> [..., D]


def _all_or_none(**arguments):
    """Refuse a group of which only a part is None."""
    missing = [name for name, array in arguments.items() if array is None]
    if missing and len(missing) < len(arguments):
        raise ValueError(f"latent_moe: {', '.join(arguments)} are given together or not at all, "
                         f"but {', '.join(missing)} is None")
