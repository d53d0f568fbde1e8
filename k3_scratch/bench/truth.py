"""The truth about KDA, a token loop in float64, and how far others are from it."""

import math

import torch

from k3_scratch.bench.inputs import differentiate
from k3_scratch.layers.kda import kda_recurrent

OUTPUT_BOUND, GRADIENT_BOUND = 1e-4, 2e-3       # beyond these something else was computed


class Disagreement(ValueError):
    """A contender computes something else; the message says who, on what, and how far off it is."""


@torch.no_grad()
def true_output(inputs):
    """float32 inputs -> o [B, T, H, V] in float64."""
    return kda_recurrent(*(x.double() for x in inputs))[0]


def true_gradients(inputs, direction):
    """-> o [B, T, H, V] and the gradients of <o, direction>, in float64. Memory grows with B T H K V."""
    return differentiate(lambda *x: kda_recurrent(*x)[0], [x.double() for x in inputs], direction.double())


def relative_error(got, want):
    """Largest error over the largest number of the truth; infinite when anything is not finite.       -> float"""
    if got.shape != want.shape:
        return math.inf
    error = (got.double() - want.double()).abs().max().item()
    size = want.abs().max().item()
    error = error / size if size > 0 else error
    return error if math.isfinite(error) else math.inf


def check_output(who, what, got, want):
    """The error of an output; Disagreement when it is beyond OUTPUT_BOUND.                            -> float"""
    return _checked(who, what, relative_error(got, want), OUTPUT_BOUND)


def check_gradients(who, what, got, want):
    """The largest error among several gradients; Disagreement beyond GRADIENT_BOUND.                  -> float"""
    error = max(relative_error(g, w) for g, w in zip(got, want, strict=True))
    return _checked(who, what, error, GRADIENT_BOUND)


def _checked(who, what, error, bound):
    if not error <= bound:
        raise Disagreement(f"{who} computes something else on {what}: its error against the float64 token loop is "
                           f"{error:.1e}, more than {bound:.0e}")
    return error
