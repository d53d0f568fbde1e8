"""The short convolution: one definition by loops, and any cut of the text gives the same numbers."""

import numpy as np
import pytest

from k3_scratch.reference.short_convolution import short_convolution
from k3_scratch.shapes import ShapeError


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.mark.parametrize("taps", [1, 2, 4])
def test_equals_the_sum_by_loops(rng, taps):
    x, weight, tail = rng.normal(size=(2, 7, 3)), rng.normal(size=(3, taps)), rng.normal(size=(2, taps - 1, 3))
    y, new_tail = short_convolution(x, weight, tail)
    assert new_tail.shape == (2, taps - 1, 3)
    for t in range(7):
        want = np.zeros((2, 3))
        for back in range(taps):                                 # the last tap is the current token
            value = x[:, t - back] if t >= back else tail[:, taps - 1 + t - back]
            want += weight[:, taps - 1 - back] * value
        np.testing.assert_allclose(y[:, t], want, atol=1e-14)


@pytest.mark.parametrize("T", [0, 1, 2, 3, 4, 5])
def test_tail_always_has_three_rows(rng, T):
    x, weight = rng.normal(size=(T, 2)), rng.normal(size=(2, 4))
    y, tail = short_convolution(x, weight)
    assert y.shape == (T, 2)
    np.testing.assert_array_equal(tail, np.concatenate([np.zeros((3, 2)), x])[-3:])      # raw values, zeros first


@pytest.mark.parametrize("cut", range(8))
def test_cut_anywhere(rng, cut):
    x, weight, tail = rng.normal(size=(2, 7, 3)), rng.normal(size=(3, 4)), rng.normal(size=(2, 3, 3))
    whole, end = short_convolution(x, weight, tail)
    first, middle = short_convolution(x[:, :cut], weight, tail)
    second, last = short_convolution(x[:, cut:], weight, middle)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), whole, atol=1e-14)
    np.testing.assert_array_equal(last, end)


def test_token_by_token(rng):
    x, weight, tail, outputs = rng.normal(size=(7, 3)), rng.normal(size=(3, 4)), None, []
    for t in range(7):
        y, tail = short_convolution(x[t:t + 1], weight, tail)
        outputs.append(y)
    np.testing.assert_allclose(np.concatenate(outputs), short_convolution(x, weight)[0], atol=1e-14)


def test_inputs_stay_and_outputs_are_their_own(rng):
    x, weight, tail = rng.normal(size=(5, 3)), rng.normal(size=(3, 4)), rng.normal(size=(3, 3))
    before = [a.copy() for a in (x, weight, tail)]
    y, new_tail = short_convolution(x, weight, tail)
    y += 1
    new_tail += 1
    short_convolution(x[:0], weight, tail)[1][:] = 9
    for a, b in zip((x, weight, tail), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_errors():
    x, weight = np.zeros((2, 5, 3)), np.zeros((3, 4))
    with pytest.raises(ShapeError, match=r"short_convolution: weight must have shape \[P, taps\] with P = 3"):
        short_convolution(x, weight.T)
    with pytest.raises(ShapeError, match=r"short_convolution: tail .* but \[2, 2, 3\] came"):
        short_convolution(x, weight, np.zeros((2, 2, 3)))
