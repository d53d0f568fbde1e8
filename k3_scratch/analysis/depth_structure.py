"""How far a map over depth is from equal shares, and the map itself with one column for each vector written."""

import numpy as np


def from_equal(weights):
    """Mean over the readers of the total-variation distance between their mean weights and equal shares.   -> float

    weights   {name: [N, ...]}, softmax weights of N sources, as `mix_weights` gives them
    Half the sum of |mean p - 1/N|: the share of the weight that would have to move. 0 with queries of zero; at most
    1 - 1/N. Readers of a single source have no choice and do not count; with none left the distance is 0.
    """
    means = [_mean(p) for p in weights.values() if len(p) > 1]
    return float(np.mean([np.abs(p - 1 / len(p)).sum() / 2 for p in means])) if means else 0.0


def vector_shares(weights, boundaries=None):
    """What each reader takes of every single vector, 1 = an equal share.           {name: [N, ...]} -> M + 1 rows

    boundaries   numbers of the sublayers that begin a block; None: all of them, the full form
    Row i has i + 1 numbers whose mean is 1: the embedding, then the outputs of the sublayers before reader i; row M is
    the model's output. Each member of a block has its block's weight.
    """
    rows, groups, running = [], [], [0]
    for i, p in enumerate(weights.values()):
        row = np.zeros(i + 1)
        for share, members in zip(_mean(p), [*groups, running], strict=True):
            row[members] = share
        rows.append(row / row.mean())
        begins = boundaries is None or i in boundaries
        groups, running = ([*groups, running], [i + 1]) if begins else (groups, [*running, i + 1])
    return rows


def _mean(p):
    """[N, ...] -> float64 [N], the mean over all tokens."""
    p = np.asarray(p.cpu() if hasattr(p, "cpu") else p, dtype=np.float64)
    return p.reshape(len(p), -1).mean(1)
