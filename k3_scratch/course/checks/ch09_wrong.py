"""Likely mistakes of chapter 09, one function each; `ch09.py` says to the reader what is wrong."""

import numpy as np

from k3_scratch.training.muon import COEFFICIENTS

# ---- 9.1 the loss on answers: logits [B, T, S], targets [B, T]

def _nats(logits, targets):
    """Cross-entropy at every place, also where nothing is learnt; -1 takes the last symbol.   -> [B, T]"""
    top = logits.max(axis=-1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None] % logits.shape[-1], axis=-1)[..., 0]


def _row_means(logits, targets):
    learnt = targets >= 0
    return (_nats(logits, targets) * learnt).sum(axis=1) / np.maximum(learnt.sum(axis=1), 1)


def loss_of_tokens(logits, targets):
    """The mean over all answers together."""
    return _nats(logits, targets)[targets >= 0].mean()


def loss_over_length(logits, targets):
    """A row's sum over T in place of its answers."""
    return np.where(targets >= 0, _nats(logits, targets), 0).mean()


def loss_everywhere(logits, targets):
    """Also where the target is -1."""
    return _nats(logits, targets).mean()


def loss_shifted(logits, targets):
    """The targets one place further."""
    return _row_means(logits[:, :-1], targets[:, 1:]).mean()


def loss_summed(logits, targets):
    """The sum over rows."""
    return _row_means(logits, targets).sum()


def loss_without_empty_rows(logits, targets):
    """Rows without an answer are left out."""
    return _row_means(logits, targets)[(targets >= 0).any(axis=1)].mean()


# ---- 9.2 one step of Newton and Schulz: x [m, n]

def ns_entries(x):
    """Powers of the entries."""
    a, b, c = COEFFICIENTS
    return a * x + b * x ** 3 + c * x ** 5


def ns_swapped(x):
    """b and c in each other's place."""
    a, b, c = COEFFICIENTS
    return a * x + (c * x @ x.T + b * x @ x.T @ x @ x.T) @ x


def ns_without_a(x):
    """No linear term."""
    _, b, c = COEFFICIENTS
    return (b * x @ x.T + c * x @ x.T @ x @ x.T) @ x


def ns_fourth_power(x):
    """The fifth power lacks a factor."""
    a, b, c = COEFFICIENTS
    return a * x + b * x @ x.T @ x + c * (x @ x.T @ x)


def ns_cubic(x):
    """The textbook's coefficients 1.5 and -.5."""
    return 1.5 * x - 0.5 * x @ x.T @ x


def ns_divided(x):
    """Divided by the norm in every step."""
    a, b, c = COEFFICIENTS
    x = x / np.linalg.norm(x)
    return a * x + (b * x @ x.T + c * x @ x.T @ x @ x.T) @ x


# ---- 9.3 each head on its own: direction [N, D]

def _orthogonal(x):
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    return u @ vt


def heads_whole(direction, heads):
    """The matrix as a whole."""
    return 0.2 * max(direction.shape) ** 0.5 * _orthogonal(direction)


def heads_columns(direction, heads):
    """Cut into groups of columns."""
    parts = np.array_split(direction, heads, axis=1)
    return np.concatenate([0.2 * max(part.shape) ** 0.5 * _orthogonal(part) for part in parts], axis=1)


def heads_interleaved(direction, heads):
    """Rows dealt out to the heads one by one."""
    N, D = direction.shape
    blocks = direction.reshape(N // heads, heads, D).transpose(1, 0, 2)
    return 0.2 * max(N // heads, D) ** 0.5 * _orthogonal(blocks).transpose(1, 0, 2).reshape(N, D)


def heads_divided(direction, heads):
    """Each head over its Frobenius norm."""
    blocks = direction.reshape(heads, -1, direction.shape[1])
    unit = blocks / np.linalg.norm(blocks, axis=(1, 2), keepdims=True)
    return 0.2 * max(blocks.shape[1:]) ** 0.5 * unit.reshape(direction.shape)


def heads_rows(direction, heads):
    """Each row to length 1."""
    rows = direction.shape[0] // heads
    return 0.2 * max(rows, direction.shape[1]) ** 0.5 * direction / np.linalg.norm(direction, axis=1, keepdims=True)


def heads_scale(direction, heads):
    """The scale of the whole matrix."""
    blocks = direction.reshape(heads, -1, direction.shape[1])
    return 0.2 * max(direction.shape) ** 0.5 * _orthogonal(blocks).reshape(direction.shape)


# ---- 9.4 the rate: step [n]

def _cosine(progress):
    return (1 + np.cos(np.pi * progress)) / 2


def _schedule(step, steps, peak, warmup, final, *, first=1, curve=None, from_start=False, rising=True):
    rise = max(1, round(steps * warmup))
    progress = step / steps if from_start else (step - rise) / max(1, steps - rise)
    falling = peak * (curve or (lambda p: final + (1 - final) * _cosine(p)))(progress)
    return np.where((step < rise) & rising, peak * (step + first) / rise, falling)


def rate_from_zero(*arguments):
    """The first update at rate 0."""
    return _schedule(*arguments, first=0)


def rate_early_cosine(*arguments):
    """The cosine begins at update 0."""
    return _schedule(*arguments, from_start=True)


def rate_to_zero(*arguments):
    """It ends at 0."""
    return _schedule(*arguments, curve=_cosine)


def rate_on_top(*arguments):
    """The rest is put on top of the cosine."""
    return _schedule(*arguments, curve=lambda p: arguments[-1] + _cosine(p))


def rate_line(*arguments):
    """A straight line down."""
    return _schedule(*arguments, curve=lambda p: 1 - (1 - arguments[-1]) * p)


def rate_at_once(*arguments):
    """No warm-up."""
    return _schedule(*arguments, rising=False, from_start=True)


# ---- 9.5 clipping: a [m, n], b [k]

def _norm(x):
    return np.sqrt(np.sum(x ** 2))


def clip_each(a, b, limit):
    """Each by its own norm."""
    return min(1.0, limit / _norm(a)) * a, min(1.0, limit / _norm(b)) * b


def clip_entries(a, b, limit):
    """Entry by entry."""
    return np.clip(a, -limit, limit), np.clip(b, -limit, limit)


def clip_always(a, b, limit):
    """Small gradients are made larger."""
    factor = limit / np.hypot(_norm(a), _norm(b))
    return factor * a, factor * b


def clip_sum_of_norms(a, b, limit):
    """The sum of both norms."""
    factor = min(1.0, limit / (_norm(a) + _norm(b)))
    return factor * a, factor * b


def clip_no_root(a, b, limit):
    """The norm squared."""
    factor = min(1.0, limit / (np.sum(a ** 2) + np.sum(b ** 2)))
    return factor * a, factor * b


def clip_no_limit(a, b, limit):
    """1 over the norm."""
    factor = min(1.0, 1.0 / np.hypot(_norm(a), _norm(b)))
    return factor * a, factor * b
