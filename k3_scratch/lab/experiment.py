"""The words an experiment is written in, and how one is found.

    EXPERIMENT = Experiment(
        name="rewrite", letter="c", title="A key written again", question="...", setup="...",
        variants=(Variant("KDA", "the mixer", {"layers": "kda,kda"}), Variant("DeltaNet", "the mixer",
                  {"layers": "delta_net,delta_net"})),
        common={"ffn": "swiglu", "residual": "plain", "learning_rate": 5e-3},
        task=Rewrite(), steps=700, seeds=3, measure=train_cell, matched="parameters", tolerance=0.08,
        claims=(Above("...", "accuracy", better=("KDA",), worse=("linear attention",)),),
        expected="...", seconds=40, quick=Quick(steps=20))

An argument is a field of K3Config, of trainer.Recipe, or what `baselines.frame.build` takes; `measure` may read others.
"""

import dataclasses
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k3_scratch.lab.models import build_model

FOLDER = Path(__file__).parent / "experiments"


class LabError(ValueError):
    """An experiment cannot be run as it is written; the message names it, what was wanted and what came."""


@dataclass(frozen=True)
class Variant:
    """One of the things compared. It differs in one argument from the first variant, or from the one it names."""

    name: str
    differs: str                          # the one thing, in words
    build: dict = field(default_factory=dict)   # arguments of its own
    against: str | None = None            # name of the variant from which it differs in one thing; None: the first
    cost: float = 1.0                     # its seconds, as a factor on the experiment's


@dataclass(frozen=True)
class Size:
    """A size at which all variants, or some, are measured."""

    name: str = ""
    build: dict = field(default_factory=dict)   # arguments, the same for every variant
    task: Any = field(default_factory=dict)     # fields of the task that change, or another task
    only: tuple = ()                      # names of the variants measured here; (): all


@dataclass(frozen=True)
class Quick:
    """What `--quick` changes: the same code in seconds, and no result."""

    seeds: int = 2
    steps: int | None = 20
    variants: tuple = ()                  # names; (): all
    sizes: tuple = ()
    build: dict = field(default_factory=dict)
    seconds: float = 2.0                  # one cell


@dataclass(frozen=True)
class Paper:
    """What a paper found about the same question."""

    source: str
    says: str                             # one sentence in our words
    values: dict = field(default_factory=dict)  # {label: number}, drawn beside our figure; {}: no such figure
    label: str = ""                       # what the numbers are


@dataclass(frozen=True)
class Experiment:
    """One experiment; `checked` is called by `load`, so a wrong one is refused before anything runs."""

    name: str                             # of its file, its JSON and its figure
    letter: str                           # its place in the gallery
    title: str
    question: str
    setup: str                            # one paragraph: task, sizes, budget
    variants: tuple
    measure: Callable                     # Job -> {"values": {name: number}, "curve": {name: [numbers]}, ...}
    expected: str                         # the picture expected, written before the first run
    claims: tuple                         # Above and Within of summary.py, written before the first run
    draw: Callable                        # result (the JSON as a dict) -> Figure
    alt: str                              # what the figure shows, for those who cannot see it
    seconds: float | dict                 # CPU seconds of a cell, or {size name: seconds}
    matched: str = "parameters"           # "parameters", "active compute" or "nothing: and why"
    tolerance: float = 0.05               # largest relative difference that still counts as matched
    task: Any = None                      # None: there is no model
    model: Callable = build_model         # (arguments, vocab_size, seed) -> Frame, for arguments of an experiment's own
    lengths: dict = field(default_factory=dict)  # {value name: fields of the task}: evaluated there too
    common: dict = field(default_factory=dict)   # arguments of every variant
    tied: tuple = ()                      # arguments that count as one, because `setup` says why they move together
    sizes: tuple = (Size(),)
    steps: int | None = None
    seeds: int = 3
    table: tuple = ()                     # names of the values in the table; (): all
    paper: Paper | None = None
    quick: Quick = Quick()

    def variant(self, name):
        """The variant called `name`; LabError lists those there are."""
        return _named("variant", self.variants, name)

    def size(self, name):
        """The size called `name`; LabError lists those there are."""
        return _named("size", self.sizes, name)

    def arguments(self, variant, size=None, quick=False):
        """All arguments of a variant at a size: common, then the size's, then its own.                    -> dict"""
        extra = self.quick.build if quick else {}
        return {**self.common, **(size.build if size else {}), **extra, **variant.build}

    def checked(self):
        """Itself. LabError when variants differ in more than one argument, names come twice, or words are wrong."""
        for kind, parts in (("variants", self.variants), ("sizes", self.sizes)):
            names = [part.name for part in parts]
            if not names or len(set(names)) < len(names):
                raise LabError(f"{self.name}: {kind} must have different names, at least one, but {names} came")
        if self.matched not in ("parameters", "active compute") and not self.matched.startswith("nothing: "):
            raise LabError(f"{self.name}: matched must be 'parameters', 'active compute' or 'nothing: reason', "
                           f"but {self.matched!r} came")
        for variant in self.variants[1:]:
            self.variant(variant.against or self.variants[0].name)
            different = self.differences(variant)
            if len(different) != 1:
                raise LabError(f"{self.name}: variant {variant.name!r} must differ from "
                               f"{variant.against or self.variants[0].name!r} in one argument, but it differs in "
                               f"{', '.join(different) or 'none'}")
        for claim in self.claims:
            claim.check(self)
        return self

    def differences(self, variant):
        """Names of the arguments in which a variant differs from the one it is compared with; tied ones are one."""
        mine, theirs = self.arguments(variant), self.arguments(self.variant(variant.against or self.variants[0].name))
        missing = object()
        names = [name for name in {**theirs, **mine} if mine.get(name, missing) != theirs.get(name, missing)]
        tied = [name for name in names if name in self.tied]
        return sorted(set(names) - set(tied)) + (["+".join(sorted(tied))] if tied else [])

    def task_at(self, size, changes=None):
        """The task at a size, with further fields changed; None stays None."""
        task, mine = (self.task, size.task) if isinstance(size.task, dict) else (size.task, {})
        changes = {**mine, **(changes or {})}
        return task if task is None or not changes else dataclasses.replace(task, **changes)


