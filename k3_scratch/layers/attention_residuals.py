"""Attention residuals: a sublayer reads a softmax mixture of earlier vectors in place of their sum.

K3 report; Attention Residuals, arXiv 2603.15031. Keys are RMS-normed, the vectors that are mixed are not.
"""

import torch
from torch import nn

from k3_scratch.layers.by_hand import ByHand
from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def depth_mix(sources, query, norm_weight, eps=1e-5):
    """softmax over the sources of (query * norm_weight) . v / rms(v), applied to the raw vectors v.

    sources [N, ..., D], query [D], norm_weight [D]  ->  mixed [..., D], weights [N, ...]
    """
    check_shapes("depth_mix", sources=(sources, "N ... D"), query=(query, "D"), norm_weight=(norm_weight, "D"))
    sources = [Source(v, eps) for v in sources]
    weights = mixing_weights(sources, query, norm_weight)
    return mixture(sources, weights), weights


class Source:
    """A vector per token that later sublayers may read; its inverse RMS is computed once, however many read it."""

    __slots__ = ("inverse_rms", "vector")

    def __init__(self, vector, eps):
        self.vector = vector                                             # [..., D]
        self.inverse_rms = _InverseRMS.run(raised(vector), eps)          # [...]

    @classmethod
    def of(cls, vector, inverse_rms):
        """A source whose inverse RMS is known."""
        source = object.__new__(cls)
        source.vector, source.inverse_rms = vector, inverse_rms
        return source


def mixing_weights(sources, query, norm_weight):
    """[N] sources of [..., D] -> [N, ...], a softmax over N, without 1/sqrt(D)."""
    direction = raised(query) * raised(norm_weight)
    scores = [(raised(s.vector) @ direction.to(s.inverse_rms.dtype)) * s.inverse_rms for s in sources]
    return torch.stack(scores).softmax(0)


def mixture(sources, weights):
    """sum_i p_i v_i of the raw vectors.                                     [N] of [..., D], [N, ...] -> [..., D]"""
    first, *rest = zip(weights, (s.vector for s in sources), strict=True)
    total = first[0].unsqueeze(-1) * first[1]
    for weight, v in rest:
        total = total.addcmul_(weight.unsqueeze(-1), v.to(total.dtype))
    return total.to(first[1].dtype)


class _InverseRMS(ByHand):
    """1 / rms(v) and its gradient -v / (D rms^3), one pass over v each way.                        [..., D] -> [...]"""

    @staticmethod
    def forward(ctx, v, eps):
        inverse = torch.rsqrt(torch.linalg.vecdot(v, v) / v.shape[-1] + eps)
        ctx.save_for_backward(v, inverse)
        return inverse

    @staticmethod
    def backward(ctx, d):
        v, inverse = ctx.saved_tensors
        return v * (d * inverse ** 3 / -v.shape[-1]).unsqueeze(-1), None


class _Read(ByHand):
    """`mixture` with `mixing_weights`, and the gradient of both by hand, one new vector for each source.

    With s_i = (v_i . n) / rms_i for the direction n and p = softmax(s):
    d p_i = d . v_i      d s_i = p_i (d p_i - sum_j p_j d p_j)      d v_i = p_i d + d s_i / rms_i n
    """

    @staticmethod
    def forward(ctx, query, norm_weight, *parts):
        sources = [Source.of(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        weights = mixing_weights(sources, query, norm_weight)
        ctx.save_for_backward(query, norm_weight, weights, *parts)
        return mixture(sources, weights)

    @staticmethod
    def backward(ctx, d):
        query, norm_weight, weights, *parts = ctx.saved_tensors
        vectors, d = parts[::2], d.to(weights.dtype)
        direction = (raised(query) * raised(norm_weight)).to(d.dtype)
        d_weights = torch.stack([torch.linalg.vecdot(d, v.to(d.dtype)) for v in vectors])
        d_scores = weights * (d_weights - (weights * d_weights).sum(0))  # [N, ...]
        d_dots = d_scores * torch.stack(parts[1::2])
        d_direction = sum(d_dot.flatten() @ raised(v).flatten(0, -2) for d_dot, v in zip(d_dots, vectors, strict=True))
        d_parts = []
        for weight, v, d_score, d_dot in zip(weights, vectors, d_scores, d_dots, strict=True):
            d_v = (weight.unsqueeze(-1) * d).addcmul_(d_dot.unsqueeze(-1), direction)
            d_parts += [d_v.to(v.dtype), d_score * (raised(v) @ direction)]
        return (d_direction * norm_weight).to(query.dtype), (d_direction * query).to(norm_weight.dtype), *d_parts


class DepthMix(nn.Module):
    """One reader over depth: its query (0 at the start: a plain mean) and its norm weight."""

    def __init__(self, config):
        super().__init__()
        self.query = nn.Parameter(torch.zeros(config.hidden_size))
        self.weight = nn.Parameter(torch.ones(config.hidden_size))

    def forward(self, sources):
        """[N] sources of [B, T, D] -> [B, T, D]. A single source is returned as it is."""
        if len(sources) == 1:
            return sources[0].vector
        return _Read.run(self.query, self.weight, *(part for s in sources for part in (s.vector, s.inverse_rms)))


class Bank:
    """The vectors banked so far, oldest first. Never changed: `grown` makes a new one."""

    def __init__(self, sources=()):
        self.sources = sources

    def read(self, mix, here):
        """What `mix` makes of the bank and of `here`, the growing sum.                              -> [B, T, D]"""
        return mix([*self.sources, here])

    def grown(self, here):
        """A new bank with one more source."""
        return Bank((*self.sources, here))
