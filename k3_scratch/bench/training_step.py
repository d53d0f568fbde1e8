"""One training step of the miniature: against the same model with the token loop, and against its floor."""

from contextlib import contextmanager

import numpy as np
import torch

import k3_scratch.layers.kda_attention as kda_layer
from k3_scratch.bench.gemm import GEMM_FLOPS, counted_flops, gemm
from k3_scratch.bench.goals import GOALS, Row
from k3_scratch.bench.harness import interleave
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.truth import check_output
from k3_scratch.layers.kda import kda_recurrent, kda_step
from k3_scratch.model import K3
from k3_scratch.tasks.corpus import Corpus
from k3_scratch.training.evaluate import batch_loss
from k3_scratch.training.muon import descend, make_optimizers
from k3_scratch.training.options import TrainOptions


@contextmanager
def token_loop(loop=kda_recurrent):
    """Inside the block every KDA layer runs token by token; afterwards in chunks again."""
    in_chunks = kda_layer.kda_chunk
    kda_layer.kda_chunk = loop
    try:
        yield
    finally:
        kda_layer.kda_chunk = in_chunks


def indexed_loop(q, k, v, g, beta, state=None, *, scale=None, documents=None):
    """The token loop as it is often written, with x[:, t]; each index makes a gradient as large as the whole of x."""
    B, T, H, K = q.shape
    state = v.new_zeros(B, H, K, v.shape[-1]) if state is None else state
    outputs = []
    for t in range(T):
        o, state = kda_step(state, q[:, t], k[:, t], v[:, t], g[:, t], beta[:, t], scale=scale)
        outputs.append(o)
    return torch.stack(outputs, 1), state


class TrainingStep:
    """What `k3 train` does in one update, on one thread: data, loss, gradients, clipping, optimisers, balancing."""

    def __init__(self, plan):
        self.options = TrainOptions(batch_size=plan.batch_size, length=plan.length)
        self.model, self.data, self.step = K3(plan.model, seed=0).train(), Corpus(plan.length), 0
        self.optimizers = make_optimizers(self.model, self.options.learning_rate, self.options.weight_decay)

    def __call__(self):
        """-> the loss before the update"""
        batch = self.data.batch(np.random.default_rng([0, self.step]), self.options.batch_size)
        loss, _ = batch_loss(self.model, batch)
        loss.backward()
        self.update()
        self.model.balance()
        self.step += 1
        return loss.item()

    def update(self):
        """Clip the gradients, move the parameters, forget the gradients."""
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip)
        descend(self.optimizers, self.options.learning_rate)


def measure(plan, peers=None):
    """Rows: token loops over chunks; step over (FLOPs / GEMM rate); milliseconds of a step."""
    chunked, looped, indexed = (TrainingStep(plan) for _ in range(3))
    _check(chunked)
    timed = interleave({"chunks": chunked, "loop": lambda: _with_token_loop(looped),
                        "indexed": lambda: _with_token_loop(indexed, indexed_loop), "gemm": gemm()}, plan.rounds,
                       least_seconds=plan.least_seconds)
    flops, tokens = counted_flops(chunked), plan.batch_size * plan.length
    milliseconds, rate = 1e3 * timed.median("chunks"), GEMM_FLOPS / timed.median("gemm")
    rows = [
        Row.of("training step over the same model with the token loop", timed.ratio("indexed", "chunks"),
               GOALS["training step over the token loop"],
               note=f"{plan.batch_size} x {plan.length} tokens; the loop as it is often written, with x[:, t]"),
        Row.of("training step over the same model with a loop through x.unbind(1)", timed.ratio("loop", "chunks"),
               note="our own token loop, whose gradient is linear in T"),
        Row.of("training step over its floor", timed.ratio("chunks", "gemm", GEMM_FLOPS / flops),
               GOALS["training step over its floor"],
               note=f"{flops / 1e9:.2f} GFLOP, {1e3 * flops / rate:.0f} ms at the GEMM rate"),
        Row("training step", milliseconds, unit="ms", note=f"{1e3 * tokens / milliseconds:,.0f} tokens/s"),
    ]
    return Measured(rows, {"training_step": {"flops": flops, "milliseconds": {
        name: 1e3 * timed.median(name) for name in timed.seconds}}}, tuple(timed.seconds["gemm"]))


def _with_token_loop(call, loop=kda_recurrent):
    with token_loop(loop):
        return call()


@torch.no_grad()
def _check(step):
    """Both forms of the model give the same logits. Raises Disagreement."""
    batch = step.data.batch(np.random.default_rng(0), 2)
    in_chunks = batch_loss(step.model, batch)[1]
    for loop in (kda_recurrent, indexed_loop):
        in_tokens = _with_token_loop(lambda: batch_loss(step.model, batch), loop)[1]
        check_output("the model in chunks", "a batch", in_chunks, in_tokens)
