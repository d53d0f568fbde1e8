# ---
# jupyter:
#   k3:
#     title: Multi-head latent attention
#     minutes: {read: 45, exercises: 65, run: about one minute}
#     needs:
#       - "causal attention with several heads, as in [chapter 00](00_the_map.ipynb)"
#       - "what a state of fixed size can hold, [chapter 01](01_delta_rule_rnn.ipynb)"
#     objectives:
#       - "count what any kind of attention keeps of a text, in bytes"
#       - "write K3's latent attention from its cached rows, and say what the 64-wide slice is"
#       - "derive absorption, write one decode step with it, and count when it is cheaper"
#       - "measure what an attention layer looks at, and whether the model needs it"
#     data: [figures/results/lab_ratio.json]
# ---

# %% [markdown] tags=["slide"]
# # 04 · Multi-head latent attention
#
# A state of fixed size forgets: it must, for it has room for only so many pairs ([chapter
# 01](01_delta_rule_rnn.ipynb)). When word 17 of a long report is needed at word 800,000, somebody must have **kept**
# it. So one layer in four of Kimi K3 is attention with a **cache**: it keeps something of every token and looks at
# all of it again for each new one.
#
# Keeping everything is dear: with 96 heads, the keys and values of a million tokens are more than a terabyte
# (derived).
#
# **The question of this chapter: how little may one keep of a token, and still look at it with 96 heads?**
#
# As everywhere, numbers are *report*, *derived*, *measured here* or *toy* ([chapter 00](00_the_map.ipynb)).

# %%
import time

import numpy as np
import torch
from torch.nn import functional as F

from k3_scratch.accounting import cache_bytes, flops_per_token
from k3_scratch.analysis.watch import watched
from k3_scratch.baselines.rope import rope
from k3_scratch.config import preset
from k3_scratch.course import check, lab_table, progress, show
from k3_scratch.layers import mla as torch_mla
from k3_scratch.layers.mla_attention import GatedMLA, MLACache
from k3_scratch.plots.absorption import absorption
from k3_scratch.plots.attention_map import attention_map
from k3_scratch.plots.cache_lines import cache_lines
from k3_scratch.plots.mla_layer import mla_layer
from k3_scratch.plots.seed_curves import seed_curves
from k3_scratch.plots.two_forms import two_forms
from k3_scratch.pretrained import pretrained
from k3_scratch.reference.mla import mla_absorbed, mla_naive, visible_pairs
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.reference.softmax import softmax
from k3_scratch.tasks.mqar import Mqar

# %% [markdown] tags=["slide"]
# ## 1 · The bill
#
# Letters of this chapter: $T$ new tokens, $S$ positions in all (the new ones are the last $T$ of them; in chapter 01
# $S$ was a state, here it never is), $H$ heads, a key of $Q$ and a value of $v$ numbers per head.
#
# Attention needs the keys and values of all earlier tokens, so they are **cached**. What one token leaves behind in
# one layer depends on how many heads share their keys and values:
#
# | kind | kept of one token, one layer | at K3's widths ($H = 96$, $Q = 192$, $v = 128$; report) |
# |---|---|---|
# | multi-head (MHA): a key and a value a head | $H (Q + v)$ | 30,720 numbers (derived) |
# | grouped-query (GQA): heads in 8 groups, one pair a group (8: toy) | $8\,(Q + v)$ | 2,560 |
# | multi-query (MQA): one pair for all heads | $Q + v$ | 320 |
# | multi-head latent (MLA): see section 2 | $R + r = 512 + 64$ (report) | **576** |
#
# Sharing makes heads alike: 12 heads of a group look for different things among the *same* keys. MLA stands between
# GQA and MQA in size, as much as 1.8 groups (derived), and yet **every head has keys and values of its own**.
#
# K3 has 24 such layers (report). In bfloat16, two bytes a number, against the length of the text, with the states of
# the other 69 layers beside it:

# %% tags=["slide"]
K3 = preset("kimi_k3")
H, Q, v = K3.num_heads, K3.qk_head_dim, K3.v_head_dim             # 96, 192, 128
lengths = 4 ** np.arange(4, 11)                                   # 256 ... 1,048,576
kept = {"MHA, 96 heads": H * (Q + v), "GQA, 8 groups": 8 * (Q + v),
        "MLA, one latent": K3.kv_lora_rank + K3.qk_rope_head_dim}
size = {name: 2.0 * 24 * numbers * lengths for name, numbers in kept.items()}
state = cache_bytes(K3, 1).kda_state                              # 69 layers, float32
size["KDA, 69 states"] = np.full(len(lengths), float(state))
crossing = state / (2 * 24 * kept["MLA, one latent"])
show(cache_lines(lengths, size, crossing=(crossing, state, f"{crossing:,.0f} tokens"),
                 limit=(80e9, "80 GB, a large accelerator")),
     "Bytes kept against tokens on log axes: MHA passes 80 GB near 64k tokens, MLA reaches 27 GiB at 1M, the "
     "states of KDA stay at 414 MiB", name="04_cache")

# %% tags=["remove"]
assert (H, Q, v) == (96, 192, 128) and len(K3.mla_layers) == 24
assert list(kept.values()) == [30_720, 2_560, 576] and 576 / 320 == 1.8
assert round(crossing) == 15_701
assert size["MLA, one latent"][-1] == 27 * 2 ** 30 == cache_bytes(K3, 2 ** 20).mla
assert size["MHA, 96 heads"][-1] == 1_440 * 2 ** 30 and 30_720 * 3 == 576 * 160
assert state == 414 * 2 ** 20
assert 96 * 128 * 128 / 576 == 2730 + 2 / 3

# %% [markdown] tags=["slide"]
# Look at the right edge: for a million tokens ($2^{20}$), MHA would keep 1,440 GiB **for one text**, MLA keeps 27 GiB,
# 53 times less (derived). The state of KDA is one level line.
#
# Where do the lines of KDA and MLA cross? Number against number, one layer each: the state is $H K V$ numbers ($K = V
# = 128$), the cache $S (R + r)$, equal at $S = H K V / (R + r) = 96 \cdot 128 \cdot 128 / 576 \approx 2{,}731$ tokens
# (derived). In bytes, with the state in float32 and 69 layers against 24, it is 15,701 tokens (derived), the circle.
# Below it, what K3 keeps is mostly state; above, mostly cache. Even so cheap a cache is the larger part of a long
# text, so K3 has it in a quarter of its layers only.

