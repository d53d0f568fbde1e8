"""Errors of KDA in float32 on seven kinds of gates, against the token loop in float64."""

import math

from k3_scratch.bench.against_peers import ours
from k3_scratch.bench.goals import GOALS, Row, finite
from k3_scratch.bench.inputs import GATE_CASES, differentiate, direction_of, kda_inputs
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.truth import relative_error, true_gradients

NAMES = ("q", "k", "v", "g", "beta")


def measure(plan, peers=None):
    """The worst case forward and backward; errors relative to the largest number of each true array."""
    outputs, gradients = {}, {}
    for case in GATE_CASES:
        inputs = kda_inputs(plan.accuracy, case)
        direction = direction_of(inputs[2])
        o, got = differentiate(ours, inputs, direction)
        true_o, want = true_gradients(inputs, direction)
        outputs[case] = relative_error(o, true_o)
        gradients[case] = {name: relative_error(g, w) for name, g, w in zip(NAMES, got, want, strict=True)}
    worst = {case: max(errors.values()) for case, errors in gradients.items()}
    rows = [_row("forward", outputs), _row("gradients", worst)]
    arrays = {"shape": list(plan.accuracy), "forward": {case: finite(e) for case, e in outputs.items()},
              "gradients": {case: {name: finite(e) for name, e in errors.items()}
                            for case, errors in gradients.items()}}
    return Measured(rows, {"accuracy": arrays})


def _row(kind, errors):
    case = max(errors, key=errors.get)
    finite_all = "all finite" if math.isfinite(errors[case]) else "NOT FINITE"
    return Row(f"accuracy on {len(errors)} kinds of gates, {kind}", errors[case], GOALS[f"accuracy, {kind}"], unit="",
               note=f"worst: {case}; {finite_all}")
