"""Both backward passes against central finite differences of the forward pass, entry by entry."""

import numpy as np
import pytest

from k3_scratch.reference.delta_rule import delta_recurrent
from k3_scratch.reference.delta_rule_backward import delta_recurrent_backward
from k3_scratch.reference.kda import kda_recurrent
from k3_scratch.reference.kda_backward import kda_recurrent_backward
from k3_scratch.shapes import ShapeError

SIZES = {"T": 4, "B": 2, "H": 2, "K": 3, "V": 4}


def numeric(function, inputs, name, do, dstate, scale, step=1e-6):
    """Central differences of sum(o * do) + sum(S * dstate) in each entry of one input."""
    gradient = np.zeros(inputs[name].shape)
    for place in np.ndindex(gradient.shape):
        for sign in (1, -1):
            moved = inputs[name].copy()
            moved[place] += sign * step
            o, S = function(**{**inputs, name: moved}, scale=scale)
            gradient[place] += sign * (np.sum(o * do) + np.sum(S * dstate)) / (2 * step)
    return gradient


def upstream(inputs):
    rng = np.random.default_rng(9)
    return rng.normal(size=inputs["v"].shape), rng.normal(size=inputs["state"].shape)


@pytest.mark.parametrize("scale", [None, 1.3])
def test_kda_gradient(kda_inputs, regime, scale):
    a = kda_inputs(regime, **SIZES)
    do, dstate = upstream(a)
    got = kda_recurrent_backward(**a, do=do, dstate=dstate, scale=scale)
    for name, gradient in zip(("q", "k", "v", "g", "beta", "state"), got, strict=True):
        assert gradient.shape == a[name].shape
        want = numeric(kda_recurrent, a, name, do, dstate, scale)
        np.testing.assert_allclose(gradient, want, rtol=1e-5, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("scale", [None, 1.3])
@pytest.mark.parametrize("keys", ["none", "repeated"])
def test_delta_gradient(kda_inputs, keys, scale):
    a = kda_inputs(keys, **SIZES)
    del a["g"]
    do, dstate = upstream(a)
    got = delta_recurrent_backward(**a, do=do, dstate=dstate, scale=scale)
    for name, gradient in zip(("q", "k", "v", "beta", "state"), got, strict=True):
        assert gradient.shape == a[name].shape
        want = numeric(delta_recurrent, a, name, do, dstate, scale)
        np.testing.assert_allclose(gradient, want, rtol=1e-5, atol=1e-8, err_msg=name)


def test_without_decay_both_agree(kda_inputs):
    a = kda_inputs("none", 17)
    do, dstate = upstream(a)
    dq, dk, dv, _, dbeta, dstate0 = kda_recurrent_backward(**a, do=do, dstate=dstate)
    del a["g"]
    for x, y in zip((dq, dk, dv, dbeta, dstate0), delta_recurrent_backward(**a, do=do, dstate=dstate), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)


def test_missing_state_and_missing_gradient_are_zeros(kda_inputs):
    a = kda_inputs("k3", 7)
    do, dstate = upstream(a)
    zeros = np.zeros_like(dstate)
    a["state"] = None
    for x, y in zip(kda_recurrent_backward(**a, do=do, dstate=None),
                    kda_recurrent_backward(**{**a, "state": zeros}, do=do, dstate=zeros), strict=True):
        np.testing.assert_array_equal(x, y)


def test_no_token_passes_the_state_gradient_on(kda_inputs):
    a = kda_inputs("k3", 0)
    do, dstate = upstream(a)
    *_, dstate0 = kda_recurrent_backward(**a, do=do, dstate=dstate)
    np.testing.assert_array_equal(dstate0, dstate)
    assert not np.shares_memory(dstate0, dstate)


def test_total_forgetting_has_a_finite_gradient(kda_inputs):
    a = kda_inputs("mild", 7)
    a["g"][:, 3] = -1000
    do, dstate = upstream(a)
    do[:, :3] = 0                                                                # a loss of what comes after only
    dq, dk, dv, dg, dbeta, dstate0 = kda_recurrent_backward(**a, do=do, dstate=dstate)
    assert all(np.isfinite(x).all() for x in (dq, dk, dv, dg, dbeta, dstate0))
    assert dk[:, 3:].all()
    assert dv[:, 3:].all()
    assert not dstate0.any()                                                     # nothing before token 3 matters
    assert not any(x[:, :3].any() for x in (dq, dk, dv, dg, dbeta))


def test_errors(kda_inputs):
    a = kda_inputs("k3", 7)
    do, dstate = upstream(a)
    with pytest.raises(ShapeError, match="kda_recurrent_backward: do"):
        kda_recurrent_backward(**a, do=a["q"], dstate=dstate)
    with pytest.raises(ShapeError, match="kda_recurrent_backward: dstate"):
        kda_recurrent_backward(**a, do=do, dstate=dstate[0])
    del a["g"]
    with pytest.raises(ShapeError, match="delta_recurrent_backward: state"):
        delta_recurrent_backward(**{**a, "state": dstate[..., :2]}, do=do, dstate=dstate)