# %% [markdown]
# ### Exercise 4.1: bytes that one token leaves behind
#
# How many **bytes** does one more token add to the cache of K3? 24 MLA layers, bfloat16; each keeps the latent of 512
# numbers and one slice of 64 numbers that all heads share.

# %% [markdown] tags=["hint"]
# The number of heads does not occur. Check yourself with the picture: times $2^{20}$ it must be 27 GiB.

# %% id="4.1" minutes=4 difficulty=1
# BEGIN SOLUTION
my_bytes = 24 * (512 + 64) * 2
# END SOLUTION

# %%
check("4.1", my_bytes)

# %% [markdown] tags=["slide"]
# ## 2 · The latent
#
# In MHA the keys and values of a token are linear in its vector $x$ ($D$ numbers; 7,168 in K3): $k^h = W_k^h x$ and
# $v^h = W_v^h x$ for each head $h$. Stack all these matrices: one tall matrix $W$ with 24,576 rows (96 heads, a key
# and a value of 128 each) and $D$ columns. MLA (DeepSeek-V2, arXiv 2405.04434) demands that $W$ be a **product of two
# thin ones**:
#
# $$ W = W_{kvb}\, W_c, \qquad W_c : D \to R, \qquad W_{kvb} : R \to H\,(n + v), $$
#
# with $R = 512$ and $n = v = 128$ in K3 (report). Then everything that any head will ever want to know about the
# token passes through $R$ numbers, the **latent** $W_c x$. It is enough to keep those. Two things are added:
#
# $$ c = \operatorname{RMSNorm}(W_c\, x) \in \mathbb R^{R}, \qquad k' = W_s\, x \in \mathbb R^{r}, \qquad
#    \text{cached: } [\,c \mid k'\,] . $$
#
# - The latent is **normed** (eps $10^{-6}$), with a weight a channel, before it is cached. What follows the cache
#   must stay linear: section 5 lives on that. (A norm on each head's finished key, as other models have it, would
#   forbid it.)
# - Beside it there is one more **key slice** $k'$ of $r = 64$ numbers, the same for all heads, un-normed. Section 3
#   says where it comes from.
#
# One matrix makes both, $W_{kva}$ with $R + r$ rows. Out of a cached row every head makes its own key and value:
#
# $$ k^h = [\, W_k^h c \mid k' \,] \in \mathbb R^{n + r}, \qquad v^h = W_v^h c \in \mathbb R^{v}, $$
#
# where $W_k^h$ are the first $n$ rows of the $h$-th block of $W_{kvb}$ and $W_v^h$ the $v$ rows after them. So
# $Q = n + r = 192$. Here is the whole layer at K3's sizes (report):

# %% tags=["slide"]
show(mla_layer(K3),
     "One MLA layer: queries through 1,536 numbers, a latent of 512 and a shared slice of 64 in the cache, "
     "attention, output gate",
     name="04_layer")

# %% [markdown] tags=["slide"]
# Look at the two darker boxes low in the middle: 512 + 64 numbers are all that the layer keeps of a token; keys and
# values are made from them and thrown away.
#
# The queries are thin as well: $q = W_{qb} \operatorname{RMSNorm}(W_{qa} x)$, through 1,536 numbers (report). No
# cache shrinks by that, queries are used once. It saves **weights**: 7,168 · 1,536 + 1,536 · 18,432 = 39.3 M in place
# of 7,168 · 18,432 = 132.1 M a layer (derived). In the same way the thin pair for keys and values saves: 16.3 M in
# place of 176.2 M (derived, without the slice).

# %% tags=["remove"]
assert 7168 * 1536 + 1536 * 96 * 192 == 39_321_600 and 7168 * 96 * 192 == 132_120_576
assert 7168 * 512 + 512 * 96 * 256 == 16_252_928 and 7168 * 96 * 256 == 176_160_768
assert K3.latent_norm_eps == 1e-6 and K3.q_lora_rank == 1536

# %% [markdown]
# ### Exercise 4.2: what a token leaves in the cache
#
# From the tokens' vectors make the rows that are cached: the normed latent, then the slice. `w_kva` has $R + r$ rows
# (the latent's first), `weight` is the norm's weight, `rms_norm(x, weight, eps)` is at hand.

# %% [markdown] tags=["hint"]
# $R$ is `len(weight)`. One product for both parts, then cut, norm the first part, and put them together again.

# %% id="4.2" minutes=6 difficulty=1
def my_cached_rows(x, w_kva, weight):
    """x [T, D], w_kva [R+r, D], weight [R] -> rows [T, R+r]"""
    # BEGIN SOLUTION
    rows, R = x @ w_kva.T, len(weight)
    return np.concatenate([rms_norm(rows[:, :R], weight, 1e-6), rows[:, R:]], axis=1)
    # END SOLUTION

# %%
check("4.2", my_cached_rows)

# %% [markdown] tags=["slide"]
# ## 3 · What is left of RoPE in the slice
#
# The slice is called `qk_rope_head_dim` in K3's configuration, and nothing in K3 rotates. How come?
#
# **Where it was needed.** In DeepSeek's models attention must know positions, and gets them from RoPE: query and key
# are rotated by matrices $\mathcal R_t$ and $\mathcal R_s$ that depend on their places $t$ and $s$. Applied to a key
# that is made from a latent, the score becomes
#
# $$ (\mathcal R_t\, q)^\top (\mathcal R_s W_k c_s) = q^\top\, \mathcal R_t^\top \mathcal R_s\, W_k\, c_s . $$
#
# Between $q$ and $W_k$ there is now a matrix that is another one for every distance $t - s$, and section 5 will want
# to multiply $q$ with $W_k$ once for all distances. So DeepSeek took the rotation out: the $n$ channels made from the
# latent are never rotated, and $r$ further channels, one slice for all heads, carry the position.
#
# **What it is in K3.** Order comes from the KDA layers alone; attention has no positions (NoPE). With the rotation
# gone, the slice is *a plain key of 64 channels that all heads share*. Three small differences to the other channels
# remain: it is not normed, so a token can make itself loud by a long slice; it goes around $W_{kvb}$, so no head has
# its own view of it; and it makes keys only, no values.
#
# **Why it stays.** The sources give no reason. What can be said (derived): a latent of 576 numbers without a slice
# would cost the same cache and could do all that latent and slice can do (but for the norm), and more; yet its
# $W_{kvb}$ would have 576 columns and 192 key rows a head in place of 512 and 128, 17.7 M weights against 12.6 M.
# And the shapes, kernels and files of existing programs fit. Section 8 measures what the slice is worth in a small
# network.
#
# Without positions only the **causal mask** tells the tokens apart: a query sees the tokens up to its own place. Among
# those it sees, their order makes no difference: to the last token of a text, attention reads a *set*
# ([chapter 07](07_nope.ipynb) tells more). A cell can say so; rotating the slice breaks it:

