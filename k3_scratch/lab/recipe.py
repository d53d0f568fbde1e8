"""How a small model is trained: every number of it, each one a possible argument of an experiment."""

import dataclasses
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """How a model is trained. Each field can be an argument of an experiment.

    The rate rises for `warmup` updates, falls as a cosine to `final_rate` of the peak over `steps`, and stays there for
    at most `extra` updates while the curve still climbs. Training ends early when the task is solved: two evaluations
    in a row at or above `solved`. A curve is flat when the last three evaluations gained less than `flat` on the three
    before.
    """

    steps: int = 700
    extra: int = 0                   # further updates at the final rate, until the curve is flat
    batch_size: int = 32
    learning_rate: float = 4e-3
    depth_rate: float = 1.0          # factor on it for the queries of attention residuals; 0 holds them at zero
    warmup: int = 50
    final_rate: float = 0.1
    weight_decay: float = 0.01       # on matrices
    clip: float = 1.0
    optimizer: str = "adamw"         # "adamw"; "muon": whole matrices; "head_muon": each head and expert on its own
    balance: bool = True             # call model.balance() after each update
    evaluate_every: int = 50
    rows: int = 256                  # held-out rows of an evaluation
    solved: float = 0.998
    flat: float = 0.01

    def rate(self, step):
        """Learning rate of 0-based `step`."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        progress = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        return self.learning_rate * (self.final_rate + (1 - self.final_rate) * (1 + math.cos(math.pi * progress)) / 2)


RECIPE_FIELDS = {field.name for field in dataclasses.fields(Recipe)}


def recipe_of(arguments, steps=None):
    """The `Recipe` in an experiment's arguments."""
    given = {name: value for name, value in arguments.items() if name in RECIPE_FIELDS}
    return Recipe(**({"steps": steps} if steps is not None else {}) | given)
