"""Latent attention: the naive form against loops, the absorbed form against the naive one."""

import numpy as np
import pytest

from k3_scratch.reference.mla import mla_absorbed, mla_naive
from k3_scratch.shapes import ShapeError

BOTH = pytest.mark.parametrize("attend", [mla_naive, mla_absorbed])


def make(T=4, S=7, B=2, H=3, n=5, r=2, v=6, R=8, seed=0):
    rng = np.random.default_rng(seed)
    return {"q": rng.normal(size=(B, T, H, n + r)), "latent": rng.normal(size=(B, S, R)),
            "shared_key": 2 * rng.normal(size=(B, S, r)), "w_kvb": rng.normal(size=(H, n + v, R))}


@BOTH
def test_by_loops(attend):
    a, (T, S, n) = make(), (4, 7, 5)
    got = attend(**a)
    for b, t, h in np.ndindex(2, T, 3):
        visible = range(S - T + t + 1)
        keys = [np.concatenate([a["w_kvb"][h, :n] @ a["latent"][b, s], a["shared_key"][b, s]]) for s in visible]
        values = [a["w_kvb"][h, n:] @ a["latent"][b, s] for s in visible]
        p = np.exp([a["q"][b, t, h] @ key / np.sqrt(7) for key in keys])
        np.testing.assert_allclose(got[b, t, h], (p / p.sum()) @ np.array(values), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("T", "S"), [(0, 0), (0, 4), (1, 1), (1, 9), (4, 4), (4, 9)])
@pytest.mark.parametrize("masked", [False, True])
def test_absorbed_equals_naive(T, S, masked):
    a = make(T, S)
    mask = np.random.default_rng(1).random((2, T, S)) < 0.4 if masked else None
    want = mla_naive(**a, mask=mask)
    assert want.shape == (2, T, 3, 6)
    np.testing.assert_allclose(mla_absorbed(**a, mask=mask), want, rtol=1e-9, atol=1e-12)


@BOTH
def test_causal_with_a_cache(attend):
    values = np.arange(1.0, 6)[:, None]                                          # cached 1, 2, 3, new 4, 5
    w_kvb = np.ones((1, 2, 1))                                                   # n = 1, v = 1
    o = attend(np.zeros((2, 1, 2)), values, np.ones((5, 1)), w_kvb)
    np.testing.assert_allclose(o.ravel(), [2.5, 3.0])


@BOTH
def test_a_cut_with_the_cache_changes_nothing(attend):
    a = make(7, 7)
    whole = attend(**a)
    later = attend(a["q"][:, 3:], a["latent"], a["shared_key"], a["w_kvb"])
    first = attend(a["q"][:, :3], a["latent"][:, :3], a["shared_key"][:, :3], a["w_kvb"])
    np.testing.assert_allclose(np.concatenate([first, later], axis=1), whole, atol=1e-12)


@BOTH
def test_earlier_tokens_are_a_set(attend):
    a = make(1, 7)
    order = np.array([3, 0, 5, 1, 4, 2, 6])
    moved = {**a, "latent": a["latent"][:, order], "shared_key": a["shared_key"][:, order]}
    np.testing.assert_allclose(attend(**moved), attend(**a), atol=1e-12)


@BOTH
def test_mask_restricts_and_never_empties_a_row(attend):
    a = make(4, 7)
    nothing = attend(**a, mask=np.zeros((2, 4, 7), dtype=bool))                  # then only itself
    own = np.einsum("btr,hvr->bthv", a["latent"][:, 3:], a["w_kvb"][:, 5:])
    np.testing.assert_allclose(nothing, own, atol=1e-12)
    np.testing.assert_allclose(attend(**a, mask=np.ones((2, 4, 7), dtype=bool)), attend(**a))     # never beyond causal
    mask = np.ones((2, 4, 7), dtype=bool)
    mask[:, :, :2] = False
    short = attend(a["q"], a["latent"][:, 2:], a["shared_key"][:, 2:], a["w_kvb"])
    np.testing.assert_allclose(attend(**a, mask=mask), short, atol=1e-12)


@BOTH
def test_without_batch_and_without_shared_slice(attend):
    a = make()
    alone = attend(a["q"][1], a["latent"][1], a["shared_key"][1], a["w_kvb"], mask=np.ones((4, 7), dtype=bool))
    np.testing.assert_allclose(alone, attend(**a)[1], atol=1e-12)
    assert attend(**make(r=0)).shape == (2, 4, 3, 6)


@BOTH
def test_large_scores_stay_finite(attend):
    a = make()
    a["q"] = 1e4 * a["q"]
    assert np.isfinite(attend(**a)).all()


@BOTH
def test_errors(attend):
    a, name = make(), attend.__name__
    with pytest.raises(ShapeError, match=f"{name}: latent must have shape .* at least T = 8"):
        attend(**{**a, "q": np.zeros((2, 8, 3, 7))})
    with pytest.raises(ShapeError, match=rf"{name}: shared_key .* but \[2, 6, 2\] came"):
        attend(**{**a, "shared_key": a["shared_key"][:, 1:]})
    with pytest.raises(ShapeError, match=f"{name}: w_kvb"):
        attend(**{**a, "w_kvb": a["w_kvb"].reshape(33, 8)})
    with pytest.raises(ShapeError, match=f"{name}: w_kvb .* n = Q - r = 5"):
        attend(**{**a, "w_kvb": a["w_kvb"][:, :5]})
    with pytest.raises(ShapeError, match=f"{name}: mask"):
        attend(**a, mask=np.ones((4, 7), dtype=bool))
    with pytest.raises(TypeError, match=f"{name}: mask must be boolean"):
        attend(**a, mask=np.zeros((2, 4, 7)))
