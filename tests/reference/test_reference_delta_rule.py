"""Linear attention, the delta rule and the gated delta rule."""

import numpy as np
import pytest

from k3_scratch.reference.delta_rule import delta_recurrent, delta_step
from k3_scratch.reference.gated_delta_rule import gated_delta_recurrent
from k3_scratch.reference.linear_attention import linear_attention_parallel, linear_attention_recurrent
from k3_scratch.shapes import ShapeError


@pytest.mark.parametrize("T", [0, 1, 2, 7, 33])
def test_linear_attention_both_forms(kda_inputs, T):
    a = kda_inputs("none", T)
    for state in (None, a["state"]):
        o, S = linear_attention_recurrent(a["q"], a["k"], a["v"], state)
        o2, S2 = linear_attention_parallel(a["q"], a["k"], a["v"], state)
        np.testing.assert_allclose(o2, o, atol=1e-12)
        np.testing.assert_allclose(S2, S, atol=1e-12)
        assert o.shape == a["v"].shape
    assert not np.shares_memory(S, a["state"])


def test_linear_attention_adds_where_the_delta_rule_replaces():
    q = k = np.ones((2, 1, 1))
    v, beta = np.array([[[1.0]], [[5.0]]]), np.ones((2, 1))
    np.testing.assert_allclose(linear_attention_recurrent(q, k, v, scale=1.0)[0].ravel(), [1, 6])
    np.testing.assert_allclose(linear_attention_parallel(q, k, v, scale=1.0)[0].ravel(), [1, 6])
    np.testing.assert_allclose(delta_recurrent(q, k, v, beta, scale=1.0)[0].ravel(), [1, 5])
    np.testing.assert_allclose(delta_recurrent(q, k, v, [[1.0], [2.0]], scale=1.0)[0].ravel(), [1, 9])


def test_delta_step_by_hand():
    state, k, v = np.arange(12.0).reshape(3, 4), np.array([0.0, 0.6, 0.8]), np.array([1.0, 2, 3, 4])
    got = delta_step(state, k, v, 0.5)
    want = (np.eye(3) - 0.5 * np.outer(k, k)) @ state + 0.5 * np.outer(k, v)
    np.testing.assert_allclose(got, want)
    np.testing.assert_allclose(k @ delta_step(state, k, v, 1.0), v)              # beta = 1: v exactly
    np.testing.assert_array_equal(delta_step(state, k, v, 0.0), state)
    np.testing.assert_array_equal(state, np.arange(12.0).reshape(3, 4))


def test_delta_step_is_a_gradient_step():
    rng = np.random.default_rng(3)
    S, k, v = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=4)
    gradient = np.zeros_like(S)
    for place in np.ndindex(S.shape):
        for sign in (1, -1):
            moved = S.copy()
            moved[place] += sign * 1e-6
            gradient[place] += sign * 0.5 * np.sum((k @ moved - v) ** 2) / 2e-6
    np.testing.assert_allclose(delta_step(S, k, v, 0.3), S - 0.3 * gradient, atol=1e-8)


def test_delta_recurrent_is_the_product_of_its_steps(kda_inputs):
    a = kda_inputs("none", 7)
    o, S = delta_recurrent(a["q"], a["k"], a["v"], a["beta"], a["state"])
    for b, h in np.ndindex(2, 3):
        M = a["state"][b, h]
        for t in range(7):
            k, beta = a["k"][b, t, h], a["beta"][b, t, h]
            M = (np.eye(5) - beta * np.outer(k, k)) @ M + beta * np.outer(k, a["v"][b, t, h])
            np.testing.assert_allclose(o[b, t, h], a["q"][b, t, h] @ M * 5 ** -0.5, atol=1e-12)
        np.testing.assert_allclose(S[b, h], M, atol=1e-12)


def test_without_overlap_of_keys_nothing_is_erased():
    rng = np.random.default_rng(4)
    k = np.eye(5)[:, None]                                                       # five tokens, orthogonal keys
    q, v, beta = rng.normal(size=(5, 1, 5)), rng.normal(size=(5, 1, 4)), rng.uniform(size=(5, 1))
    o, S = delta_recurrent(q, k, v, beta)
    o2, S2 = linear_attention_recurrent(q, k, beta[..., None] * v)
    np.testing.assert_allclose(o, o2, atol=1e-13)
    np.testing.assert_allclose(S, S2, atol=1e-13)


def test_gated_delta_by_the_one_line_equation(kda_inputs):
    a = kda_inputs("k3", 7)
    g = a["g"][..., 0]
    o, S = gated_delta_recurrent(a["q"], a["k"], a["v"], g, a["beta"], a["state"], scale=0.7)
    M = a["state"][1, 2]
    for t in range(7):
        k, beta = a["k"][1, t, 2], a["beta"][1, t, 2]
        M = np.exp(g[1, t, 2]) * (np.eye(5) - beta * np.outer(k, k)) @ M + beta * np.outer(k, a["v"][1, t, 2])
        np.testing.assert_allclose(o[1, t, 2], 0.7 * a["q"][1, t, 2] @ M, atol=1e-12)
    np.testing.assert_allclose(S[1, 2], M, atol=1e-12)


def test_gated_delta_without_decay_is_the_delta_rule(kda_inputs):
    a = kda_inputs("repeated", 17)
    got = gated_delta_recurrent(a["q"], a["k"], a["v"], np.zeros((2, 17, 3)), a["beta"], a["state"])
    want = delta_recurrent(a["q"], a["k"], a["v"], a["beta"], a["state"])
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(x, y)


def test_errors_name_the_argument(kda_inputs):
    a = kda_inputs("k3", 7)
    with pytest.raises(ShapeError, match=r"gated_delta_recurrent: g must have shape .* but \[2, 7, 3, 5\] came"):
        gated_delta_recurrent(a["q"], a["k"], a["v"], a["g"], a["beta"])
    with pytest.raises(ShapeError, match=r"delta_recurrent: beta .* but \[2, 7, 3, 5\] came"):
        delta_recurrent(a["q"], a["k"], a["v"], a["g"])
    with pytest.raises(ShapeError, match=r"delta_recurrent: state .* K = 5, V = 4, but \[2, 3, 4, 5\] came"):
        delta_recurrent(a["q"], a["k"], a["v"], a["beta"], np.swapaxes(a["state"], -1, -2))
    with pytest.raises(ShapeError, match="linear_attention_parallel: k"):
        linear_attention_parallel(a["q"], a["v"], a["v"])
    with pytest.raises(ShapeError, match="linear_attention_recurrent: v"):
        linear_attention_recurrent(a["q"], a["k"], a["v"][:, :6])
    with pytest.raises(ShapeError, match="delta_step: beta"):
        delta_step(np.zeros((3, 5, 4)), np.zeros((3, 5)), np.zeros((3, 4)), 0.5)
