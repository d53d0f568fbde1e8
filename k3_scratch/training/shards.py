"""One batch on several cores: its rows are dealt out to threads, each goes forward and back, the gradients are added.

A small model spends its time in many small operations, and splitting each of them over the cores gains little. Two half
batches side by side keep both cores busy. The sum runs in a fixed order, so the result does not depend on timing.
"""

from concurrent.futures import ThreadPoolExecutor

import torch

from k3_scratch.layers.latent_moe import PART
from k3_scratch.training.evaluate import batch_loss


class ShardedGradient:
    """`gradient(batch)` sets every parameter's `.grad` and returns the loss; use as a context manager.

    shards   parts a batch is cut into, one thread each; 1: no threads. The bits of a run depend on this number, not on
             the cores there are.
    """

    def __init__(self, model, shards, device):
        self.model, self.shards, self.device = model, shards, device
        self.parameters = list(model.parameters())

    def __enter__(self):
        self.pool = None
        if self.shards > 1:                                              # each thread computes on one core
            self.pool = ThreadPoolExecutor(self.shards, initializer=torch.set_num_threads, initargs=(1,))
        return self

    def __exit__(self, *_):
        if self.pool is not None:
            self.pool.shutdown()

    def __call__(self, batch):
        for moe in self.model.moe_layers().values():
            moe.forget_observed()
        parts = [batch.rows(slice(i, None, self.shards)) for i in range(self.shards)]
        parts = [part for part in parts if len(part.tokens)]             # fewer rows than shards
        shares = [len(part.tokens) / len(batch.tokens) for part in parts]
        run = map if self.pool is None else self.pool.map
        results = list(run(self._one, range(len(parts)), parts, shares))
        for parameter, gradients in zip(self.parameters, zip(*(g for _, g in results), strict=True), strict=True):
            there = [gradient for gradient in gradients if gradient is not None]
            parameter.grad = sum(there[1:], there[0]) if there else None
        return sum(loss for loss, _ in results)

    def _one(self, number, part, share):
        """Loss and gradients of a part, weighted by its share of the rows."""
        PART.set(number)
        loss = batch_loss(self.model, part, self.device)[0] * share
        return loss.detach(), torch.autograd.grad(loss, self.parameters, allow_unused=True)
