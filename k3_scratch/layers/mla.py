"""Multi-head latent attention without positions: the cache holds one latent per token, not keys and values per head.

Two forms of the same function. `mla_naive` expands keys and values from the latents (right for a whole prompt);
`mla_absorbed` folds the expansion into the queries and the outputs (right for one token against a long cache).
K3 report, Gated MLA; DeepSeek-V2, arXiv 2405.04434, section 2.1. Nothing is rotated: the shared slice that carries
RoPE elsewhere is a plain key here.
"""

import torch
import torch.nn.functional as F

from k3_scratch.layers.precision import raised
from k3_scratch.shapes import check_shapes


def mla_naive(q, latent, shared_key, w_kvb, *, mask=None):
    """softmax(q k^T / sqrt(Q)) v with keys and values expanded from the latents.

    q           [B, T, H, Q]    queries of the LAST T of the S positions; Q = n + r
    latent      [B, S, R]       normed latents
    shared_key  [B, S, r]       the key slice that all heads share, neither normed nor rotated
    w_kvb       [H, n + v, R]   per head first the n key rows, then the v value rows
    mask        [B, T, S]       True where a query may look, on top of causality; its own position it always sees
    returns     [B, T, H, v] in q's dtype; the softmax runs in at least float32.
    """
    n = _key_width("mla_naive", q, latent, shared_key, w_kvb, mask)
    wide = raised(q)
    expanded = F.linear(latent.to(wide.dtype), w_kvb.to(wide.dtype).flatten(0, 1))           # [B, S, H (n + v)]
    expanded = expanded.unflatten(-1, w_kvb.shape[:2]).transpose(1, 2)   # [B, H, S, n + v]
    k_latent, v = expanded[..., :n], expanded[..., n:]                   # [B, H, S, n], [B, H, S, v]
    k_shared = shared_key.to(wide.dtype).unsqueeze(1).expand(-1, q.shape[2], -1, -1)
    k = torch.cat([k_latent, k_shared], -1)                              # [B, H, S, Q]
    o = _attend(wide.transpose(1, 2), k, v, mask)
    return o.transpose(1, 2).to(q.dtype)


def mla_absorbed(q, latent, shared_key, w_kvb, *, mask=None):
    """The same numbers without expanding anything: every head attends to the latents themselves.

    q_h . (W_k c_s) = (W_k^T q_h) . c_s   and   sum_s p_s (W_v c_s) = W_v (sum_s p_s c_s); arguments as `mla_naive`.
    """
    n = _key_width("mla_absorbed", q, latent, shared_key, w_kvb, mask)
    wide, w_kvb = raised(q), w_kvb.to(raised(q).dtype)
    latent, shared_key = latent.to(wide.dtype), shared_key.to(wide.dtype)
    q_latent = torch.einsum("bthn,hnr->bthr", wide[..., :n], w_kvb[:, :n])
    B, T, H, _ = q.shape
    scores = q_latent.flatten(1, 2) @ latent.mT + wide[..., n:].flatten(1, 2) @ shared_key.mT  # [B, T * H, S]
    scores = scores.unflatten(1, (T, H)) * q.shape[-1] ** -0.5
    if T > 1 or mask is not None:
        scores = scores.masked_fill(~visible(T, latent.shape[1], mask, q.device).unsqueeze(-2), -torch.inf)
    gathered = scores.softmax(-1).flatten(1, 2) @ latent                 # [B, T * H, R]
    return torch.einsum("bthr,hvr->bthv", gathered.unflatten(1, (T, H)), w_kvb[:, n:]).to(q.dtype)


def visible(T, S, mask, device):
    """Which of S positions the last T may look at: causal, narrowed by mask, always itself.        -> [B or 1, T, S]"""
    positions, queries = torch.arange(S, device=device), torch.arange(S - T, S, device=device).unsqueeze(-1)
    causal = (positions <= queries).unsqueeze(0)
    return causal if mask is None else (causal & mask) | (positions == queries)


def _attend(q, k, v, mask):
    """Causal softmax attention; q [B, H, T, Q], k [B, H, S, Q], v [B, H, S, v] -> [B, H, T, v]"""
    T, S, width = q.shape[2], k.shape[2], v.shape[-1]
    if T == S and mask is None:                                          # PyTorch's fast form wants v as wide as q
        v = F.pad(v, (0, max(0, q.shape[-1] - width)))
        return F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)[..., :width]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible(T, S, mask, q.device).unsqueeze(1))


def _key_width(function, q, latent, shared_key, w_kvb, mask):
    """Check the shapes and return n, the width of a head's expanded key."""
    contracts = {"q": (q, "B T H Q"), "latent": (latent, "B S R"), "shared_key": (shared_key, "B S r"),
                 "w_kvb": (w_kvb, "H M R")}
    if mask is not None:
        contracts["mask"] = (mask, "B T S")
    sizes = check_shapes(function, **contracts)
    if mask is not None and mask.dtype != torch.bool:
        raise ValueError(f"{function}: mask must be bool (True where a query may look), but {mask.dtype} came")
    n = sizes["Q"] - sizes["r"]
    if not 0 <= n <= sizes["M"]:
        raise ValueError(f"{function}: q has Q = {sizes['Q']} channels, which leaves n = {n} for the latent part; "
                         f"wanted 0 to {sizes['M']}, the rows per head of w_kvb")
    if sizes["T"] > sizes["S"]:
        raise ValueError(f"{function}: q has T = {sizes['T']} tokens, more than the S = {sizes['S']} cached positions")
    return n
