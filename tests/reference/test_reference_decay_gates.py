"""The two decay gates."""

import numpy as np
import pytest

from k3_scratch.reference.decay_gates import bounded_decay, softplus_decay
from k3_scratch.shapes import ShapeError


def one(gate, z, A_log, **more):
    return float(gate(np.full((1, 1, 1), z), np.array([A_log]), **more)[0, 0, 0])


def test_values_of_both_gates():
    A_log = np.log(2)
    assert one(bounded_decay, 0.0, A_log) == pytest.approx(-2.5)
    assert one(bounded_decay, 1.0, A_log) == pytest.approx(-4.403985, rel=1e-6)
    assert one(bounded_decay, 1.0, A_log, lower_bound=-3.0) == pytest.approx(-4.403985 * 3 / 5, rel=1e-6)
    assert one(softplus_decay, 0.0, A_log) == pytest.approx(-1.386294, rel=1e-6)
    assert one(softplus_decay, 1.0, A_log) == pytest.approx(-2.626523, rel=1e-6)


def test_one_rate_a_head():
    z = np.random.default_rng(0).normal(size=(2, 7, 3, 5))
    A_log = np.array([-1.0, 0.0, 2.0])
    for h in range(3):
        np.testing.assert_allclose(bounded_decay(z, A_log)[:, :, h], -5 / (1 + np.exp(-np.exp(A_log[h]) * z[:, :, h])))
        np.testing.assert_allclose(softplus_decay(z, A_log)[:, :, h], -np.exp(A_log[h]) * np.log1p(np.exp(z[:, :, h])))


@pytest.mark.parametrize("huge", [800.0, 1e5, 1e300, 1.7e308])
def test_huge_arguments(huge):
    z, A_log = np.array([[[-huge, huge]]]), np.array([0.5])
    np.testing.assert_array_equal(bounded_decay(z, A_log), [[[0, -5]]])
    if huge < 1e308:
        np.testing.assert_allclose(softplus_decay(z, A_log), [[[0, -np.exp(0.5) * huge]]])


def test_small_decay_keeps_its_digits():
    assert one(bounded_decay, -50.0, 0.0) == pytest.approx(-5 * np.exp(-50), rel=1e-12)
    assert one(softplus_decay, -50.0, 0.0) == pytest.approx(-np.exp(-50), rel=1e-12)


def test_errors():
    with pytest.raises(ShapeError, match=r"bounded_decay: A_log must have shape \[H\] with H = 3, but \[5\] came"):
        bounded_decay(np.zeros((2, 7, 3, 5)), np.zeros(5))
    with pytest.raises(ShapeError, match="softplus_decay: z"):
        softplus_decay(np.zeros(5), np.zeros(5))
    with pytest.raises(ValueError, match="lower_bound must be below 0"):
        bounded_decay(np.zeros((2, 3, 5)), np.zeros(3), lower_bound=5.0)
