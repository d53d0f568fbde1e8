"""Five ways to send tokens to their experts, forward and backward. All give the same numbers."""

import torch

from k3_scratch.bench.goals import Row
from k3_scratch.bench.harness import interleave
from k3_scratch.bench.inputs import differentiate, direction_of
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.truth import check_gradients, check_output
from k3_scratch.config import preset
from k3_scratch.layers.experts import grouped_product, looped_product
from k3_scratch.layers.situ import activation

act = activation(preset("mini"))


def loop_over_experts(z, weights, w1, w3, w2, experts):
    """Each expert looks for its tokens.

    z [m, L], weights [m, k], w1 and w3 [E, F, L], w2 [E, L, F], experts [m, k] -> [m, L]; so do all forms below.
    """
    out = torch.zeros_like(z)
    for e, (gate, up, down) in enumerate(zip(w1.unbind(), w3.unbind(), w2.unbind(), strict=True)):
        token, place = (experts == e).nonzero(as_tuple=True)
        x = z[token]
        y = act(x @ gate.mT, x @ up.mT) @ down.mT
        out = out.index_add(0, token, y * weights[token, place].unsqueeze(-1))
    return out


def sorted_with(product):
    """Visits are sorted by expert; `product` multiplies each expert's rows with its matrix."""
    def mixture(z, weights, w1, w3, w2, experts):
        order, token, counts = _sort(experts, w1.shape[0])
        ends, visits = counts.cumsum(0), z[token]
        y = product(act(product(visits, w1, ends), product(visits, w3, ends)), w2, ends)
        return torch.zeros_like(z).index_add(0, token, y * weights.flatten()[order].unsqueeze(-1))
    return mixture


def padded_bmm(z, weights, w1, w3, w2, experts):
    """Every expert gets as many rows as the busiest, most of them empty where the load is uneven."""
    order, token, counts = _sort(experts, w1.shape[0])
    expert = torch.repeat_interleave(counts)                             # of each visit  [m k]
    place = torch.arange(len(token)) - (counts.cumsum(0) - counts)[expert]
    x = z.new_zeros(w1.shape[0], int(counts.max()), z.shape[-1]).index_put((expert, place), z[token])
    y = torch.bmm(act(torch.bmm(x, w1.mT), torch.bmm(x, w3.mT)), w2.mT)[expert, place]
    return torch.zeros_like(z).index_add(0, token, y * weights.flatten()[order].unsqueeze(-1))


def dense_masked(z, weights, w1, w3, w2, experts):
    """Every expert computes every token; the weights of those that were not chosen are zero."""
    p = torch.zeros(z.shape[0], w1.shape[0]).scatter(1, experts, weights)            # [m, E]
    y = act(z @ w1.mT, z @ w3.mT) @ w2.mT                                # [E, m, L]
    return (p.mT.unsqueeze(-1) * y).sum(0)


FORMS = {"loop over experts": loop_over_experts, "sort, loop": sorted_with(looped_product),
         "sort, grouped product": sorted_with(grouped_product), "padded bmm": padded_bmm,
         "dense, masked": dense_masked}


def measure(plan, peers=None):
    """Milliseconds of each form at each number of experts, and how much faster the grouped product is than a loop."""
    rows, arrays = [], {"experts": list(plan.experts), "milliseconds": {name: [] for name in FORMS}}
    for E in plan.experts:
        inputs, experts = moe_inputs(plan, E)
        direction = direction_of(inputs[0])
        timed = interleave({
            name: lambda f=form, x=inputs, e=experts, d=direction: differentiate(lambda *leaves: f(*leaves, e), x, d)
            for name, form in FORMS.items()}, plan.rounds, least_seconds=plan.least_seconds)
        want, gradients = differentiate(lambda *leaves, e=experts: loop_over_experts(*leaves, e),
                                        [x.double() for x in inputs], direction.double())
        for name, (o, got) in timed.results.items():
            check_output(name, f"{E} experts", o, want)
            check_gradients(name, f"the gradients with {E} experts", got, gradients)
            arrays["milliseconds"][name].append(1e3 * timed.median(name))
        rows.append(Row.of(f"grouped product over a loop, {E} experts, fwd+bwd",
                           timed.ratio("loop over experts", "sort, grouped product")))
    return Measured(rows, {"moe": arrays})


def moe_inputs(plan, E):
    """-> [z [m, L], weights [m, k], w1, w3 [E, F, L], w2 [E, L, F]], experts [m, k]"""
    m, k, L, Fw = plan.moe_tokens, plan.moe_top, plan.moe_latent, plan.moe_hidden
    generator = torch.Generator().manual_seed(E)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    chosen = torch.sigmoid(normal(m, E)).topk(k, -1)
    weights = chosen.values / chosen.values.sum(-1, keepdim=True)
    return [normal(m, L), weights, L ** -0.5 * normal(E, Fw, L), L ** -0.5 * normal(E, Fw, L),
            Fw ** -0.5 * normal(E, L, Fw)], chosen.indices


def _sort(experts, E):
    """-> order of the visits by expert [m k], the token of each [m k], visits of each expert [E]"""
    order = experts.flatten().argsort(stable=True)
    return order, order // experts.shape[1], torch.bincount(experts.flatten(), minlength=E)
