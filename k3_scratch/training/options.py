"""What one training run is told, apart from the model's configuration."""

import dataclasses
from dataclasses import dataclass

from k3_scratch.config import is_integer, is_number


class OptionsError(ValueError):
    """An option of a run is impossible; the message names it, what was wanted and what came."""


@dataclass(frozen=True)
class TrainOptions:
    """Together with the configuration and the software versions these decide every bit of a run on one CPU."""

    steps: int = 2000                # updates
    batch_size: int = 32             # windows per update
    length: int = 80                 # tokens per window
    learning_rate: float = 5e-3      # peak, for Muon and AdamW alike
    warmup: float = 0.01             # share of the steps with a rising rate (K3: 1 %)
    final_rate: float = 0.02         # the cosine ends at this share of the peak
    weight_decay: float = 0.1        # decoupled, on matrices
    clip: float = 1.0                # largest norm of the whole gradient
    optimizer: str = "muon"          # "muon" (per head, AdamW for the rest) or "adamw" for everything
    balance: bool = True             # Quantile Balancing after each update
    recompute: bool = False          # recompute activations in the backward pass: less memory, more time
    shards: int = 2                  # parts of a batch that run at the same time, one CPU thread each
    seed: int = 0                    # of the initial weights and of the data
    text: str | None = None          # train on this file instead of the toy corpus
    validate_every: int = 200        # updates between validations
    validation_rows: int = 32        # windows per family in a validation
    test_rows: int = 512             # windows per family in the final test
    exact_examples: int = 128        # examples per family whose answers are generated in the final test
    checkpoint_every: int = 200      # updates between checkpoints

    def __post_init__(self):
        for name in ("steps", "batch_size", "length", "validate_every", "validation_rows", "test_rows",
                     "exact_examples", "checkpoint_every", "shards"):
            value = getattr(self, name)
            self._need(name, is_integer(value) and value >= 1, "a whole number, at least 1")
        self._need("seed", is_integer(self.seed) and 0 <= self.seed < 2 ** 63, "a whole number from 0 on")
        for name in ("learning_rate", "clip"):
            value = getattr(self, name)
            self._need(name, is_number(value) and 0 < value <= 1e3, "a number above 0 and at most 1000")
        for name in ("warmup", "final_rate", "weight_decay"):
            value = getattr(self, name)
            self._need(name, is_number(value) and 0 <= value <= 1, "a number from 0 to 1")
        for name in ("balance", "recompute"):
            self._need(name, isinstance(getattr(self, name), bool), "true or false")
        self._need("text", self.text is None or isinstance(self.text, str), "the path of a file, or null")
        self._need("optimizer", self.optimizer in ("muon", "adamw"), "muon or adamw")

    def _need(self, name, condition, wanted):
        if not condition:
            raise OptionsError(f"{name} must be {wanted}, but {getattr(self, name)!r} came")

    def to_dict(self):
        return dataclasses.asdict(self)


# What a run of a model with eyes takes unless it is told: rows with two pictures, and few rows of each kind in a test.
PICTURES = {"steps": 600, "length": 109, "validate_every": 100, "validation_rows": 16, "test_rows": 128}


def defaults(config, text=None):
    """TrainOptions of a run of `config` that is told nothing else; a `text` needs no pictures."""
    return TrainOptions(**(PICTURES if config.vision is not None and text is None else {}))