# %% tags=["remove"]
assert 96 * (192 + 128) * 576 == 17_694_720 and 96 * 256 * 512 == 12_582_912

# %%
def random_layer(seed, T, S, H=3, n=4, r=6, v=5, R=7):
    """Queries [T, H, n+r], cached rows [S, R+r] and W_kvb [H, n+v, R]; all sizes differ (toy)."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(T, H, n + r)), rng.normal(size=(S, R + r)), rng.normal(size=(H, n + v, R))


def last_output(rows, rotate):
    """The output of the last of 9 tokens, with or without RoPE on the slice.   rows [9, R+r] -> [H, v]"""
    q, _, w_kvb = random_layer(seed=1, T=1, S=9)
    shared, R, n, places = rows[:, 7:], 7, 4, torch.arange(9)
    if rotate:
        shared = rope(torch.tensor(shared)[None, :, None], places)[0, :, 0].numpy()
        turned = rope(torch.tensor(q[None, ..., n:]), places[-1:])[0].numpy()
        q = np.concatenate([q[..., :n], turned], axis=-1)
    return mla_naive(q, rows[:, :R], shared, w_kvb)[0]


rows = random_layer(seed=1, T=1, S=9)[1]
shuffled = rows[[5, 2, 7, 0, 6, 1, 4, 3, 8]]                      # the eight earlier tokens change places
moved = {rotate: np.abs(last_output(rows, rotate) - last_output(shuffled, rotate)).max()
         for rotate in (False, True)}
print(f"earlier tokens shuffled, the last output moves by {moved[False]:.0e}",
      f"and with RoPE on the slice by {moved[True]:.2f}")

# %% tags=["remove"]
assert moved[False] < 1e-12
assert moved[True] > 0.1

# %% [markdown] tags=["slide"]
# ## 4 · Attention from the cached rows
#
# For a query $q_t$ (of one head; the letter $h$ is left out) and the positions $s$ that it may see:
#
# $$ \text{score}_{ts} = Q^{-1/2} \left( q_t^{(n)} \cdot W_k c_s + q_t^{(r)} \cdot k'_s \right), \qquad
#    o_t = \sum_{s \le t} \operatorname{softmax}_s(\text{score}_{ts})\; W_v c_s , $$
#
# with $q^{(n)}$ the first $n$ and $q^{(r)}$ the last $r$ channels of the query.
#
# **The scale** is that of all $Q = 192$ channels, not of the 128: a sum of $Q$ independent products of variance 1 has
# variance $Q$ ([chapter 00](00_the_map.ipynb), section 6), and times $Q^{-1/2}$ it is 1 again.

# %%
rng = np.random.default_rng(0)
q, k = rng.normal(size=(2, 20_000, 192))
dots = (q * k).sum(axis=1)
for name, factor in (("1", 1.0), ("128^(-1/2)", 128 ** -0.5), ("192^(-1/2)", 192 ** -0.5)):
    print(f"spread of the scores with the scale {name:10s}  {factor * dots.std():6.2f}")

# %% tags=["remove"]
assert abs(192 ** -0.5 * dots.std() - 1) < 0.02
assert abs((192 / 128) ** 0.5 - 1.22) < 0.005

# %% [markdown]
# With the 128 that some rebuilds take, all scores are $\sqrt{192 / 128} = 1.22$ times too large (derived): no error is
# raised, the attention is just sharper than in the model that was trained.

# %% [markdown]
# ### Exercise 4.3: attention that expands the cache
#
# Write the formulas for all heads. `rows` are the cached rows of all $S$ positions (normed already), and the queries
# are those of the **last** $T$ positions: query $t$ stands at position $S - T + t$ and sees the positions up to its
# own. `visible_pairs(T, S)` is that mask as booleans [T, S]; `softmax` works on the last axis, and a score of
# `-np.inf` gets no weight.

# %% [markdown] tags=["hint"]
# $R$ is `w_kvb.shape[-1]`, $r$ what is left of a row, $n = Q - r$. Expand all heads at once with
# `np.einsum("sr,hmr->shm", ...)`, cut at `n`, and append the slice with `np.repeat(rows[:, None, R:], H, axis=1)`.

# %% id="4.3" minutes=18 difficulty=3
def my_latent_attention(q, rows, w_kvb):
    """q [T, H, Q], rows [S, R+r], w_kvb [H, n+v, R] -> o [T, H, v]"""
    # BEGIN SOLUTION
    (T, H, Q), R = q.shape, w_kvb.shape[-1]
    n = Q - (rows.shape[1] - R)
    expanded = np.einsum("sr,hmr->shm", rows[:, :R], w_kvb)       # [S, H, n+v]
    keys = np.concatenate([expanded[..., :n], np.repeat(rows[:, None, R:], H, axis=1)], axis=-1)
    scores = Q ** -0.5 * np.einsum("thq,shq->hts", q, keys)       # [H, T, S]
    weights = softmax(np.where(visible_pairs(T, len(rows)), scores, -np.inf))
    return np.einsum("hts,shv->thv", weights, expanded[..., n:])
    # END SOLUTION

# %%
check("4.3", my_latent_attention)

# %% [markdown] tags=["slide"]
# ## 5 · What breaks: every step expands everything again
#
# The cache is small now. But look at what a model does when it writes: one new token, one query, and for it **all $S$
# cached rows are expanded again**, into keys and values of all heads. Count multiplications, one head, one layer:
#
# - expanding one cached row: $R\,(n + v) = 512 \cdot 256 = 131{,}072$;
# - using it: $Q + v = 320$ for each new token.
#
# Four hundred times more work to make the keys and values than to use them (derived), and they are thrown away after
# each token. Keeping them would be MHA's cache again. The way out is a change of brackets.
#
# ### Absorption, the queries
#
# The latent's part of the score is $q^\top (W_k\, c)$. Matrix products may be bracketed as one likes:
#
# $$ q^\top \left(W_k\, c_s\right) = \left(q^\top W_k\right) c_s = \left(W_k^\top q\right)^\top c_s
#    = \tilde q \cdot c_s, \qquad \tilde q = W_k^\top q \in \mathbb R^{R} . $$
#
# On the left, one product with $W_k$ for every *cached* token. On the right, one for every *new* token: $W_k$ has been
# **absorbed** into the query, and the head compares $\tilde q$ with the latents themselves. This is the transpose of
# $W_k$, not its inverse: nothing is undone, and no latent is ever recovered from a key.
#
# ### Absorption, the values
#
# With $p_s$ for the softmax weights, which are numbers,
#
# $$ o = \sum_s p_s \left(W_v\, c_s\right) = W_v \Big(\sum_s p_s\, c_s\Big) . $$
#
# Mix the latents first, expand **once**. Both steps need what section 2 asked for: between the cached $c$ and the
# score, and between $c$ and the output, there are only linear maps. A norm on the finished keys would stand in the
# way, and a rotation too (section 3).

# %% tags=["slide"]
show(absorption(K3.kv_lora_rank, K3.qk_nope_head_dim, K3.v_head_dim),
     "Left: cached latents are expanded to keys and values for each head; right: the query and the mixture "
     "of latents meet the matrices instead",
     name="04_absorption")

# %% [markdown] tags=["slide"]
# Compare the orange boxes: on the left three of them besides the cache are as long as the text, two of these with 128
# columns for each head; on the right only the scores are. (One head and one new token; the slice is left out.)
#
# Read the right side once more: all heads compare 576 numbers of query (the 512 of $\tilde q$ and the 64 of the slice)
# with **one and the same key of 576 numbers**, the cached row, and mix one and the same value, its latent. Absorbed
# MLA *is* multi-query attention with a wide head, and each head brings its own glasses, $W_k^h$ and $W_v^h$.
# Now the executed equality, one head:

# %%
def one_head_naive(q, c, shared, w_k, w_v):
    """q [T, n+r], c [S, R], shared [S, r], w_k [n, R], w_v [v, R] -> [T, v]"""
    keys = np.concatenate([c @ w_k.T, shared], axis=1)            # [S, n+r]
    scores = q.shape[1] ** -0.5 * q @ keys.T                      # [T, S]
    weights = softmax(np.where(visible_pairs(len(q), len(c)), scores, -np.inf))
    return weights @ (c @ w_v.T)                                  # [T, S] @ [S, v] -> [T, v]


def one_head_absorbed(q, c, shared, w_k, w_v):
    n = len(w_k)
    query = np.concatenate([q[:, :n] @ w_k, q[:, n:]], axis=1)    # [T, n] @ [n, R] beside [T, r]
    rows = np.concatenate([c, shared], axis=1)                    # what lies in the cache    [S, R+r]
    scores = q.shape[1] ** -0.5 * query @ rows.T                  # the scale of Q, not of R + r
    weights = softmax(np.where(visible_pairs(len(q), len(c)), scores, -np.inf))
    return weights @ c @ w_v.T                                    # [T, S] @ [S, R] first, then to [T, v]


# %%
q, rows, w_kvb = random_layer(seed=2, T=5, S=9)
c, shared, n = rows[:, :7], rows[:, 7:], 4
tensors = [torch.tensor(a)[None] for a in (q, c, shared)] + [torch.tensor(w_kvb)]
for h in range(3):
    head = (q[:, h], c, shared, w_kvb[h, :n], w_kvb[h, n:])
    assert np.allclose(one_head_naive(*head), one_head_absorbed(*head))       # naive = absorbed
    assert np.allclose(one_head_naive(*head), mla_naive(q, c, shared, w_kvb)[:, h])  # here = reference
    assert np.allclose(one_head_absorbed(*head), mla_absorbed(q, c, shared, w_kvb)[:, h])
    for form in (torch_mla.mla_naive, torch_mla.mla_absorbed):
        assert np.allclose(one_head_naive(*head), form(*tensors)[0, :, h].numpy())   # here = torch layer
print("naive = absorbed = reference = torch, for three heads")

# %% [markdown]
# Should one multiply $W_k^\top$ and the query's own matrix $W_{qb}$ beforehand, once and for all? No: per head that
# product is $R \times 1{,}536 = 786{,}432$ numbers, and its two factors have $128 \cdot (1{,}536 + 512) = 262{,}144$
# (derived). Absorbing changes the *order* of the products, not the weights.

# %% tags=["remove"]
assert 512 * 1536 == 786_432 and 128 * (1536 + 512) == 262_144
assert 400 < 131_072 / 320 < 410

# %% [markdown]
# ### Exercise 4.4: the absorbed query
#
# $\tilde q = W_k^\top q$ for all tokens and heads; `w_k` holds the $W_k^h$ of all heads.

# %% [markdown] tags=["hint"]
# One `np.einsum`; the letter $n$ is summed over, and $h$ stays on both sides.

# %% id="4.4" minutes=5 difficulty=1
def my_absorbed_query(q, w_k):
    """q [T, H, n], w_k [H, n, R] -> [T, H, R]"""
    # BEGIN SOLUTION
    return np.einsum("thn,hnr->thr", q, w_k)
    # END SOLUTION

# %%
check("4.4", my_absorbed_query)

# %% [markdown]
# ### When is which cheaper?
#
# Multiplications of one head and layer for $T$ new tokens against $S$ positions:
#
# | | once | for each pair of new and cached token |
# |---|---|---|
# | naive | $S \cdot R\,(n + v)$: expand every row | $(n + r) + v$: score and mixture, 320 in K3 |
# | absorbed | $T \cdot R\,(n + v)$: query and output | $(R + r) + R$: score and mixture, 1,088 in K3 |
#
# - **Reading a prompt** ($T = S$): both pay the same once, and naive is 1,088 / 320 = 3.4 times cheaper for each pair
#   (derived).
# - **Writing** ($T = 1$): naive pays $131{,}072 + 320$ for each cached row, absorbed 1,088: 121 times less (derived).
# - **In between**, a few new tokens at once, lies a crossing. (Half of the pairs are masked when $T = S$; both forms
#   compute them here.)

# %% tags=["remove"]
assert 512 + 64 + 512 == 1088 and 1088 / 320 == 3.4
assert round((131_072 + 320) / 1088) == 121

# %% [markdown]
# ### Exercise 4.5: from when on is expanding cheaper?
#
# A very long cache, so that only what is multiplied by $S$ counts. K3's sizes: $R = 512$, $n = v = 128$, $r = 64$.
# What is the smallest whole number of new tokens $T$ for which **naive** needs fewer multiplications?

# %% [markdown] tags=["hint"]
# Take from the table what is multiplied by $S$ (there are $T\,S$ pairs) and divide it by $S$. From which $T$ on is
# naive smaller?

# %% id="4.5" minutes=6 difficulty=2
# BEGIN SOLUTION
my_new_tokens = 512 * (128 + 128) // ((2 * 512 + 64) - (128 + 64 + 128)) + 1
# END SOLUTION

# %%
check("4.5", my_new_tokens)

# %% [markdown]
# Does a clock agree? Both torch forms with K3's widths, but 4 heads (toy), $S = 1{,}024$ positions and from 1 to all
# of them new. Each is timed three times, in turns. With a cache this short the crossing lies a little earlier:
# $T\,(R(n + v) + 768\,S) = S\,R(n + v)$.

# %%
def milliseconds(form, T, S=1024, H=4, n=128, r=64, v=128, R=512):
    """Time of one call in milliseconds, one thread; with few tokens the best of eight calls."""
    g = torch.Generator().manual_seed(int(T))
    q, c, shared, w_kvb = (torch.randn(*shape, generator=g) for shape in
                           ((1, T, H, n + r), (1, S, R), (1, S, r), (H, n + v, R)))
    w_kvb *= R ** -0.5
    best = np.inf
    with torch.no_grad():
        for _ in range(8 if T < 64 else 1):
            start = time.perf_counter()
            form(q, c, shared, w_kvb)
            best = min(best, 1000 * (time.perf_counter() - start))
    return best


FORMS = {"naive": torch_mla.mla_naive, "absorbed": torch_mla.mla_absorbed}
new, S, once = np.array([1, 4, 16, 64, 256, 1024]), 1024, 512 * 256
counts = {"naive": 4 * S * (once + 320.0 * new), "absorbed": 4 * new * (once + 1088.0 * S)}
threads = torch.get_num_threads()
torch.set_num_threads(1)
times = [{name: [milliseconds(form, T) for T in new] for name, form in FORMS.items()} for _ in range(3)]
torch.set_num_threads(threads)
measured = {name: np.array([one[name] for one in times]) for name in FORMS}

# %% tags=["slide"]
equal = S * once / (once + 768 * S)
show(two_forms(new, counts, measured, equal),
     "Two panels over the number of new tokens, counted and measured: naive is flat then rises, absorbed "
     "rises steadily, they cross near 146", name="04_two_forms")

# %% tags=["remove"]
assert abs(equal - 146) < 0.5
assert 1088 - 320 == 768

# %% [markdown] tags=["slide"]
# The two panels have the same shape: left of the dashed line absorbing wins, right of it expanding. Times differ from
# run to run and from machine to machine; the ratios of this run:

# %%
median = {name: np.median(values, axis=0) for name, values in measured.items()}
for i, T in enumerate(new):
    print(f"{T:5d} new tokens: naive / absorbed  counted {counts['naive'][i] / counts['absorbed'][i]:6.2f}   "
          f"timed {median['naive'][i] / median['absorbed'][i]:7.2f}")

# %% [markdown]
# The clock follows the count only roughly, least where few tokens are new: a product with one vector uses each number
# of a matrix once, and the time goes into fetching them, not into multiplying.
#
# This is why the torch layer of the course reads a prompt with `mla_naive` and continues it with `mla_absorbed`.

# %% [markdown] tags=["slide"]
# ## 6 · The output gate
#
# The weights of a softmax sum to 1: a head that finds nothing must still return *some* mixture. K3 gives each channel
# a switch. From the same input $x$ that makes the query,
#
# $$ y = W_o \left[\, \operatorname{sigmoid}(W_g\, x) \odot o \,\right], $$
#
# where $o$ are the outputs of all heads side by side ($H v = 12{,}288$ numbers in K3), $\odot$ multiplies entry by
# entry, and $W_g$ is a full matrix, $12{,}288 \times 7{,}168$ (report). With the gate at 0 a head is silent. The gate
# stands **after** the mixture: it decides what is passed on, not what is looked at; with $W_g = 0$ everything is
# halved. KDA has the same gate ([chapter 02](02_kimi_delta_attention.ipynb)), there behind a norm.

# %% [markdown]
# ### Exercise 4.6: one decode step
#
# One new token; its own row is already in the cache, as the last one, so all $S$ rows may be seen. Absorb, attend to
# the rows, expand the mixture, gate. `gate` is $W_g x$, *before* its sigmoid. Do not expand the cache.

# %% [markdown] tags=["hint"]
# Scores: `np.einsum("hn,hnr->hr", q[:, :n], w_kvb[:, :n])` against the latents, plus `q[:, n:]` against the slices,
# times $Q^{-1/2}$. The mixture of latents is [H, R]; each head then takes its own rows of `w_kvb` from `n` on.

# %% id="4.6" minutes=26 difficulty=3
def my_decode_step(q, rows, w_kvb, gate):
    """q [H, Q], rows [S, R+r], w_kvb [H, n+v, R], gate [H, v] -> o [H, v]"""
    # BEGIN SOLUTION
    R, Q = w_kvb.shape[-1], q.shape[1]
    c, shared = rows[:, :R], rows[:, R:]
    n = Q - shared.shape[1]
    absorbed = np.einsum("hn,hnr->hr", q[:, :n], w_kvb[:, :n])    # [H, R]
    weights = softmax(Q ** -0.5 * (absorbed @ c.T + q[:, n:] @ shared.T))  # [H, S]
    mixed = weights @ c                                           # [H, R]
    return sigmoid(gate) * np.einsum("hr,hvr->hv", mixed, w_kvb[:, n:])
    # END SOLUTION

# %%
check("4.6", my_decode_step)

# %% [markdown]
# ## 7 · The torch layer and its cache
#
# The whole layer in NumPy, weights by the names of the released files, against `layers/mla_attention.py`:

# %%
def gated_mla(x, w, config):
    """x [T, D], w {name: matrix} -> y [T, D]"""
    T, H, eps = len(x), config.num_heads, config.latent_norm_eps
    q = rms_norm(x @ w["q_a_proj"].T, w["q_a_layernorm"], eps) @ w["q_b_proj"].T   # thin queries
    rows, R = x @ w["kv_a_proj_with_mqa"].T, config.kv_lora_rank
    c, shared = rms_norm(rows[:, :R], w["kv_a_layernorm"], eps), rows[:, R:]       # what is cached
    o = mla_naive(q.reshape(T, H, -1), c, shared, w["kv_b_proj"].reshape(H, -1, R))  # [T, H, v]
    return (sigmoid(x @ w["g_proj"].T) * o.reshape(T, -1)) @ w["o_proj"].T


nano = preset("nano")                                             # D = 24, 2 heads, R = 12, r = 4 (toy)
layer, generator = GatedMLA(nano).double(), torch.Generator().manual_seed(3)
with torch.no_grad():
    for parameter in layer.parameters():
        parameter.normal_(0.0, 0.5, generator=generator)
w = {name.removesuffix(".weight"): p.detach().numpy() for name, p in layer.named_parameters()}
x = np.random.default_rng(4).normal(size=(70, nano.hidden_size))
with torch.no_grad():
    at_once = layer(torch.tensor(x)[None])[0].numpy()
assert np.allclose(gated_mla(x, w, nano), at_once)                # NumPy = torch, the whole layer
print("NumPy and the torch layer agree on 70 tokens")

# %% [markdown]
# **The cache** is one buffer of rows [B, room, R + r] and a counter. New rows are written behind the old ones; when
# the room is used up it doubles, so that copying costs, spread over all tokens, a fixed amount for each. Beyond the
# counter the buffer holds rubbish that nobody reads. Now the same 70 tokens as a conversation: a prompt of 20, then
# one by one.

# %%
cache = MLACache(nano, 1, torch.float64, "cpu")
pieces, room = [], []
with torch.no_grad():
    for start, stop in [(0, 20), *((t, t + 1) for t in range(20, 70))]:
        pieces.append(layer(torch.tensor(x[start:stop])[None], cache)[0].numpy())
        room.append(cache.rows.shape[1])
one_by_one = np.concatenate(pieces)
assert np.allclose(one_by_one, at_once)                           # decoding = reading at once
print("largest difference", f"{np.abs(one_by_one - at_once).max():.0e};", cache.length, "rows of",
      cache.rows.shape[2], "numbers; room", " -> ".join(map(str, dict.fromkeys(room))))
print("bytes in use", cache.nbytes(), "= 70 rows of 16 numbers of 8 bytes")

# %% tags=["remove"]
assert list(dict.fromkeys(room)) == [64, 128] and cache.nbytes() == 70 * 16 * 8

# %% [markdown]
# The prompt went through `mla_naive`, the rest through `mla_absorbed`: the equality of section 5 once more, now for
# the layer that the model is made of. A row is never changed once it is written. So, unlike a KDA state, this cache
# can simply forget its last tokens, by setting the counter back ([chapter 11](11_serving.ipynb) uses that).

# %% [markdown] tags=["slide"]
# ## 8 · What does it look at?
#
# The miniature K3 that comes with the course has three KDA layers, then one MLA layer with 4 heads. It was trained on
# short texts; one kind is *recall*: `w6 s6 k8 u2?k8w6` lists letters with digits, and behind the question mark each
# letter asks for its digit. We write such prompts, and compute the attention weights of the MLA layer from what
# goes into it.

# %%
def recall_prompts(seed, count, pairs, asked=6):
    """Texts such as "w6 s6?s6w6" and where the asked digits stand.   -> [B, 3*pairs + 2*asked], [B, asked]"""
    rng, texts, places = np.random.default_rng(seed), [], []
    for _ in range(count):
        letters, digits = rng.permutation(26)[:pairs], rng.integers(10, size=pairs)
        chosen = rng.permutation(pairs)[:asked]
        names = [f"{chr(97 + letter)}{digit}" for letter, digit in zip(letters, digits, strict=True)]
        text = " ".join(names) + "?" + "".join(names[i] for i in chosen)
        texts.append(list(text.encode("ascii")))                  # a token is a byte
        places.append(3 * chosen + 1)
    return torch.tensor(texts), np.array(places)


def attention_weights(layer, x):
    """How a layer weights the tokens.   x [B, T, D], its input -> [B, H, T, T]"""
    with torch.no_grad():
        q, (c, shared) = layer.queries(x), layer.latents(x)
        w_k = layer.kv_b_proj.weight.unflatten(0, (q.shape[2], -1))[:, :layer.config.qk_nope_head_dim]
        rows = torch.cat([c, shared], -1)
        n = w_k.shape[1]
        query = torch.cat([torch.einsum("bthn,hnr->bthr", q[..., :n], w_k), q[..., n:]], -1)
        scores = q.shape[-1] ** -0.5 * torch.einsum("bthr,bsr->bhts", query, rows)
        later = ~torch.tensor(visible_pairs(x.shape[1], x.shape[1]))
        return scores.masked_fill(later, -torch.inf).softmax(-1).numpy()


# %% tags=["slide"]
model = pretrained("mini")
mla = model.layers[3].self_attn
tokens, places = recall_prompts(seed=0, count=100, pairs=8)
with watched({"mla": mla}) as seen:
    model(tokens[:, :-1])
weights = attention_weights(mla, seen["mla"][0])                  # [B, H, T, T]
questions = 3 * 8 + 2 * np.arange(6)                              # where the letters that ask stand
text = [chr(token) for token in tokens[0, :-1].tolist()]
first = np.where(visible_pairs(35, 35), weights[0, 0], np.nan)[questions]
show(attention_map(first, [text[i] for i in questions], [c.replace(" ", "␣") for c in text], places[0],
                   title="The miniature's MLA layer, head 0, one prompt"),
     "Attention of six questions to 35 characters: every row is evenly dark, the framed answers as well",
     name="04_map_mini")

# %% [markdown] tags=["slide"]
# The framed cells, where the answers stand, are as dark as the rest: **this layer looks at nothing in
# particular.** That was one prompt and one head. All 100 prompts, all heads:

# %%
def on_answer(weights, questions, places):
    """Mean attention that a question gives to its answer's place, and what an even spread would give."""
    found = [weights[b, :, i, place].mean() for b in range(len(places))
             for i, place in zip(questions, places[b], strict=True)]
    return np.mean(found), np.mean(1 / (questions + 1))


