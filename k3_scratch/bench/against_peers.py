"""KDA forward, and forward with backward, against transformers and flash-linear-attention.

`transformers` is its chunk_kimi_delta_attention, `fla` its naive_chunk_kda, and `gated delta rule` the
torch_chunk_gated_delta_rule of transformers: an easier problem, one decay per head, so there a ratio near 1 is much.
"""

import torch

from k3_scratch.bench.goals import GOALS, Row
from k3_scratch.bench.harness import interleave, median_ratio
from k3_scratch.bench.inputs import differentiate, direction_of, kda_inputs, scalar_gates, spread_gates
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.truth import check_gradients, check_output, true_gradients, true_output
from k3_scratch.layers.kda import kda_chunk

OURS = "k3_scratch"
TRANSFORMERS, FLA, GATED_DELTA = "transformers", "fla", "gated delta rule"


def ours(q, k, v, g, beta):
    """[B, T, H, K] x 2, [B, T, H, V], [B, T, H, K], [B, T, H] -> [B, T, H, V]"""
    return kda_chunk(q, k, v, g, beta)[0]


def measure_forward(plan, peers):
    """Forward on all shapes: rows for each peer and shape, and a median for each peer over several shapes."""
    with torch.no_grad():
        return _measure(plan, "forward", plan.forward, lambda shape: _functions(peers, plan.fla_widest >= shape.K))


def measure_training(plan, peers):
    """Forward and backward; fla is left out, since its gradients are not finite at K3's gates."""
    return _measure(plan, "fwd+bwd", plan.training, lambda shape: _functions(peers, False))


def _functions(peers, with_fla):
    functions = {OURS: ours, TRANSFORMERS: peers.kda, GATED_DELTA: peers.gated_delta}
    return functions | ({FLA: peers.fla} if with_fla else {})


def _measure(plan, kind, shapes, functions_for):
    training = kind == "fwd+bwd"
    goals = {TRANSFORMERS: GOALS["training over transformers" if training else "forward over transformers"],
             FLA: GOALS["forward over fla"], GATED_DELTA: GOALS["over the gated delta rule"]}
    median_goals = goals | ({} if training else {TRANSFORMERS: GOALS["forward over transformers, median"]})
    ratios, rows, arrays = {}, {}, []
    for shape in shapes:
        functions = functions_for(shape)
        inputs, timed = _time(plan, shape, functions, training)
        errors = _errors(shape, inputs, timed.results, training)
        arrays.append({"shape": list(shape), "errors": errors,
                       "milliseconds": {name: 1e3 * timed.median(name) for name in functions}})
        for peer in list(functions)[1:]:
            easier = peer == GATED_DELTA                                 # there it is our time over the peer's
            ratio = timed.ratio(OURS, peer) if easier else timed.ratio(peer, OURS)
            ratios.setdefault(peer, []).append(ratio)
            note = f"errors: ours {errors[OURS]:.0e}, peer {errors[peer]:.0e}"
            rows.setdefault(peer, []).append(Row.of(f"{_title(kind, peer)}, {shape}", ratio, goals[peer], note=note))
    for peer, all_of_them in ratios.items():
        if len(all_of_them) > 1:
            rows[peer].append(Row.of(f"{_title(kind, peer)}, median of {len(all_of_them)}", median_ratio(all_of_them),
                                     median_goals[peer]))
    return Measured([row for peer in (TRANSFORMERS, FLA, GATED_DELTA) for row in rows.get(peer, [])],
                    {kind: arrays})


def _title(kind, peer):
    return f"{kind}, time over {peer}" if peer == GATED_DELTA else f"{kind} over {peer}"


def _time(plan, shape, functions, training):
    """-> {peer: its inputs}, Timed"""
    plain = kda_inputs(shape)
    inputs = {name: scalar_gates(plain) if name == GATED_DELTA else plain for name in functions}
    direction = direction_of(plain[2])
    contenders = {
        name: (lambda f=function, x=inputs[name]: differentiate(f, x, direction)) if training
        else (lambda f=function, x=inputs[name]: f(*x)) for name, function in functions.items()}
    return inputs, interleave(contenders, plan.rounds, least_seconds=plan.least_seconds)


def _errors(shape, inputs, results, training):
    """{peer: error of what was timed}: of the gradients where there are some. Raises Disagreement."""
    want = {False: inputs[OURS], True: spread_gates(inputs[GATED_DELTA])}
    if not training:
        want = {easier: true_output(x) for easier, x in want.items()}
        return {name: check_output(name, shape, o, want[name == GATED_DELTA]) for name, o in results.items()}
    want = {easier: true_gradients(x, direction_of(x[2])) for easier, x in want.items()}
    errors = {}
    for name, (o, gradients) in results.items():
        true_o, true_g = want[name == GATED_DELTA]
        check_output(name, shape, o, true_o)
        if name == GATED_DELTA:                                          # its g is the sum over the channels of ours
            true_g = [*true_g[:3], true_g[3].sum(-1), true_g[4]]
        errors[name] = check_gradients(name, f"the gradients of {shape}", gradients, true_g)
    return errors
