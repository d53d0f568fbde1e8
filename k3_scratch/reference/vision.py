"""The picture encoder and its projector in float64, and their vectors in place of the marker tokens.

Source: K3 report, Vision (MoonViT-V2); the sizes from the released config.
"""

import numpy as np

from k3_scratch.reference.gelu import gelu
from k3_scratch.reference.patches import patches
from k3_scratch.reference.pixel_shuffle import pixel_shuffle
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.rope_2d import rope_2d
from k3_scratch.reference.softmax import softmax
from k3_scratch.shapes import ShapeError, check_shapes


def encode_pictures(images, weights, config):
    """Pictures to the vectors that stand in the sequence.          [P, Y, X, C] -> [P, N, D]

    images   [P, Y, X, C] whole numbers from 0 to 255; N = Y X / (patch_size merge)^2
    weights  name -> array, for example "vision.patch_embedding.weight" [h, patch_size^2 C]
    config   an object with the fields of K3Config
    Raises ShapeError naming the argument; KeyError for a missing weight.
    """
    v, eps = config.vision, config.rms_norm_eps
    check_shapes("encode_pictures", images=(np.asarray(images), f"P Y X {v.num_channels}"))

    def get(name):
        return np.asarray(weights["vision." + name], dtype=np.float64)

    pixels = np.asarray(images, dtype=np.float64) / 127.5 - 1            # -1 ... 1
    x = patches(pixels, v.patch_size) @ get("patch_embedding.weight").T  # [P, y, x, h]
    x = x + get("position_table")[:x.shape[1], :x.shape[2]]
    for i in range(v.num_layers):
        layer = f"layers.{i}."
        normed = rms_norm(x, get(layer + "attention_norm.weight"), eps)
        x = x + picture_attention(normed, get(layer + "attention.qkv"), get(layer + "attention.output.weight"))
        normed = rms_norm(x, get(layer + "mlp_norm.weight"), eps)
        x = x + gelu(normed @ get(layer + "up.weight").T) @ get(layer + "down.weight").T
    x = pixel_shuffle(rms_norm(x, get("norm.weight"), eps), v.merge)     # [P, y/merge, x/merge, merge^2 h]
    x = x.reshape(len(x), -1, x.shape[-1])                               # [P, N, merge^2 h]
    x = gelu(x @ get("projector_in.weight").T) @ get("projector_out.weight").T
    return rms_norm(x, get("projector_norm.weight"), eps)                # [P, N, D]


def picture_attention(x, qkv, output):
    """Every patch attends to all patches of its picture.          [P, y, x, h] -> [P, y, x, h]

    x [P, y, x, h], normed; qkv [3, H, K, h]; output [h, H K].  Scale K^(-1/2), 2-D RoPE on q and k.
    """
    sizes = check_shapes("picture_attention", x=(x, "P y x h"), qkv=(qkv, "3 H K h"))
    P, y, width, H, K = (sizes[letter] for letter in "PyxHK")
    check_shapes("picture_attention", output=(output, f"{sizes['h']} {H * K}"))
    q, k, v = np.einsum("pyxh,snkh->spyxnk", x, qkv)                     # [P, y, x, H, K] each
    q, k, v = (part.reshape(P, y * width, H, K) for part in (rope_2d(q), rope_2d(k), v))
    weight = softmax(np.einsum("pqnk,psnk->pnqs", q, k) * K ** -0.5)     # [P, H, y x, y x]
    o = np.einsum("pnqs,psnk->pqnk", weight, v).reshape(P, y, width, H * K)
    return o @ output.T


def place_pictures(h, tokens, vectors, image_token):
    """The markers' embeddings replaced, in order, by the pictures' vectors.          [B, T, D] -> [B, T, D]

    h [B, T, D] embeddings, tokens [B, T], vectors [P, N, D]: first row first, in each row from left to right.
    """
    check_shapes("place_pictures", h=(h, "B T D"), tokens=(tokens, "B T"), vectors=(vectors, "P N D"))
    markers = tokens == image_token
    if markers.sum() != vectors.shape[0] * vectors.shape[1]:
        raise ShapeError(f"place_pictures: tokens must have one marker {image_token} for each of the "
                         f"{vectors.shape[0]} x {vectors.shape[1]} vectors, but {markers.sum()} came")
    placed = h.copy()
    placed[markers] = vectors.reshape(-1, vectors.shape[-1])
    return placed
