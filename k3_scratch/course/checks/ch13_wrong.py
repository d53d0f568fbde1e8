"""What the probes of chapter 13 are tried on: healthy and faulty things; and probes that let one through.

Layers are functions x [T, D] -> [T, D]; memories are a pair of forms of one recurrence.
"""

import numpy as np

from k3_scratch.reference.delta_rule import delta_step

# ---- 13.2 layers that see the future, and layers that do not


def running_sum(x):
    """Healthy: the sum of all inputs so far."""
    return np.cumsum(x, axis=0)


def fading(x):
    """Healthy: a running sum of which a share fades away at every token."""
    rows = [np.zeros(x.shape[1])]
    for row in x:
        rows.append(0.6 * rows[-1] + row)
    return np.array(rows[1:])


def mean_of_all(x):
    """Each output is the mean of all inputs."""
    return np.broadcast_to(x.mean(axis=0), x.shape).copy()


def largest_of_all(x):
    """Divided by the largest input of the whole text."""
    return x / np.abs(x).max()


def ahead(steps):
    """Adds the input so many places ahead."""
    def layer(x):
        y = x.copy()
        y[:-steps] += x[steps:]
        return y
    return layer


def one_way(source, target):
    """A running sum into whose place `target` leaks the input at place `source`."""
    def layer(x):
        y = np.cumsum(x, axis=0)
        y[target(len(x))] += x[source(len(x))]
        return y
    return layer


def causal_but(*, change=(-1,), compare="before", first_only=False):
    """A probe that changes the inputs at the places `change` alone, and compares "before", "all" or "after"."""
    def probe(layer, x):
        for place in change:
            other = x.copy()
            other[place] = 1 - 3 * x[place]
            at = place % len(x)
            rows = {"before": slice(0, 1 if first_only else at), "all": slice(None), "after": slice(at + 1, None)}
            if not np.allclose(layer(x)[rows[compare]], layer(other)[rows[compare]]):
                return False
        return True
    return probe


# ---- 13.3 a step and a whole form, step(S, k_t, v_t, beta_t) -> o_t, S and whole(k, v, beta) -> o, S

def step(S, k, v, beta):
    """One delta-rule write, then read with the key.   [K, V], [K], [V], number -> [V], [K, V]"""
    S = delta_step(S, k, v, beta)
    return k @ S, S


def loop(k, v, beta, *, read_first=False, erase_until=None):
    """The whole form: healthy, or reading first, or adding without erasing from a token on."""
    S, o = np.zeros((k.shape[1], v.shape[1])), np.zeros(v.shape)
    for t in range(len(k)):
        before = S
        plain = erase_until is not None and t >= erase_until
        S = S + beta[t] * np.outer(k[t], v[t]) if plain else delta_step(S, k[t], v[t], beta[t])
        o[t] = k[t] @ (before if read_first else S)
    return o, S


def twisted(change):
    """The whole form with a change of its results, change(o, S) -> o, S."""
    return lambda k, v, beta: change(*loop(k, v, beta))


def first_row_off(o, S):
    """The first output, one too large."""
    o[0] += 1
    return o, S


def same_but(*, outputs=slice(None), state=True, tolerance=1e-9, of=lambda x: x):
    """A probe that compares these outputs only, or no state, or loosely, or only a number made `of` them."""
    def probe(step, whole, k, v, beta):
        S, o = np.zeros((k.shape[1], v.shape[1])), np.zeros(v.shape)
        for t in range(len(k)):
            o[t], S = step(S, k[t], v[t], beta[t])
        other, last = whole(k, v, beta)
        near = np.allclose(of(o[outputs]), of(other[outputs]), rtol=tolerance, atol=tolerance)
        return bool(near and (not state or np.allclose(of(S), of(last), rtol=tolerance, atol=tolerance)))
    return probe


# ---- 13.4 losses in which some numbers do not matter

def dead_but(*, at=None, both=True, threshold=0.0, inverted=False, alone=True, step=0.5):
    """A probe that moves numbers from a fixed point, to one side, above a threshold, or all at once."""
    def probe(loss, p):
        dead, rng = np.ones(len(p), dtype=bool), np.random.default_rng(0)
        for base in ([at(p)] if at else [rng.normal(size=len(p)) for _ in range(4)]):
            for i in range(len(p)):
                move = np.eye(len(p))[i] * step if alone else np.full(len(p), step)
                change = loss(base + move) - (loss(base - move) if both == "central" else loss(base))
                dead[i] &= abs(change) <= threshold
        return ~dead if inverted else dead
    return probe


# ---- 13.5 functions and gradients

def gradient_but(*, entries=slice(None), step=1e-5, central=True, of=lambda g: g, relative=1e-5, absolute=1e-7):
    """A probe that looks at some entries, takes another step, or compares only something made `of` the gradient."""
    def probe(f, gradient, x):
        found = np.zeros(len(x))
        for i, unit in enumerate(np.eye(len(x))):
            low = f(x - step * unit) if central else f(x)
            found[i] = (f(x + step * unit) - low) / (2 * step if central else step)
        return bool(np.allclose(of(gradient(x)[entries]), of(found[entries]), rtol=relative, atol=absolute))
    return probe


def direction(g):
    """A vector of length one."""
    return g / np.linalg.norm(g)
