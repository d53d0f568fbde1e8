"""The same accounts of a model that is there: counted from its modules, so that any combination of parts has them.

    count_built(model)      parameters, in all and active for one token
    flops_built(model)      forward FLOPs of one token

For K3 both are exactly what `parameters.py` and `flops.py` say of its configuration. Modules are known by what they
have: embeddings are looked up, `experts` beside a `gate` with `k` are routed, `mixing_flops(context, decode)` says what
a module does beyond its matrices. Sources: as `parameters.py`.
"""

from dataclasses import dataclass

import torch
from torch import nn

from k3_scratch.accounting.flops import flops_per_token
from k3_scratch.accounting.tensors import need_integer
from k3_scratch.layers.attention_residuals import DepthMix
from k3_scratch.layers.calls import evaluating
from k3_scratch.layers.kda_attention import KimiDeltaAttention
from k3_scratch.layers.mla_attention import GatedMLA
from k3_scratch.layers.short_convolution import ShortConvolution
from k3_scratch.vision import Vision


@dataclass(frozen=True)
class BuiltCount:
    """Result of `count_built`; every number counts parameters."""

    total: int                      # selection biases, other saved buffers and the picture encoder included
    active: int                     # what one token multiplies with; the head counts, the embedding and encoder do not
    routed_experts: int             # all routed experts of all layers


@dataclass(frozen=True)
class BuiltFlops:
    """Result of `flops_built`: FLOPs of one token, all layers together."""

    context: int                    # earlier tokens
    decode: bool                    # True: absorbed MLA; False: expanded MLA
    modules: dict[str, int]         # matrices, routed_experts, mixing, depth
    total: int


def count_built(model):
    """Parameters of a model: nn.Module -> BuiltCount.  Raises TypeError for anything else."""
    _need_module("count_built", model)
    tensors = {id(tensor): tensor for tensor in model.state_dict(keep_vars=True).values()}
    total = sum(tensor.numel() for tensor in tensors.values())
    looked_up = sum(module.weight.numel() for module in model.modules() if isinstance(module, nn.Embedding))
    routed = idle = 0
    for experts, k in _routed(model):
        size, number = sum(p.numel() for p in experts.parameters()), next(experts.parameters()).shape[0]
        routed += size
        idle += size // number * (number - k)
    eyes = sum(p.numel() for p in _eyes(model))                          # they work once a picture, not once a token
    return BuiltCount(total, total - looked_up - idle - eyes, routed)


def flops_built(model, context=0, decode=False):
    """Forward FLOPs of one token after `context` earlier ones, counted as in `flops_per_token`: -> BuiltFlops.

    A matrix [out, in] costs 2 out in; of E experts the k chosen ones do. What a mixer does beyond its matrices it says
    in `mixing_flops`, or it is KDA's or MLA's; a subclass of KDA says in `state_flops` what it does for each number of
    its state (KDA: 7). A mix over depth costs 6 D a source: their number is seen in a forward pass of a single token.
    """
    _need_module("flops_built", model)
    need_integer("flops_built", "context", context, 0)
    if not isinstance(decode, bool):
        raise TypeError(f"flops_built: decode must be True (absorbed) or False (expanded), but {decode!r} came")
    no_matrix = (nn.Embedding, ShortConvolution)
    elsewhere = {id(module.weight) for module in model.modules() if isinstance(module, no_matrix)}
    elsewhere |= {id(p) for p in _eyes(model)}
    chosen = 0
    for experts, k in _routed(model):
        for p in experts.parameters():
            elsewhere.add(id(p))
            chosen += 2 * p[0].numel() * k
    modules = {
        "matrices": sum(2 * p.numel() for p in model.parameters() if p.dim() == 2 and id(p) not in elsewhere),
        "routed_experts": chosen,
        "mixing": sum(_mixing(module, context, decode) for module in model.modules()),
        "depth": sum(6 * module.query.numel() * sources for module, sources in _depth_reads(model)),
    }
    return BuiltFlops(context, decode, modules, sum(modules.values()))


def _eyes(model):
    """Parameters of the picture encoder and its projector, where there are any."""
    return [p for module in model.modules() if isinstance(module, Vision) for p in module.parameters()]


def _routed(model):
    """(experts, k) of every module that routes: experts hold parameters [E, ...]."""
    return [(module.experts, module.gate.k) for module in model.modules()
            if hasattr(module, "experts") and hasattr(getattr(module, "gate", None), "k")]


def _mixing(module, context, decode):
    """What a mixer does beyond its matrices: recurrence and convolution, or scores and values."""
    if hasattr(module, "mixing_flops"):
        return module.mixing_flops(context, decode)
    if isinstance(module, GatedMLA):
        return _one_layer(module.config, (0,), context, decode)["mla_attention"]
    if isinstance(module, KimiDeltaAttention):
        work = _one_layer(module.config, (), context, decode)
        return work["kda_convolutions"] + work["kda_recurrence"] // 7 * getattr(module, "state_flops", 7)
    return 0


def _one_layer(config, mla_layers, context, decode):
    config = config.replace(num_layers=1, mla_layers=mla_layers, first_k_dense=0)
    return flops_per_token(config, context, decode).modules


def _depth_reads(model):
    """[(DepthMix, sources it read)]; a single source is passed on and costs nothing."""
    reads = []
    handles = [module.register_forward_pre_hook(lambda mix, given: reads.append((mix, len(given[0]))))
               for module in model.modules() if isinstance(module, DepthMix)]
    try:
        if handles:
            with torch.no_grad(), evaluating(model):
                model(torch.zeros(1, 1, dtype=torch.int64, device=next(model.parameters()).device))
    finally:
        for handle in handles:
            handle.remove()
    return [(mix, sources) for mix, sources in reads if sources > 1]


def _need_module(function, model):
    if not isinstance(model, nn.Module):
        raise TypeError(f"{function}: model must be a torch module, but a {type(model).__name__} came")
