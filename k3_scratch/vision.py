"""Pictures in the one sequence: a small MoonViT, and its vectors in place of the marker tokens.

    patches           p x p pixels become one vector            layers/patches.py
    positions         a learned table, and 2-D RoPE on q and k  layers/rope_2d.py; in here only: the text has none
    encoder layers    attention inside a picture, GELU MLP      layers/picture_attention.py, `EncoderLayer`
    pixel shuffle     merge x merge patches become one token    layers/pixel_shuffle.py
    projector         linear, GELU, linear, RMSNorm             `Vision`

RMSNorm, no biases. A picture takes one marker token for each merged patch, by rows; each marker's embedding is replaced
by the vector of its patch, and from there on it is a token like any other: causal, in both caches, without a position.
K3 report, Vision; released config. GELU in its tanh form: a choice of ours, the sources do not say.
"""

import torch
import torch.nn.functional as F
from torch import nn

from k3_scratch.layers.patches import patches
from k3_scratch.layers.picture_attention import PictureAttention
from k3_scratch.layers.pixel_shuffle import pixel_shuffle
from k3_scratch.layers.rms_norm import RMSNorm
from k3_scratch.shapes import check_shapes


def picture_tokens(vision, height, width):
    """How many marker tokens a picture of height x width pixels takes.

    vision    VisionConfig.  Raises ValueError when the sides cannot be cut, or the position table is too small.
    """
    unit = vision.patch_size * vision.merge
    if height % unit or width % unit or not height or not width:
        raise ValueError(f"images must have sides that are multiples of {unit} (patch_size {vision.patch_size} times "
                         f"merge {vision.merge}), but {height} x {width} came")
    most = vision.patch_size * vision.position_table
    if max(height, width) > most:
        raise ValueError(f"images must be at most {most} pixels high and wide (position_table "
                         f"{vision.position_table} times patch_size {vision.patch_size}), but {height} x {width} came")
    return (height // unit) * (width // unit)


class EncoderLayer(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x)).                                  [P, y, x, h] -> [P, y, x, h]"""

    def __init__(self, vision, eps):
        super().__init__()
        h, f = vision.hidden_size, vision.intermediate_size
        self.attention_norm, self.attention = RMSNorm(h, eps), PictureAttention(vision)
        self.mlp_norm, self.up, self.down = RMSNorm(h, eps), nn.Linear(h, f, bias=False), nn.Linear(f, h, bias=False)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Vision(nn.Module):
    """Encoder and projector: pictures [P, Y, X, C] of 0 to 255 -> [P, N, D], one vector for each marker token."""

    def __init__(self, config):
        super().__init__()
        v, D, eps = config.vision, config.hidden_size, config.rms_norm_eps
        self.config = v
        self.patch_embedding = nn.Linear(v.patch_size ** 2 * v.num_channels, v.hidden_size, bias=False)
        self.position_table = nn.Parameter(torch.empty(v.position_table, v.position_table, v.hidden_size))
        self.layers = nn.ModuleList(EncoderLayer(v, eps) for _ in range(v.num_layers))
        self.norm = RMSNorm(v.hidden_size, eps)
        self.projector_in = nn.Linear(v.projector_size, v.projector_size, bias=False)
        self.projector_out = nn.Linear(v.projector_size, D, bias=False)
        self.projector_norm = RMSNorm(D, eps)

    def forward(self, images):
        x = images.to(self.patch_embedding.weight.dtype) / 127.5 - 1     # 0 ... 255 -> -1 ... 1
        x = self.patch_embedding(patches(x, self.config.patch_size))     # [P, y, x, h]
        x = x + self.position_table[:x.shape[1], :x.shape[2]]            # a smaller picture uses the table's corner
        for layer in self.layers:
            x = layer(x)
        x = pixel_shuffle(self.norm(x), self.config.merge).flatten(1, 2)                      # [P, N, merge^2 h]
        return self.projector_norm(self.projector_out(F.gelu(self.projector_in(x), approximate="tanh")))

    def place(self, h, tokens, images):
        """Embeddings h [B, T, D] with each marker's row replaced.  tokens [B, T], images as in `K3.forward`."""
        if images is None:
            return h
        markers = (tokens == self.config.image_token).unsqueeze(-1)      # [B, T, 1]
        return h.masked_scatter(markers, self(images.to(h.device)).to(h.dtype))


def check_images(vision, tokens, images):
    """Refuse pictures that cannot be meant, and markers without pictures.  vision: VisionConfig; as `K3.forward`."""
    if tokens.is_meta:
        return
    per_row = (tokens == vision.image_token).sum(1)                      # [B]
    came = per_row.sum().item()
    if images is None:
        if came:
            raise ValueError(f"K3: tokens has {came} picture markers (token {vision.image_token}), but no images came")
        return
    sizes = check_shapes("K3", images=(images, f"P Y X {vision.num_channels}"))
    if images.dtype != torch.uint8:
        raise ValueError(f"K3: images must be uint8, 0 to 255, but {images.dtype} came")
    try:
        each = picture_tokens(vision, sizes["Y"], sizes["X"])
    except ValueError as error:
        raise ValueError(f"K3: {error}") from error
    wanted = sizes["P"] * each
    if came != wanted:
        raise ValueError(f"K3: {sizes['P']} images of {sizes['Y']} x {sizes['X']} take {each} markers (token "
                         f"{vision.image_token}) each, {wanted} in all, but tokens has {came}")
    if (per_row % each).any():
        row = (per_row % each).nonzero()[0].item()
        raise ValueError(f"K3: a picture takes {each} markers (token {vision.image_token}) in one row, but row {row} "
                         f"has {per_row[row].item()}: a picture must come whole, in one row and one call")
