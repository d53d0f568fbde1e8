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
    outputs, gradients, sizes = {}, {}, {}
    for case in GATE_CASES:
        inputs = kda_inputs(plan.accuracy, case)
        direction = direction_of(inputs[2])
        o, got = differentiate(ours, inputs, direction)
        true_o, want = true_gradients(inputs, direction)
        outputs[case] = relative_error(o, true_o)
        gradients[case] = {name: relative_error(g, w) for name, g, w in zip(NAMES, got, want, strict=True)}
        sizes[case] = {name: w.abs().max().item() for name, w in zip(NAMES, want, strict=True)}
    case, name = max(((case, name) for case in gradients for name in NAMES), key=lambda at: gradients[at[0]][at[1]])
    smallness = sizes[case][name] / max(sizes[case].values())
    rows = [_row("forward", max(outputs.values()), max(outputs, key=outputs.get)),
            _row("gradients", gradients[case][name], f"that of {name}, {case}, {smallness:.0e} of the largest there")]
    arrays = {"shape": list(plan.accuracy), "forward": {case: finite(e) for case, e in outputs.items()},
              "gradients": {case: {name: finite(e) for name, e in errors.items()}
                            for case, errors in gradients.items()}}
    return Measured(rows, {"accuracy": arrays})


def _row(kind, error, where):
    return Row(f"accuracy on seven kinds of gates, {kind}", error, GOALS[f"accuracy, {kind}"], unit="",
               note=f"worst: {where}; {'all finite' if math.isfinite(error) else 'NOT FINITE'}")
