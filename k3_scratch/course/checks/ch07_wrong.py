"""Wrong answers to the exercises of chapter 07: right functions with switches, each switch a mistake.

Without a switch `rotary_but`, `turned_step_but`, `window_but`, `recency_but` and `moved` are right.
"""

import numpy as np

from k3_scratch.reference.softmax import softmax


def moved(layer, x, order, *, rows=slice(-1, None), by="before"):
    """The permutation test over `rows` of the outputs, relative to the size `by`.                      -> a number"""
    before, after = layer(x)[rows], layer(np.concatenate([x[order], x[-1:]]))[rows]
    return np.linalg.norm(after - before) / {"before": np.linalg.norm(before), "after": np.linalg.norm(after),
                                             "nothing": 1.0}[by]


def without_last(layer, x, order):
    """The last token is not put back behind the shuffled ones."""
    before = layer(x)[-1]
    return np.linalg.norm(layer(x[order])[-1] - before) / np.linalg.norm(before)


def outputs_shuffled(layer, x, order):
    """The layer runs once; its outputs change places."""
    y = layer(x)
    return np.linalg.norm(y[order][-1] - y[-1]) / np.linalg.norm(y[-1])


def recency_but(g, *, first=1, last=0, future=False):
    """exp of the sum of g over s + first ... t - last."""
    total = np.concatenate([[0.0], np.cumsum(g)])                        # total[t]: the sum before token t
    T = len(g)
    rows = total[np.arange(T) + 1 - last][:, None] - total[np.arange(T) + first][None, :]
    weights = np.exp(rows)
    return weights if future else np.tril(weights)


def constant_decay(g):
    """The decay of the reading token, for every step back.                                        [T] -> [T, T]"""
    age = np.subtract.outer(np.arange(len(g)), np.arange(len(g)))
    return np.tril(np.exp(g[:, None] * age))


def rotary_but(x, positions, theta, *, sign=1, start=0, power=2, one_angle=False, lose=False):
    """Rotary positions with a switch for each mistake.                                    [T, K], [T] -> [T, K]"""
    half = x.shape[1] // 2
    speed = np.ones(half) if one_angle else theta ** (-power * np.arange(half) / x.shape[1])
    angle = sign * (positions[:, None] + start) * speed
    a, b, c, s = x[:, :half], x[:, half:], np.cos(angle), np.sin(angle)
    return np.concatenate([a * c - b * s, b * c if lose else a * s + b * c], axis=1)


def interleaved(x, positions, theta):
    """Neighbours are paired in place of the two halves."""
    turned = rotary_but(np.concatenate([x[:, 0::2], x[:, 1::2]], axis=1), positions, theta)
    y = np.empty_like(turned)
    y[:, 0::2], y[:, 1::2] = np.split(turned, 2, axis=1)
    return y


def turned_step_but(turn, q, k, v, old_keys, old_values, *, q_at=0, k_at=0, again=False, values=False,
                    own=True, scale=True, turn_q=True, turn_k=True):
    """One new token against a cache of turned keys.                                          -> o [V], keys [S+1, K]"""
    S = len(old_keys)
    new_q = turn(q[None], np.array([S + q_at]))[0] if turn_q else q
    new_k = turn(k[None], np.array([S + k_at])) if turn_k else k[None]
    keys = np.concatenate([turn(old_keys, np.arange(S)) if again else old_keys, new_k])
    all_values = np.concatenate([old_values, v[None]])
    all_values = turn(all_values, np.arange(S + 1)) if values else all_values
    scores = keys @ new_q * (len(q) ** -0.5 if scale else 1.0)
    return (softmax(scores) @ all_values if own else softmax(scores[:S]) @ old_values), keys


def window_but(places, S, window, *, least=0, width=0):
    """Visible where least <= age < window + width.                                            [T] -> bool [T, S]"""
    age = places[:, None] - np.arange(S)[None, :]
    return (age >= least) & (age < window + width)
