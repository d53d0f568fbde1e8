"""Attention over depth: the mix, the full form, the block form in the released order, and the two phases."""

import numpy as np
import pytest

from k3_scratch.reference.attention_residuals import (
    block_attention_residuals,
    depth_mix,
    full_attention_residuals,
)
from k3_scratch.reference.two_phase import bank_phase, merge_phase
from k3_scratch.shapes import ShapeError


def maps(count, D=5, seed=0):
    """Nonlinear sublayers that differ."""
    rng = np.random.default_rng(seed)
    matrices = rng.normal(size=(count, D, D))
    return [lambda x, M=M: np.tanh(x @ M) + 0.1 for M in matrices]


def parts(sublayers, D=5, seed=1):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(2, 7, D)), sublayers, rng.normal(size=(len(sublayers) + 1, D)),
            1 + 0.3 * rng.normal(size=(len(sublayers) + 1, D)))


def test_mix_by_hand():
    sources = np.array([[3.0, 4], [1, 0]])
    mixed, weights = depth_mix(sources, np.zeros(2), np.ones(2))
    np.testing.assert_allclose(mixed, [2, 2])                                    # zero query: the plain mean
    w, gamma, eps = np.array([0.5, -1]), np.array([2.0, 0.5]), 0.1
    scores = [(1 * 3 - 0.5 * 4) / np.sqrt(12.5 + eps), 1 / np.sqrt(0.5 + eps)]
    p = np.exp(scores) / np.sum(np.exp(scores))
    mixed, weights = depth_mix(sources, w, gamma, eps)
    np.testing.assert_allclose(weights, p)
    np.testing.assert_allclose(mixed, p @ sources)                               # of the raw vectors


def test_keys_are_normed_and_values_are_not():
    rng = np.random.default_rng(2)
    sources, query = rng.normal(size=(3, 2, 7, 5)) + 2, rng.normal(size=5)
    mixed, weights = depth_mix(sources, query, np.ones(5))
    louder = sources * np.array([1, 1000, 1])[:, None, None, None]
    mixed2, weights2 = depth_mix(louder, query, np.ones(5))
    np.testing.assert_allclose(weights2, weights, atol=1e-4)
    np.testing.assert_allclose(mixed2, np.einsum("nbt,nbtd->btd", weights2, louder))
    np.testing.assert_allclose(weights.sum(axis=0), 1)
    assert np.abs(mixed2).max() > 10 * np.abs(mixed).max()


def test_every_token_mixes_on_its_own():
    a = parts(maps(6))
    changed = a[0].copy()
    changed[:, 4] += 1
    for got, other in zip(block_attention_residuals(*a, 2)[1], block_attention_residuals(changed, *a[1:], 2)[1],
                          strict=True):
        np.testing.assert_array_equal(np.delete(got, 4, axis=2), np.delete(other, 4, axis=2))


def test_full_form_by_hand():
    h0, (f, g), w, gamma = parts(maps(2))
    y1 = f(h0)                                                                   # one source: itself
    y2 = g(depth_mix([h0, y1], w[1], gamma[1])[0])
    want, last = depth_mix([h0, y1, y2], w[2], gamma[2])
    output, weights, counts = full_attention_residuals(h0, (f, g), w, gamma)
    np.testing.assert_allclose(output, want)
    np.testing.assert_allclose(weights[2], last)
    assert counts == [1, 2, 3]
    assert [p.shape for p in weights] == [(1, 2, 7), (2, 2, 7), (3, 2, 7)]


def test_block_form_by_hand():
    h0, f, w, gamma = parts(maps(6))                                             # three layers, blocks of two
    y0 = f[0](h0)                                                                # bank [h0], a new block holds y0
    h = y0 + f[1](depth_mix([h0, y0], w[1], gamma[1])[0])
    h = h + f[2](depth_mix([h0, h], w[2], gamma[2])[0])                          # layer 1 goes on in the block
    h = h + f[3](depth_mix([h0, h], w[3], gamma[3])[0])
    b1 = h                                                                       # layer 2 seals the first block
    y2 = f[4](depth_mix([h0, b1], w[4], gamma[4])[0])
    h = y2 + f[5](depth_mix([h0, b1, y2], w[5], gamma[5])[0])
    want = depth_mix([h0, b1, h], w[6], gamma[6])[0]
    output, _, counts = block_attention_residuals(h0, f, w, gamma, 2)
    np.testing.assert_allclose(output, want, atol=1e-13)
    assert counts == [1, 2, 2, 2, 2, 3, 3]


