"""Floating-point work of one token through the whole model, forward.

Sources: K3 report and Kimi Linear, arXiv 2510.26692, for the equations; the counts are derived from them.
"""

from dataclasses import dataclass
from math import prod

from k3_scratch.accounting.tensors import count_instances, need_config, need_integer, tensor_shapes


@dataclass(frozen=True)
class FlopsPerToken:
    """Result of `flops_per_token`: FLOPs of one token, all layers together."""

    context: int                    # earlier tokens
    decode: bool                    # True: absorbed MLA; False: expanded MLA
    modules: dict[str, int]         # kind of work -> FLOPs
    total: int


def depth_sources(config):
    """Sources that each mix over depth reads, in order: attention and FFN side of every layer, then the output's.

    0 where nothing is banked yet, and the mix passes the embedding on. Empty without attention residuals.  Spec 2.
    """
    c = need_config("depth_sources", config)
    block, sources, banked = c.attn_res_block_size, [], 0
    if block is None:
        return []
    for layer in range(c.num_layers):
        sources.append(banked + 1 if banked else 0)
        banked += layer % block == 0                                   # a block starts: the running sum is banked
        sources.append(banked + 1)                                     # the bank and the running sum
    return [*sources, banked + 1]


def flops_per_token(config, context=0, decode=False):
    """Forward FLOPs of one text token after `context` earlier ones: -> FlopsPerToken.

    A matrix [out, in] costs 2 out in. Beyond the matrices, with N = context + 1 positions to read:
      KDA recurrence   7 H K V: decay 1, recall 2, write 2, read 2 for each number of the state
      KDA convolution  2 taps for each channel
      MLA, expanded    H N (2 (n + r) + 2 v): scores, then the mix of values (prefill)
      MLA, absorbed    H N (2 (R + r) + 2 R): the same on the latents (decode=True). Folding W_kvb into query and
                       output costs a token 2 R H (n + v): what expanding its own latent would, so no other line changes
      depth mix        6 D for each source: its mean square, its score (w gamma multiplied beforehand), its share
    Left out: look-up, norms, activations, gates, softmaxes, top-k; each is a few FLOPs a channel.
    The mean over a prompt of T tokens is the value at context (T - 1) / 2.
    """
    c = need_config("flops_per_token", config)
    need_integer("flops_per_token", "context", context, 0)
    if not isinstance(decode, bool):
        raise TypeError(f"flops_per_token: decode must be True (absorbed) or False (expanded), but {decode!r} came")
    shapes, number, kda, mla = tensor_shapes(c), count_instances(c), len(c.kda_layers), len(c.mla_layers)
    matrices = {part: 2 * sum(prod(s) for s in tensors.values() if len(s) == 2) for part, tensors in shapes.items()}
    channels = c.num_heads * (2 * c.kda_key_dim + c.kda_value_dim)
    if decode:
        per_position = 2 * (c.kv_lora_rank + c.qk_rope_head_dim) + 2 * c.kv_lora_rank
    else:
        per_position = 2 * c.qk_head_dim + 2 * c.v_head_dim
    chosen = c.num_experts_per_token * (c.num_layers - c.first_k_dense)
    modules = {
        "kda_projections": kda * matrices["kda"],
        "kda_convolutions": kda * 2 * c.conv_size * channels,
        "kda_recurrence": kda * 7 * c.num_heads * c.kda_key_dim * c.kda_value_dim,
        "mla_projections": mla * matrices["mla"],
        "mla_attention": mla * c.num_heads * (context + 1) * per_position,
        "dense_ffn": number["dense_ffn"] * matrices["dense_ffn"],
        "router": number["router"] * matrices["router"],
        "routed_experts": chosen * matrices["routed_experts"],
        "latent": number["latent"] * matrices["latent"],
        "shared_experts": number["shared_experts"] * matrices["shared_experts"],
        "depth_mixes": 6 * c.hidden_size * sum(depth_sources(c)),
        "lm_head": matrices["lm_head"],
    }
    return FlopsPerToken(context, decode, modules, sum(modules.values()))
