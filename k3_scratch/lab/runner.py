"""All cells of some experiments in worker processes, and what is written when one experiment is complete.

A cell depends on its job alone and runs on one thread, so the numbers do not depend on how many run at a time.
"""

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager

from tqdm import tqdm

from k3_scratch.lab.cells import BUILD, read_cell, run_cell, run_cell_by_name
from k3_scratch.lab.experiment import FOLDER, LabError
from k3_scratch.lab.matching import check_matching
from k3_scratch.lab.results import make_result, write_result

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run_planned(planned, out, *, jobs=2, force=False, build=BUILD, folder=FOLDER, quiet=False, say=print):
    """Run what is missing of every `Planned` and write each result; returns {name: result}.

    out    folder of figures: NAME.png there, results/lab_NAME.json below it
    jobs   worker processes, one thread each; 0: in this process, for tests
    force  forget finished cells
    A cell that fails does not stop the others; at the end LabError names it, and its experiment writes nothing.
    """
    matching = {each.experiment.name: check_matching(each.experiment) for each in planned}    # before any training
    results, failed = {}, []
    with _pool(jobs) as pool:
        for each in planned:
            name = each.experiment.name
            done = {} if force else {i: cell for i, job in enumerate(each.jobs) if (cell := read_cell(job, build))}
            missing = {i: job for i, job in enumerate(each.jobs) if i not in done}
            bar = tqdm(total=len(each.jobs), initial=len(done), desc=name, disable=quiet, unit="cell",
                       dynamic_ncols=True)
            with bar:
                for i, cell, error in _measured(pool, missing, build, folder):
                    bar.update()
                    if error is None:
                        done[i] = cell
                    else:
                        failed.append((each.jobs[i], error))
                        if not quiet:
                            bar.write(f"{_label(each.jobs[i])}: {type(error).__name__}: {error}", file=bar.fp)
            if len(done) == len(each.jobs):
                results[name] = make_result(each, [done[i] for i in range(len(done))], matching[name])
                for path in write_result(results[name], each.experiment, out):
                    say(path)
    if failed:
        job, error = failed[0]
        raise LabError(f"{len(failed)} cells failed, first {_label(job)}: {error}") from error
    return results


def _measured(pool, jobs, build, folder):
    """(i, cell, None) or (i, None, error) of each job in {i: job}, in the order in which they finish."""
    if pool is None:
        for i, job in jobs.items():
            try:
                cell, error = run_cell(job, build), None
            except Exception as failure:
                cell, error = None, failure
            yield i, cell, error
        return
    waiting = {pool.submit(run_cell_by_name, folder, job.experiment.name, job.variant.name, job.size.name, job.seed,
                           job.quick, build): i for i, job in jobs.items()}
    try:
        for future in as_completed(waiting):
            error = future.exception()
            yield waiting[future], None if error else future.result(), error
    except BaseException:                                                # Ctrl-C: start nothing more
        for future in waiting:
            future.cancel()
        raise


@contextmanager
def _pool(jobs):
    """A pool of `jobs` fresh processes of one thread each; None for 0."""
    if jobs == 0:
        yield None
        return
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))                       # inherited by the workers, read at their start
    try:
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_start_worker,
                                 initargs=(os.getpid(),)) as pool:
            yield pool
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _start_worker(parent):
    """Ctrl-C ends a worker at once and without a word, and none outlives its parent; finished cells are on disk."""
    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=watch, daemon=True).start()


def _label(job):
    return " / ".join(filter(None, [job.experiment.name, job.variant.name, job.size.name, f"seed {job.seed}"]))
