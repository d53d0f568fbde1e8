"""The gradient of one batch over several processes: each takes every world-th row, PyTorch's DDP adds the gradients.

DistributedDataParallel sends gradients while the backward pass still computes earlier ones. It takes the *mean* over
processes, which is the gradient of the whole batch only if all have equally many rows; so each loss is weighted by its
share of the rows times the number of processes.

FSDP2 (`fully_shard`) also runs on CPUs with gloo and gives the same gradients (tests/training/test_ranks.py), but a
process then holds a slice of each matrix, and Muon needs whole heads and experts: training here uses DDP.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from k3_scratch.training.evaluate import batch_loss


class LossOf(nn.Module):
    """The loss as a module: DDP and FSDP work around a call of `forward`."""

    def __init__(self, model, device):
        super().__init__()
        self.model, self.device = model, device

    def forward(self, batch):
        return batch_loss(self.model, batch, self.device)[0]


class RankGradient:
    """`gradient(batch)` sets every parameter's `.grad` to that of the whole batch and returns the loss of all of it.

    Every process calls it with the same batch; use as a context manager like `ShardedGradient`.
    """

    def __init__(self, model, rank, world, device):
        self.model, self.rank, self.world, self.device = model, rank, world, device

    def __enter__(self):
        # Buffers are the selection biases, equal on all ranks by construction. The first layer's query over depth is
        # never used, and DDP must be told to expect that.
        self.loss = DistributedDataParallel(LossOf(self.model, self.device), forward_sync_buffers=False,
                                            find_unused_parameters=True)
        return self

    def __exit__(self, *_):
        self.loss = None

    def __call__(self, batch):
        for moe in self.model.moe_layers().values():
            moe.forget_observed()
        for parameter in self.model.parameters():
            parameter.grad = None
        part = batch.rows(slice(self.rank, None, self.world))
        share = len(part.tokens) / len(batch.tokens)
        loss = self.loss(part) * share
        (loss * self.world).backward()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return total.to(torch.float32)
