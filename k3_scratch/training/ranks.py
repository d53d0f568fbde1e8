"""Several processes train one model: `torchrun --nproc-per-node N -m k3_scratch train ...`.

Each process is a *rank*, from 0 to world - 1. All hold the whole model and draw the same batch; each computes the
gradient of its own rows (rank_gradient.py), the gradients are added, and all make the same update. Rank 0 alone writes
files. Processors talk through gloo, GPUs through NCCL.

`Alone` is the same interface for one process that was not started by torchrun: nothing is sent.
"""

import os
import signal
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from k3_scratch.layers.quantile_histogram import pooled_bias
from k3_scratch.training.rank_gradient import RankGradient
from k3_scratch.training.run_folder import RunError
from k3_scratch.training.shards import ShardedGradient

TIMEOUT = timedelta(minutes=10)      # without a word for so long a rank counts as lost; rank 0 validates within it
ROLL_CALL = 1.0                      # seconds in which the ranks that are left say so


class RankLost(RuntimeError):
    """Another process of the run has ended or hangs; the message says which, and how to go on."""


class Alone:
    """A run in one process."""

    rank, world, first = 0, 1, True

    def device_name(self, name):
        """The device that --device asks for, as `choose_device` takes it."""
        return name

    def gradient(self, model, shards, device):
        """The context manager whose `gradient(batch)` sets every `.grad`."""
        return ShardedGradient(model, shards if device.type == "cpu" else 1, device)

    def balance(self, model):
        """Set every selection bias from the last batch."""
        model.balance()

    def expert_counts(self, model):
        """{layer: tokens per expert in the last batch, of all ranks [E]}"""
        return {layer: moe.expert_counts for layer, moe in model.moe_layers().items()}

    def any(self, flag):
        """Is it so on one rank at least?"""
        return flag

    def check_same(self, name, value):
        """Refuse to go on when `value` is not the same on all ranks."""

    def first_then_all(self, make):
        """make() on rank 0, then on the others; an error on rank 0 ends them all, and it alone reports it."""
        return make()

    def explain(self, error, done, saved):
        """The exception to raise in place of `error`, after `done` updates; saved() says how many are on disk."""
        return error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Ranks(Alone):
    """This process among those that torchrun started; use as a context manager around everything.

    store, rank, world   from the rendezvous; None: read from torchrun's environment
    """

    def __init__(self, device="auto", store=None, rank=None, world=None):
        self.local = int(os.environ.get("LOCAL_RANK", 0))
        self.cuda = torch.cuda.is_available() and device in ("auto", "cuda")
        self.store, self.rank, self.world = next(rendezvous("env://")) if store is None else (store, rank, world)
        self.first, self.asked_to_stop = self.rank == 0, False

    @classmethod
    def of_group(cls):
        """The ranks of the group that this process is in already, on the CPU; there is nothing to enter."""
        return cls("cpu", dist.HashStore(), dist.get_rank(), dist.get_world_size())

    def __enter__(self):
        if self.cuda:
            if self.local >= torch.cuda.device_count():
                raise RunError(f"--nproc-per-node must be at most the {torch.cuda.device_count()} GPUs here")
            torch.cuda.set_device(self.local)
        dist.init_process_group("nccl" if self.cuda else "gloo", store=self.store, rank=self.rank,
                                world_size=self.world, timeout=TIMEOUT)
        self.handler = None
        if threading.current_thread() is threading.main_thread():        # torchrun ends ranks by SIGTERM: save first
            self.handler = signal.signal(signal.SIGTERM, lambda *_: setattr(self, "asked_to_stop", True))
        return self

    def __exit__(self, kind, error, _):
        if kind is not None and issubclass(kind, (RankLost, SystemExit)):
            return                                                       # nobody is left to say good-bye to
        dist.destroy_process_group()
        if self.handler is not None:
            signal.signal(signal.SIGTERM, self.handler)

    def device_name(self, name):
        if name == "mps":
            raise RunError("--device must be cpu or cuda under torchrun, but 'mps' came")
        return "cuda" if self.cuda else name if name != "auto" else "cpu"

    def gradient(self, model, shards, device):
        """Each rank is one part of the batch, so `shards` is not used."""
        return RankGradient(model, self.rank, self.world, device)

    @torch.no_grad()
    def balance(self, model):
        """Every selection bias from the histograms of all ranks' scores, added."""
        for moe in model.moe_layers().values():
            bias = moe.gate.e_score_correction_bias
            bias.copy_(pooled_bias(moe.observed_scores, bias, moe.gate.k, _added, _least))

    def expert_counts(self, model):
        mine = super().expert_counts(model)
        if not mine:
            return mine
        return dict(zip(mine, _added(torch.stack(list(mine.values()))), strict=True))    # [layers, E]

    def any(self, flag):
        return bool(self._sum(int(flag or self.asked_to_stop)))

    def check_same(self, name, value):
        values = [None] * self.world
        dist.all_gather_object(values, value)
        if len(set(values)) > 1:
            raise RunError(f"{name} must be the same on all ranks, which need one common run folder, but rank by rank "
                           f"it is {values}")

    def first_then_all(self, make):
        made, failed = None, True
        try:
            if self.first:
                made = make()
            failed = False
        finally:                                                         # an error goes its way after this
            failed = self._sum(int(failed))
        if failed:
            raise SystemExit(2)
        return made if self.first else make()

    def explain(self, error, done, saved):
        if not (isinstance(error, dist.DistError) or "gloo" in str(error).lower() or "nccl" in str(error).lower()):
            return error
        lost = self.roll_call()
        here = [rank for rank in range(self.world) if rank not in lost]
        if self.rank != here[0]:
            return SystemExit(2)                                         # one of those that are left reports it
        who = f"rank {', '.join(map(str, lost))} of {self.world}" if lost else f"a rank of {self.world}"
        what = "ended (killed, or by an error of its own)" if lost else f"did not answer for {TIMEOUT}"
        saved = saved()
        then = (f"the checkpoint after {saved} updates is good, and the same command resumes" if saved
                else "no checkpoint had been written; the same command starts anew")
        return RankLost(f"{who} {what} after {done} updates: {then}")

    def roll_call(self):
        """The ranks that do not answer. The store lives in torchrun itself, so it outlives every rank."""
        try:
            self.store.set(f"left/{self.rank}", "here")
            time.sleep(ROLL_CALL)
            return [rank for rank in range(self.world) if not self.store.check([f"left/{rank}"])]
        except RuntimeError:                                             # without torchrun rank 0 keeps the store
            return [0]

    def _sum(self, number):
        return int(_added(torch.tensor(number, device="cuda" if self.cuda else "cpu")))


def _added(numbers):
    """Whole numbers, summed over all ranks."""
    dist.all_reduce(numbers)
    return numbers


def _least(numbers):
    """The smallest over all ranks, element by element."""
    dist.all_reduce(numbers, dist.ReduceOp.MIN)
    return numbers


def ranks_of_this_process(device="auto"):
    """`Ranks` in a process that torchrun started, else `Alone`."""
    return Ranks(device) if dist.is_available() and dist.is_torchelastic_launched() else Alone()
