"""The cells of an experiment, and whether they fit into the time there is.

Costs are CPU seconds as the experiment's file states them; limits are wall time on two cores, so twice that in CPU
seconds, whatever `--jobs` is.
"""

from dataclasses import dataclass

from k3_scratch.lab.experiment import Job, LabError

CORES = 2
MINUTES = {"suite": 90, "experiment": 15, "quick": 8}


@dataclass(frozen=True)
class Planned:
    """The jobs of one experiment and the CPU seconds they are expected to take."""

    experiment: object
    jobs: tuple
    seconds: float


def jobs_of(experiment, seeds=None, quick=False):
    """All cells: every variant at every size it is measured at, with seeds 0, 1, ...        -> tuple of Job"""
    variants, sizes = experiment.variants, experiment.sizes
    if quick:
        variants = [v for v in variants if not experiment.quick.variants or v.name in experiment.quick.variants]
        sizes = [s for s in sizes if not experiment.quick.sizes or s.name in experiment.quick.sizes]
    seeds = seeds if seeds is not None else experiment.quick.seeds if quick else experiment.seeds
    return tuple(Job(experiment, variant, size, seed, quick) for seed in range(seeds) for size in sizes
                 for variant in variants if not size.only or variant.name in size.only)


def seconds_of(job):
    """CPU seconds that a cell is stated to take."""
    if job.quick:
        return job.experiment.quick.seconds
    stated = job.experiment.seconds
    return (stated[job.size.name] if isinstance(stated, dict) else stated) * job.variant.cost


def plan(experiments, seeds=None, quick=False):
    """[Planned] of several experiments. LabError with the sum when it does not fit; nothing has run then.

    Cells that are done already count too: the limits are of the experiment, not of what is left of it.
    """
    if seeds is not None and seeds < 1:
        raise LabError(f"seeds must be at least 1, but {seeds} came")
    planned = []
    for experiment in experiments:
        jobs = jobs_of(experiment, seeds, quick)
        planned.append(Planned(experiment, jobs, sum(map(seconds_of, jobs))))
        need_fit(experiment.name, planned[-1].seconds, len(jobs), "quick" if quick else "experiment")
    total, cells = sum(each.seconds for each in planned), sum(len(each.jobs) for each in planned)
    need_fit("all together", total, cells, "quick" if quick else "suite")
    return planned


def need_fit(what, seconds, cells, kind):
    """LabError with the sum when `cells` of `seconds` CPU seconds in all are more than MINUTES[kind] on two cores."""
    minutes = MINUTES[kind]
    if seconds > CORES * 60 * minutes:
        raise LabError(f"{what}: {cells} cells of {seconds / cells:.0f} s in the mean are {seconds / 60:.0f} CPU "
                       f"minutes, {seconds / 60 / CORES:.0f} minutes on {CORES} cores, but at most {minutes} are "
                       "allowed")
