"""Attention over depth: how much each sublayer reads of each earlier vector."""

import numpy as np

from k3_scratch.analysis.watch import watched
from k3_scratch.layers.attention_residuals import mixing_weights


def depth_mixes(model):
    """{name of the reader: its DepthMix} from bottom to top, the output's last."""
    mixes = {}
    for i, layer in enumerate(model.layers):
        mixes[f"{i} {'MLA' if model.config.is_mla(i) else 'KDA'}"] = layer.self_attention_res
        mixes[f"{i} {'dense' if layer.is_dense else 'MoE'}"] = layer.mlp_res
    return {**mixes, "output": model.output_attn_res}


def mix_weights(model, tokens):
    """{name of the reader: weights [N, B, T] of its N sources}, oldest source first.             tokens [B, T]"""
    mixes = depth_mixes(model)
    with watched(mixes) as seen:
        model(tokens)
        return {name: mixing_weights(seen[name][0], mix.query, mix.weight) for name, mix in mixes.items()}


def depth_attention(model, tokens, mask=None):
    """Mean weight over tokens of each source in each mix.

    tokens  [B, T];  mask [B, T] True where a token counts (None: all)
    returns weights [Q, N] (NaN where a source does not exist), names of the Q readers, names of the N sources: the
    embedding, the sums of the blocks before, and last "this block", the running sum of the reader's own block.
    """
    size = model.config.attn_res_block_size
    seals = ["embedding" if i == 0 else f"layers {i - size}-{i - 1}" if size > 1 else f"layer {i - 1}"
             for i in range(0, len(model.layers), size)]
    read = mix_weights(model, tokens)
    weights = np.full((len(read), len(seals) + 1), np.nan)
    for row, p in enumerate(read.values()):                              # [N, B, T]
        p = (p.flatten(1) if mask is None else p[:, mask]).mean(1).double().cpu().numpy()
        weights[row, :len(p) - 1], weights[row, -1] = p[:-1], p[-1]
    return weights, list(read), [*seals, "this block"]
