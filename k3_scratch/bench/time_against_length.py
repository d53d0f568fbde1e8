"""How the time grows with the length of the sequence, for KDA, its peers and softmax attention."""

import torch
import torch.nn.functional as F

from k3_scratch.bench.against_peers import OURS, ours
from k3_scratch.bench.goals import GOALS, Row
from k3_scratch.bench.harness import interleave, slope
from k3_scratch.bench.inputs import differentiate, direction_of, kda_inputs, scalar_gates
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.truth import check_gradients, check_output, true_gradients, true_output
from k3_scratch.layers.kda import kda_recurrent


def attention(q, k, v, g, beta):
    """Causal softmax attention of the same heads; it has no use for g and beta.              -> [B, T, H, V]"""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def measure(plan, peers):
    """Slopes of KDA forward and forward with backward; times of everybody for the picture."""
    forward = {OURS: ours, "token loop": lambda *x: kda_recurrent(*x)[0], "transformers": peers.kda, "fla": peers.fla,
               "gated delta rule": lambda q, k, v, g, beta: peers.gated_delta(*scalar_gates((q, k, v, g, beta))),
               "softmax attention": attention}
    training = {OURS: ours, "softmax attention": attention}
    with torch.no_grad():
        fast = _time(plan, forward, False)
    slow = _time(plan, training, True)
    rows, arrays = [], {"lengths": list(plan.lengths)}
    for kind, timed, functions in (("forward", fast, forward), ("fwd+bwd", slow, training)):
        error = _error(plan, timed, kind)
        slopes = {name: slope(timed, [(name, T) for T in plan.lengths], plan.lengths) for name in functions}
        arrays[kind] = {name: {"milliseconds": [1e3 * timed.median((name, T)) for T in plan.lengths],
                               "slope": slopes[name].value} for name in functions}
        rows.append(Row.of(f"{kind}, slope in T, {plan.lengths[0]} to {plan.lengths[-1]}", slopes[OURS],
                           GOALS["slope in T"], unit="", note=f"softmax attention "
                           f"{slopes['softmax attention'].value:.2f}; error {error:.0e}"))
    return Measured(rows, {"time": arrays})


def _time(plan, functions, training):
    """All lengths of all contenders in one interleaved run; the names are pairs (contender, T)."""
    contenders = {}
    for T in plan.lengths:
        inputs = kda_inputs(plan.length_shape._replace(T=T))
        direction = direction_of(inputs[2])
        for name, function in functions.items():
            if training:
                # attention has no gradient for g and beta, so both take those of q, k and v alone
                contenders[name, T] = lambda f=function, x=inputs, d=direction: differentiate(
                    lambda *qkv: f(*qkv, *x[3:]), x[:3], d) if f is attention else differentiate(f, x, d)
            else:
                contenders[name, T] = lambda f=function, x=inputs: f(*x)
    return interleave(contenders, plan.rounds, least_seconds=plan.least_seconds)


def _error(plan, timed, kind):
    """The largest error of what KDA computed while it was timed. Raises Disagreement."""
    errors = []
    for T in plan.lengths:
        inputs, result = kda_inputs(plan.length_shape._replace(T=T)), timed.results[OURS, T]
        if kind == "forward":
            errors.append(check_output(OURS, f"T = {T}", result, true_output(inputs)))
        elif plan.longest_truth >= T:
            want_o, want_g = true_gradients(inputs, direction_of(inputs[2]))
            check_output(OURS, f"T = {T}", result[0], want_o)
            errors.append(check_gradients(OURS, f"the gradients at T = {T}", result[1], want_g))
    return max(errors)
