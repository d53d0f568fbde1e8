"""One decode step against the length of the context: time and bytes of KDA and of the two forms of MLA."""

import torch
import torch.nn.functional as F

from k3_scratch.bench.goals import Row
from k3_scratch.bench.harness import interleave
from k3_scratch.bench.inputs import Shape, kda_inputs
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.truth import check_output
from k3_scratch.layers.kda import kda_step
from k3_scratch.layers.mla import mla_absorbed, mla_naive

KDA, ABSORBED, EXPANDED, AGAIN = "KDA", "MLA, absorbed", "MLA, expanded cache", "MLA, expanded anew"


@torch.no_grad()
def measure(plan, peers=None):
    """Microseconds and bytes at each context; MLA without a shared key slice (r = 0), all heads of one width.

    The expanded cache keeps keys and values of every head, as plain attention does; `expanded anew` makes them again
    from the latents for each token. The state of KDA is the same at every context, so its steps differ by noise alone.
    """
    contenders, truth, size = {}, {}, {}
    for context in plan.contexts:
        steps, truth[context], kept = _steps(context, plan.decode_heads, plan.decode_width, plan.decode_latent)
        if context > plan.reexpand_up_to:
            del steps[AGAIN]
        contenders |= {(name, context): step for name, step in steps.items()}
        for name, size_here in kept.items():
            size.setdefault(name, []).append(size_here)
    timed = interleave(contenders, plan.rounds, least_seconds=plan.least_seconds)
    for (name, context), o in timed.results.items():
        if name != KDA:
            check_output(name, f"context {context}", o, truth[context])
    microseconds = {name: [1e6 * timed.median((name, context)) if (name, context) in contenders else None
                           for context in plan.contexts] for name in (KDA, ABSORBED, EXPANDED, AGAIN)}
    longest = plan.contexts[-1]
    row = Row.of(f"one step, MLA absorbed over KDA, context {longest}",
                 timed.ratio((ABSORBED, longest), (KDA, longest)),
                 note="bytes: " + ", ".join(f"{name} {line[-1]:,}" for name, line in size.items()))
    return Measured([row], {"decode": {"contexts": list(plan.contexts), "microseconds": microseconds, "bytes": size}})


def _steps(context, H, K, R):
    """-> {name: step}, the true output of the MLA steps [1, 1, H, K], {name: bytes kept between two steps}"""
    generator = torch.Generator().manual_seed(context)
    q, latent, w_kvb = (torch.randn(*shape, generator=generator)
                        for shape in ((1, 1, H, K), (1, context, R), (H, 2 * K, R)))
    w_kvb *= R ** -0.5
    none = latent[..., :0]                                               # the shared slice, zero wide     [1, S, 0]
    keys, values = (x.contiguous() for x in torch.einsum("bsr,hcr->bhsc", latent, w_kvb).split([K, K], -1))
    state, token = torch.zeros(1, H, K, K), [x.squeeze(1) for x in kda_inputs(Shape(1, 1, H, K, K))]
    steps = {
        KDA: lambda: kda_step(state, *token)[0],
        ABSORBED: lambda: mla_absorbed(q, latent, none, w_kvb),
        EXPANDED: lambda: F.scaled_dot_product_attention(q.transpose(1, 2), keys, values).transpose(1, 2),
        AGAIN: lambda: mla_naive(q, latent, none, w_kvb)}
    truth = mla_naive(q.double(), latent.double(), none.double(), w_kvb.double())
    return steps, truth, {KDA: state.nbytes, ABSORBED: latent.nbytes, EXPANDED: keys.nbytes + values.nbytes}
