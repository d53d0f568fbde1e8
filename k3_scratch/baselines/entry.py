"""The facts about one comparison part, from which the course's table of all of them is made."""

from collections.abc import Callable
from dataclasses import dataclass

PARTS = ("mixer", "ffn", "residual")


@dataclass(frozen=True)
class Baseline:
    """One entry of a registry. Called, it builds the part: `FFNS["swiglu"](config)` is `FFNS["swiglu"].make(config)`.

    Raises ValueError for a `part` that is none of PARTS or for an empty text.
    """

    name: str                     # the name by which the frame builds it
    part: str                     # which part of a layer it replaces: "mixer", "ffn" or "residual"
    used_by: str                  # models that have it
    equation: str                 # the one equation by which it differs from K3's part, in plain text
    source: str                   # paper or report
    make: Callable                # constructor: (config) for mixers and FFNs, (config, num_sublayers) for residuals

    def __post_init__(self):
        if self.part not in PARTS:
            raise ValueError(f"Baseline: part must be one of {', '.join(PARTS)}, but {self.part!r} came")
        for field in ("name", "used_by", "equation", "source"):
            if not getattr(self, field):
                raise ValueError(f"Baseline: {field} must be a text, but {getattr(self, field)!r} came")

    def __call__(self, *arguments, **keywords):
        return self.make(*arguments, **keywords)


def registry(*entries):
    """{name: entry}; two entries of one name raise ValueError."""
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"registry: the name {name!r} came twice")
    return dict(zip(names, entries, strict=True))
