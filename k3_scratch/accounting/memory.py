"""Bytes: the checkpoint on disk, and what one sequence keeps between two tokens.

Sources: checkpoint index of moonshotai/Kimi-K3; K3 report.
"""

from dataclasses import dataclass
from math import prod

from k3_scratch.accounting.parameters import vision_parameters
from k3_scratch.accounting.tensors import count_instances, need_config, need_integer, tensor_shapes

# Small tensors that K3 stores in float32 whatever `checkpoint_dtype` says (spec 3), and bytes of one number.
ALWAYS_FLOAT32 = {"A_log", "dt_bias", "q_conv1d", "k_conv1d", "v_conv1d", "o_norm", "e_score_correction_bias"}
BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class CacheBytes:
    """Result of `cache_bytes`: bytes for one sequence, but for the first two fields."""

    tokens: int                     # length of the sequence
    mla_values_per_token: int       # numbers (not bytes) that all MLA layers keep for one token
    mla: int                        # the latents: the only part that grows
    kda_state: int                  # S [H, K, V] in float32, one for each KDA layer
    convolution: int                # the last taps - 1 rows before the convolutions of q, k and v
    total: int                      # mla + kda_state + convolution
    total_all_mla: int              # if every layer were MLA
    total_expanded: int             # if the MLA layers cached the keys and values of every head
    total_all_mla_expanded: int     # both: what plain multi-head attention would keep


def checkpoint_bytes(config):
    """Bytes of all tensors in the layout of the released K3; the picture side counts, file headers do not.

    Routed experts: `expert_dtype`; mxfp4 packs 32 columns of a row into 16 bytes of nibbles and 1 of scale (4.25 bits;
    a ragged last block is filled up). Always float32: `ALWAYS_FLOAT32`. The rest: `checkpoint_dtype`.
    K3: 1,560,860,324,864, which its index states.
    """
    c = need_config("checkpoint_bytes", config)
    shapes = tensor_shapes(c)
    total = sum(vision_parameters(c).values()) * BYTES[c.checkpoint_dtype]
    for part, number in count_instances(c).items():
        total += number * sum(_tensor_bytes(c, part, name, shape) for name, shape in shapes[part].items())
    return total


def cache_bytes(config, tokens, bytes_per_value=2):
    """Bytes that one sequence of `tokens` tokens keeps: -> CacheBytes.

    An MLA layer keeps R + r numbers a token (latent and shared key slice). A KDA layer keeps H K V float32, whatever
    the length, and taps - 1 rows of its 2 H K + H V convolution channels. Expanded heads would keep H (n + r) keys and
    H v values. `bytes_per_value` is the width of all but the state.  K3: 13,824 values a token; state 434,110,464.
    """
    c = need_config("cache_bytes", config)
    need_integer("cache_bytes", "tokens", tokens, 0)
    need_integer("cache_bytes", "bytes_per_value", bytes_per_value, 1)
    H, K, V, kda, mla = c.num_heads, c.kda_key_dim, c.kda_value_dim, len(c.kda_layers), len(c.mla_layers)
    latent = c.kv_lora_rank + c.qk_rope_head_dim
    heads = H * (c.qk_head_dim + c.v_head_dim)
    row = tokens * bytes_per_value                                     # bytes of one channel over the sequence
    state = kda * H * K * V * 4
    tails = kda * (c.conv_size - 1) * (2 * H * K + H * V) * bytes_per_value
    return CacheBytes(tokens, mla * latent, mla * latent * row, state, tails, mla * latent * row + state + tails,
                      c.num_layers * latent * row, mla * heads * row + state + tails, c.num_layers * heads * row)


def _tensor_bytes(c, part, name, shape):
    if part == "routed_experts" and c.expert_dtype == "mxfp4":
        rows, columns = shape
        return rows * _ceil(columns, 32) * 17
    if name == "A_log":
        return _ceil(c.num_heads, 128) * 128 * 4                       # the layout fills up with zeros
    if name in ALWAYS_FLOAT32:
        return prod(shape) * 4
    return prod(shape) * BYTES[c.expert_dtype if part == "routed_experts" else c.checkpoint_dtype]


def _ceil(number, size):
    return -(-number // size)
