"""Softmax attention with a key and a value per head and token, without positions.

Used by: nearly all transformers, see nope_attention.py, rope_attention.py and window_attention.py.
Differs from K3's MLA by: k = W_k x, v = W_v x, cached as they are: H (K + V) numbers a token, not a latent of R + r.
"""

import torch
import torch.nn.functional as F
from torch import nn

from k3_scratch.baselines.attention_cache import AttentionCache
from k3_scratch.baselines.rope import rope
from k3_scratch.layers.mla import visible
from k3_scratch.layers.mla_attention import seen_pairs
from k3_scratch.layers.precision import raised
from k3_scratch.layers.short_convolution import ShortConvolution
from k3_scratch.shapes import check_shapes


def softmax_attention(q, k, v, *, mask=None, window=None):
    """softmax(q k^T / sqrt(K)) v, causal.

    q       [B, T, H, K]   queries of the LAST T of the S positions
    k, v    [B, S, H, K], [B, S, H, V]
    mask    [B, T, S]      bool, True where a query may look, on top of causality; its own position it always sees
    window  a token sees itself and the window - 1 before it; None: all before it
    returns [B, T, H, V] in v's dtype; computed in at least float32.  Raises ShapeError or ValueError.
    """
    contracts = {"q": (q, "B T H K"), "k": (k, "B S H K"), "v": (v, "B S H V")}
    if mask is not None:
        contracts["mask"] = (mask, "B T S")
    sizes = check_shapes("softmax_attention", **contracts)
    T, S = sizes["T"], sizes["S"]
    if T > S:
        raise ValueError(f"softmax_attention: q has T = {T} tokens, more than the S = {S} positions of k")
    if window is not None and window < 1:
        raise ValueError(f"softmax_attention: window must be at least 1, but {window} came")
    heads_first = [raised(x).transpose(1, 2) for x in (q, k, v)]
    if T == S and mask is None and (window is None or window >= S):
        o = F.scaled_dot_product_attention(*heads_first, is_causal=T > 1)
    else:
        seen = visible(T, S, mask, q.device)                             # [B or 1, T, S]
        if window is not None:
            seen = seen & torch.ones(T, S, dtype=torch.bool, device=q.device).triu(S - T - window + 1)
        o = F.scaled_dot_product_attention(*heads_first, attn_mask=seen.unsqueeze(1))
    return o.transpose(1, 2).to(v.dtype)


class SoftmaxAttention(nn.Module):
    """x [B, T, D] -> [B, T, D]; H heads of K channels for q and k and V for v, as KDA's.

    rope_theta   base of the rotary angles; None: no positions
    window       tokens that a token sees, itself among them; None: all earlier ones
    convolution  True: q, k and v pass KDA's short convolution and SiLU first
    output_gate  True: a sigmoid gate on the concatenated heads, as K3's MLA has one
    """

    def __init__(self, config, *, rope_theta=None, window=None, convolution=False, output_gate=False):
        super().__init__()
        D, H, K, V = config.hidden_size, config.num_heads, config.kda_key_dim, config.kda_value_dim
        if rope_theta is not None and K % 2:
            raise ValueError(f"SoftmaxAttention: rope_theta needs an even kda_key_dim, but {K} came")
        if window is not None and window < 1:
            raise ValueError(f"SoftmaxAttention: window must be None or at least 1, but {window} came")
        self.config, self.rope_theta, self.window = config, rope_theta, window
        self.q_proj = nn.Linear(D, H * K, bias=False)
        self.k_proj = nn.Linear(D, H * K, bias=False)
        self.v_proj = nn.Linear(D, H * V, bias=False)
        self.qkv_conv1d = ShortConvolution(2 * H * K + H * V, config.conv_size) if convolution else None
        self.g_proj = nn.Linear(D, H * V, bias=False) if output_gate else None
        self.o_proj = nn.Linear(H * V, D, bias=False)

    def new_cache(self, batch_size, dtype, device):
        """An empty `AttentionCache`: keys and values of all tokens, or of the last `window`."""
        return AttentionCache(self.config, batch_size, dtype, device, self.window, self.qkv_conv1d is not None)

    def forward(self, x, cache=None, *, mask=None, documents=None):
        """mask [B, T] False at pads, which no other token and no convolution sees; documents [B, T] are kept apart."""
        q, k, v = self.queries_keys_values(x, cache, mask, documents)
        if self.rope_theta is not None:
            start = 0 if cache is None else cache.fed
            positions = torch.arange(start, start + x.shape[1], device=x.device)
            q, k = (rope(part, positions, self.rope_theta) for part in (q, k))
        real = mask
        if cache is not None:
            k, v, real = cache.extend(k, v, mask)
            real = None if real.all() else real
        seen = seen_pairs(x.shape[1], real, documents)                   # [B, T, S]
        o = softmax_attention(q, k, v, mask=seen, window=self.window).flatten(2)
        if self.g_proj is not None:
            o = torch.sigmoid(self.g_proj(x)) * o
        return self.o_proj(o)                                            # [B, T, H V] -> [B, T, D]

    def queries_keys_values(self, x, cache=None, mask=None, documents=None):
        """[B, T, D] -> [B, T, H, K] twice and [B, T, H, V], through the convolution where there is one."""
        H, K, V = self.config.num_heads, self.config.kda_key_dim, self.config.kda_value_dim
        qkv = F.linear(x, torch.cat([self.q_proj.weight, self.k_proj.weight, self.v_proj.weight]))
        if self.qkv_conv1d is not None:
            if mask is not None:
                qkv = qkv * mask.unsqueeze(-1)
            qkv, tail = self.qkv_conv1d(qkv, None if cache is None else cache.tail, documents=documents)
            qkv = F.silu(qkv)
            if cache is not None:
                cache.tail = tail.detach().clone()
        q, k, v = qkv.split([H * K, H * K, H * V], -1)
        return q.unflatten(-1, (H, K)), k.unflatten(-1, (H, K)), v.unflatten(-1, (H, V))

    def mixing_flops(self, context, decode=False):
        """FLOPs of scores, values and convolution for a token after `context` others; `decode` changes nothing."""
        H, K, V = self.config.num_heads, self.config.kda_key_dim, self.config.kda_value_dim
        positions = context + 1 if self.window is None else min(self.window, context + 1)
        taps = 0 if self.qkv_conv1d is None else 2 * self.config.conv_size * H * (2 * K + V)
        return positions * H * 2 * (K + V) + taps
