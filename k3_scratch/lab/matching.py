"""Are the variants equal in what the experiment says they are equal in?"""

from k3_scratch.accounting.built import count_built, flops_built
from k3_scratch.lab.experiment import LabError

COUNTS = {"parameters": lambda model, context: count_built(model).total,
          "active compute": lambda model, context: flops_built(model, context).total}


def check_matching(experiment):
    """{size: {variant: {"parameters", "active compute"}}}; {} for an experiment without models.

    Each variant is compared with the one it differs from, at every size where both are measured. LabError when the
    relative difference is above the tolerance; with matched "nothing: ..." the numbers are counted and not compared.
    Active compute is FLOPs of one token with the rest of its sequence before it, half of it on average.
    """
    if experiment.task is None:
        if not experiment.matched.startswith("nothing: "):
            raise LabError(f"{experiment.name}: without a task there is no model, so matched must be 'nothing: reason'")
        return {}
    found = {}
    for size in experiment.sizes:
        task, numbers = experiment.task_at(size), {}
        for variant in experiment.variants:
            if not size.only or variant.name in size.only:
                model = experiment.model(experiment.arguments(variant, size), task.vocab_size, 0)
                numbers[variant.name] = {name: count(model, task.length // 2) for name, count in COUNTS.items()}
        if experiment.matched in COUNTS:
            _compare(experiment, size, numbers)
        found[size.name] = numbers
    return found


def _compare(experiment, size, numbers):
    for variant in experiment.variants:
        other = variant.against or experiment.variants[0].name
        if variant.name in numbers and other in numbers:
            mine, theirs = (numbers[name][experiment.matched] for name in (variant.name, other))
            if abs(mine - theirs) > experiment.tolerance * theirs:
                raise LabError(f"{experiment.name}: variants must be within {experiment.tolerance:.0%} in "
                               f"{experiment.matched}, but {variant.name!r} has {mine:,} and {other!r} {theirs:,}"
                               + (f" at {size.name}" if size.name else ""))
