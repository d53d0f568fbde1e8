"""All measurements by name, and a run of some or all of them."""

import os
import platform
import time
from pathlib import Path

import numpy as np
import torch

from k3_scratch.bench import (
    accuracy,
    against_peers,
    breakdown,
    chunk_error,
    dispatch,
    kda_decode,
    limit,
    mla_decode,
    model_decode,
    time_against_length,
    training_step,
)
from k3_scratch.bench.gemm import GEMM_FLOPS
from k3_scratch.bench.peers import FOLDER, load_peers
from k3_scratch.training.allocator import keep_freed_memory
from k3_scratch.training.loop import versions

# name -> function of (plan, peers)
MEASUREMENTS = {
    "forward": against_peers.measure_forward,
    "token_loop": limit.measure_token_loop,
    "training": against_peers.measure_training,
    "limit": limit.measure,
    "time": time_against_length.measure,
    "accuracy": accuracy.measure,
    "kda_decode": kda_decode.measure,
    "training_step": training_step.measure,
    "model_decode": model_decode.measure,
    "mla_decode": mla_decode.measure,
    "dispatch": dispatch.measure,
    "breakdown": breakdown.measure,
    "chunk_error": chunk_error.measure,
}
NEED_PEERS = ("forward", "training", "time")


class UnknownMeasurement(ValueError):
    """A name that is not in MEASUREMENTS; the message lists those that are."""


def chosen(names=()):
    """The names to run, in the order of MEASUREMENTS; all of them for none. Raises UnknownMeasurement."""
    for name in names or ():
        if name not in MEASUREMENTS:
            raise UnknownMeasurement(f"only must be one of {', '.join(MEASUREMENTS)}, but {name!r} came")
    return [name for name in MEASUREMENTS if not names or name in names]


def run_suite(plan, names=(), *, peers=None, folder=FOLDER, say=lambda line: None):
    """Measure and return (rows [Row], result: plain values for JSON).

    names    measurements to run; empty: all
    peers    a `Peers`; None: loaded from the environment and `folder` when a measurement needs them
    say      called with a line before each measurement
    One thread, and freed memory is kept in the process, as `k3 train` does it, for all contenders alike.
    """
    names, before = chosen(names), torch.get_num_threads()
    if peers is None and any(name in NEED_PEERS for name in names):
        peers = load_peers(folder)
    kept = keep_freed_memory()
    rows, arrays, gemm_seconds, began = [], {}, [], time.perf_counter()
    load = load_average()
    torch.set_num_threads(1)
    try:
        for name in names:
            say(f"[{time.perf_counter() - began:5.0f} s] {name}")
            measured = MEASUREMENTS[name](plan, peers)
            rows += measured.rows
            arrays |= measured.arrays
            gemm_seconds += measured.gemm
    finally:
        torch.set_num_threads(before)
    return rows, {
        "plan": plan.name, "rounds": plan.rounds, "measurements": names,
        "rows": [row.to_dict() for row in rows],
        "gemm_gflops": GEMM_FLOPS / float(np.median(gemm_seconds)) / 1e9 if gemm_seconds else None,
        "versions": versions() | (peers.versions if peers else {}),
        "hardware": {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": 1, "load_average_before": load,
                     "load_average_after": load_average(), "freed_memory_kept": kept,
                     "seconds": time.perf_counter() - began},
        "arrays": arrays,
    }


def cpu_name(file="/proc/cpuinfo"):
    """The processor's own name where Linux tells it, else what Python knows."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def load_average():
    """Processes that wanted a core in the last minute, or None where nobody counts them (Windows)."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
