"""Attention among the patches of one picture: every patch sees every other, and none of another picture."""

import torch
import torch.nn.functional as F
from torch import nn

from k3_scratch.layers.rope_2d import rope_2d


class PictureAttention(nn.Module):
    """x [P, y, x, h] -> [P, y, x, h]; x is the normed input.  MoonViT-V2: no biases, no mask, 2-D RoPE on q and k.

    q, k and v of all heads are one stack of matrices [3, H, K, h], one matrix a head, which is also how Muon sees them.
    """

    def __init__(self, vision):
        super().__init__()
        H, K = vision.num_heads, vision.qkv_size // vision.num_heads
        self.qkv = nn.Parameter(torch.empty(3, H, K, vision.hidden_size))
        self.output = nn.Linear(H * K, vision.hidden_size, bias=False)

    def forward(self, x):
        _, H, K, _ = self.qkv.shape
        q, k, v = F.linear(x, self.qkv.flatten(0, 2)).unflatten(-1, (3, H, K)).unbind(-3)     # [P, y, x, H, K] each
        q, k, v = (part.flatten(1, 2).transpose(1, 2) for part in (rope_2d(q), rope_2d(k), v))    # [P, H, y x, K]
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)                # [P, y x, H K]
        return self.output(o).unflatten(1, x.shape[1:3])
