"""A batch cut into parts: the gradient, the loss and what the balancing sees are those of the whole batch."""

import numpy as np
import pytest
import torch

from k3_scratch.config import preset
from k3_scratch.model import K3
from k3_scratch.tasks.corpus import Corpus
from k3_scratch.training.shards import ShardedGradient


def whole_and_parts(shards, rows):
    """(loss, gradients by name, expert counts, sorted scores) with one part and with several."""
    results = []
    for parts in (1, shards):
        model = K3(preset("nano").replace(initializer_range=0.2), seed=1).double().train()
        with ShardedGradient(model, parts, torch.device("cpu")) as gradient:
            loss = gradient(Corpus(80).batch(np.random.default_rng(4), rows))
        moes = model.moe_layers().values()
        results.append((loss, {name: p.grad for name, p in model.named_parameters()},
                        [moe.expert_counts for moe in moes], [moe.observed_scores.sort(0).values for moe in moes]))
    return results


@pytest.mark.parametrize(("shards", "rows"), [(2, 4), (2, 5), (3, 5), (4, 2)])
def test_parts_add_up_to_the_whole(shards, rows):
    (loss, gradients, counts, scores), (loss2, gradients2, counts2, scores2) = whole_and_parts(shards, rows)
    torch.testing.assert_close(loss2, loss, rtol=1e-6, atol=0)           # the loss itself is float32
    for name, gradient in gradients.items():
        if gradient is None:
            assert gradients2[name] is None
        else:
            size = gradient.abs().max().item()
            difference = (gradients2[name] - gradient).abs().max().item()
            assert difference <= 1e-5 * size, name
    assert sum(gradient is not None and bool(gradient.any()) for gradient in gradients.values()) > 60
    for one, other in zip([*counts, *scores], [*counts2, *scores2], strict=True):
        torch.testing.assert_close(other.double(), one.double(), rtol=1e-9, atol=1e-12)


def test_every_part_is_seen_whatever_the_threads_do(trainer):
    """Short parts are over before the next thread has woken up, so one thread may do several of a batch."""
    run = trainer(shards=4, batch_size=4)
    moes, data = run.model.train().moe_layers().values(), run.data
    with ShardedGradient(run.model, 4, run.device) as gradient:
        for seed in range(12):
            gradient(data.batch(np.random.default_rng(seed), 4))
            assert [len(moe.observed_scores) for moe in moes] == [4 * 16] * 3, seed
            assert [int(moe.expert_counts.sum()) for moe in moes] == [4 * 16 * 2] * 3, seed


def test_one_thread_doing_all_parts_sees_all_parts(trainer, monkeypatch):
    """The same made certain: a pool of which only one thread ever gets work."""
    run = trainer(shards=2, batch_size=4)
    run.model.train()
    with ShardedGradient(run.model, 2, run.device) as gradient:
        monkeypatch.setattr(gradient.pool, "map", lambda *arguments: list(map(*arguments)))
        gradient(run.data.batch(np.random.default_rng(0), 4))
    for moe in run.model.moe_layers().values():
        assert moe.observed_scores.shape == (4 * 16, 6) and int(moe.expert_counts.sum()) == 4 * 16 * 2


def test_nothing_is_added_to_the_batch_before(trainer, step):
    """A gradient is that of its own batch, and so is what was observed."""
    run = trainer(shards=2)
    for _ in range(3):
        step(run)
        assert all(len(moe.observed_scores) == 2 * 16 for moe in run.model.moe_layers().values())
        assert all(p.grad is None for p in run.model.parameters())


def test_the_number_of_threads_is_put_back(trainer):
    before = torch.get_num_threads()
    trainer(steps=2).run()
    assert torch.get_num_threads() == before
