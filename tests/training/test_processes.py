"""Processes for tests and notebooks: results in order, and errors that say where they come from."""

import pytest
import torch
import torch.distributed as dist

from k3_scratch.training.processes import ProcessError, run_processes


def add_ranks(rank, world, offset):
    """offset + the sum of all ranks, heard from the others."""
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    return rank, world, torch.get_num_threads(), offset + total


def fail_on_one(rank, world):
    """Rank 1 makes a mistake while rank 0 waits for it."""
    if rank == 1:
        raise ValueError("a mistake of rank 1")
    dist.barrier()


def test_results_come_in_the_order_of_ranks():
    results = run_processes(add_ranks, 2, torch.tensor([10.0]))
    assert [result[:3] for result in results] == [(0, 2, 1), (1, 2, 1)]
    assert all(torch.equal(result[3], torch.tensor([11.0])) for result in results)


def test_an_error_is_named_and_ends_all():
    with pytest.raises(ProcessError, match="(?s)of 2 ended with exit status 1:.*(a mistake of rank 1|gloo)"):
        run_processes(fail_on_one, 2)
