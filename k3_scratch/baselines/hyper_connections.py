"""Manifold-constrained hyper-connections (mHC): n residual streams, mixed by doubly stochastic matrices.

Used by: DeepSeek-V4, with n = 4.
Differs from K3's attention residuals by: H <- C^T H + post y, x = pre . H; streams are mixed, nothing older is read.
"""

import torch
import torch.nn.functional as F
from torch import nn

from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def doubly_stochastic(logits, iterations=20, eps=1e-6):
    """Rows and columns that sum to 1: softmax, then turns of normalising columns and rows.     [..., n, n] -> same

    Sinkhorn's algorithm. The last turn is one of columns: those sum to 1 but for eps, rows as nearly as the iterations
    reach. Such a matrix never makes the streams larger, however many follow each other.  ShapeError if not square.
    """
    check_shapes("doubly_stochastic", logits=(logits, "... n n"))
    if iterations < 1:
        raise ValueError(f"doubly_stochastic: iterations must be at least 1, but {iterations} came")
    matrix = logits.softmax(-1) + eps
    matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    return matrix


def all_streams(streams, fn, norm_eps):
    """What the weights are made from: fn applied to all n streams as one normed vector.  [..., n, D], [N, n D] -> N"""
    wide = raised(streams).flatten(-2)
    return F.linear(F.rms_norm(wide, wide.shape[-1:], eps=norm_eps), fn.to(wide.dtype))


def collapse(weights, streams):
    """sum_j w_j H_j.                                                             [..., n], [..., n, D] -> [..., D]"""
    return (weights.unsqueeze(-1) * streams).sum(-2).to(streams.dtype)


class HyperConnection(nn.Module):
    """The three weights of one sublayer, for each token on its own: streams H [B, T, n, D] -> pre, post, C.

    pre [B, T, n] in (0, 1): what the sublayer reads; post [B, T, n] in (0, 2): where its output goes; C [B, T, n, n].
    """

    def __init__(self, config, streams, iterations, eps):
        super().__init__()
        self.n, self.iterations, self.eps, self.norm_eps = streams, iterations, eps, config.rms_norm_eps
        size = streams * (2 + streams)
        self.fn = nn.Parameter(torch.empty(size, streams * config.hidden_size))
        self.base = nn.Parameter(torch.zeros(size))
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, streams):
        sizes = [self.n, self.n, self.n * self.n]
        pre, post, mixing = (scale * moving + fixed for scale, moving, fixed in zip(
            self.scale, all_streams(streams, self.fn, self.norm_eps).split(sizes, -1), self.base.split(sizes),
            strict=True))
        mixing = doubly_stochastic(mixing.unflatten(-1, (self.n, self.n)), self.iterations, self.eps)
        return torch.sigmoid(pre) + self.eps, 2 * torch.sigmoid(post), mixing

    def mixing_flops(self, context, decode=False):
        """FLOPs of one token beyond `fn`, for accounting/built.py: n^2 D multiply-adds mix, n D read and n D write."""
        return 2 * (self.n + 2) * self.fn.shape[1]


class HyperHead(nn.Module):
    """The streams become one vector again, before the final norm.                      [B, T, n, D] -> [B, T, D]"""

    def __init__(self, config, streams, eps):
        super().__init__()
        self.eps, self.norm_eps = eps, config.rms_norm_eps
        self.fn = nn.Parameter(torch.empty(streams, streams * config.hidden_size))
        self.base = nn.Parameter(torch.zeros(streams))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, streams):
        weights = torch.sigmoid(self.scale * all_streams(streams, self.fn, self.norm_eps) + self.base) + self.eps
        return collapse(weights, streams)

    def mixing_flops(self, context, decode=False):
        """FLOPs of one token beyond `fn`: n D multiply-adds."""
        return 2 * self.fn.shape[1]


class HyperConnections:
    """The state is (streams [B, T, n, D], the weights with which the next sublayer reads and is written, or None).

    streams      n, their number
    iterations   turns of Sinkhorn's algorithm
    eps          keeps a weight from being 0
    """

    def __init__(self, config, num_sublayers, streams=4, iterations=20, eps=1e-6):
        if streams < 1:
            raise ValueError(f"HyperConnections: streams must be at least 1, but {streams} came")
        self.n = streams
        self.connections = [HyperConnection(config, streams, iterations, eps) for _ in range(num_sublayers)]
        self.head = HyperHead(config, streams, eps)

    def modules_for(self, i):
        return {("mlp_hc" if i % 2 else "self_attention_hc"): self.connections[i]}

    def final_modules(self):
        return {"output_hc": self.head}

    def start(self, h):
        return self._before(0, h.unsqueeze(-2).expand(*h.shape[:-1], self.n, h.shape[-1]))    # n equal streams

    def read(self, state, i):
        streams, (pre, _, _) = state
        return collapse(pre, streams)

    def write(self, state, i, y):
        streams, (_, post, mixing) = state
        mixed = mixing.mT.to(streams.dtype) @ streams                    # stream k takes column k of C
        return self._before(i + 1, mixed + post.unsqueeze(-1).to(y.dtype) * y.unsqueeze(-2))

    def end(self, state):
        return self.head(state[0])

    def _before(self, i, streams):
        """The state before sublayer i; after the last there is nothing more to weigh."""
        return streams, self.connections[i](streams) if i < len(self.connections) else None
