"""How large the vectors are that travel up the model."""

import numpy as np

from k3_scratch.analysis.watch import watched


def magnitudes(model, tokens, mask=None):
    """Names of the sublayers from bottom to top, RMS of what each reads (before its norm) and of what it writes.

    tokens [B, T]; mask [B, T] True where a token counts (None: all)  ->  names [n], input [n], output [n]
    """
    norms, bodies = {}, {}
    for i, layer in enumerate(model.layers):
        kind = "MLA" if model.config.is_mla(i) else "KDA"
        norms[f"{i} {kind}"], bodies[f"{i} {kind}"] = layer.input_layernorm, layer.self_attn
        kind = "dense" if layer.is_dense else "MoE"
        norms[f"{i} {kind}"] = layer.post_attention_layernorm
        bodies[f"{i} {kind}"] = layer.mlp if layer.is_dense else layer.block_sparse_moe
    with watched(norms) as read, watched(bodies) as written:
        model(tokens)

    def rms(x):
        x = x.flatten(0, 1) if mask is None else x[mask]
        return x.double().square().mean().sqrt().item()

    return list(norms), np.array([rms(read[n][0]) for n in norms]), np.array([rms(written[n][1]) for n in norms])
