"""How fast the memory forgets: the decay alpha of every key channel, averaged over tokens."""

from k3_scratch.analysis.watch import watched


def mean_decay(model, tokens, mask=None):
    """{"layer 0": alpha [H, K] in (0, 1]}: exp of the mean log-decay per channel, one entry per KDA layer.

    tokens [B, T]; mask [B, T] True where a token counts (None: all).
    """
    layers = {f"layer {i}": model.layers[i].self_attn for i in model.config.kda_layers}
    with watched(layers) as seen:
        model(tokens)
    result = {}
    for name, layer in layers.items():
        g = layer.decay(seen[name][0])                                   # [B, T, H, K]
        g = g.flatten(0, 1) if mask is None else g[mask]
        result[name] = g.mean(0).exp().detach().double().cpu().numpy()
    return result
