"""Where a token looks in a picture: the attention weights of the MLA layers on the picture's markers."""

from contextlib import contextmanager

import torch

from k3_scratch.analysis.watch import watched
from k3_scratch.layers.mla import visible


@contextmanager
def with_images(model, images):
    """Inside, every call `model(tokens)` sees these pictures too: for measurements that know tokens alone.

    images    as in `K3.forward`; None: nothing is added
    """
    handle = model.register_forward_pre_hook(
        lambda module, inputs, keywords: (inputs, keywords if images is None else {"images": images, **keywords}),
        with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def picture_attention(model, tokens, images, positions):
    """How strongly one position of each row attends to every marker of its pictures.

    tokens     [B, T] with the same number of markers in each row;  images uint8 [P, Y, X, C] as in `K3.forward`
    positions  [B] whole numbers: the place of the token that looks, for example the one before an answer
    returns    ({"layer 3": weights float64 [B, H, P / B, y, x]}, {"layer 3": their sum [B, H]}), one entry per MLA
               layer, y and x the grid of a picture's tokens; the rest up to 1 lies on the text. Raises ValueError
               naming the argument.
    """
    vision = model.config.vision
    if vision is None:
        raise ValueError("picture_attention: model must have a vision encoder, but its configuration has none")
    per_row = (tokens == vision.image_token).sum(1)
    if (per_row != per_row[0]).any():
        raise ValueError("picture_attention: tokens must have as many markers in each row, "
                         f"but {per_row.tolist()} came")
    if len(positions) != len(tokens) or not all(0 <= at < tokens.shape[1] for at in positions):
        raise ValueError(f"picture_attention: positions must be {len(tokens)} places from 0 to {tokens.shape[1] - 1}, "
                         f"but {list(positions)} came")
    unit = vision.patch_size * vision.merge
    grid = (len(images) // len(tokens), images.shape[1] // unit, images.shape[2] // unit)
    layers = {f"layer {i}": model.layers[i].self_attn for i in model.config.mla_layers}
    with watched(layers) as seen:
        model(tokens, images=images)
        whole = {name: attention_weights(layer, seen[name][0]) for name, layer in layers.items()}       # [B, H, T, S]
    rows, maps, shares = torch.arange(len(tokens)), {}, {}
    for name, weights in whole.items():
        looking = weights[rows, :, torch.as_tensor(positions)]           # [B, H, S]
        on_markers = torch.stack([looking[b][:, tokens[b] == vision.image_token] for b in rows])         # [B, H, P/B N]
        maps[name] = on_markers.unflatten(-1, grid).double().cpu().numpy()
        shares[name] = on_markers.sum(-1).double().cpu().numpy()
    return maps, shares


def attention_weights(layer, x):
    """The softmax weights of a GatedMLA layer for its normed input x.                      [B, T, D] -> [B, H, T, T]"""
    q, (latent, shared_key) = layer.queries(x), layer.latents(x)         # [B, T, H, Q], [B, T, R], [B, T, r]
    H, n = layer.config.num_heads, layer.config.qk_nope_head_dim
    w_k = layer.kv_b_proj.weight.unflatten(0, (H, -1))[:, :n]            # [H, n, R]
    scores = torch.einsum("bthn,hnr,bsr->bhts", q[..., :n], w_k, latent)
    scores = (scores + torch.einsum("bthr,bsr->bhts", q[..., n:], shared_key)) * q.shape[-1] ** -0.5
    T = x.shape[1]
    return scores.masked_fill(~visible(T, T, None, x.device), -torch.inf).softmax(-1)
