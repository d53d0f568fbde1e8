"""Linear probes: vectors whose contents are known, and what travels up a model."""

import numpy as np
import pytest
import torch

from k3_scratch.analysis.probes import position_read, ridge, streams, tokens_read
from k3_scratch.shapes import ShapeError


@pytest.mark.parametrize(("n", "D", "m", "seed"), [(80, 5, 3, 0), (301, 7, 1, 1)])
def test_ridge_without_penalty_is_least_squares(n, D, m, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(3.0, 2.0, (n, D)), rng.normal(size=(n, m))
    ones = np.hstack([x, np.ones((n, 1))])
    wanted = ones[n // 2:] @ np.linalg.lstsq(ones[:n // 2], y[:n // 2], rcond=None)[0]
    np.testing.assert_allclose(ridge(x, y, 0.0), wanted, atol=1e-10)
    assert ridge(x, y).shape == (n - n // 2, m)
    assert np.abs(ridge(x, y, 1e6) - y[:n // 2].mean(0)).max() < 1e-4    # a large penalty leaves the mean alone


def test_ridge_reads_what_is_linear_and_ignores_a_column_that_never_changes():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 4))
    x[:, 2] = 7.0
    y = x @ rng.normal(size=(4, 2)) + 5.0
    np.testing.assert_allclose(ridge(x, y, 1e-12), y[30:], atol=1e-8)


@pytest.mark.parametrize(("back", "symbols", "seed"), [(0, 4, 0), (2, 6, 1), (3, 5, 2)])
def test_only_the_lag_that_the_vectors_hold_is_read(back, symbols, seed):
    """A vector holds the token `back` places before, mixed by a random matrix, and noise."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(symbols, size=(90, 20))
    held = np.eye(symbols)[np.roll(tokens, back, axis=1)] @ rng.normal(size=(symbols, 9))
    x = held + 1e-3 * rng.normal(size=held.shape)
    lags = [0, 1, 2, 3, 4]
    shares = tokens_read(x, tokens, lags, start=4)
    assert shares.shape == (5,) and shares[back] == 1.0
    others = np.delete(shares, back)
    assert abs(others.mean() - 1 / symbols) < 0.04 and others.max() < 1 / symbols + 0.1
    odd, even = (tokens_read(x[:B], tokens[:B], lags, 4) for B in (7, 6))
    assert np.array_equal(odd, even)                                     # a last odd row is left out


def test_rows_that_are_tested_are_not_those_that_are_fitted():
    """Vectors of pure noise, nearly as many channels as rows to fit: a fit would know its own rows by heart."""
    rng = np.random.default_rng(3)
    x, tokens = rng.normal(size=(8, 30, 60)), rng.integers(2, size=(8, 30))
    assert tokens_read(x, tokens, [0], start=10)[0] < 0.75
    assert position_read(x, start=10) < 0


def test_position_is_read_where_it_is_and_nowhere_else():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 25, 6))
    assert abs(position_read(x, start=5)) < 0.05
    x[..., 3] += 0.5 * np.arange(25)
    spread = np.var(0.5 * np.arange(5, 25))                              # one noisy column: R2 = signal / (signal + 1)
    assert position_read(x, start=5) == pytest.approx(spread / (spread + 1), abs=0.03)
    x[..., 3] = np.arange(25)
    assert position_read(x, start=5) > 1 - 1e-5


@pytest.mark.parametrize("block", [2, None])
def test_streams_are_what_the_layers_read(block, make, tokens):
    model = make(attn_res_block_size=block)
    x = streams(model, tokens)
    assert x.shape == (5, 3, 11, 24) and x.dtype == np.float64
    assert np.array_equal(x[0], model.embed_tokens(tokens).double().detach().numpy())
    with torch.no_grad():
        last = model.lm_head(model.norm(torch.from_numpy(x[-1]).float()))
        assert torch.equal(last, model(tokens))
    assert len({entry.tobytes() for entry in x}) == 5


@pytest.mark.parametrize(("call", "word"), [
    (lambda x, tokens: ridge(x[0], tokens[0]), "y"), (lambda x, tokens: ridge(x[0, :1], x[0, :1]), "x"),
    (lambda x, tokens: tokens_read(x, tokens[:, 1:], [0], 0), "symbols"),
    (lambda x, tokens: tokens_read(x, tokens, [0, 3], 2), "lags"),
    (lambda x, tokens: tokens_read(x, tokens, [-1], 2), "lags"),
    (lambda x, tokens: tokens_read(x, tokens, [0], 9), "start"),
    (lambda x, tokens: tokens_read(x[:1], tokens[:1], [0], 2), "x"), (lambda x, tokens: position_read(x, 8), "x"),
    (lambda x, tokens: position_read(x[0], 2), "x")])
def test_wrong_arguments_are_refused(call, word):
    rng = np.random.default_rng(0)
    with pytest.raises((ShapeError, ValueError), match=rf": {word} |{word} = "):
        call(rng.normal(size=(4, 9, 3)), rng.integers(3, size=(4, 9)))
