"""Chunk = recurrence, for every regime, length and chunk size; and segments that compose."""

import numpy as np
import pytest

from k3_scratch.reference.kda import kda_recurrent
from k3_scratch.reference.kda_chunk import forward_substitution, kda_chunk, segment_transition
from k3_scratch.shapes import ShapeError


@pytest.mark.parametrize("T", [0, 1, 2, 15, 16, 17, 63, 64, 65, 200])
def test_chunk_equals_recurrence(kda_inputs, regime, T):
    a = kda_inputs(regime, T, B=2, H=3, K=5, V=4)
    o, S = kda_recurrent(**a)
    for chunk in (1, 2, 3, 16, 64, None):
        o2, S2 = kda_chunk(**a, chunk=chunk)
        np.testing.assert_allclose(o2, o, rtol=1e-9, atol=1e-11, err_msg=f"chunk {chunk}")
        np.testing.assert_allclose(S2, S, rtol=1e-9, atol=1e-11, err_msg=f"chunk {chunk}")


def test_default_state_scale_and_chunk(kda_inputs):
    a = kda_inputs("k3", 37)
    a["state"] = None
    for scale in (None, 0.3):
        want = kda_recurrent(**a, scale=scale)
        for x, y in zip(kda_chunk(**a, scale=scale), want, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-12)
    np.testing.assert_array_equal(kda_chunk(**a)[0], kda_chunk(**a, chunk=16)[0])


@pytest.mark.parametrize("decay", [-5.0, -20.0, -1000.0, -np.inf])
@pytest.mark.parametrize("chunk", [16, 64])
def test_strong_decay_never_overflows(decay, chunk):
    ones = np.ones((64, 1, 1))
    o, S = kda_chunk(ones, ones, ones, decay * ones, np.full((64, 1), 0.5), scale=1.0, chunk=chunk)
    assert np.isfinite(o).all() and np.isfinite(S).all()
    assert o[0, 0, 0] == 0.5
    assert o[1, 0, 0] == pytest.approx(0.5 + 0.25 * np.exp(decay), rel=1e-12)    # -5: 0.5016845


@pytest.mark.parametrize("decay", [-1000.0, -1e30, -np.inf])
def test_one_token_that_forgets_everything(kda_inputs, decay):
    a = kda_inputs("mild", 40)
    a["g"][:, 21] = decay
    o, S = kda_recurrent(**a)
    for chunk in (16, 64):
        o2, S2 = kda_chunk(**a, chunk=chunk)
        np.testing.assert_allclose(o2, o, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(S2, S, rtol=1e-9, atol=1e-11)


def test_the_solve_keeps_its_digits_when_one_key_repeats():
    L = np.tril(np.ones((64, 64)), -1)                                           # k_i . k_j = 1, beta = 1, no decay
    X = forward_substitution(L, np.eye(64))
    np.testing.assert_array_equal(X, np.eye(64) - np.eye(64, k=-1))              # the exact inverse
    rng = np.random.default_rng(0)
    L, right = np.tril(rng.normal(size=(2, 3, 9, 9)), -1), rng.normal(size=(2, 3, 9, 4))
    np.testing.assert_allclose(forward_substitution(L, right), np.linalg.solve(np.eye(9) + L, right), rtol=1e-8)
    with pytest.raises(ShapeError, match="forward_substitution: right"):
        forward_substitution(L, right[..., :8, :])


@pytest.mark.parametrize("T", [0, 1, 7])
def test_a_segment_is_linear_in_its_state(kda_inputs, regime, T):
    a = kda_inputs(regime, T)
    M = segment_transition(a["k"], a["g"], a["beta"])
    assert M.shape == (2, 3, 5, 5)
    alone = kda_recurrent(**{**a, "state": None})[1]
    np.testing.assert_allclose(alone + M @ a["state"], kda_recurrent(**a)[1], atol=1e-12)


def test_segments_compose(kda_inputs, regime):
    a = kda_inputs(regime, 11)
    parts = []
    for part in (slice(0, 3), slice(3, 4), slice(4, 11)):
        piece = {name: a[name][:, part] for name in ("q", "k", "v", "g", "beta")}
        parts.append((segment_transition(piece["k"], piece["g"], piece["beta"]), kda_recurrent(**piece)[1]))
    (M1, S1), (M2, S2), (M3, S3) = parts
    np.testing.assert_allclose(M3 @ M2 @ M1, segment_transition(a["k"], a["g"], a["beta"]), atol=1e-12)
    end = S3 + M3 @ (S2 + M2 @ (S1 + M1 @ a["state"]))
    np.testing.assert_allclose(end, kda_recurrent(**a)[1], atol=1e-12)


def test_errors(kda_inputs):
    a = kda_inputs("k3", 7)
    for chunk in (0, -1, 2.5):
        with pytest.raises(ValueError, match="chunk must be a whole number"):
            kda_chunk(**a, chunk=chunk)
    with pytest.raises(ShapeError, match="segment_transition: g"):
        segment_transition(a["k"], a["beta"], a["beta"])