def test_one_sublayer_a_block_is_the_full_form():
    f = maps(3)
    silent = [part for one in f for part in (one, np.zeros_like)]                # an FFN that adds nothing
    h0, _, w, gamma = parts(silent)
    places = [0, 2, 4, 6]                                                        # attention-side mixes and output
    want, full_weights, _ = full_attention_residuals(h0, f, w[places], gamma[places])
    output, weights, _ = block_attention_residuals(h0, silent, w, gamma, 1)
    np.testing.assert_allclose(output, want, atol=1e-13)
    for place, p in zip(places, full_weights, strict=True):
        np.testing.assert_allclose(weights[place], p, atol=1e-13)


@pytest.mark.parametrize(("layers", "block", "sources"), [(13, 3, 6), (93, 12, 9), (4, 9, 2), (4, 1, 5), (4, 2, 3)])
def test_number_of_sources_at_the_output(layers, block, sources):
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(2 * layers + 1, 2))
    _, weights, counts = block_attention_residuals(rng.normal(size=(1, 2)), [np.tanh] * 2 * layers, queries,
                                                   np.ones_like(queries), block)
    assert counts[0] == 1
    assert counts[-1] == sources
    assert [len(p) for p in weights] == counts


def test_the_first_query_is_never_used():
    a = parts(maps(4))
    want = block_attention_residuals(*a, 1)[0]
    a[2][0] = a[3][0] = np.nan
    np.testing.assert_array_equal(block_attention_residuals(*a, 1)[0], want)


@pytest.mark.parametrize("form", [lambda *a: block_attention_residuals(*a, 1), full_attention_residuals])
def test_a_sublayer_that_spoils_its_input_changes_no_source(form):
    clean = maps(4)

    def spoils(one):
        def sublayer(x):
            y = one(x.copy())
            x[:] = 1e9
            return y
        return sublayer

    a = parts(clean)
    before = a[0].copy()
    want = form(*a)[0]
    got = form(a[0], [spoils(one) for one in clean], *a[2:])[0]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(a[0], before)


@pytest.mark.parametrize("N", [0, 1, 6])
@pytest.mark.parametrize("size", [1.0, 300.0])
def test_two_phases_equal_the_mix(N, size):
    rng = np.random.default_rng(3)
    bank, h = rng.normal(size=(N, 2, 7, 5)), rng.normal(size=(4, 2, 7, 5))
    queries, gamma = size * rng.normal(size=(4, 5)), 1 + 0.3 * rng.normal(size=(4, 5))
    log_total, mean = bank_phase(bank, queries, gamma, 1e-3)
    assert (log_total.shape, mean.shape) == ((4, 2, 7), (4, 2, 7, 5))
    for i in range(4):                                                           # four mixes share the bank
        got = merge_phase(log_total[i], mean[i], h[i], queries[i], gamma[i], 1e-3)
        want = depth_mix([*bank, h[i]], queries[i], gamma[i], 1e-3)[0]
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)


def test_errors():
    h0, f, w, gamma = parts(maps(4))
    with pytest.raises(ShapeError, match="block_attention_residuals: queries must have shape .5, D. with D = 5"):
        block_attention_residuals(h0, f, w[:4], gamma, 2)
    with pytest.raises(ShapeError, match="full_attention_residuals: norm_weights"):
        full_attention_residuals(h0, f, w, gamma[:, :4])
    with pytest.raises(ShapeError, match="sublayer must return shape"):
        block_attention_residuals(h0, [lambda x: x[:, :1]] * 4, w, gamma, 2)
    with pytest.raises(ValueError, match="pairs of attention and FFN"):
        block_attention_residuals(h0, f[:3], w[:4], gamma[:4], 2)
    with pytest.raises(ValueError, match="block_size 0"):
        block_attention_residuals(h0, f, w, gamma, 0)
    with pytest.raises(ShapeError, match="depth_mix: sources .* N at least 1"):
        depth_mix(np.zeros((0, 5)), np.zeros(5), np.ones(5))
    with pytest.raises(ShapeError, match="depth_mix: query"):
        depth_mix(np.zeros((2, 5)), np.zeros(4), np.ones(5))
    with pytest.raises(ShapeError, match="bank_phase: bank"):
        bank_phase(np.zeros(5), w, gamma)
    with pytest.raises(ShapeError, match="bank_phase: norm_weights"):
        bank_phase(np.zeros((2, 5)), w, gamma[:2])
    with pytest.raises(ShapeError, match="merge_phase: mean"):
        merge_phase(np.zeros(3), np.zeros((2, 5)), np.zeros((3, 5)), w[0], gamma[0])
