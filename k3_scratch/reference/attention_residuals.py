"""Attention over depth: each sublayer chooses, with a softmax, which earlier outputs it reads.

A plain residual stream hands every sublayer the sum of all earlier outputs, each with weight one, and the sum grows
with depth. Here each sublayer has a learned query w that weighs the earlier outputs for each token on its own. There is
no `h +` around a mix: older outputs reach a later layer through the softmax alone.
Source: AttnRes (arXiv 2603.15031), full and block form; K3 report, attention residuals.
"""

import numpy as np

from k3_scratch.reference.softmax import softmax
from k3_scratch.shapes import ShapeError, check_shapes


def depth_scores(sources, query, norm_weight, eps=1e-5):
    """score_i = sum_c w_c gamma_c v_ic / sqrt(mean v_i^2 + eps).          [N, ..., D], [D], [D] -> [N, ...]

    Sources are normed only here, for the comparison, so a source cannot win by being large. No 1/sqrt(D). N may be 0.
    """
    check_shapes("depth_scores", sources=(sources, "N ... D"), query=(query, "D"), norm_weight=(norm_weight, "D"))
    mean_square = np.mean(sources * sources, axis=-1)                            # [N, ..., D] -> [N, ...]
    return sources @ (query * norm_weight) / np.sqrt(mean_square + eps)          # [N, ..., D] @ [D] -> [N, ...]


def depth_mix(sources, query, norm_weight, eps=1e-5):
    """Softmax of the scores over the sources, then the weighted sum of the *raw* sources.

    [N, ..., D], [D], [D] -> mixed [..., D], weights [N, ...]

    sources      [N, ..., D]  earlier outputs, the oldest first (an array, or a list of N arrays)
    query        [D]          w, learned, one a mix; zero gives the plain mean
    norm_weight  [D]          gamma, one a mix
    weights are positive and sum to 1 over N, for each token on its own.  Raises ShapeError.
    """
    sources, query, norm_weight = (np.asarray(a, dtype=np.float64) for a in (sources, query, norm_weight))
    if sources.ndim < 2 or len(sources) == 0:
        raise ShapeError(f"depth_mix: sources must have shape [N, ..., D] with N at least 1, "
                         f"but {list(sources.shape)} came")
    check_shapes("depth_mix", sources=(sources, "... D"), query=(query, "D"), norm_weight=(norm_weight, "D"))
    weights = softmax(depth_scores(sources, query, norm_weight, eps), axis=0)    # [N, ...]
    return np.einsum("n...,n...d->...d", weights, sources), weights              # [..., D], [N, ...]


def full_attention_residuals(embedding, sublayers, queries, norm_weights, eps=1e-5):
    """Every sublayer output is a source of its own: M sublayers, M + 1 mixes, up to M + 1 sources.

    [..., D], M callables, [M+1, D], [M+1, D] -> output [..., D], weights, counts

    embedding              [..., D]    the first source
    sublayers              M callables [..., D] -> [..., D], each with its own norm inside
    queries, norm_weights  [M+1, D]    one a sublayer; the last ones belong to the output
    Returns the output mix, the list of M + 1 weights [N, ...] and the list of their numbers of sources N.
    Raises ShapeError.
    """
    h, queries, norm_weights = _check("full_attention_residuals", embedding, sublayers, queries, norm_weights)
    sources, weights = [h], []
    for sublayer, query, norm_weight in zip(sublayers, queries, norm_weights, strict=False):   # the last is left over
        mixed, p = depth_mix(sources, query, norm_weight, eps)                   # [..., D], [N, ...]
        weights.append(p)
        sources.append(_apply("full_attention_residuals", sublayer, mixed))      # one more source
    output, p = depth_mix(sources, queries[-1], norm_weights[-1], eps)
    return output, [*weights, p], [len(p) for p in [*weights, p]]


def block_attention_residuals(embedding, sublayers, queries, norm_weights, block_size, eps=1e-5):
    """Sources are the sums of whole blocks of layers: the bank of finished blocks, and h, the block that is growing.

    [..., D], M callables, [M+1, D], [M+1, D] -> output [..., D], weights, counts

    embedding              [..., D]    the first h; the first layer seals it as the first vector of the bank
    sublayers              M callables [..., D] -> [..., D], attention and FFN in turn, each with its own norm inside
    queries, norm_weights  [M+1, D]    one a sublayer, the last ones for the output; number 0 is never used
    block_size             decoder layers (two sublayers each) a block
    Returns as `full_attention_residuals`.  Raises ShapeError; ValueError for an odd M or a block_size below 1.
    """
    name = "block_attention_residuals"
    h, queries, norm_weights = _check(name, embedding, sublayers, queries, norm_weights)
    if len(sublayers) % 2 or block_size < 1:
        raise ValueError(f"{name}: sublayers must be pairs of attention and FFN and block_size at least 1, "
                         f"but {len(sublayers)} sublayers and block_size {block_size} came")
    bank, weights = [], []

    def mix(place):
        if not bank:                                                             # one source: weight 1, no query
            weights.append(np.ones((1, *h.shape[:-1])))
            return h.copy()                                                  # h is sealed next: keep it apart
        mixed, p = depth_mix([*bank, h], queries[place], norm_weights[place], eps)
        weights.append(p)
        return mixed                                                             # [..., D]

    for layer in range(len(sublayers) // 2):
        attention, ffn = sublayers[2 * layer:2 * layer + 2]
        mixed = mix(2 * layer)                                                   # may still read the block before
        new_block = layer % block_size == 0
        if new_block:
            bank.append(h)                                                       # the raw sum h, not the mix
        y = _apply(name, attention, mixed)
        h = y if new_block else h + y                                            # a new array: the bank never changes
        h = h + _apply(name, ffn, mix(2 * layer + 1))                            # the FFN sees its own layer's y in h
    output = mix(len(sublayers))
    return output, weights, [len(p) for p in weights]


def _check(function, embedding, sublayers, queries, norm_weights):
    """Float64 arrays with checked shapes; the embedding as a copy that no sublayer can reach."""
    h = np.array(embedding, dtype=np.float64)
    queries, norm_weights = (np.asarray(a, dtype=np.float64) for a in (queries, norm_weights))
    mixes = len(sublayers) + 1
    check_shapes(function, embedding=(h, "... D"), queries=(queries, f"{mixes} D"),
                 norm_weights=(norm_weights, f"{mixes} D"))
    return h, queries, norm_weights


def _apply(function, sublayer, x):
    """One sublayer, whose output must have the shape of its input (a silent broadcast would pass otherwise)."""
    shape = x.shape
    y = np.asarray(sublayer(x), dtype=np.float64)
    if y.shape != shape:
        raise ShapeError(f"{function}: a sublayer must return shape {list(shape)}, but {list(y.shape)} came")
    return y