def recall_accuracy(pairs, silent, seed=1, count=48):
    """Share of right digits; `silent`: the MLA layer adds nothing."""
    tokens, _ = recall_prompts(seed, count, pairs)
    asked = 3 * pairs + 2 * torch.arange(6)
    switch = mla.register_forward_hook(lambda module, inputs, y: torch.zeros_like(y) if silent else y)
    with torch.no_grad():
        digits = model(tokens[:, :-1])[:, asked].argmax(-1)
    switch.remove()
    return (digits == tokens[:, asked + 1]).double().mean().item()


share, even = on_answer(weights, questions, places)
print(f"attention on the answer's digit: {share:.3f}; an even spread would give {even:.3f}")
print(f"right answers: {recall_accuracy(8, False):.3f} as trained,",
      f"{recall_accuracy(8, True):.3f} with the layer silent")

# %% tags=["remove"]
assert 0.5 < share / even < 2
assert recall_accuracy(8, False) > 0.95
assert abs(recall_accuracy(8, False) - recall_accuracy(8, True)) < 0.02

# %% [markdown]
# The answer's place gets about as much attention as any other, and silencing the layer changes nothing (measured
# here). The miniature answers nearly everything right **without** its attention layer. The three KDA layers hold eight
# pairs easily, and learnt it first; then there was no error left to teach the fourth. That is our reading; what is
# measured is that the layer is not used. It is an honest warning: *a part of an architecture can be built correctly,
# trained, and idle.* Pictures of attention weights alone would not tell; switching the layer off does.
#
# Would it step in when the states overflow? Prompts with up to 26 pairs, where training had at most 8:

