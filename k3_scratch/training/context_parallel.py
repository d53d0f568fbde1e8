"""Context parallelism: one sequence cut into segments, each computed on its own, exact.

Norms, feed-forward parts and mixes over depth look at one token at a time. Only attention looks back, and each kind
needs little of the segments before:

    short convolution   the last taps - 1 inputs                                          [B, taps - 1, D]
    KDA                 each segment is an affine map of the state, S_out = M S_in + N; composed in order, the maps of
                        the earlier segments give S_in                                    [B, H, K, K + V] a segment
    MLA                 the latents of all earlier tokens                                 [B, T, R + r] a segment

`before(mine)` hands in what this segment offers and returns what each earlier one offered, in order. `InOrder` does it
in one process, one segment after the other; `OverRanks` among processes, one segment each, all at once. What comes from
another process carries no gradient.  K3 report, KDA context parallelism.
"""

from contextlib import contextmanager
from functools import reduce

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from k3_scratch.layers.kda import kda_chunk
from k3_scratch.layers.kda_attention import KimiDeltaAttention
from k3_scratch.layers.precision import raised


def segment_map(q, k, v, g, beta):
    """What a segment of KDA is, whatever state comes in: o = o_zero + reads S_in,  S_out = M S_in + N.

    q, k, g [B, T, H, K]; v [B, T, H, V]; beta [B, T, H]
    returns o_zero [B, T, H, V], reads [B, T, H, K], M [B, H, K, K], N [B, H, K, V]

    One pass: the delta rule treats every value channel alike, so K channels more, with value 0 and the identity as
    their state, show what becomes of any state.
    """
    B, T, H, K = k.shape
    V = v.shape[-1]
    start = torch.cat([v.new_zeros(K, V), torch.eye(K, dtype=v.dtype, device=v.device)], 1).expand(B, H, K, V + K)
    o, state = kda_chunk(q, k, torch.cat([v, v.new_zeros(B, T, H, K)], -1), g, beta, start)
    return o[..., :V], o[..., V:], state[..., V:], state[..., :V]


def compose(first, then):
    """The map of two segments in a row, from their maps (M, N).            M [B, H, K, K], N [B, H, K, V]"""
    (M1, N1), (M2, N2) = first, then
    return M2 @ M1, M2 @ N1 + N2


class InOrder:
    """One process: segments run one after the other and find here what the earlier ones offered, call by call."""

    def __init__(self):
        self.offered = []                                                # segment -> call -> tensor

    def next_segment(self):
        """What is offered from now on belongs to the next segment."""
        self.offered.append([])

    def before(self, mine):
        """What the earlier segments offered in this call of theirs, in order; `mine` is kept for the later ones."""
        call = len(self.offered[-1])
        self.offered[-1].append(mine)
        return [segment[call] for segment in self.offered[:-1]]


class OverRanks:
    """One segment a process of a `torch.distributed` group (None: all of them)."""

    def __init__(self, group=None):
        self.group = group

    def before(self, mine):
        """Segments may differ in their tokens, axis 1: shorter ones travel with padding."""
        world, rank = dist.get_world_size(self.group), dist.get_rank(self.group)
        lengths = [torch.zeros(1, dtype=torch.int64, device=mine.device) for _ in range(world)]
        dist.all_gather(lengths, torch.tensor([mine.shape[1]], device=mine.device), self.group)
        most = int(max(lengths))
        padded = F.pad(mine.detach().transpose(1, -1), (0, most - mine.shape[1])).contiguous()
        gathered = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(gathered, padded, self.group)
        return [x.transpose(1, -1)[:, :length] for x, length in zip(gathered[:rank], lengths, strict=False)]


class SegmentKDA(KimiDeltaAttention):
    """A KDA layer on one segment: the same parameters, with what it needs from the segments before."""

    def __init__(self, whole, before):
        nn.Module.__init__(self)
        self.__dict__.update(whole.__dict__)                             # shares the parameters, copies nothing
        self.before, self.extra = before, whole.config.conv_size - 1

    def forward(self, x, cache=None, *, mask=None, documents=None):
        """The segment with the `extra` inputs before it in front, for the convolution alone; before the text: zeros."""
        seen = torch.cat([x.new_zeros(x.shape[0], self.extra, x.shape[2]), *self.before(_last(x, self.extra)), x], 1)
        seen = _last(seen, self.extra + x.shape[1])
        return super().forward(seen)[:, self.extra:]

    def recur(self, q, k, v, g, beta, state=None, documents=None):
        """The segment from an empty memory, and what it reads of the state that the earlier ones composed."""
        q, k, v, g, beta = (raised(part[:, self.extra:]) for part in (q, k, v, g, beta))
        o, reads, M, N = segment_map(q, k, v, g, beta)
        earlier = [both.split([M.shape[-1], N.shape[-1]], -1) for both in self.before(torch.cat([M, N], -1))]
        if earlier:
            _, state = reduce(compose, earlier)                          # they start from an empty memory
            o = o + torch.einsum("bthk,bhkv->bthv", reads, state)
        return F.pad(o, (0, 0, 0, 0, self.extra, 0)), state


class SegmentMLA(nn.Module):
    """An MLA layer on one segment: its queries look at the latents of all segments up to its own."""

    def __init__(self, whole, before):
        super().__init__()
        self.whole, self.before, self.length = whole, before, 0          # length 0: use the form for whole prompts

    def forward(self, x, cache=None, *, mask=None, documents=None):
        return self.whole(x, self)                                       # this object stands in the cache's place

    def append(self, rows, mask):
        """The rows of all segments up to this one, as a cache would return them; none is a pad."""
        rows, rank = torch.cat([*self.before(rows), rows], 1), self.whole.config.kv_lora_rank
        return rows[..., :rank], rows[..., rank:], rows.new_ones(rows.shape[:2], dtype=torch.bool)


@contextmanager
def in_segments(model, before):
    """Inside, `model(tokens)` takes the tokens of one segment, and `before` connects it to the earlier ones."""
    whole = [layer.self_attn for layer in model.layers]
    try:
        for layer, attention in zip(model.layers, whole, strict=True):
            layer.self_attn = (SegmentKDA if isinstance(attention, KimiDeltaAttention) else SegmentMLA)(
                attention, before)
        yield
    finally:
        for layer, attention in zip(model.layers, whole, strict=True):
            layer.self_attn = attention


def forward_in_segments(model, tokens, lengths):
    """Logits [B, T, vocab] of tokens [B, T], computed in segments of the given lengths, which sum to T."""
    if sum(lengths) != tokens.shape[1] or min(lengths, default=0) < 1:
        raise ValueError(f"forward_in_segments: lengths must be at least 1 each and sum to T = {tokens.shape[1]}, "
                         f"but {list(lengths)} came")
    segments, logits = InOrder(), []
    with in_segments(model, segments.before):
        for part in tokens.split(list(lengths), 1):
            segments.next_segment()
            logits.append(model(part))
    return torch.cat(logits, 1)


def forward_on_ranks(model, tokens, lengths, group=None):
    """This process' part of the logits, [B, lengths[rank], vocab]; every process of the group calls it alike."""
    rank = dist.get_rank(group)
    start = sum(lengths[:rank])
    with torch.no_grad(), in_segments(model, OverRanks(group).before):
        return model(tokens[:, start:start + lengths[rank]])


def _last(x, n):
    """The last n of axis 1, or all there are."""
    return x[:, max(x.shape[1] - n, 0):]
