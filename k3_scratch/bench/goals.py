"""The goals, and the rows that are held against them."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """floor: what must be reached; target: what is aimed at; None: none. direction: ">=" or "<=".

    why   said beside a row that misses its target: what stands in the way, and what was tried
    """

    floor: float | None
    target: float | None
    direction: str = ">="
    why: str = ""


NO_GOAL = Goal(None, None)

GOALS = {
    "forward over transformers": Goal(10, None),                # on each shape
    "forward over transformers, median": Goal(10, 15),
    "forward over fla": Goal(8, 11),
    "forward over the token loop": Goal(4, 5),
    "training over transformers": Goal(8, 15),
    "over the gated delta rule": Goal(1.3, 1.0, "<="),
    "over the GEMM limit": Goal(6, 3.5, "<=", "left are the scan's 32 steps (a quarter of the forward time), the solve "
                                "(a sixth of the GEMM rate), exponentials and cumulative sums; tried: a right-sided "
                                "solve, a hand-written gradient of the tiles, no copies"),
    "slope in T": Goal(1.1, 1.0, "<="),
    "accuracy, forward": Goal(1e-5, 2e-6, "<="),
    "accuracy, gradients": Goal(1e-4, 1e-5, "<=", "the worst is the gradient of g where all gates stand at -5: it is "
                                "almost zero itself, and what is left of it is rounding"),
    "decode at long context": Goal(1.15, 1.0, "<=", "the same step on the same state: what is above 1 is noise"),
    "training step over the token loop": Goal(2, 2.5, why="KDA's layers are only a third of the step in chunks; tried: "
                                              "hand-written gradients of norms, SiTU, unit keys and depth mixes"),
    "training step over its floor": Goal(None, 2.5, "<=", "its products are small (16 to 64 columns) and run far below "
                                         "the GEMM rate; tanh, exp, norms and sums cost as much again"),
    "decode with cache": Goal(3, None),
}


@dataclass(frozen=True)
class Row:
    """One line of the result.

    value, low, high   measured, with the quartiles of the rounds (None where there are no rounds)
    unit               "x" for ratios, else a word or nothing
    note               what a reader should know, such as the errors of what was timed
    """

    name: str
    value: float
    goal: Goal = NO_GOAL
    low: float | None = None
    high: float | None = None
    unit: str = "x"
    note: str = ""

    @classmethod
    def of(cls, name, ratio, goal=NO_GOAL, **more):
        """A row from a `Ratio`."""
        return cls(name, ratio.value, goal, ratio.low, ratio.high, **more)

    @property
    def remark(self):
        """The note, and why the target is missed where it is."""
        why = f"why not the target: {self.goal.why}" if self.met_target is False and self.goal.why else ""
        return "; ".join(filter(None, [self.note, why]))

    @property
    def met_floor(self):
        """Does the value reach the floor? None: there is no floor."""
        return self._meets(self.goal.floor)

    @property
    def met_target(self):
        """Does the value reach the target? None: there is no target."""
        return self._meets(self.goal.target)

    def _meets(self, bound):
        """True or False; None without a bound. The value is judged as it is printed, to three digits."""
        if bound is None:
            return None
        if not math.isfinite(self.value):
            return False
        printed = float(f"{self.value:.3g}")
        return printed >= bound if self.goal.direction == ">=" else printed <= bound

    def to_dict(self):
        """Plain values for JSON; a value that is not finite becomes None."""
        return {"name": self.name, "floor": self.goal.floor, "target": self.goal.target,
                "direction": self.goal.direction, "value": finite(self.value), "low": finite(self.low),
                "high": finite(self.high), "unit": self.unit, "met_floor": self.met_floor,
                "met_target": self.met_target, "met": self.met_target if self.met_floor is None else self.met_floor,
                "note": self.note}


def finite(value):
    """The number, or None for None, an infinity or NaN: JSON has no word for them."""
    return float(value) if value is not None and math.isfinite(value) else None