@dataclass(frozen=True)
class Job:
    """What `measure` is given: one cell."""

    experiment: Experiment
    variant: Variant
    size: Size
    seed: int
    quick: bool = False

    @property
    def arguments(self):
        """All arguments of this variant at this size."""
        return self.experiment.arguments(self.variant, self.size, self.quick)

    @property
    def steps(self):
        """Updates; None where nothing is trained."""
        quick = self.experiment.quick.steps
        return quick if self.quick and quick is not None else self.experiment.steps

    @property
    def task(self):
        """The task at this size; None where there is no model."""
        return self.experiment.task_at(self.size)

    @property
    def lengths(self):
        """{value name: task} of the further evaluations."""
        return {name: self.experiment.task_at(self.size, changes) for name, changes in self.experiment.lengths.items()}


def describe(task):
    """A task as text, the same in every process: its fields, whether it is a dataclass or not; None for None."""
    if task is None or dataclasses.is_dataclass(task):
        return None if task is None else repr(task)
    return f"{type(task).__name__}({', '.join(f'{name}={value!r}' for name, value in sorted(vars(task).items()))})"


def names(folder=FOLDER):
    """Names of all experiments, in alphabetical order."""
    return sorted(file.stem for file in Path(folder).glob("*.py") if file.stem != "__init__")


def load(name, folder=FOLDER):
    """The experiment in `folder`/NAME.py. LabError for an unknown name, or when it is wrong."""
    folder = Path(folder)
    if name not in names(folder):
        raise LabError(f"experiment must be one of {', '.join(names(folder)) or 'none'}, but {name!r} came")
    module = f"k3_scratch.lab.experiments.{name}" if folder == FOLDER else f"_lab_experiment_{name}"
    if folder == FOLDER:
        experiment = importlib.import_module(module).EXPERIMENT
    else:
        spec = importlib.util.spec_from_file_location(module, folder / f"{name}.py")
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[module] = loaded
        spec.loader.exec_module(loaded)
        experiment = loaded.EXPERIMENT
    if experiment.name != name:
        raise LabError(f"{folder / name}.py: name must be {name!r}, but {experiment.name!r} came")
    return experiment.checked()


def load_all():
    """All experiments in the gallery's order."""
    return sorted((load(name) for name in names()), key=lambda each: (each.letter, each.name))


def _named(kind, parts, name):
    for part in parts:
        if part.name == name:
            return part
    raise LabError(f"{kind} must be one of {', '.join(repr(part.name) for part in parts)}, but {name!r} came")
