"""What one looks at inside a model while it trains: memory, depth, sizes, keys."""

from dataclasses import dataclass

import numpy as np
import torch

from k3_scratch.analysis.decay import mean_decay
from k3_scratch.analysis.depth_attention import depth_attention
from k3_scratch.analysis.magnitudes import magnitudes
from k3_scratch.analysis.watch import watched


@dataclass(frozen=True)
class Inside:
    """The readings of one moment."""

    decay: dict                 # {"layer 0": alpha [H, K]} of each KDA layer
    depth: np.ndarray           # weights [Q, N] of what each sublayer reads, NaN where there is nothing yet
    readers: list               # [Q] their names
    sources: list               # [N] names of what can be read
    sizes: np.ndarray           # [n] root mean square of what each sublayer reads
    sublayers: list             # [n] their names


def inside(model, tokens, mask=None):
    """All readings of `Inside` on `tokens` [B, T]; mask [B, T] True where a token counts (None: all).

    For a model with attention residuals. Its mode is the caller's business: in training mode the routers of MoE layers
    would take these tokens for a batch.
    """
    weights, readers, sources = depth_attention(model, tokens, mask)
    names, read, _ = magnitudes(model, tokens, mask)
    return Inside(mean_decay(model, tokens, mask), weights, readers, sources, read, names)


@torch.no_grad()
def key_lengths(model, tokens):
    """{"layer 0": lengths [B, T, H]} of the keys of each KDA layer, as its memory gets them.      tokens [B, T]"""
    layers = {f"layer {i}": model.layers[i].self_attn for i in model.config.kda_layers}
    with watched(layers) as seen:
        model(tokens)
    return {name: layer.queries_keys_values(seen[name][0])[1].norm(dim=-1).double().cpu().numpy()
            for name, layer in layers.items()}
