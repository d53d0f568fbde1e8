"""Mistakes that logits do not show, each with the reason; how they are planted is in mistake.py.

The two about mixing weights hide behind the norm on the summed experts, which cancels any factor while that sum is
large against the root of the norm's eps; when the experts give next to nothing, logits do show them.
"""

import torch
import torch.nn.functional as F
from mistake import UNSEEN, mistake

from k3_scratch import cache as cache_module
from k3_scratch import config
from k3_scratch.config import PRESETS
from k3_scratch.layers import latent_moe, mla_attention, router
from k3_scratch.layers.latent_moe import LatentMoE
from k3_scratch.layers.mla import visible
from k3_scratch.layers.mla_attention import GatedMLA
from k3_scratch.layers.quantile_balancing import quantile_bias
from k3_scratch.layers.router import route


@mistake("layers/router.py", "mixing weights are not renormalised (the norm on the sum cancels any factor)", UNSEEN)
def no_renormalisation():
    def wrong(x, w_router, bias, k, scale=1.0):
        experts, _, scores = route(x, w_router, bias, k, scale)
        return experts, scale * scores.gather(-1, experts), scores
    return [(router, "route", wrong)]


@mistake("layers/router.py", "the routed scale is left out (the norm on the sum cancels any factor)", UNSEEN)
def no_routed_scale():
    return [(router, "route", lambda x, w_router, bias, k, scale=1.0: route(x, w_router, bias, k))]


@mistake("layers/quantile_balancing.py", "the new bias has the wrong sign (logits see the bias, not its rule)", UNSEEN)
def balance_with_the_wrong_sign():
    return [(latent_moe, "quantile_bias", lambda scores, bias, k: -quantile_bias(scores, bias, k))]


@mistake("layers/latent_moe.py", "a batch is routed by the bias it made itself (only while training)", UNSEEN)
def bias_used_on_the_batch_that_made_it():
    def wrong(self, x, mask=None, right=LatentMoE.forward):
        if self.training:
            experts, _, scores = self.gate(x)
            self.observe(experts, scores, mask)
            self.balance()
        return right(self, x, mask)
    return [(LatentMoE, "forward", wrong)]


@mistake("layers/mla_attention.py", "keys and values are cached in place of the latent (the same numbers, more bytes)",
         UNSEEN)
def keys_and_values_cached():
    class WideCache(mla_attention.MLACache):
        def __init__(self, config, batch_size, dtype, device):
            super().__init__(config, batch_size, dtype, device)
            self.rank = config.num_heads * config.qk_head_dim
            self.rows = torch.empty(batch_size, 0, self.rank + config.num_heads * config.v_head_dim, dtype=dtype,
                                    device=device)

    def forward(self, x, cache=None, *, mask=None, documents=None):
        H, n = self.config.num_heads, self.config.qk_nope_head_dim
        q, (latent, shared_key) = self.queries(x), self.latents(x)
        expanded = self.kv_b_proj(latent).unflatten(-1, (H, -1))         # [B, T, H, n + v]
        k = torch.cat([expanded[..., :n], shared_key.unsqueeze(2).expand(-1, -1, H, -1)], -1).flatten(2)
        v = expanded[..., n:].flatten(2)
        if cache is not None:
            k, v, _ = cache.append(torch.cat([k, v], -1), mask)
        q, k, v = (z.unflatten(-1, (H, -1)).transpose(1, 2) for z in (q.flatten(2), k, v))
        seen = visible(x.shape[1], k.shape[2], None, x.device).unsqueeze(1)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)
        if self.config.mla_output_gate:
            o = torch.sigmoid(self.g_proj(x)) * o
        return self.o_proj(o)
    return [(cache_module, "MLACache", WideCache), (GatedMLA, "forward", forward)]


def _preset(**changes):
    return [(config, "PRESETS", {**PRESETS, "kimi_k3": PRESETS["kimi_k3"].replace(**changes)})]


@mistake("config.py", "Kimi K3 has 56 heads in place of 96 (a count, not a computation)", UNSEEN)
def heads_56():
    return _preset(num_heads=56)


@mistake("config.py", "the dense first layer of Kimi K3 is counted as a LatentMoE (a count, not a computation)", UNSEEN)
def dense_layer_counted_as_moe():
    return _preset(first_k_dense=0)
