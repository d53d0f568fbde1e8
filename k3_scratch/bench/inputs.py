"""What KDA is timed and checked on: seeded inputs of one shape, and seven kinds of gates."""

from typing import NamedTuple

import torch

GATE_CASES = ("mild", "K3-like", "mixed 0/-5", "all -5", "unbounded to -60", "g = 0", "same key")


class Shape(NamedTuple):
    """Sizes of one problem.

    >>> print(Shape(1, 256, 4, 64, 64))
    1,256,4,64,64
    """

    B: int
    T: int
    H: int
    K: int
    V: int

    def __str__(self):
        return ",".join(map(str, self))


def kda_inputs(shape, case="K3-like", seed=0):
    """q, k, v, g, beta in float32: unit q and k, normal v, beta a sigmoid, g as `case` says.

    [B, T, H, K] x 2, [B, T, H, V], [B, T, H, K], [B, T, H];  "K3-like" is g = -5 sigmoid(normal).
    """
    B, T, H, K, V = shape
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes):
        return torch.randn(*sizes, generator=generator)

    q, k = (torch.nn.functional.normalize(normal(B, T, H, K), dim=-1) for _ in range(2))
    v, beta, z = normal(B, T, H, V), torch.sigmoid(normal(B, T, H)), torch.sigmoid(normal(B, T, H, K))
    if case == "same key":
        k = k[:, :1].expand(-1, T, -1, -1).clone()
    g = {"mild": -0.1 * z, "K3-like": -5 * z, "mixed 0/-5": -5.0 * (z < 0.5), "all -5": torch.full_like(z, -5.0),
         "unbounded to -60": -60 * z ** 3, "g = 0": torch.zeros_like(z), "same key": -0.01 * z}[case]
    return q, k, v, g, beta


def scalar_gates(inputs):
    """The easier problem of the gated delta rule: one decay per head, the first channel's: g [B, T, H]."""
    q, k, v, g, beta = inputs
    return q, k, v, g[..., 0].contiguous(), beta


def spread_gates(inputs):
    """The same problem as KDA sees it: the decay of a head on each of its channels: g [B, T, H, K]."""
    q, k, v, g, beta = inputs
    return q, k, v, g.unsqueeze(-1).expand_as(k).contiguous(), beta


def direction_of(like):
    """A fixed random direction in which gradients are taken.                                          [...] -> [...]"""
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(1))


def differentiate(function, inputs, direction):
    """Forward and backward once: o = function(*inputs) and the gradients of <o, direction>.    -> o, [gradients]"""
    leaves = [x.detach().requires_grad_() for x in inputs]
    o = function(*leaves)
    return o.detach(), list(torch.autograd.grad(o, leaves, direction))
