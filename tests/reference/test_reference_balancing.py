"""Quantile Balancing, its histogram, and the sign rule."""

import numpy as np
import pytest

from k3_scratch.reference import quantile_balancing as qb
from k3_scratch.reference.sign_rule import sign_rule
from k3_scratch.shapes import ShapeError

SCORES = np.array([.94, .55, .07, .35, .60, .42, .51, .02, .06, .62, .02, .52, .34, .81, .23, .12,
                   .75, .53, .22, .40, .55, .10, .61, .14, .69, .45, .14, .56, .67, .85, .09, .51]).reshape(8, 4)


def loads(scores, bias, k):
    chosen = np.argsort(-(scores + bias), axis=1, kind="stable")[:, :k]
    return np.bincount(chosen.ravel(), minlength=scores.shape[1])


def test_the_worked_example():
    np.testing.assert_array_equal(loads(SCORES, 0, 1), [4, 3, 1, 0])
    bias = qb.quantile_bias(SCORES, np.zeros(4), 1)
    np.testing.assert_allclose(bias, [-.1325, -.1025, .1075, .1275], atol=1e-12)
    np.testing.assert_array_equal(loads(SCORES, bias, 1), [2, 2, 2, 2])


@pytest.mark.parametrize(("m", "E", "k"), [(7, 5, 2), (12, 5, 1), (16, 4, 3), (1, 3, 2), (23, 6, 4)])
def test_the_definition_by_loops(m, E, k):
    rng = np.random.default_rng(m)
    scores, bias = rng.random((m, E)), 0.3 * rng.normal(size=E)
    alpha = [sorted(row, reverse=True)[k] for row in scores + bias]              # the (k+1)-th largest
    want = np.array([-sorted((scores[i, j] - alpha[i] for i in range(m)), reverse=True)[int(m * k / E)]
                     for j in range(E)])                                         # the (floor(q)+1)-th largest
    np.testing.assert_allclose(qb.quantile_bias(scores, bias, k), want - want.mean(), atol=1e-14)


def test_with_the_old_thresholds_every_expert_gets_its_share():
    rng = np.random.default_rng(0)
    scores, bias, k = rng.random((30, 5)), 0.2 * rng.normal(size=5), 2
    new = qb.quantile_bias(scores, bias, k)
    alpha = np.sort(scores + bias, axis=1)[:, ::-1][:, k, None]
    shift = -np.sort(scores - alpha, axis=0)[::-1][12].mean()                    # undo the subtracted mean
    above = scores - alpha + new + shift                                         # q = 30 * 2 / 5 = 12 may be above 0
    assert ((above > 1e-12).sum(axis=0) <= 12).all()
    assert ((above > -1e-12).sum(axis=0) > 12).all()                             # fewer only where margins tie at 0
    assert ((above > 1e-12).sum(axis=0) == 12).any()


def test_a_favourite_gets_a_lower_bias():
    scores = np.random.default_rng(1).random((40, 5)) * 0.5
    scores[:, 3] += 0.5
    assert qb.quantile_bias(scores, np.zeros(5), 2).argmin() == 3


def test_batches_that_say_nothing():
    bias = np.array([0.1, -0.3, 0.5])
    for update in (qb.quantile_bias, qb.quantile_bias_histogram):
        for scores, k in ((np.zeros((0, 3)), 1), (np.random.default_rng(0).random((7, 3)), 3)):
            got = update(scores, bias, k)
            np.testing.assert_array_equal(got, bias)
            assert got is not bias


@pytest.mark.parametrize(("m", "E", "k"), [(8, 4, 1), (7, 5, 2), (13, 6, 5), (64, 16, 2), (50, 7, 3)])
@pytest.mark.parametrize("bins", [10, 1000])
def test_the_histogram_lies_within_one_bin(m, E, k, bins):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        scores, bias = rng.random((m, E)), 0.3 * rng.normal(size=E)
        counts, low, high = qb.margin_histogram(scores, bias, k, bins)
        assert counts.shape == (E, bins)
        assert (low, high) == (bias.min() - 1, bias.max() + 1)
        np.testing.assert_array_equal(counts.sum(axis=1), m)
        needed = np.sort(np.sort(scores + bias, axis=1)[:, ::-1][:, k, None] - scores, axis=0)   # alpha - s, ascending
        q, width = m * k / E, (high - low) / bins
        lower, upper = needed[int(np.ceil(q)) - 1], needed[int(np.floor(q))]     # numbers ceil(q) and floor(q) + 1
        lower, upper = np.minimum(lower, upper), np.maximum(lower, upper)
        got = qb.bias_from_histogram(counts, low, high, m, k)
        assert abs(got.mean()) < 1e-14
        # The mean is subtracted from all alike; some common shift must bring every value into its interval.
        least, most = (lower - width - got).max(), (upper + width - got).min()
        assert least <= most + 1e-12
        np.testing.assert_array_equal(got, qb.quantile_bias_histogram(scores, bias, k, bins))


