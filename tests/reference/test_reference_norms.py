"""Sigmoid, SiLU, softmax, RMSNorm, unit keys and the two gated activations."""

import numpy as np
import pytest

from k3_scratch.reference.ffn import gated_ffn
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.reference.silu import silu
from k3_scratch.reference.situ import situ_glu
from k3_scratch.reference.softmax import softmax
from k3_scratch.reference.swiglu import swiglu
from k3_scratch.reference.unit_keys import l2_norm
from k3_scratch.shapes import ShapeError


def test_sigmoid_at_all_sizes():
    x = np.array([-np.inf, -1e300, -40, -1, 0, 2, 1e300, np.inf])
    want = [0, 0, 4.248354255291589e-18, 1 / (1 + np.e), 0.5, 1 / (1 + np.exp(-2)), 1, 1]
    np.testing.assert_allclose(sigmoid(x), want, rtol=1e-14)
    np.testing.assert_allclose(silu([-1e300, 0, 2]), [0, 0, 2 / (1 + np.exp(-2))], rtol=1e-14)


def test_softmax_ignores_hidden_scores_and_large_offsets():
    np.testing.assert_allclose(softmax([1e5, 1e5 + np.log(3), -np.inf]), [0.25, 0.75, 0], rtol=1e-9)
    columns = softmax(np.log([[1.0, 2], [3, 6]]), axis=0)
    np.testing.assert_allclose(columns, [[0.25, 0.25], [0.75, 0.75]])


def test_rms_norm_by_hand():
    np.testing.assert_allclose(rms_norm([3.0, 4.0], [1.0, 2.0], eps=0.5), np.array([3, 8]) / np.sqrt(13))
    np.testing.assert_array_equal(rms_norm(np.zeros((2, 3)), np.ones(3)), 0)


def test_rms_norm_default_eps_and_scale():
    x = np.array([[1e-3, 2e-3, -1e-3]])                          # mean square 2e-6: eps = 1e-5 shows
    np.testing.assert_allclose(rms_norm(x, np.ones(3)), x / np.sqrt(2e-6 + 1e-5), rtol=1e-12)
    np.testing.assert_allclose(rms_norm(x * 1e9, np.ones(3)), x / np.sqrt(2e-6), rtol=1e-9)


def test_l2_norm_sums_and_survives_zero():
    np.testing.assert_allclose(l2_norm([3.0, 4.0]), [0.6, 0.8], atol=1e-6)
    np.testing.assert_array_equal(l2_norm(np.zeros((2, 5))), 0)
    tiny = np.array([1e-3, 0.0])                                 # sum of squares 1e-6, as large as eps
    np.testing.assert_allclose(l2_norm(tiny), [1 / np.sqrt(2), 0], rtol=1e-12)
    slope = l2_norm(np.array([1e-9]))[0] / 1e-9
    assert slope == pytest.approx(1e3, rel=1e-6)                 # finite slope at 0: eps^(-1/2)


@pytest.mark.parametrize(("gate", "up", "want"), [
    (4, 25, 56.9593), (-3, 5, -0.594544), (5, 40, 77.660364), (40, 40, 92.166855), (0, 7, 0)])
def test_situ_values(gate, up, want):
    assert situ_glu(gate, up) == pytest.approx(want, rel=1e-6)


def test_situ_bounds_are_arguments_in_order():
    assert situ_glu(4, 25, 25.0, 4.0) == pytest.approx(15.5794, rel=1e-5)
    with np.errstate(over="raise"):
        assert np.abs(situ_glu(np.array([-1e4, 1e4, 1e300]), np.array([1e4, -1e4, 1e300]))).max() <= 100
    assert situ_glu(1e-5, 1.0) == pytest.approx(0.5e-5 * 25 * np.tanh(1 / 25), rel=1e-4)


def test_swiglu_value():
    assert swiglu(4, 25) == pytest.approx(98.2014, rel=1e-6)


@pytest.mark.parametrize(("activation", "glu"), [("situ", situ_glu), ("swiglu", swiglu)])
def test_gated_ffn_by_hand(activation, glu):
    rng = np.random.default_rng(0)
    x, w1, w3, w2 = (rng.normal(size=s) for s in ((2, 5, 3), (7, 3), (7, 3), (3, 7)))
    got = gated_ffn(x, w1, w3, w2, activation=activation)
    want = w2 @ glu(w1 @ x[1, 4], w3 @ x[1, 4])
    np.testing.assert_allclose(got[1, 4], want)
    with pytest.raises(ValueError, match="gelu"):
        gated_ffn(x, w1, w3, w2, activation="gelu")


def test_wrong_shapes_name_the_argument():
    with pytest.raises(ShapeError, match=r"rms_norm: weight must have shape \[D\] with D = 3, but \[4\] came"):
        rms_norm(np.zeros((2, 3)), np.ones(4))
    with pytest.raises(ShapeError, match="situ_glu: up"):
        situ_glu(np.zeros(3), np.zeros((2, 3)))
    with pytest.raises(ShapeError, match="swiglu: up"):
        swiglu(np.zeros(3), 1.0)
    with pytest.raises(ShapeError, match="l2_norm: x"):
        l2_norm(3.0)
    with pytest.raises(ShapeError, match="gated_ffn: w_down"):
        gated_ffn(np.zeros((5, 3)), np.zeros((7, 3)), np.zeros((7, 3)), np.zeros((7, 3)))
