"""The training loop. A run is decided by (configuration, options): step s draws its batch from (seed, s) alone, so a
run that was interrupted and resumed ends with the same bits as one that was not."""

import json
import platform
import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import torch
from tqdm import tqdm

from k3_scratch import __version__
from k3_scratch.model import K3
from k3_scratch.tasks.corpus import FAMILIES
from k3_scratch.tasks.pictures import Pictures
from k3_scratch.training.allocator import keep_freed_memory
from k3_scratch.training.answers import picture_scores
from k3_scratch.training.checkpoint import CheckpointError, load_checkpoint, save_checkpoint, write_text
from k3_scratch.training.data import training_data
from k3_scratch.training.evaluate import accuracy, exact_match
from k3_scratch.training.memory import peak_memory_bytes
from k3_scratch.training.muon import descend, make_optimizers
from k3_scratch.training.ranks import Alone
from k3_scratch.training.run_folder import RunError, RunFolder, save_weights
from k3_scratch.training.schedule import learning_rate
from k3_scratch.training.trouble import explain_not_finite


class Interrupted(Exception):
    """Ctrl-C came: the run was saved after `step` updates and can be resumed."""

    def __init__(self, step):
        super().__init__(f"saved after {step} updates; the same command resumes")
        self.step = step


class Trainer:
    """One run: `Trainer(config, options, folder).run()` trains, resuming an unfinished run, and returns the summary.

    folder    where everything is written; a finished run there is refused unless `force`
    device    "auto" takes CUDA, then Apple's MPS, then the CPU
    ranks     the other processes of this run, see ranks.py; None: there are none. Rank 0 alone writes files
    """

    def __init__(self, config, options, folder, *, device="auto", force=False, quiet=False, ranks=None):
        self.config, self.options, self.folder, self.ranks = config, options, RunFolder(folder), ranks or Alone()
        self.quiet = quiet or not self.ranks.first
        if self.folder.finished and not force:
            raise RunError(f"{folder} holds a finished run; --force trains it anew")
        self.data = training_data(config, options.text, options.length)
        if config.vocab_size < self.data.vocab_size:
            raise RunError(f"vocab_size must be at least the {self.data.vocab_size} tokens of the data, "
                           f"but {config.vocab_size} came")
        if options.batch_size < self.ranks.world:
            raise RunError(f"batch_size must be at least the {self.ranks.world} processes, "
                           f"but {options.batch_size} came")
        self.device = choose_device(self.ranks.device_name(device))
        self.model = K3(config, seed=options.seed).to(self.device)
        self.model.recompute = options.recompute
        self.optimizers = make_optimizers(self.model, options.learning_rate, options.weight_decay, options.optimizer)
        self.step, self.seconds, self.counts = 0, 0.0, self._no_counts()
        if force and self.ranks.first:
            self.folder.clear()
        checkpoint = load_checkpoint(self.folder.checkpoint, self.device) if self.folder.checkpoint.exists() else None
        if self.ranks.first:
            self.folder.start(config, options)
        self.resume(checkpoint)

    def run(self):
        """Train to the end and return the summary (None on other ranks than 0). Ctrl-C saves and raises Interrupted."""
        options, stop = self.options, threading.Event()
        keep_freed_memory()
        progress = tqdm(total=options.steps, initial=self.step, disable=self.quiet, unit="step", dynamic_ncols=True,
                        mininterval=1.0)
        self.model.train()
        began = time.perf_counter()
        divided = self.ranks.gradient(self.model, options.shards, self.device)
        with progress, _interrupts_set(stop), _one_thread(), self._explained(), divided as gradient:
            self.ranks.check_same("the number of updates made", self.step)
            while self.step < options.steps:
                entry = self.train_step(gradient)
                stopping = self.ranks.any(stop.is_set())                 # the signal need not reach all in one update
                progress.update()
                progress.set_postfix(loss=f"{entry['loss']:.3f}", tokens_per_second=f"{entry['tokens_per_second']:.0f}")
                last = self.step == options.steps
                if last or self.step % options.validate_every == 0:
                    entry |= self.validate()
                    if not self.quiet:
                        progress.write(_validation_line(self.step, entry), file=progress.fp)
                if self.ranks.first:
                    self.folder.log(**entry)
                if last or stopping or self.step % options.checkpoint_every == 0:
                    self.save(began)
                if stopping and not last:
                    raise Interrupted(self.step)
        self.seconds += time.perf_counter() - began
        if not self.ranks.first:
            return None
        with _one_thread():
            return self.finish()

    def train_step(self, gradient):
        """One update from `gradient(batch)`; returns its line for metrics.jsonl."""
        options, began = self.options, time.perf_counter()
        batch = self.data.batch(np.random.default_rng([options.seed, self.step]), options.batch_size)
        loss = gradient(batch)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
        if not (torch.isfinite(loss) and torch.isfinite(norm)):
            raise explain_not_finite(self.model, batch, self.step, loss.item(), self.device)
        torch.nn.utils.clip_grads_with_norm_(parameters, options.clip, norm)
        rate = learning_rate(self.step, options.steps, options.learning_rate, options.warmup, options.final_rate)
        descend(self.optimizers, rate)
        if options.balance:
            self.ranks.balance(self.model)
        for layer, counts in self.ranks.expert_counts(self.model).items():
            self.counts[layer] += counts
        self.step += 1
        return {"step": self.step, "loss": loss.item(), "learning_rate": rate, "gradient_norm": norm.item(),
                "tokens_per_second": batch.tokens.size / (time.perf_counter() - began)}

    def validate(self):
        """Held-out accuracy and loss, and each MoE layer's load since the last validation (1 = a fair share)."""
        counts, self.counts = self.counts, self._no_counts()
        if not self.ranks.first:
            return {}
        by_family, loss = accuracy(self.model, self.data, "validation", self.options.validation_rows,
                                   device=self.device)
        load = {str(layer): (n / n.float().mean()).tolist() for layer, n in counts.items()}
        return {"validation_accuracy": by_family, "validation_loss": loss, "load": load}

    def finish(self):
        """Test on the third split, write weights and summary, remove the checkpoint."""
        options = self.options
        tested, loss = accuracy(self.model, self.data, "test", options.test_rows, device=self.device)
        if isinstance(self.data, Pictures):
            written = picture_scores(self.model, self.data, "test", options.test_rows, device=self.device)
        else:
            families = [name for name in tested if name in FAMILIES]
            written = {"exact_match": exact_match(self.model, families, "test", options.exact_examples)}
        summary = {
            "accuracy": tested, "mean_accuracy": float(np.mean(list(tested.values()))), "test_loss": loss,
            **written, "train_seconds": self.seconds,
            "tokens_per_second": options.steps * options.batch_size * options.length / self.seconds,
            "peak_memory_bytes": peak_memory_bytes(self.device), "steps": options.steps, "seed": options.seed,
            "parameters": sum(p.numel() for p in self.model.parameters()), "device": str(self.device),
            "shards": options.shards, "processes": self.ranks.world, "versions": versions(),
        }
        save_weights(self.model, self.folder.weights)
        write_text(self.folder.summary, json.dumps(summary, indent=2) + "\n")
        self.folder.checkpoint.unlink(missing_ok=True)
        return summary

    def save(self, began):
        """Write the checkpoint from which `resume` goes on."""
        if not self.ranks.first:
            return
        save_checkpoint(self.folder.checkpoint, {
            "step": self.step, "seconds": self.seconds + time.perf_counter() - began, "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "counts": self.counts})

    def resume(self, checkpoint):
        """Go on from a checkpoint; None: begin, and drop the metrics of an attempt that saved nothing."""
        if checkpoint is None:
            if self.ranks.first:
                self.folder.metrics.unlink(missing_ok=True)
            return
        try:
            self.model.load_state_dict(checkpoint["model"])
            for optimizer, state in zip(self.optimizers, checkpoint["optimizers"], strict=True):
                optimizer.load_state_dict(state)
            self.step, self.seconds, self.counts = (checkpoint[name] for name in ("step", "seconds", "counts"))
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = (str(error).splitlines() or ["no message"])[0]
            raise CheckpointError(f"{self.folder.checkpoint}: not a checkpoint of this run ({reason})") from error
        if self.ranks.first:
            self.folder.keep_metrics_until(self.step)

    @contextmanager
    def _explained(self):
        """An error that only says that the other processes are gone becomes one that says what to do."""
        try:
            yield
        except RuntimeError as error:
            told = self.ranks.explain(error, self.step, self._updates_on_disk)
            if told is error:
                raise
            raise told from None

    def _updates_on_disk(self):
        """Updates in the checkpoint that is really there and can be read; 0 without one."""
        try:
            return load_checkpoint(self.folder.checkpoint)["step"]
        except CheckpointError:
            return 0

    def _no_counts(self):
        return {layer: torch.zeros(self.config.num_experts, dtype=torch.int64, device=self.device)
                for layer in self.model.moe_layers()}


def choose_device(name):
    """The torch device of "auto", "cpu", "cuda" or "mps"; one that is not there raises RunError."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if there[kind]))
    if not there.get(name):
        present = [kind for kind, here in there.items() if here]
        raise RunError(f"device must be auto or one that is here ({', '.join(present)}), but {name!r} came")
    return torch.device(name)


def versions():
    """The software and hardware that a result depends on."""
    return {"k3_scratch": __version__, "python": platform.python_version(), "torch": torch.__version__,
            "numpy": np.__version__, "platform": platform.platform(terse=True), "machine": platform.machine()}


@contextmanager
def _interrupts_set(stop):
    """Ctrl-C sets `stop` inside, so that a step is never cut in two."""
    if threading.current_thread() is not threading.main_thread():        # signals belong to the main thread
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _one_thread():
    """PyTorch computes on one thread inside: the cores are kept busy by whole parts of a batch, see shards.py.

    Threads inside the small operations of a small model gain little, and cost much when the machine has other work.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _validation_line(step, entry):
    accuracies = "  ".join(f"{name} {value:.3f}" for name, value in entry["validation_accuracy"].items())
    return f"step {step:5d}  loss {entry['loss']:.3f}  held out: {accuracies}"
