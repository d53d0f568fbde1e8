"""Run a function in several processes that can talk to each other: for tests and notebooks, without torchrun.

The processes are started anew ("spawn"), as on every system, so the function must be one that can be imported.
"""

import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def run_processes(function, world, *arguments, timeout=600):
    """[function(rank, world, *arguments) of each process], in a gloo group of `world` processes on one thread each.

    function   importable by name (the top level of a module); arguments and results: tensors, plain data
    timeout    seconds after which a process that waits for another gives up
    Raises torch.multiprocessing.ProcessRaisedException or ProcessExitedException when a process fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_process, (function, world, folder, timeout, arguments), nprocs=world)
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=False) for rank in range(world)]


def _process(rank, function, world, folder, timeout, arguments):
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=timeout))
    try:
        torch.save(function(rank, world, *arguments), Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
