"""What a measurement hands back."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Measured:
    """rows [Row]; arrays {name: numbers, lists, dicts} for figures and JSON; gemm [R]: GEMM seconds, where it ran."""

    rows: list
    arrays: dict = field(default_factory=dict)
    gemm: tuple = ()
