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

KDA, ABSORBED, EXPANDED, AGAIN = "KDA", "MLA, absorbed", "MLA, expanded cache", "MLA, expanded for each token"


@torch.no_grad()
def measure(plan, peers=None):
    """Microseconds and bytes at each context; without a shared key slice (r = 0), heads of one width."""
    H, K, R = plan.decode_heads, plan.decode_width, plan.decode_latent
    arrays = {"contexts": list(plan.contexts), "microseconds": {}, "bytes": {}}
    for context in plan.contexts:
        q, latent, w_kvb = _mla_inputs(context, H, K, R)
        none = latent[..., :0]                                           # the shared slice, zero wide  [1, S, 0]
        expanded = torch.einsum("bsr,hcr->bhsc", latent, w_kvb)
        keys, values = (x.contiguous() for x in expanded.split([K, K], -1))
        state = torch.zeros(1, H, K, K)
        token = [x.squeeze(1) for x in kda_inputs(Shape(1, 1, H, K, K))]
        contenders = {
            KDA: lambda state=state, token=token: kda_step(state, *token)[0],
            ABSORBED: lambda q=q, c=latent, s=none, w=w_kvb: mla_absorbed(q, c, s, w),
            EXPANDED: lambda q=q, k=keys, v=values: F.scaled_dot_product_attention(q.transpose(1, 2), k, v)}
        if context <= plan.reexpand_up_to:
            contenders[AGAIN] = lambda q=q, c=latent, s=none, w=w_kvb: mla_naive(q, c, s, w)
        timed = interleave(contenders, plan.rounds, least_seconds=plan.least_seconds)
        want = mla_naive(q.double(), latent.double(), none.double(), w_kvb.double())
        for name in set(timed.results) - {KDA}:
            o = timed.results[name]
            check_output(name, f"context {context}", o.transpose(1, 2) if name == EXPANDED else o, want)
        for name in (KDA, ABSORBED, EXPANDED, AGAIN):
            microseconds = 1e6 * timed.median(name) if name in contenders else None
            arrays["microseconds"].setdefault(name, []).append(microseconds)
        for name, size in ((KDA, state.nbytes), (ABSORBED, latent.nbytes), (EXPANDED, keys.nbytes + values.nbytes)):
            arrays["bytes"].setdefault(name, []).append(size)
    times, longest = arrays["microseconds"], plan.contexts[-1]
    row = Row(f"MLA absorbed over KDA, one step at context {longest}", times[ABSORBED][-1] / times[KDA][-1],
              note=f"bytes: KDA {arrays['bytes'][KDA][-1]}, latent {arrays['bytes'][ABSORBED][-1]}, "
                   f"expanded {arrays['bytes'][EXPANDED][-1]}")
    return Measured([row], {"decode": arrays})


def _mla_inputs(context, H, K, R):
    """q [1, 1, H, K], latents [1, S, R], w_kvb [H, 2K, R]"""
    generator = torch.Generator().manual_seed(context)
    q, latent, w = (torch.randn(*shape, generator=generator)
                    for shape in ((1, 1, H, K), (1, context, R), (H, 2 * K, R)))
    return q, latent, w * R ** -0.5