def test_reading_one_histogram_by_hand():
    counts = np.array([[0, 4, 0, 4], [2, 2, 2, 2]])                              # m = 8, k = 1, E = 2: q = 4
    # expert 0 reaches 4 at the end of bin 1: low + 2 width = 0; expert 1 as well.
    np.testing.assert_allclose(qb.bias_from_histogram(counts, -1, 1, 8, 1), [0, 0])
    counts = np.array([[8, 0, 0, 0], [0, 0, 1, 7]])                              # halfway in bin 0, 3/7 into bin 3
    want = np.array([-1 + 0.5 * 0.5, -1 + (3 + 3 / 7) * 0.5])
    np.testing.assert_allclose(qb.bias_from_histogram(counts, -1, 1, 8, 1), want - want.mean())


def test_histograms_of_two_devices_add():
    rng = np.random.default_rng(5)
    scores, bias = rng.random((40, 5)), 0.1 * rng.normal(size=5)
    parts = [qb.margin_histogram(scores[part], bias, 2)[0] for part in (slice(0, 17), slice(17, 40))]
    counts, low, high = qb.margin_histogram(scores, bias, 2)
    np.testing.assert_array_equal(sum(parts), counts)
    np.testing.assert_array_equal(qb.bias_from_histogram(sum(parts), low, high, 40, 2),
                                  qb.quantile_bias_histogram(scores, bias, 2))


def test_fine_histogram_approaches_the_exact_bias():
    scores = np.random.default_rng(6).random((501, 5))                           # q = 200.4: the interval is one number
    exact = qb.quantile_bias(scores, np.zeros(5), 2)
    np.testing.assert_allclose(qb.quantile_bias_histogram(scores, np.zeros(5), 2, 200_000), exact, atol=2e-5)


def test_extreme_scores_stay_inside_the_edges():
    scores = np.array([[0.0, 1, 0], [1, 0, 1], [0, 0, 0], [1, 1, 1]])
    for bias in (np.zeros(3), np.array([0.5, -0.5, 0])):
        counts, _, _ = qb.margin_histogram(scores, bias, 1, bins=7)
        np.testing.assert_array_equal(counts.sum(axis=1), 4)


def test_alternating_updates_balance_what_one_cannot():
    scores = np.random.default_rng(1).random((400, 5)) ** np.array([0.2, 0.5, 1, 2, 6])
    spread = [np.ptp(loads(scores, qb.alternating_balance(scores, 2, rounds), 2)) for rounds in (0, 1, 200)]
    assert spread[0] > 3 * spread[1] > 9 * spread[2]
    bias = qb.alternating_balance(scores, 2, 200)
    np.testing.assert_allclose(qb.quantile_bias(scores, bias, 2), bias, atol=1e-12)       # the limit
    biased = np.sort(scores + bias, axis=1)[:, ::-1]
    tied = (biased[:, 1] - biased[:, 2] < 1e-9).sum()
    sure = (scores + bias > biased[:, 2:3] + 1e-9).sum(axis=0)
    assert (sure <= 160).all()                                                   # the share: 400 * 2 / 5
    assert 800 - sure.sum() == tied <= 4                                         # the rest ties between two experts
    np.testing.assert_array_equal(qb.alternating_balance(SCORES, 1, 1), qb.quantile_bias(SCORES, np.zeros(4), 1))
    np.testing.assert_array_equal(qb.alternating_balance(SCORES, 1, 0), np.zeros(4))


def test_sign_rule():
    bias = np.array([0.5, 0, 0, 0])
    got = sign_rule(bias, [4, 3, 1, 2.5], 0.125)                                 # mean 2.625
    np.testing.assert_array_equal(got, [0.375, -0.125, 0.125, 0.125])
    np.testing.assert_array_equal(sign_rule(bias, [2, 2, 2, 2], 0.1), bias)
    np.testing.assert_array_equal(bias, [0.5, 0, 0, 0])


def test_errors():
    with pytest.raises(ShapeError, match="quantile_bias: bias must have shape .* E = 4"):
        qb.quantile_bias(SCORES, np.zeros(8), 1)
    with pytest.raises(ShapeError, match="sign_rule: counts"):
        sign_rule(np.zeros(4), np.zeros(5), 0.1)
    with pytest.raises(ShapeError, match="margin_histogram: scores"):
        qb.margin_histogram(SCORES[0], np.zeros(4), 1)
    with pytest.raises(ShapeError, match="bias_from_histogram: counts"):
        qb.bias_from_histogram(np.zeros(4), -1, 1, 8, 1)
    for k in (0, 5):
        with pytest.raises(ValueError, match="k must be between 1 and E = 4"):
            qb.quantile_bias(SCORES, np.zeros(4), k)
    with pytest.raises(ValueError, match="k must be below E = 4"):
        qb.margin_histogram(SCORES, np.zeros(4), 4)
    with pytest.raises(ValueError, match="bins must be at least 1"):
        qb.margin_histogram(SCORES, np.zeros(4), 1, bins=0)
    with pytest.raises(ValueError, match="sum of each row"):
        qb.bias_from_histogram(np.full((4, 3), 2), -1, 1, 8, 1)
