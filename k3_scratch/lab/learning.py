"""How fast a task is learned: the trained cell, and the first step at which it is nearly right."""

from k3_scratch.lab.trainer import train_cell

GOAL, STEPS = 0.9, "steps to 90 %"


def learn_cell(job):
    """`measure` of experiments that ask for speed too: `train_cell`, and "steps to 90 %" among its values.

    Steps are counted to the first evaluation with at least 90 % of the answers right, so in units of `evaluate_every`.
    """
    measured = train_cell(job)
    curve = measured["curve"]
    measured["values"][STEPS] = float(first_step(curve["step"], curve["accuracy"]))
    return measured


def first_step(steps, accuracy, goal=GOAL):
    """The first of `steps` at which `accuracy` is at least `goal`; the last one when it never is.

    >>> first_step([50, 100, 150], [.3, .92, .89]), first_step([50, 100, 150], [.3, .4, .5])
    (100, 150)
    """
    return next((step for step, right in zip(steps, accuracy, strict=True) if right >= goal), steps[-1])
