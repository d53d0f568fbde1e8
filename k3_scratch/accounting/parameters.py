"""Parameters: in all, active for one token, by part and by layer, and the two common wrong answers.

Sources: released config of moonshotai/Kimi-K3; K3 report; Kimi Linear, arXiv 2510.26692.
"""

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from k3_scratch.accounting.tensors import count_instances, need_config, need_integer, parts_of_layer, tensor_shapes


class PartCount(NamedTuple):
    """Parameters of one part: of one instance, how many instances there are, and the product."""

    each: int
    instances: int
    total: int


@dataclass(frozen=True)
class ParameterCount:
    """Result of `count_parameters`; every number counts parameters."""

    total: int                      # the text model, selection biases included
    active: int                     # what one token multiplies with; the head counts, the embedding does not
    routed_experts: int             # all routed experts of all layers
    modules: dict[str, PartCount]   # part -> (each, instances, total), in model order; the totals add up to `total`
    vision: int                     # picture encoder and projector; 0 without
    total_with_vision: int          # total + vision


def vision_parameters(config):
    """Parameters of the picture side: {"encoder": ..., "projector": ...}; both 0 for a text model.

    h encoder width, a width of q, f hidden width, p = merge^2 h:  a block has 4 h a (q, k, v, out), 2 h f (MLP) and
    2 h (norms). Beside the blocks: patch embedding, position table, last norm. Projector: p -> p -> D, then a norm.
    """
    c = need_config("vision_parameters", config)
    if c.vision is None:
        return {"encoder": 0, "projector": 0}
    w, D = c.vision, c.hidden_size
    h, a, f, p = w.hidden_size, w.qkv_size, w.intermediate_size, w.projector_size
    blocks = w.num_layers * (4 * h * a + 2 * h * f + 2 * h)
    encoder = blocks + w.patch_size ** 2 * w.num_channels * h + w.position_table ** 2 * h + h
    return {"encoder": encoder, "projector": p * p + p * D + D}


def count_parameters(config):
    """Exact parameters of a model: config -> ParameterCount.

    Active for one token = all but the input embedding (a look-up) and the E - k experts per MoE layer that were not
    chosen. The head, the router, its selection bias and the shared experts work for every token.
    K3: 2,779,484,476,000 in all, 104,189,612,640 active.  Raises TypeError unless config is a K3Config.
    """
    c = need_config("count_parameters", config)
    shapes, instances = tensor_shapes(c), count_instances(c)
    each = {part: _size(tensors) for part, tensors in shapes.items()}
    modules = {part: PartCount(each[part], number, each[part] * number) for part, number in instances.items()}
    total = sum(part.total for part in modules.values())
    idle = (c.num_experts - c.num_experts_per_token) * (c.num_layers - c.first_k_dense) * each["routed_experts"]
    vision = sum(vision_parameters(c).values())
    return ParameterCount(total, total - modules["embedding"].total - idle, modules["routed_experts"].total, modules,
                          vision, total + vision)


def parameters_of_layer(config, layer):
    """Parameters of one decoder layer (0-based): part -> count, only the parts that this layer has.

    Raises TypeError or ValueError that says which layers there are.
    """
    c = need_config("parameters_of_layer", config)
    need_integer("parameters_of_layer", "layer", layer, 0, c.num_layers - 1)
    shapes = tensor_shapes(c)
    return {part: number * _size(shapes[part]) for part, number in parts_of_layer(c, layer).items() if shapes[part]}


def naive_total_without_latent(config):
    """A common wrong total: experts at full width D, as if there were no latent. K3: 5.50 T in place of 2.78 T."""
    config = need_config("naive_total_without_latent", config)
    return count_parameters(config.replace(moe_latent_size=None, moe_latent_norm=False)).total


def active_with_embedding(config):
    """A common wrong active count: the look-up table counted as work. K3: 105.36 B in place of 104.19 B."""
    count = count_parameters(need_config("active_with_embedding", config))
    return count.active + count.modules["embedding"].total


def _size(shapes):
    """Numbers in a dict of shapes."""
    return sum(prod(shape) for shape in shapes.values())
