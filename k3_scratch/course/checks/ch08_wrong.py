"""Wrong functions of chapter 08: how a model is assembled in the wrong order, one slip at a time."""

import numpy as np

from k3_scratch.reference.attention_residuals import depth_mix
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.silu import silu
from k3_scratch.reference.softmax import softmax


def plan(i, first_k_dense, block_size, *, last=True, fourth=3, skip_first=False, turned=False, late=False,
         sublayers=False, dense_last=False, no_dense=False):
    """Which layers are MLA, dense, the first of a block.                                        -> three bool [L]"""
    mla = (i % 4 == fourth) & ~(skip_first & (i == 0))
    mla = mla | (i == len(i) - 1) if last else mla
    dense = i >= len(i) - first_k_dense if dense_last else i < first_k_dense
    starts = i % block_size == min(1, block_size - 1) if late else (2 * i if sublayers else i) % block_size == 0
    return ~mla if turned else mla, dense & (not no_dense), starts


def layer(bank, h, starts, attention, ffn, queries, gammas, norms, slip=None):
    """One decoder layer with one slip; arguments as `decoder_layer` of chapter 08.          -> bank [M, T, D], h"""
    if slip == "queries exchanged":
        queries = queries[::-1]

    def mix(bank, h, side):
        if slip == "no mixes" or not len(bank):
            return h
        mixed = depth_mix([*bank, h], queries[side], gammas[side])[0]
        return mixed + h if slip == "h added to the mix" else mixed

    def sublayer(part, x, side):
        if slip == "no norm":
            return part(x)
        return rms_norm(part(x), norms[side]) if slip == "norm behind the sublayer" else part(rms_norm(x, norms[side]))

    before, grown = [*bank], [*bank, h] if starts else [*bank]
    a = mix(grown if slip == "banked before the mix" else before, h, 0)
    y = sublayer(attention, a, 0)
    if slip == "mix banked" and starts:
        grown = [*before, a]
    after = h + y if slip == "sum goes on" or not starts else y
    m = mix(before, h, 1) if slip == "FFN blind" else mix(grown, after, 1)
    out = sublayer(ffn, m, 1)
    return np.array(grown), out if slip == "FFN replaces h" else after + out


def end(bank, h, query, gamma, norm, embedding, head, slip=None):
    """From the last running sum to logits with one slip; arguments as `last_steps`.                   -> [T, vocab]"""
    sources = [*bank, h]
    if slip == "norm before the mix":
        return depth_mix([rms_norm(v, norm) for v in sources], query, gamma)[0] @ head.T
    x = h if slip == "no mix at the end" else sum(sources) if slip == "sum" else depth_mix(sources, query, gamma)[0]
    x = x if slip == "no norm at the end" else rms_norm(x, gamma if slip == "gamma as norm" else norm)
    logits = x @ (embedding if slip == "embedding as head" else head).T
    return softmax(logits) if slip == "softmax" else logits


def tail(rows, x, taps, *, reverse=False, blind=False, keep="inputs"):
    """One token through the short convolution, wrongly.                                         -> y [P], new tail"""
    seen = np.concatenate([rows, x[None]])                               # oldest to newest  [W, P]
    weights = taps[:, ::-1] if reverse else taps
    y = np.sum((seen[:-1] * weights[:, :-1].T) if blind else seen * weights.T, axis=0)
    last = {"output": y, "activated": silu(x)}.get(keep, x)
    new = {"old": rows, "all": seen, "oldest": np.concatenate([rows[:-1], x[None]])}.get(
        keep, np.concatenate([rows[1:], last[None]]))
    return y, new.copy()
