"""The router and Stable LatentMoE."""

import numpy as np
import pytest

from k3_scratch.reference.latent_moe import latent_moe
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.router import route
from k3_scratch.reference.situ import situ_glu
from k3_scratch.shapes import ShapeError

SHARED = {"shared_w1": None, "shared_w3": None, "shared_w2": None}
LATENT = {"w_down": None, "latent_norm": None, "w_up": None}


def make(B=2, T=7, D=6, L=4, E=5, F=3, S=8, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"x": (B, T, D), "w_router": (E, D), "bias": (E,), "w_down": (L, D), "w1": (E, F, L), "w3": (E, F, L),
              "w2": (E, L, F), "latent_norm": (L,), "w_up": (D, L), "shared_w1": (S, D), "shared_w3": (S, D),
              "shared_w2": (D, S)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def logit(s):
    return np.log(s) - np.log1p(-np.asarray(s))


def test_the_bias_selects_and_never_weighs():
    scores = np.array([0.5, 0.4, 0.3, 0.2])
    experts, weights, got = route(np.array([1.0]), logit(scores)[:, None], np.array([-1, 0, 0, 0.5]), 2, scale=2.5)
    np.testing.assert_array_equal(experts, [3, 1])
    np.testing.assert_allclose(weights, 2.5 * np.array([0.2, 0.4]) / 0.6)
    np.testing.assert_allclose(got, scores)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_weights_sum_to_the_scale(k):
    a = make()
    experts, weights, scores = route(a["x"], a["w_router"], a["bias"], k, 2.5)
    assert experts.shape == weights.shape == (2, 7, k)
    assert experts.dtype.kind == "i"
    np.testing.assert_allclose(weights.sum(axis=-1), 2.5)
    biased = scores + a["bias"]
    chosen = np.take_along_axis(biased, experts, axis=-1)
    assert (np.diff(chosen, axis=-1) <= 0).all()                                 # largest first
    for b, t in np.ndindex(2, 7):
        left = np.delete(biased[b, t], experts[b, t])
        assert not len(left) or left.max() <= chosen[b, t].min()


def test_ties_go_to_the_lower_expert():
    experts, _, _ = route(np.zeros((3, 2)), np.ones((40, 2)), np.zeros(40), 4)
    np.testing.assert_array_equal(experts, [[0, 1, 2, 3]] * 3)


def test_close_scores_are_told_apart():
    x, w = np.array([1.0]), np.array([[1 + 1 / 512], [1.0]])
    assert route(x, w, np.array([0, 1 / 8192]), 1)[0] == [0]


def test_scores_that_underflow_give_finite_weights():
    _, weights, scores = route(np.array([1.0]), np.array([[-900.0], [-950.0]]), np.zeros(2), 2)
    np.testing.assert_array_equal(scores, 0)
    np.testing.assert_array_equal(weights, 0)


def test_moe_by_loops():
    a = make()
    got = latent_moe(**a, k=2, scale=1.7, eps=0.1)
    experts, weights, _ = route(a["x"], a["w_router"], a["bias"], 2, 1.7)
    for b, t in np.ndindex(2, 7):
        x = a["x"][b, t]
        z, u = a["w_down"] @ x, np.zeros(4)
        for e, p in zip(experts[b, t], weights[b, t], strict=True):
            u += p * a["w2"][e] @ situ_glu(a["w1"][e] @ z, a["w3"][e] @ z)
        routed = a["w_up"] @ rms_norm(u, a["latent_norm"], 0.1)                  # the norm of the sum, then W_up
        shared = a["shared_w2"] @ situ_glu(a["shared_w1"] @ x, a["shared_w3"] @ x)
        np.testing.assert_allclose(got[b, t], routed + shared, rtol=1e-9, atol=1e-12)


def test_identity_experts(monkeypatch):
    a = {**make(L=6), **LATENT, "bias": np.zeros(5)}
    monkeypatch.setattr("k3_scratch.reference.latent_moe.gated_ffn", lambda x, *_, **__: x)
    np.testing.assert_allclose(latent_moe(**a, k=2, scale=2.5), 3.5 * a["x"])
    np.testing.assert_allclose(latent_moe(**{**a, **SHARED}, k=2, scale=2.5), 2.5 * a["x"])
    wired = {**a, **SHARED, "w_down": np.eye(6), "w_up": np.eye(6)}
    np.testing.assert_allclose(latent_moe(**wired, k=2, scale=2.5), 2.5 * a["x"])


def test_the_router_reads_the_full_width():
    a = {**make(), **SHARED}
    null = np.linalg.svd(a["w_down"])[2][-1]                                     # W_down null = 0
    a["w_router"] = np.outer([1.0, -1, 0, 0, 0], null) * 3
    a["bias"] = np.array([0.2, 0.2, 0, 0, 0])
    moved = {**a, "x": a["x"] + 8 * null}
    np.testing.assert_allclose(moved["x"] @ a["w_down"].T, a["x"] @ a["w_down"].T, atol=1e-12)
    assert not np.allclose(latent_moe(**moved, k=1), latent_moe(**a, k=1))       # another expert now


def test_idle_experts_do_not_matter_and_cannot_poison():
    a = make()
    a["bias"] = np.array([9.0, 9, 0, 0, 0])
    want = latent_moe(**a, k=2)
    a["w1"][2:] = np.nan
    np.testing.assert_array_equal(latent_moe(**a, k=2), want)


def test_the_batch_does_not_matter():
    a = make()
    want = latent_moe(**a, k=2)
    one = latent_moe(**{**a, "x": a["x"][1, 4]}, k=2)
    np.testing.assert_allclose(one, want[1, 4], atol=1e-12)
    assert latent_moe(**{**a, "x": np.zeros((0, 6))}, k=2).shape == (0, 6)


def test_kinds_of_activation_and_bounds():
    a = make()
    a["x"] = 20 * a["x"]
    outputs = [latent_moe(**a, k=2, **form) for form in (
        {}, {"activation": "swiglu"}, {"beta": 1.0}, {"linear_beta": 1.0})]
    for i, j in ((0, 1), (0, 2), (0, 3)):
        assert not np.allclose(outputs[i], outputs[j])
    with pytest.raises(ValueError, match="relu"):
        latent_moe(**a, k=2, activation="relu")


@pytest.mark.parametrize(("name", "shape"), [
    ("w_router", (6, 5)), ("bias", (4,)), ("w_down", (6, 4)), ("w1", (5, 4, 3)), ("w3", (5, 3, 6)), ("w2", (5, 3, 4)),
    ("latent_norm", (6,)), ("w_up", (4, 6)), ("shared_w1", (6, 8)), ("shared_w3", (7, 6)), ("shared_w2", (8, 6))])
def test_a_wrong_shape_names_the_argument(name, shape):
    with pytest.raises(ShapeError, match=f"latent_moe: {name} must have shape"):
        latent_moe(**{**make(), name: np.zeros(shape)}, k=2)


def test_errors():
    a = make()
    with pytest.raises(ValueError, match="w_up is None"):
        latent_moe(**{**a, "w_up": None}, k=2)
    with pytest.raises(ValueError, match="shared_w1, shared_w3 is None"):
        latent_moe(**{**a, "shared_w1": None, "shared_w3": None}, k=2)
    with pytest.raises(ShapeError, match="latent_moe: w1"):
        latent_moe(**{**a, **LATENT}, k=2)                                       # no latent: the experts work at D
    for k in (0, 6):
        with pytest.raises(ValueError, match="k must be between 1 and E = 5"):
            route(a["x"], a["w_router"], a["bias"], k)
    with pytest.raises(ShapeError, match="route: bias"):
        route(a["x"], a["w_router"], np.zeros(6), 2)
