"""KDA against what the machine can do at best, and against our own token loop."""

import torch

from k3_scratch.bench.against_peers import OURS, ours
from k3_scratch.bench.gemm import GEMM_FLOPS, gemm, kda_flops
from k3_scratch.bench.goals import GOALS, Row
from k3_scratch.bench.harness import interleave
from k3_scratch.bench.inputs import differentiate, direction_of, kda_inputs
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.truth import check_gradients, check_output, true_gradients, true_output
from k3_scratch.layers.kda import kda_recurrent


def measure(plan, peers=None):
    """Time over FLOPs / GEMM rate, forward and forward with backward."""
    shape, inputs = plan.limit, kda_inputs(plan.limit)
    direction = direction_of(inputs[2])
    timed = interleave({"gemm": gemm(), "forward": _forward(ours, inputs),
                        "training": lambda: differentiate(ours, inputs, direction)},
                       plan.rounds, least_seconds=plan.least_seconds)
    true_o, true_g = true_gradients(inputs, direction)
    errors = {"forward": check_output(OURS, shape, timed.results["forward"], true_o),
              "training": check_gradients(OURS, shape, timed.results["training"][1], true_g)}
    rows = []
    for kind, training, title in (("forward", False, "forward"), ("training", True, "fwd+bwd")):
        ratio = timed.ratio(kind, "gemm", GEMM_FLOPS / kda_flops(shape, training))
        rows.append(Row.of(f"{title} over the GEMM limit, {shape}", ratio, GOALS["over the GEMM limit"],
                           note=f"{1e3 * timed.median(kind):.1f} ms, error {errors[kind]:.0e}"))
    return Measured(rows, {"limit": {"shape": list(shape), "milliseconds": {
        kind: 1e3 * timed.median(kind) for kind in timed.seconds}}}, tuple(timed.seconds["gemm"]))


def measure_token_loop(plan, peers=None):
    """Forward over the token loop, which walks through x.unbind(1)."""
    shape, inputs = plan.token_loop, kda_inputs(plan.token_loop)
    timed = interleave({OURS: _forward(ours, inputs), "loop": _forward(lambda *x: kda_recurrent(*x)[0], inputs)},
                       plan.rounds, least_seconds=plan.least_seconds)
    want = true_output(inputs)
    errors = [check_output(name, shape, timed.results[name], want) for name in (OURS, "loop")]
    return Measured([Row.of(f"forward over our own token loop, {shape}", timed.ratio("loop", OURS),
                            GOALS["forward over the token loop"],
                            note=f"errors: chunks {errors[0]:.0e}, loop {errors[1]:.0e}")])


def _forward(function, inputs):
    def call():
        with torch.no_grad():
            return function(*inputs)
    return call
