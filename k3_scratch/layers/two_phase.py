"""Attention over depth in two phases, for decoding: the bank once for all mixes of a block, the growing sum one by one.

A softmax over (bank, h) is a sigmoid between the bank's own softmax and h, so phase one can finish with the bank before
the block's first sublayer runs. Exact, not an approximation.  AttnRes, arXiv 2603.15031.
"""

import torch

from k3_scratch.layers.attention_residuals import Source
from k3_scratch.layers.precision import raised
from k3_scratch.shapes import ShapeError, check_shapes


def bank_phase(bank, queries, norm_weights, eps=1e-5):
    """[N, ..., D], [Q, D], [Q, D] -> log_total [Q, ...], mean [Q, ..., D], in at least float32

    bank                   [N, ..., D]  banked vectors, the oldest first; N may be 0
    queries, norm_weights  [Q, D]       of the Q mixes that share this bank
    For each query: log(sum of e^score), and the mean of the raw vectors weighted with e^score. Raises ShapeError.
    """
    if getattr(bank, "ndim", 2) < 2:
        raise ShapeError(f"bank_phase: bank must have shape [N, ..., D], but {list(bank.shape)} came")
    check_shapes("bank_phase", bank=(bank, "... D"), queries=(queries, "Q D"), norm_weights=(norm_weights, "Q D"))
    bank = raised(bank)
    inverse_rms = torch.rsqrt(bank.square().mean(-1) + eps)              # [N, ...], once for all queries
    return _first(bank, inverse_rms, (raised(queries) * raised(norm_weights)).to(bank.dtype))


def merge_phase(log_total, mean, h, query, norm_weight, eps=1e-5):
    """mean + sigmoid(score of h - log_total) (h - mean).   [...], [..., D], [..., D], [D], [D] -> mixed [..., D]

    log_total, mean   this query's rows of `bank_phase`
    h [..., D] running sum of the block; query, norm_weight [D].  Equal to `depth_mix([*bank, h], ...)`.
    Raises ShapeError.
    """
    check_shapes("merge_phase", h=(h, "... D"), log_total=(log_total, "..."), mean=(mean, "... D"),
                 query=(query, "D"), norm_weight=(norm_weight, "D"))
    direction = (raised(query) * raised(norm_weight)).to(mean.dtype)
    return _second(log_total, mean, Source(h, eps), direction)


def _first(bank, inverse_rms, directions):
    """bank [N, ..., D], inverse_rms [N, ...], directions [Q, D] -> log_total [Q, ...], mean [Q, ..., D]"""
    scores = (bank @ directions.mT).mul_(inverse_rms.unsqueeze(-1))      # [N, ..., Q]
    mean = scores.softmax(0).movedim(0, -1) @ bank.movedim(0, -2)        # [..., Q, N] @ [..., N, D] -> [..., Q, D]
    return scores.logsumexp(0).movedim(-1, 0), mean.movedim(-2, 0)


def _second(log_total, mean, here, direction):
    """[...], [..., D], a Source of [..., D], [D] -> mixed [..., D]"""
    h = raised(here.vector)
    share = torch.sigmoid((h @ direction) * here.inverse_rms - log_total)
    return torch.lerp(mean, h, share.unsqueeze(-1)).to(here.vector.dtype)


class TwoPhaseBank:
    """A `Bank` for decoding: when it is first read, phase one runs for all mixes that will read it.

    readers   [[DepthMix, ...], ...]: the readers of this bank, of the next one, ...
    """

    def __init__(self, readers, sources=()):
        self.readers, self.sources, self.first_phase = readers, sources, None

    def read(self, mix, here):
        """The mixture over the bank and `here`, the growing sum.                                   -> [B, T, D]"""
        if not self.sources:
            return here.vector
        if self.first_phase is None:
            self.first_phase = self.first()
        return _second(*self.first_phase[mix][:2], here, self.first_phase[mix][2])

    def first(self):
        """{mix: (log_total, mean, direction)} for all readers of this bank"""
        mixes = self.readers[0]
        bank = raised(torch.stack([source.vector for source in self.sources]))
        directions = torch.stack([mix.query for mix in mixes]) * torch.stack([mix.weight for mix in mixes])
        directions = raised(directions).to(bank.dtype)
        inverse_rms = torch.stack([source.inverse_rms for source in self.sources])
        return dict(zip(mixes, zip(*_first(bank, inverse_rms, directions), directions, strict=True), strict=True))

    def grown(self, here):
        """A new bank with one more source; this one stays as it is."""
        return TwoPhaseBank(self.readers[1:], (*self.sources, here))