# %% tags=["slide"]
PAIR_COUNTS = (6, 8, 12, 16, 20, 26)
curves = {name: np.array([[recall_accuracy(pairs, silent, seed) for pairs in PAIR_COUNTS]
                          for seed in (1, 2, 3)])
          for name, silent in (("as trained", False), ("MLA silent", True))}
show(seed_curves(PAIR_COUNTS, curves, title="The miniature on longer lists, three sets of prompts",
                 x_label="pairs in the list", y_label="share of answers right", limits=(0, 1.04),
                 marks={"trained up to here": 8}, ticks=PAIR_COUNTS),
     "Right answers against the number of pairs: both lines fall together below 0.9 at 26 pairs",
     name="04_longer_lists")

# %% tags=["remove"]
assert np.abs(curves["as trained"] - curves["MLA silent"]).max() < 0.03
assert curves["as trained"].mean(axis=0)[0] > 0.95
assert curves["as trained"].mean(axis=0)[-1] < 0.9

# %% [markdown] tags=["slide"]
# The two lines lie on each other: with 26 pairs the states begin to lose some, and the idle layer cannot help
# (measured here). It never learnt to.
#
# ### When the states are too small
#
# What if a model meets in *training* what its states cannot hold? The lab has trained stacks of KDA and attention layers
# on lists of 4, 8 and 16 pairs, with states of 4 by 4 numbers: four rows for sixteen pairs. (Plain softmax attention
# stands there for MLA.) *3:1* is K3's pattern, three KDA layers and then one of attention.

