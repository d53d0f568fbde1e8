"""One decode step of a KDA layer: the state does not know how much it has seen."""

import torch

from k3_scratch.bench.goals import GOALS, Row
from k3_scratch.bench.harness import Contender, interleave
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.truth import check_output
from k3_scratch.layers.kda_attention import KDACache, KimiDeltaAttention


@torch.no_grad()
def measure(plan, peers=None):
    """A whole layer with its cache at a long context over the same at a short one.

    The contexts are real: the tokens are fed in the chunk form, `kda_prefill` at a time. The size of the state is the
    same after any number of them, which is the point.
    """
    config = plan.model.replace(num_heads=plan.decode_heads, kda_key_dim=plan.decode_width,
                                kda_value_dim=plan.decode_width)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = KimiDeltaAttention(config)
        x = torch.randn(1, max(plan.kda_contexts) + 1, config.hidden_size)
    caches = {context: _filled(layer, x[:, :context], plan.kda_prefill) for context in plan.kda_contexts}
    _check(layer, x[:, :plan.kda_contexts[0] + 1], caches[plan.kda_contexts[0]])
    running, contenders = {}, {}
    for context, cache in caches.items():
        def step(context=context):
            return layer(x[:, context:context + 1], running[context])

        def start_again(context=context, cache=cache):
            running[context] = cache.clone()
        contenders[context] = Contender(step, start_again)
    timed = interleave(contenders, plan.rounds, least_seconds=plan.least_seconds)
    short, long = plan.kda_contexts
    row = Row.of(f"KDA decode step at context {long} over {short}", timed.ratio(long, short),
                 GOALS["decode at long context"],
                 note=f"{1e6 * timed.median(short):.0f} and {1e6 * timed.median(long):.0f} us, a whole layer")
    return Measured([row], {"kda_decode": {"contexts": list(plan.kda_contexts), "microseconds": [
        1e6 * timed.median(context) for context in plan.kda_contexts]}})


def _filled(layer, x, at_once):
    cache = KDACache(layer.config, 1, x.dtype, x.device)
    for start in range(0, x.shape[1], at_once):
        layer(x[:, start:start + at_once], cache)
    return cache


def _check(layer, x, cache):
    """The step after the prefill equals the last token of the whole. Raises Disagreement."""
    check_output("the decode step", "the token after the prefill", layer(x[:, -1:], cache.clone()), layer(x)[:, -1:])
