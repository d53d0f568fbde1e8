"""Where the time of a training step goes: each kind of part on its own, forward and backward, and the whole."""

import numpy as np
import torch
import torch.nn.functional as F

from k3_scratch.bench.goals import Row
from k3_scratch.bench.harness import interleave
from k3_scratch.bench.inputs import direction_of
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.training_step import TrainingStep
from k3_scratch.layers.attention_residuals import Bank, Source
from k3_scratch.tasks.batch import IGNORED

WHOLE = "whole step"


def measure(plan, peers=None):
    """Milliseconds of each part, summed over all layers that have it; what the parts leave of the whole is `rest`."""
    step = TrainingStep(plan)
    step()                                                               # the balancing needs scores of a batch
    timed = interleave({**parts(step), WHOLE: step}, plan.rounds, least_seconds=plan.least_seconds)
    milliseconds = {name: 1e3 * timed.median(name) for name in timed.seconds}
    whole = milliseconds.pop(WHOLE)
    share = sum(milliseconds.values()) / whole
    row = Row("parts of a training step, measured alone, over the whole", share,
              note=", ".join(f"{name} {100 * ms / whole:.0f} %" for name, ms in milliseconds.items()))
    return Measured([row], {"step": {"milliseconds": milliseconds, "whole": whole}})


def parts(step):
    """{name: function that runs all instances of one kind of part once}"""
    model, config, options = step.model, step.model.config, step.options
    batch = step.data.batch(np.random.default_rng(0), options.batch_size)
    x = direction_of(torch.empty(options.batch_size, options.length, config.hidden_size))
    layers = model.layers
    attention = {"KDA": [layers[i].self_attn for i in config.kda_layers],
                 "MLA": [layers[i].self_attn for i in config.mla_layers]}
    feed_forward = {"MoE": list(model.moe_layers().values()), "dense": [each.mlp for each in layers if each.is_dense]}
    calls = {"data": lambda: step.data.batch(np.random.default_rng(0), options.batch_size)}
    for name, modules in (attention | feed_forward).items():
        if modules:
            calls[name] = lambda modules=modules: [_both_ways(module, module, x) for module in modules]
    if config.attn_res_block_size is not None:
        calls["depth mixes"] = lambda: _both_ways(model, lambda h: mixes(model, h), x)
    calls["norms, head, loss"] = lambda: _ends(model, batch, x)
    calls["optimiser"] = _optimiser(step)
    calls["balancing"] = model.balance
    return calls


def mixes(model, h):
    """The depth mixes of the whole model with sublayers that do nothing, residual sums included.  [B, T, D] -> same"""
    bank, eps = Bank(), model.config.rms_norm_eps
    for layer in model.layers:
        here = Source(h, eps)
        a = bank.read(layer.self_attention_res, here)
        bank, h = (bank.grown(here), a) if layer.ends_block else (bank, h + a)
        h = h + bank.read(layer.mlp_res, Source(h, eps))
    return bank.read(model.output_attn_res, Source(h, eps))


def _both_ways(module, function, x):
    """Forward and backward to x and to the parameters that took part."""
    leaf = x.detach().requires_grad_()
    y = function(leaf)
    return torch.autograd.grad(y, [leaf, *module.parameters()], x.expand_as(y), allow_unused=True)


def _ends(model, batch, x):
    """Embedding, all RMSNorms of the sublayers and the last one, head and loss, both ways."""
    tokens, targets = torch.from_numpy(batch.tokens), torch.from_numpy(batch.targets)
    norms = [norm for layer in model.layers for norm in (layer.input_layernorm, layer.post_attention_layernorm)]
    h = x + model.embed_tokens(tokens)
    ys = [norm(h) for norm in norms]
    learnt = targets != IGNORED
    loss = F.cross_entropy(model.lm_head(model.norm(h)[learnt]), targets[learnt])
    weights = [model.embed_tokens.weight, model.norm.weight, model.lm_head.weight, *(norm.weight for norm in norms)]
    return torch.autograd.grad([loss, *ys], weights, [torch.ones_like(loss), *(x for _ in ys)])


def _optimiser(step):
    """Clipping and the update, with the same small random gradients each time."""
    parameters = list(step.model.parameters())
    gradients = [1e-3 * direction_of(p) for p in parameters]

    def call():
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient
        step.update()
    return call