# %%
lab_table("ratio", values=["4 pairs", "16 pairs", "16 pairs, attention silent", "32 pairs"])

# %% [markdown]
# Compare *3:1* with *KDA alone*: at 16 pairs .879 of the answers in the mean of five seeds, and .528 in the worst of
# them, against .167; at 32 pairs, twice the longest list of the training, .834 against .122. And with the attention
# layer silent the same models are at chance. **One attention layer in four can find what three states have lost**, and
# now it is not idle: the loss that remained once the KDA layers had learnt was there to teach it. Give KDA alone
# states of 16 by 16 and it finds .966 at 16 pairs by itself, and .773 at 32, where it is overfull again.
#
# Honesty about the way there: trained with another optimiser, AdamW in place of Muon, the same stack found this in one
# seed of three (an earlier run of this experiment). In *3:1* the KDA layers start silent, their output matrices at
# zero, because we had expected this to help; *random start*, which has them as any other matrix, reaches .99 in each
# of five seeds. And look at the spread: 1:1 has two seeds near 1 and one at .176, 7:1 .846, .304 and .991. Such an
# experiment says that a hybrid *can*, not that it always will.
#
# ![](../figures/lab_ratio.png)

# %% [markdown]
# ### A network that has nothing else
#
# Now take KDA away. One MLA layer between an embedding and a head, nothing more; as in chapter 01 the input is a
# token beside the one before it, so that a value knows its key. The task: 12 pairs of 24 letters and 24 numbers, then
# each letter is asked (toy). **How small may the latent be?** Three caches, $R + r$ numbers a token: 4 + 0, 4 + 4 and
# 8 + 0; three seeds each.

