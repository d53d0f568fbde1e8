"""What a model costs, from its configuration alone: parameters, active parameters, bytes, caches, floating-point work.

No tensor is made. `tensor_shapes` writes every shape of the model down once; all else is multiplication and addition of
whole numbers, so that K3's 2,779,484,476,000 parameters come out to the last digit.

    tensors.py      tensor_shapes: part -> the tensors of one instance (one KDA layer, one expert, one norm, ...)
    parameters.py   count_parameters: total, active for one token, and the count of each part
    memory.py       checkpoint_bytes, the file on disk; cache_bytes, what one sequence keeps between two tokens
    flops.py        flops_per_token: the forward pass, 2 FLOPs a multiply-add
    report.py       as_json and table: all of it together

    >>> from k3_scratch.config import preset
    >>> count_parameters(preset("kimi_k3")).active
    104189612640
"""

from k3_scratch.accounting.flops import FlopsPerToken, depth_sources, flops_per_token
from k3_scratch.accounting.memory import CacheBytes, cache_bytes, checkpoint_bytes
from k3_scratch.accounting.parameters import (
    ParameterCount,
    PartCount,
    active_with_embedding,
    count_parameters,
    naive_total_without_latent,
    parameters_of_layer,
    vision_parameters,
)
from k3_scratch.accounting.report import as_json, table
from k3_scratch.accounting.tensors import tensor_shapes

__all__ = [
    "CacheBytes", "FlopsPerToken", "ParameterCount", "PartCount", "active_with_embedding", "as_json", "cache_bytes",
    "checkpoint_bytes", "count_parameters", "depth_sources", "flops_per_token", "naive_total_without_latent",
    "parameters_of_layer", "table", "tensor_shapes", "vision_parameters",
]
