"""Where an experiment's seeds are too few: cells that differ by less than three times their spread get five.

The suite has to fit into its minutes, so its plan gives most experiments three seeds. `k3 experiment NAME --close` then
looks at every comparison that a claim makes and adds seeds to both of its sides where the difference of the means, at
the experiment's own seeds, is smaller than three times the larger of the two standard deviations.
"""

from k3_scratch.lab.plan import Planned, jobs_of, need_fit, seconds_of
from k3_scratch.lab.summary import Above

SEEDS, TIMES = 5, 3


def close_cells(result, experiment):
    """{(variant, size)} of the cells in comparisons that are close.        result: the experiment's JSON as a dict

    Only the experiment's own seeds count, so that seeds added later do not change what is close.
    """
    own = {**result, "cells": [cell for cell in result["cells"] if cell["seed"] < experiment.seeds]}
    found = set()
    for claim in experiment.claims:
        if isinstance(claim, Above):
            for better, left, worse, right, size in claim.comparisons(own):
                if abs(left.mean - right.mean) < TIMES * max(left.sd, right.sd):
                    found |= {(better, size), (worse, size)}
    return found


def with_close(planned, result):
    """A `Planned` with the seeds that close cells lack. LabError when it no longer fits into its minutes."""
    experiment, more = planned.experiment, close_cells(result, planned.experiment)
    jobs = planned.jobs + tuple(job for job in jobs_of(experiment, SEEDS)
                                if (job.variant.name, job.size.name) in more and job not in planned.jobs)
    seconds = sum(map(seconds_of, jobs))
    need_fit(experiment.name, seconds, len(jobs), "experiment")
    return Planned(experiment, jobs, seconds)