# %%
class Recaller(torch.nn.Module):
    """tokens [B, T] -> scores [B, T, symbols]; all weights from one seed."""

    def __init__(self, R, r, symbols, seed, D=32):
        super().__init__()
        config = preset("mini").replace(hidden_size=D, num_heads=2, q_lora_rank=None, kv_lora_rank=R,
                                        qk_rope_head_dim=r)
        self.embed, self.mla = torch.nn.Embedding(symbols, D // 2), GatedMLA(config)
        self.head, generator = torch.nn.Linear(D, symbols, bias=False), torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in self.parameters():
                if p.dim() == 2:
                    p.normal_(0.0, 1.0 if p is self.embed.weight else p.shape[1] ** -0.5, generator=generator)

    def mixed_in(self, tokens):
        now = self.embed(tokens)                                  # [B, T, D/2]
        return torch.cat([now, F.pad(now, (0, 0, 1, 0))[:, :-1]], -1)  # beside the token before

    def forward(self, tokens):
        return self.head(self.mla(self.mixed_in(tokens)))


# %%
task = Mqar(keys=24, values=24, pairs=12, queries=12)


def train(R, r, seed, updates=250, rows=16, rate=0.01):
    """-> the trained network, share of right answers at each update"""
    rng, net = np.random.default_rng(seed), Recaller(R, r, task.vocab_size, seed)
    optimiser, right = torch.optim.AdamW(net.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.0), []
    for i in range(updates):
        optimiser.param_groups[0]["lr"] = rate * min(1, (i + 1) / 20) * (1 - i / updates)
        batch = task.batch(rng, rows)
        targets, asked = torch.tensor(batch.targets), torch.tensor(batch.targets >= 0)
        scores = net(torch.tensor(batch.tokens))[asked]
        optimiser.zero_grad()
        F.cross_entropy(scores, targets[asked]).backward()
        optimiser.step()
        right.append((scores.argmax(-1) == targets[asked]).double().mean().item())
    return net, np.array(right)


WIDTHS = ((4, 0), (4, 4), (8, 0))
runs = {(R, r): [train(R, r, seed) for seed in range(3)] for R, r in WIDTHS}

# %% tags=["slide"]
learnt = {f"R = {R}, r = {r}": np.array([right.reshape(-1, 10).mean(axis=1) for _, right in done])
          for (R, r), done in runs.items()}
show(seed_curves(np.arange(10, 251, 10), learnt, title="One MLA layer learns recall, three seeds each",
                 x_label="update", y_label="share of answers right", limits=(0, 1.04)),
     "Right answers over 250 updates: a latent of 4 stays below a quarter, with a slice of 4 it nears 0.9, "
     "a latent of 8 reaches 1", name="04_latent_width")

# %% tags=["remove"]
ends = {name: values[:, -5:].mean(axis=1) for name, values in learnt.items()}
assert ends["R = 4, r = 0"].max() < 0.3
assert ends["R = 4, r = 4"].min() > 0.7
assert ends["R = 8, r = 0"].min() > 0.97 > ends["R = 4, r = 4"].mean()

# %% [markdown] tags=["slide"]
# Eight numbers a token are enough, four are not, in these 250 updates (measured here): a row must tell 24 letters
# apart *and* carry one of 24 numbers. Four more numbers help much either way, as a shared slice or in the latent; in
# the latent more, where they serve keys **and** values (measured here). So in this small network the slice is room
# like any other, somewhat less useful; nothing magic is left of RoPE in it.
#
# And what does *this* layer look at?

# %% tags=["slide"]
net, _ = runs[4, 4][0]
test = task.batch(np.random.default_rng(99), 100, "test")
with torch.no_grad():
    small = attention_weights(net.mla, net.mixed_in(torch.tensor(test.tokens)))  # [B, H, 36, 36]
letters, asks = test.tokens[:, :24:2], test.tokens[:, 24:]
standing = 2 * np.argmax(asks[:, :, None] == letters[:, None], axis=2) + 1  # place of the asked value [B, 12]
share, even = on_answer(small, 24 + np.arange(12), standing)
print(f"attention on the answer: {share:.2f}; an even spread would give {even:.2f}")
names = [task.symbol(token) for token in test.tokens[0].tolist()]
shown = np.where(visible_pairs(36, 36), small[0, 0], np.nan)[24:]
show(attention_map(shown, names[24:], names, standing[0], title="MLA alone (R = 4, r = 4), head 0, one text"),
     "Twelve questions over 36 tokens: most rows have one bright cell, and it is the framed one",
     name="04_map_small")

# %% tags=["remove"]
assert share > 0.5 > 10 * even

# %% [markdown] tags=["slide"]
# Most rows have one bright cell, and it is the framed one. Over 100 new texts and both heads, more than half of the
# attention lies on the one token with the answer, over ten times an even share (measured here). The same layer as in
# the miniature, the same code: **attention becomes sharp when the answer cannot be had otherwise.**

# %% [markdown] tags=["slide"]
# ## 9 · In the real K3
#
# | | K3 (report, unless said otherwise) |
# |---|---|
# | MLA layers | 24 of 93: every fourth, and the last (counted from 1: 4, 8, …, 92, 93) |
# | heads; $n$, $r$, $v$; $R$; rank of the queries | 96; 128, 64, 128; 512; 1,536 |
# | scale | $192^{-1/2}$; softmax in float32 |
# | positions | none; the slice of 64 is never rotated |
# | parameters of one MLA layer | 232,196,096 (derived) |
# | cached per token | 24 · 576 = 13,824 numbers, 27,648 bytes in bfloat16 (derived) |
# | a million tokens ($2^{20}$) | 27 GiB; were all 93 layers MLA, 104.6 GiB; with the keys and values of all heads in the 24, 1,440 GiB (derived) |
#
# - **What MLA buys is memory and traffic, not multiplications.** To decode, MHA reads 320 numbers of cache for every
#   320 multiplications of a head. Absorbed MLA reads a row of 576 once and uses it in 96 · 1,088 multiplications: 181
#   for each number read (derived). Machines multiply much faster than they fetch.
# - The multiplications still grow with the text. From about 41,700 cached tokens on, looking back in 24 layers costs
#   a new token more than all the rest of the model (derived); at a million, 25 times as much. The 69 KDA layers cost
#   the same at every length: one reason for three of them to one MLA.
# - How many attention layers does a model need? Kimi Linear (report, 16 layers, validation perplexity): 5.65 at 3 KDA
#   to 1 MLA, 5.66 at 1 to 1, 5.77 with MLA alone, 5.70 at 7 to 1, 5.82 at 15 to 1. Lower is better: a mixture beats
#   MLA alone, and too few attention layers cost again.
# - Our miniature cannot show that: texts of 80 characters fit into its states. What it can show is that everything
#   is computed as in K3: the same weights give the same tokens in other programs.

# %% tags=["remove"]
assert [layer + 1 for layer in K3.mla_layers] == [*range(4, 93, 4), 93]
shapes = ((1536, 7168), (1536,), (18432, 1536), (576, 7168), (512,), (24576, 512), (12288, 7168),
          (7168, 12288))
assert sum(np.prod(shape) for shape in shapes) == 232_196_096
million = cache_bytes(K3, 2 ** 20)
assert million.mla_values_per_token == 13_824 and abs(million.total_all_mla / 2 ** 30 - 104.6) < 0.05
assert round(96 * 1088 / 576) == 181
flops = flops_per_token(K3, 0, decode=True)
rest = flops.total - flops.modules["mla_attention"]
assert abs(rest / flops.modules["mla_attention"] - 41_700) < 100
assert round(flops_per_token(K3, 2 ** 20, decode=True).modules["mla_attention"] / rest) == 25

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. Attention must keep something of every token. MLA keeps one normed latent of 512 numbers and a slice of 64 for
#    all heads, 53 times less than keys and values, and every head still makes its own.
# 2. The slice once carried RoPE. In K3 it is a plain shared key; only the causal mask knows about places, and the
#    scale is $192^{-1/2}$, of all channels.
# 3. Absorption changes brackets: $W_k$ moves to the query, $W_v$ behind the sum. Naive for prompts, absorbed for
#    writing, the same numbers.
# 4. A sigmoid gate after the mixture lets a head be silent; the cache is one growing buffer of rows, and decoding
#    equals reading at once.
# 5. A layer can be right and idle: in the miniature the states suffice and MLA looks at nothing; alone, it finds the
#    answer.
