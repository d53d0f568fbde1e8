"""Balancing from summed histograms: the exact bias, and one sum for any division of the tokens."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from k3_scratch.layers.quantile_balancing import quantile_bias
from k3_scratch.layers.quantile_histogram import (
    BINS,
    count_places,
    margin_places,
    needed_biases,
    pooled_bias,
)
from k3_scratch.reference import quantile_balancing as reference


def batch(m, E, seed, dtype=torch.float64, size=0.3):
    draw = torch.Generator().manual_seed(seed)
    scores = torch.sigmoid(torch.randn(m, E, generator=draw, dtype=torch.float64) + torch.linspace(-1, 1, E))
    bias = size * torch.randn(E, generator=draw, dtype=torch.float64)
    return scores.to(dtype), bias.to(dtype)


def alone(x):
    """One process: the sum and the smallest over all processes are its own."""
    return x


def same(got, wanted):
    """Equal but for the last digit of the mean that both subtract."""
    return (got - wanted).abs().max() <= torch.finfo(wanted.dtype).eps


@pytest.mark.parametrize(("m", "E", "k"), [(8, 4, 1), (57, 6, 2), (640, 16, 3), (33, 5, 4), (1, 7, 2), (12, 6, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_exact_bias(m, E, k, dtype):
    """Also where q = m k / E is a whole number, and where neighbouring margins lie far apart."""
    for seed in range(4):
        scores, bias = batch(m, E, seed, dtype)
        got = pooled_bias(scores, bias, k, alone, alone)
        assert got.dtype == dtype and same(got, quantile_bias(scores, bias, k)), seed


def test_where_many_tokens_are_alike():
    """A corpus repeats itself: many tokens with the very same scores, and the quantile in the middle of them."""
    scores, bias = batch(11, 5, 2, torch.float32)
    scores = scores.repeat(30, 1)
    assert same(pooled_bias(scores, bias, 2, alone, alone), quantile_bias(scores, bias, 2))


def test_two_in_one_fine_bin():
    """What cannot be told apart differs by less than a fine bin, and so does the bias."""
    scores, bias = batch(4000, 4, 7)
    scores = 0.5 + 1e-5 * scores                                         # all margins in about twenty fine bins
    got, wanted = pooled_bias(scores, 0 * bias, 1, alone, alone), quantile_bias(scores, 0 * bias, 1)
    assert 0 < (got - wanted).abs().max() < 2 * 2 / BINS ** 2            # centring may double it


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_sum_does_not_depend_on_who_counts_what(dtype):
    """Any sharding: rows dealt out in turn, in uneven heaps, one by one, or with a process that has none."""
    scores, bias = batch(203, 7, 5, dtype)
    places = margin_places(needed_biases(scores, bias, 2), bias)
    whole, some = count_places(places // BINS), places // BINS == 400
    inside = count_places(places % BINS, some)
    assert whole.dtype == torch.int64 and whole.sum(1).tolist() == [203] * 7
    assert torch.equal(inside.sum(1), whole[:, 400])
    mixed = torch.randperm(203, generator=torch.Generator().manual_seed(1))
    shardings = [[scores[rank::4] for rank in range(4)], scores.split([1, 150, 52]), scores.split(1),
                 [scores, scores[:0]], scores[mixed].split(29)]
    for parts in shardings:
        found = [margin_places(needed_biases(part, bias, 2), bias) for part in parts]
        assert torch.equal(sum(count_places(part // BINS) for part in found), whole)
        assert torch.equal(sum(count_places(part % BINS, part // BINS == 400) for part in found), inside)


def test_the_coarse_counts_are_the_histogram_of_the_reference():
    for seed in range(4):
        scores, bias = batch(300, 6, seed)
        counts, _, _ = reference.margin_histogram(scores.numpy(), bias.numpy(), 2, BINS)
        places = margin_places(needed_biases(scores, bias, 2), bias)
        np.testing.assert_array_equal(count_places(places // BINS).numpy(), counts)


def test_parts_that_add_their_counts_find_the_bias_of_all_tokens():
    """Three processes, one of them without tokens; threads stand for them and meet at every message."""
    scores, bias = batch(90, 5, 3)
    parts, meeting, said = scores.split([20, 0, 70]), threading.Barrier(3), {}

    def message(number, join):
        def exchange(mine):
            said[number] = mine
            meeting.wait()
            result = join(torch.stack([said[other] for other in range(3)]))
            meeting.wait()
            return result
        return exchange

    def one(number):
        add, least = (message(number, join) for join in (lambda x: x.sum(0), lambda x: x.amin(0)))
        return pooled_bias(parts[number], bias, 2, add, least)

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(one, range(3)))
    assert all(torch.equal(each, found[0]) for each in found) and same(found[0], quantile_bias(scores, bias, 2))


def test_averaging_quantiles_is_something_else():
    """Two processes with different texts: the mean of their biases misses the bias of all tokens by far."""
    scores, bias = batch(400, 4, 9)
    scores = torch.cat([scores[:200] * 0.2, scores[200:]])
    halves = [quantile_bias(part, bias, 1) for part in scores.split(200)]
    exact = quantile_bias(scores, bias, 1)
    assert same(pooled_bias(scores, bias, 1, alone, alone), exact)
    assert (sum(halves) / 2 - exact).abs().max() > 0.03


def test_batches_that_say_nothing():
    bias = torch.tensor([0.1, -0.3, 0.5])
    for scores, k in ((torch.zeros(0, 3), 1), (torch.rand(7, 3), 3)):
        got = pooled_bias(scores, bias, k, alone, alone)
        assert torch.equal(got, bias) and got is not bias


@pytest.mark.parametrize("k", [0, 4])
def test_a_k_that_cannot_be_is_refused(k):
    with pytest.raises(ValueError, match=f"needed_biases: k must be from 1 to E - 1 = 3, but {k} came"):
        needed_biases(torch.ones(3, 4), torch.zeros(4), k)
