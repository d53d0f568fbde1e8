"""Run a function in several processes that can talk to each other: for tests and notebooks, without torchrun.

Each process is a Python of its own that reads what to do from a file, so it works the same on every system, and in a
notebook as in a script.
"""

import importlib
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


class ProcessError(RuntimeError):
    """One of the processes ended with an error; the message says which and the end of what it wrote."""


def run_processes(function, world, *arguments, timeout=600):
    """[function(rank, world, *arguments) of each process], in a gloo group of `world` processes on one thread each.

    function   one that can be imported: at the top level of a module;   arguments, results: tensors and plain data
    timeout    seconds after which a process that waits for another gives up
    Raises ProcessError when a process fails; the others are ended then.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        torch.save((function.__module__, function.__name__, timeout, arguments), folder / "task.pt")
        path = os.pathsep.join(filter(None, sys.path))                   # what can be imported here can be there
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
        written = [folder / f"{rank}.txt" for rank in range(world)]
        started = []
        try:
            for rank in range(world):
                with written[rank].open("wb") as file:
                    started.append(subprocess.Popen([sys.executable, "-m", __name__, folder, str(rank), str(world)],
                                                    stdout=file, stderr=file, env=environment))
            _wait(started, written)
        finally:
            for process in started:
                process.kill()
                process.wait()
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world)]


def _wait(started, written):
    """Until all have ended well or one has not."""
    while True:
        codes = [process.poll() for process in started]
        for rank, code in enumerate(codes):
            if code:
                text = written[rank].read_text(encoding="utf-8", errors="replace").strip()
                raise ProcessError(f"process {rank} of {len(codes)} ended with exit status {code}:\n{text[-2000:]}")
        if None not in codes:
            return
        time.sleep(0.02)


def main(folder, rank, world):
    """What a process does: join the group, call the function, leave the result in the folder."""
    folder, rank, world = Path(folder), int(rank), int(world)
    torch.set_num_threads(1)
    module, name, timeout, arguments = torch.load(folder / "task.pt", weights_only=False)
    function = getattr(importlib.import_module(module), name)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=timeout))
    try:
        torch.save(function(rank, world, *arguments), folder / f"{rank}.pt")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
