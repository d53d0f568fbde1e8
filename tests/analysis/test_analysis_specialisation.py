"""Bits between experts and groups, and a random router with the loads of another."""

import numpy as np
import pytest
import torch

from k3_scratch.analysis.expert_sizes import expert_sizes
from k3_scratch.analysis.specialisation import bias_for_loads, mutual_information, random_choice, visits
from k3_scratch.reference.quantile_balancing import alternating_balance


def test_visits_are_counted_one_by_one():
    rng = np.random.default_rng(0)
    experts, groups = rng.integers(5, size=(40, 3)), rng.integers(4, size=40)
    wanted = np.zeros((4, 5), int)
    for chosen, group in zip(experts.tolist(), groups.tolist(), strict=True):
        for expert in chosen:
            wanted[group, expert] += 1
    assert np.array_equal(visits(experts, groups, 4, 5), wanted)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_bits_are_entropies(seed):
    """I = H(rows) + H(columns) - H(both), symmetric, the same for any scale of the counts."""
    counts = np.random.default_rng(seed).integers(0, 9, size=(3, 6)) + (seed == 1)

    def entropy(p):
        p = p[p > 0] / p.sum()
        return -np.sum(p * np.log2(p))
    wanted = entropy(counts.sum(0)) + entropy(counts.sum(1)) - entropy(counts.ravel())
    assert mutual_information(counts) == pytest.approx(wanted) == mutual_information(counts.T * 10)
    assert wanted > 0.01


def test_bits_of_two_extremes():
    assert mutual_information(np.eye(8)) == pytest.approx(3.0)
    assert mutual_information(np.outer([1, 2, 3], [4, 5])) == pytest.approx(0.0, abs=1e-12)


def test_even_loads_are_those_of_quantile_balancing():
    scores = np.random.default_rng(3).random((96, 8)) ** np.arange(1, 9)
    assert np.allclose(bias_for_loads(scores, np.full(8, 96 * 3 // 8), 3), alternating_balance(scores, 3, 8))


@pytest.mark.parametrize(("seed", "k"), [(0, 1), (1, 2), (2, 3)])
def test_a_random_router_gets_the_loads_asked_for(seed, k):
    rng = np.random.default_rng(seed)
    m, E = 3000, 7
    share = rng.dirichlet(np.full(E, 30.0))
    loads = np.round(share * m * k).astype(int)
    x = rng.standard_normal((m, 10)) + rng.standard_normal(10)
    chosen = random_choice(x, 0.4, loads, k, seed)
    got = np.bincount(chosen.ravel(), minlength=E)
    assert chosen.shape == (m, k) and all(len(set(row)) == k for row in chosen.tolist())
    free = np.abs(np.bincount(random_choice(x, 0.4, np.full(E, m * k // E), k, seed).ravel(), minlength=E) - loads)
    assert np.abs(got - loads).max() < 0.12 * m * k / E < free.max()
    assert not np.array_equal(chosen, random_choice(x, 0.4, loads, k, seed + 50))


def test_a_bias_needs_experts_to_choose_from():
    with pytest.raises(ValueError, match="k must be from 1 to E - 1 = 3, but 4 came"):
        bias_for_loads(np.ones((5, 4)), np.ones(4, int), 4)


def test_sizes_inside_experts_are_those_of_the_layer(make, tokens):
    """By hand from the weights: largest activation over both layers, size of each token's sum."""
    model = make()
    parts = list(model.moe_layers().values())
    inputs = []
    handles = [part.register_forward_pre_hook(lambda _, given: inputs.append(given[0])) for part in parts]
    with torch.no_grad(), expert_sizes(parts) as seen:
        model(tokens)
    for handle in handles:
        handle.remove()
    largest, sums = 0.0, []
    for part, x in zip(parts, inputs, strict=True):
        x = x.flatten(0, 1)
        experts, weights, _ = part.gate(x)
        z, w = part.routed_expert_down_proj(x), part.experts
        u = torch.zeros_like(z)
        for i, (chosen, shares) in enumerate(zip(experts.tolist(), weights, strict=True)):
            for e, p in zip(chosen, shares, strict=True):
                hidden = part.act(w.w1[e] @ z[i], w.w3[e] @ z[i])
                largest = max(largest, hidden.abs().max().item())
                u[i] += p * (w.w2[e] @ hidden)
        sums.append(part.routed_expert_norm(u).square().mean(-1).sqrt())
    assert seen.largest == pytest.approx(largest, rel=1e-4) and largest > 0
    assert torch.allclose(torch.cat(seen.sums), torch.cat(sums), rtol=1e-3)
    before = seen.largest
    model(tokens * 0 + 5)
    assert seen.largest == before and len(seen.sums) == len(parts)        # it no longer looks
    seen.clear()
    assert seen.largest == 0.0 and not seen.sums
