"""The facts and the memory that keeps them."""

import numpy as np
import pytest
import torch

from k3_scratch.accounting.built import flops_built
from k3_scratch.lab.facts import Facts, memory
from k3_scratch.lab.recipe import Recipe
from k3_scratch.lab.trainer import train

TINY = {"ffn": "latent_moe", "labels": 5, "hidden_size": 12, "num_experts": 6, "num_experts_per_token": 2,
        "moe_intermediate_size": 7, "moe_latent_size": 8, "num_shared_experts": 0}


def test_a_fact_keeps_its_label_in_every_batch_and_split():
    task, known = Facts(50, 7, world=3), {}
    for seed, split in ((0, "train"), (1, "validation"), (2, "test")):
        batch = task.batch(np.random.default_rng(seed), 200, split)
        assert batch.tokens.shape == batch.targets.shape == (200, task.length)
        for fact, label in zip(batch.tokens.ravel().tolist(), batch.targets.ravel().tolist(), strict=True):
            assert 0 <= fact < task.vocab_size and known.setdefault(fact, label) == label
    assert len(known) == 50 and set(known.values()) == set(range(7))
    other = Facts(50, 7, world=4).batch(np.random.default_rng(0), 200)
    assert (other.targets != Facts(50, 7, world=3).batch(np.random.default_rng(0), 200).targets).mean() > 0.5


@pytest.mark.parametrize(("sizes", "name"), [((0, 4), "facts"), ((4, 1.5), "labels")])
def test_facts_refuse_sizes_that_are_none(sizes, name):
    with pytest.raises(ValueError, match=name):
        Facts(*sizes)


def test_a_memory_is_two_sublayers_over_fixed_vectors():
    model = memory(TINY, 9, seed=1).eval()
    tokens = torch.tensor([[3], [8], [0]])
    x = model.embed_tokens.weight[tokens]
    for i in range(2):
        x = x + model.ffns[i](model.norms[i](x))
    assert torch.allclose(model(tokens), model.norm(x) @ model.lm_head.weight.T)
    assert model(tokens).shape == (3, 1, 5) and not model.embed_tokens.weight.requires_grad
    assert not torch.equal(memory(TINY, 9, seed=2).embed_tokens.weight, model.embed_tokens.weight)


def test_the_work_of_a_memory_counts_all_its_matrices():
    router, latent, experts, head = 12 * 6, 2 * 12 * 8, 2 * 3 * 8 * 7, 12 * 5
    assert flops_built(memory(TINY, 9)).total == 2 * (2 * (router + latent + experts) + head)
    dense = memory({**TINY, "ffn": "dense", "intermediate_size": 10}, 9)
    assert flops_built(dense).total == 2 * (2 * 3 * 12 * 10 + head) and dense.moe_layers() == {}


@pytest.mark.parametrize("ffn", ["latent_moe", "dense"])
def test_a_memory_learns_and_its_vectors_stay(ffn):
    model, task = memory({**TINY, "ffn": ffn, "intermediate_size": 10}, 40, seed=0), Facts(40, 5)
    before = model.embed_tokens.weight.clone()
    random = torch.get_rng_state()
    trained = train(model, task, Recipe(steps=60, batch_size=64, learning_rate=2e-2, warmup=5, rows=128), 0)
    assert trained["accuracy"][-1] > 0.6 and torch.equal(model.embed_tokens.weight, before)
    assert all(bool(moe.gate.e_score_correction_bias.any()) for moe in model.moe_layers().values())
    memory(TINY, 9, seed=5)
    assert torch.equal(torch.get_rng_state(), random)
