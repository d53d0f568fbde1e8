# ---
# jupyter:
#   k3:
#     title: NoPE
#     minutes: {read: 47, exercises: 57, run: about one minute}
#     needs:
#       - "KDA's decay and its short convolution, [chapter 02](02_kimi_delta_attention.ipynb)"
#       - "attention with a cache, [chapter 04](04_multi_head_latent_attention.ipynb)"
#     objectives:
#       - "prove in three lines that attention without positions reads a set, and test any layer for it"
#       - "say where order comes from in K3: from decay, erasing and convolution, as recency"
#       - "write rotary positions (RoPE), show that only distances count, and decode with turned keys"
#       - "explain why RoPE meets angles it has never seen when the text grows, and NoPE does not"
#       - "measure how a small trained model reads texts longer than those of its training"
#     data: [figures/results/lab_order.json, figures/results/lab_length.json,
#            figures/results/lab_position_probes.json, figures/results/lab_attention_convolution.json]
# ---

# %% [markdown] tags=["slide"]
# # 07 · NoPE
#
# *Mo owes Di.* Who pays? And when *Di owes Mo*? The same three words: only their order says who pays.
#
# Nearly every language model tells its attention layers the position of each word. Kimi K3 tells them nothing: no
# position is added or rotated anywhere in it. Its 24 attention layers have **no positional encoding**, NoPE, and
# are meant to find one word among a million.
#
# **The question of this chapter: what does attention see without positions, who knows the order then, and what is
# gained by it?**
#
# Every number says where it comes from: *report* (published about K3, or in the Kimi Linear paper, arXiv
# 2510.26692), *derived* (you can recompute it by hand), *measured here* (a cell above it ran), or *toy* (chosen
# to be small).

# %%
import copy

import numpy as np
import torch

from k3_scratch.accounting import cache_bytes
from k3_scratch.analysis import probes, silence, watch
from k3_scratch.baselines.frame import build
from k3_scratch.baselines.mixers import MIXERS
from k3_scratch.baselines.rope import rope
from k3_scratch.baselines.softmax_attention import softmax_attention
from k3_scratch.config import preset
from k3_scratch.course import check, lab_table, progress, show
from k3_scratch.course.checks.ch07 import order_seen, recency, rotary, window_mask
from k3_scratch.layers.mla_attention import GatedMLA
from k3_scratch.plots.lab_dots import lab_dots
from k3_scratch.plots.order_bars import order_bars
from k3_scratch.plots.rope_dials import rope_dials
from k3_scratch.plots.seed_curves import seed_curves
from k3_scratch.plots.token_weights import token_weights
from k3_scratch.plots.wavelengths import wavelengths
from k3_scratch.pretrained import pretrained
from k3_scratch.reference.mla import mla_naive
from k3_scratch.reference.softmax import softmax
from k3_scratch.tasks.right_after import RightAfter

# %% [markdown] tags=["slide"]
# ## 1 · The smallest picture
#
# Four tokens: `Mo owes Di ?`. Each word has a vector; one attention head makes a query, a key and a value of
# each, with $K = 4$ and $V = 2$ channels (toy). We watch the last token, the question mark, first in this text
# and then in `Di owes Mo ?`.

# %% tags=["slide"]
rng = np.random.default_rng(8)
WORDS = {word: rng.normal(size=6) for word in ("Mo", "owes", "Di", "?")}  # a vector of D = 6 for each word
W_Q, W_K, W_V = (rng.normal(size=(6, width)) / 6 ** 0.5 for width in (4, 4, 2))
TEXTS = (["Mo", "owes", "Di", "?"], ["Di", "owes", "Mo", "?"])


def last_token(words, turn=lambda x: x):
    """What the last word looks at and gets; `turn` may change queries and keys.   -> [T], [V]"""
    x = np.array([WORDS[word] for word in words])                 # [T, D]
    # times 1.5, for weights that are less even
    q, k, v = turn(1.5 * x @ W_Q)[-1], turn(1.5 * x @ W_K), x @ W_V  # [K], [T, K], [T, V]
    weights = softmax(k @ q / 2)                                  # the scale K^(-1/2) is 1/2
    return weights, weights @ v


weights, outputs = (np.array(part) for part in zip(*map(last_token, TEXTS), strict=True))
show(order_bars(TEXTS, {"no positions": weights}, {"no positions": outputs}),
     "Attention of the last token in two orders of the same words: each keeps its bar, the outputs agree",
     name="07_same_bag")

# %% tags=["remove"]
assert np.abs(outputs[0] - outputs[1]).max() < 1e-15

# %% [markdown] tags=["slide"]
# Look at the bars of one word: they keep their height, wherever the word stands. So the question mark gets **the
# same output from both texts**, and whatever comes after this layer cannot tell who pays.

# %% [markdown] tags=["slide"]
# ## 2 · Three lines
#
# That is no accident of these numbers. Let $x_1 \dots x_T$ be the tokens; the last one asks. With $q$ the query
# of the last token (the scale is in it), its output is a ratio of two sums,
#
# $$ o = \frac{\sum_{s=1}^{T} e^{\,q \cdot k_s}\, v_s}{\sum_{s=1}^{T} e^{\,q \cdot k_s}},
#    \qquad k_s = W_k\, x_s, \quad v_s = W_v\, x_s . $$
#
# 1. $k_s$ and $v_s$ are made from $x_s$ alone, and $q$ from $x_T$ alone.
# 2. So each term of either sum depends on *which* token $x_s$ is, and not on the place $s$ where it stands.
# 3. A sum does not depend on the order of its terms. Neither does $o$, as long as $x_T$ stays the last.
#    $\blacksquare$
#
# **Attention without positions is a function of a set.** To be exact, of a *multiset*: a word that comes twice
# counts twice. (And only shares count: if *every* token comes twice, both sums double and $o$ stays.) The same
# holds for MLA, whose latent and shared slice are made from $x_s$ alone, and for many heads and many channels.
#
# Without a mask every token asks all others, and all outputs move along with their tokens: $f(Px) = P f(x)$,
# where $P$ puts rows into another order. In a few lines of NumPy, and compared with the torch function of the
# course:

# %%
def attention(q, k, v, causal=True):
    """One head.   q, k [T, K], v [T, V] -> [T, V]"""
    scores = q @ k.T * k.shape[1] ** -0.5                         # [T, T]
    return softmax(np.where(np.tri(len(q), dtype=bool) | (not causal), scores, -np.inf)) @ v


q, k, v = (rng.normal(size=(9, width)) for width in (4, 4, 3))
order = rng.permutation(9)
by_torch = softmax_attention(*(torch.tensor(a)[None, :, None] for a in (q, k, v)))[0, :, 0].numpy()
assert np.allclose(attention(q, k, v), by_torch)                  # here = torch
P = np.eye(9)[order]                                              # a permutation as a matrix
assert np.allclose(attention(P @ q, P @ k, P @ v, causal=False), P @ attention(q, k, v, causal=False))
twice = [np.concatenate([a[:-1], a]) for a in (q, k, v)]          # all tokens twice but the last
once_more = [np.concatenate([a, a]) for a in (q, k, v)]           # every token twice
assert not np.allclose(attention(*twice)[-1], attention(q, k, v)[-1])
assert np.allclose(attention(*once_more)[-1], attention(q, k, v)[-1])
print("no mask: outputs move along with their tokens; every token twice: nothing changes")

# %% [markdown]
# ### Exercise 7.1: a permutation test
#
# Theorems are good, tests find bugs. Write the test that this chapter uses for every layer: how far does the
# **last** output move when the tokens *before* it are put into another order? `layer` is any function [T, D] →
# [T, D]. In the new text place $i$ holds token `order[i]`; the last token stays the last. Return the length of
# the difference divided by the length of the old output (`np.linalg.norm` is the length).

# %% [markdown] tags=["hint"]
# `x[order]` has the T − 1 earlier tokens in the new order; put `x[-1:]` behind it with `np.concatenate`.

# %% id="7.1" minutes=8 difficulty=1
def my_order_seen(layer, x, order):
    """layer: a function [T, D] -> [T, D], x [T, D], order [T-1] -> a number"""
    # BEGIN SOLUTION
    before = layer(x)[-1]
    after = layer(np.concatenate([x[order], x[-1:]]))[-1]
    return np.linalg.norm(after - before) / np.linalg.norm(before)
    # END SOLUTION

# %%
check("7.1", my_order_seen)

# %% [markdown]
# With it, K3's own attention layer: the NumPy reference, and the torch layer in double and in single precision.

# %%
config = preset("mini").replace(hidden_size=24, num_heads=3, initializer_range=0.2)


def with_weights(module, seed):
    """Every matrix of a module N(0, 1/columns), from one seed.   -> the module in float64"""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            if p.dim() == 2:
                p.normal_(0.0, p.shape[1] ** -0.5, generator=generator)
    return module.double()


def as_function(module):
    """A torch layer as a function of one text.   [T, D] -> [T, D]"""
    return lambda x: module(torch.tensor(x, dtype=next(module.parameters()).dtype)[None])[0].detach().numpy()


def reference_layer(rows, H=3, n=4, r=2, R=7):
    """MLA of the reference, one text.   rows [T, 3*6 + 7 + 2]: queries, latent, slice -> [T, 15]"""
    w_kvb = np.random.default_rng(1).normal(size=(H, n + 5, R))
    q, latent, shared = rows[:, :18].reshape(-1, H, n + r), rows[:, 18:25], rows[:, 25:]
    return mla_naive(q, latent, shared, w_kvb).reshape(len(rows), -1)


# %%
x, order = rng.normal(size=(12, 24)), rng.permutation(11)
mla = with_weights(GatedMLA(config), seed=0)
moved = {"reference, float64": order_seen(reference_layer, rng.normal(size=(12, 27)), order),
         "torch layer, float64": order_seen(as_function(mla), x, order),
         "torch layer, float32": order_seen(as_function(mla.float()), x, order)}
for name, change in moved.items():
    print(f"{name:22s} the last output moves by {change:.0e} of its size")

# %% tags=["remove"]
assert max(moved["reference, float64"], moved["torch layer, float64"]) < 1e-14
assert moved["torch layer, float32"] < 2e-6

# %% [markdown]
# Only rounding is left: sums in another order round differently (measured here).

# %% [markdown] tags=["slide"]
# ## 3 · The mask leaks order
#
# One such layer is blind. Are two? In a causal model token $t$ sees the tokens $1 \dots t$, and the first layer
# writes into *each* token a summary of the set before it. For an inner token that set changes when the text is
# shuffled. With the plainest attention, the mean (all scores equal), one can do it by hand. Let $x = (1, 2, 4)$:
#
# | | layer 1: means so far | layer 2: mean of these |
# |---|---|---|
# | $x = 1, 2, 4$ | 1, 1.5, 2.33 | 1.61 |
# | $x = 2, 1, 4$ | 2, 1.5, 2.33 | **1.94** |
#
# The last entry of layer 1 is the same, and the last entry of layer 2 is not: *early tokens are in more of the
# means*. Written out, token $s$ has the weight $\tfrac1T \sum_{t \ge s} \tfrac1t$ in layer 2. So the mask itself
# lets deep stacks of attention guess at order (Haviv and others, arXiv 2203.16634). It even makes a clock: if the
# first token is special, with the value 1 where all others have 0, one layer reads $1/t$ out of it. But a poor
# one: from token 1,000 to token 1,001 its hand moves by a millionth (derived).

# %%
def mean_so_far(x):
    return np.cumsum(x, axis=0) / np.arange(1, len(x) + 1)[:, None]


for x in ([1.0, 2.0, 4.0], [2.0, 1.0, 4.0]):
    first = mean_so_far(np.array(x)[:, None])
    print(x, "-> layer 1", first[:, 0].round(2), "-> layer 2, last", mean_so_far(first)[-1].round(2))
clock = mean_so_far(np.eye(1001)[:, :1])[:, 0]                    # the first token has the value 1
assert np.allclose(clock, 1 / np.arange(1, 1002))
print(f"the clock moves from token 1,000 to 1,001 by {clock[999] - clock[1000]:.1e}")

# %% [markdown]
# ### Exercise 7.2: which layers are blind?
#
# Predict, before the next cell measures: the tokens before the last are shuffled. For which of these layers does
# the last output stay the same? Write their letters as one word in alphabetical order, such as `"CDG"`.
#
# - **A** softmax attention without positions, causal, one layer
# - **B** linear attention: $S \leftarrow S + k v^\top$, $o = S^\top q$ ([chapter 01](01_delta_rule_rnn.ipynb))
# - **C** the same with a decay: $S \leftarrow \alpha S + k v^\top$, $\alpha = 0.9$
# - **D** the delta rule: $S \leftarrow S + \beta k (v - S^\top k)^\top$
# - **E** two layers like A, one on top of the other
# - **F** the mean of all values so far
# - **G** like A, but keys and values have gone through a short convolution of four taps

# %% [markdown] tags=["hint"]
# Write the last output as a sum over the earlier tokens. Does the term of a token know more than the token
# itself?

# %% id="7.2" minutes=6 difficulty=1
# BEGIN SOLUTION
my_blind = "ABF"
# END SOLUTION

# %%
check("7.2", my_blind)

# %% [markdown]
# Now the measurement: every mixer of the course as it is before any training, in double precision, 24 random
# tokens, 10 shuffles, five seeds. On the left without a short convolution, on the right with four taps on
# queries, keys and values.

# %%
def stack(layers):
    """Layers one on top of the other, with residuals between them.   -> a function [T, D] -> [T, D]"""
    def run(x):
        y = layers[0](x)
        for layer in layers[1:]:
            x = x + y
            y = layer(x)
        return y
    return run


def blindness(names, taps, seed):
    """Mean relative change of the last output over 10 shuffles of the other 23 tokens."""
    sizes = preset("mini").replace(hidden_size=32, num_heads=2, conv_size=taps)
    rng, layers = np.random.default_rng(seed), []
    for i, name in enumerate(names):
        options = {"convolution": taps > 1} if name.startswith("attention") else {}
        with torch.random.fork_rng():
            torch.manual_seed(100 * seed + i)
            layers.append(as_function(MIXERS[name](sizes, **options).double()))
    x = rng.normal(size=(24, 32))
    return max(1e-17, np.mean([order_seen(stack(layers), x, rng.permutation(23)) for _ in range(10)]))


# %% tags=["slide"]
ROWS = {"NoPE attention": ["attention_nope"], "linear attention": ["linear_attention"],
        "two layers of NoPE": ["attention_nope"] * 2, "RoPE attention": ["attention_rope"],
        "scalar decay": ["scalar_decay"], "delta rule": ["delta_net"],
        "gated delta rule": ["gated_delta_net"], "KDA": ["kda"]}
with torch.no_grad():
    seen = {title: {row: [blindness(names, taps, seed) for seed in range(5)] for row, names in ROWS.items()}
            for title, taps in (("no convolution", 1), ("convolution of 4 taps", 4))}
show(lab_dots(seen, title="How far the last output moves when the tokens before it are shuffled",
              x_label="relative change of the last output", log=True, columns=2),
     "Without a convolution NoPE and linear attention move by 1e-16, all others by a tenth or more; with a "
     "convolution every layer moves", name="07_who_sees_order")

# %% tags=["remove"]
bare = {row: np.mean(values) for row, values in seen["no convolution"].items()}
assert max(bare["NoPE attention"], bare["linear attention"]) < 1e-14
assert all(bare[row] > 0.1 for row in ROWS if row not in ("NoPE attention", "linear attention"))
assert bare["KDA"] > bare["RoPE attention"]
assert min(min(values) for values in seen["convolution of 4 taps"].values()) > 0.02

# %% [markdown] tags=["slide"]
# Look at the left panel first: NoPE attention and linear attention move by nothing but rounding. Two layers of
# NoPE do move, through the mask alone (how far depends on the size of the random weights; that they do does not).
# And **everything that fades or erases sees order without any positions**, KDA no less than RoPE attention. On
# the right, a convolution alone opens the eyes of every layer. All of that is measured here on untrained layers:
# it says what *can* be seen, not what a trained model makes of it.

# %% [markdown]
# ### What the lab measured
#
# The lab of the course ([chapter 01](01_delta_rule_rnn.ipynb), section 5) has run the same test on other draws, and
# one more layer: attention without positions *and without a mask*.

# %%
lab_table("order")

# %% [markdown]
# Look at the third verdict and at the row it comes from: *sees order* had been defined, before the run, as a change
# above .05 in every seed, and of 25 layers with random weights one, a scalar decay, moved by a little less. It sees
# order too, only faintly; the rule was made first, so the verdict stands.
#
# ![](../figures/lab_order.png)

# %% [markdown] tags=["slide"]
# ## 4 · Order from a recurrence: recency
#
# How does a state know order? Take a decay and leave the erasing away. With $g_t = \log \alpha_t \le 0$,
#
# $$ S_t = e^{g_t} S_{t-1} + k_t v_t^\top \qquad\Longrightarrow\qquad
#    S_t = \sum_{s \le t} \underbrace{\exp\!\Big( \sum_{r=s+1}^{t} g_r \Big)}_{w_{ts}} \, k_s v_s^\top . $$
#
# Each write is remembered with a weight $w_{ts}$ that falls with its age: **the state knows order as recency**,
# not as an index. With one $\alpha$ for all tokens $w_{ts} = \alpha^{\,t-s}$, and after a half-life of $\log 2 /
# |g|$ tokens half of a write is left ([chapter 02](02_kimi_delta_attention.ipynb)).

# %% [markdown]
# ### Exercise 7.3: recency from a decay
#
# From the log-decays `g` of all tokens make the matrix of these weights: row $t$, column $s$, with zeros for
# tokens that have not come yet. In K3 each key channel has such a matrix of its own.

# %% [markdown] tags=["hint"]
# The sum over $r = s+1 \dots t$ is a difference of two running sums: `np.cumsum(g)` at $t$ and at $s$. `np.tril`
# puts zeros above the diagonal.

# %% id="7.3" minutes=10 difficulty=2
def my_recency(g):
    """g [T], log-decays -> weights [T, T]"""
    # BEGIN SOLUTION
    total = np.cumsum(g)
    return np.tril(np.exp(total[:, None] - total[None, :]))
    # END SOLUTION

# %%
check("7.3", my_recency)

# %% [markdown]
# In KDA every token chooses its decays. Below, once with the same decay for all, once with a token, say a full
# stop, that wipes most of what came before it:

# %% tags=["slide"]
LABELS = ["Mo", "owes", "Di", ".", "Su", "pays"]
same, own = np.full(6, -0.22), np.array([-0.05, -0.05, -0.05, -2.5, -0.05, -0.05])
show(token_weights({"one decay for all": recency(same), "each token its own": recency(own)}, LABELS),
     "Two triangles of weights: on the left they fall evenly with age, on the right all words before the "
     "full stop have dropped below a tenth", name="07_recency")

# %% tags=["remove"]
assert recency(own)[5, 2] < 0.1 < 0.9 < recency(own)[5, 4]
assert abs(recency(same)[3, 0] - 0.517) < 0.001

# %% [markdown] tags=["slide"]
# Look at the last row on the right: `Su` is fresh, everything before the full stop is nearly gone. In the
# logarithm the weight is $-\sum |g_r|$: a distance, as RoPE has one (next section), but **measured by the text
# itself and not in tokens**. Filler with $g \approx 0$ takes up no room; a new paragraph can be far away at once.
#
# Two more sources of order stand beside the decay:
#
# - **Erasing.** Of two writes to one key the later one counts ([chapter 01](01_delta_rule_rnn.ipynb)). In
#   formulas: the factors $I - \beta k k^\top$ do not commute, unless the keys are parallel or at right angles
#   (derived).
# - **The convolution.** Through four taps a token gets to know the three just before it, each through a weight of
#   its own: no recency, but positions, at short range.
#
# ### A set of what?
#
# Now put the two kinds of layers together. Three KDA layers come before each attention layer. The vectors that
# attention sees are no longer words; each says "*owes*, just after *Mo*". To read a set of **such** labelled
# things is no loss: `{(Mo, first), (owes, after Mo), (Di, after owes)}` is another set than the one for `Di owes
# Mo`. The trained miniature can show it: shuffle what goes *into* its attention layer, and shuffle the text
# itself.

# %%
model = pretrained("mini").double()
tokens = np.array([*b"w6 s6 k8 u2 a4 r1?k8w"], dtype=float)[:, None]  # [T, 1]: a token is a byte
with watch.watched({"into": model.layers[3].self_attn}) as seen_by:
    model(torch.tensor(tokens.T, dtype=torch.int64))
rows = seen_by["into"][0][0].numpy()                              # what the attention layer reads [T, D]


def whole(tokens):
    with torch.no_grad():
        return model(torch.tensor(tokens.T, dtype=torch.int64))[0].numpy()


rng = np.random.default_rng(0)
orders = [rng.permutation(len(tokens) - 1) for _ in range(10)]
inside = [order_seen(as_function(model.layers[3].self_attn), rows, order) for order in orders]
outside = [order_seen(whole, tokens, order) for order in orders]
print(f"inputs of the attention layer shuffled: its last output moves by {np.mean(inside):.0e}")
print(f"the text shuffled: the scores of the next character move by {np.mean(outside):.2f}")

# %% tags=["remove"]
assert max(inside) < 1e-13 and min(outside) > 0.05

# %% [markdown]
# The attention layer is blind, the model is not (measured here, ten shuffles). Order has come in before.

# %% [markdown] tags=["slide"]
# ## 5 · RoPE: positions as angles
#
# What do nearly all other models do? **Rotary position embedding** (RoPE; Su and others, arXiv 2104.09864). Take
# two channels of a query and of a key and see each pair as an arrow in the plane: $q$ has the length $|q|$ and
# the direction $\varphi_q$, $k$ likewise. Turn each by its position times a speed $\omega$: the query at place
# $t$ by $\omega t$, the key at place $s$ by $\omega s$. The product of two arrows is the product of their lengths
# times the cosine of the angle between them,
#
# $$ (\mathcal R_t\, q) \cdot (\mathcal R_s\, k)
#    = |q|\,|k| \cos\big( (\varphi_q + \omega t) - (\varphi_k + \omega s) \big)
#    = |q|\,|k| \cos\big( \varphi_q - \varphi_k + \omega\,(t - s) \big) . $$
#
# The places occur only as $t - s$: **only differences count**, and no length changes. In coordinates, with angle
# $a$,
#
# $$ (x, y) \mapsto (x \cos a - y \sin a,\; x \sin a + y \cos a) . $$
#
# A head has $K/2$ such pairs with different speeds, $\omega_i = \theta^{-2i/K}$ for $i = 0 \dots K/2 - 1$,
# usually with $\theta = 10{,}000$: pair 0 turns by one radian a token, the last one hardly at all. Like the hands
# of a clock they tell near and far distances. Values are not turned: positions decide *where* to look, not what
# is brought back.

# %% [markdown]
# ### Exercise 7.4: rotary positions
#
# Turn the rows of `x` by their positions. Which channels make a pair is a convention; take that of Llama: channel
# $i$ with channel $i + K/2$ (others pair neighbours; a model trained with one is nonsense under the other).

# %% [markdown] tags=["hint"]
# `theta ** (-2 * np.arange(K // 2) / K)` are the speeds; `positions[:, None] * speeds` are the angles [T, K/2].

# %% id="7.4" minutes=12 difficulty=2
def my_rotary(x, positions, theta):
    """x [T, K], positions [T], theta a number -> [T, K]"""
    # BEGIN SOLUTION
    K = x.shape[1]
    angles = positions[:, None] * theta ** (-2 * np.arange(K // 2) / K)
    first, second = x[:, :K // 2], x[:, K // 2:]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=1)
    # END SOLUTION

# %%
check("7.4", my_rotary)

# %% [markdown]
# The course's own `rotary` in NumPy equals its torch layer; and scores do not change when the whole text moves on
# by 1,000 places:

# %% tags=["slide"]
q, k = np.random.default_rng(1).normal(size=(2, 7, 8))
places, far = np.arange(7), np.arange(1000, 1007)
by_torch = rope(torch.tensor(q)[None, :, None], torch.tensor(far))[0, :, 0].numpy()
assert np.allclose(rotary(q, far, 10_000.0), by_torch)            # NumPy = torch
near_scores = rotary(q, places, 10_000.0) @ rotary(k, places, 10_000.0).T
far_scores = rotary(q, far, 10_000.0) @ rotary(k, far, 10_000.0).T
assert np.allclose(near_scores, far_scores)                       # only differences count
assert np.allclose(np.linalg.norm(rotary(q, far, 10_000.0), axis=1), np.linalg.norm(q, axis=1))
print(f"1,000 places further: scores move by {np.abs(near_scores - far_scores).max():.0e}")


def turned(x):
    """RoPE for the four words of section 1."""
    return rotary(x, np.arange(len(x)), 10_000.0)


with_rope = [np.array(part) for part in zip(*(last_token(text, turned) for text in TEXTS), strict=True)]
show(order_bars(TEXTS, {"no positions": weights, "RoPE": with_rope[0]},
                {"no positions": outputs, "RoPE": with_rope[1]}),
     "Above, without positions, each word keeps its bar in both orders; below, with RoPE, the bars and the "
     "output change", name="07_with_rope")

# %% tags=["remove"]
assert np.abs(with_rope[1][0] - with_rope[1][1]).max() > 0.05

# %% [markdown] tags=["slide"]
# Below, the bars of one word differ between the two texts: with RoPE the question mark can tell them apart.

# %% [markdown]
# ### Exercise 7.5: one new token against turned keys
#
# While a text is written, keys are cached *after* turning: a key's position never changes. Write one decode step.
# `old_keys` are the turned keys of the positions $0 \dots S-1$; `q`, `k`, `v` belong to the new token and are not
# turned yet; `turn(x, positions)` turns the rows of `x` [n, K] by `positions` [n]. Return its output and all keys
# as they are to be cached. `softmax` is at hand, the scale is $K^{-1/2}$.

# %% [markdown] tags=["hint"]
# Which position has the new token, when the first one has 0? `turn` wants rows: `turn(q[None],
# np.array([...]))[0]`.

# %% id="7.5" minutes=15 difficulty=3
def my_turned_step(turn, q, k, v, old_keys, old_values):
    """q, k [K], v [V], old_keys [S, K], old_values [S, V] -> o [V], keys [S+1, K]"""
    # BEGIN SOLUTION
    here = np.array([len(old_keys)])
    keys = np.concatenate([old_keys, turn(k[None], here)])
    values = np.concatenate([old_values, v[None]])
    weights = softmax(keys @ turn(q[None], here)[0] * len(q) ** -0.5)
    return weights @ values, keys
    # END SOLUTION

# %%
check("7.5", my_turned_step)

# %% [markdown] tags=["slide"]
# ## 6 · What is left of RoPE in K3's slice
#
# One trace of all that is in K3: the key slice of 64 numbers that all heads of an MLA layer share. It is called
# `qk_rope_head_dim` in the configuration, for in DeepSeek's models it carried RoPE ([chapter
# 04](04_multi_head_latent_attention.ipynb), section 3). In K3 nothing turns it. **A plain key of 64 channels is
# left**, and a trap: there are public rebuilds of K3 that still turn it. No test of shapes notices. The permutation
# test does at once:

# %%
class TurnedMLA(GatedMLA):
    """What some rebuilds do: RoPE left on the slice."""

    def turn(self, x):                                            # [B, T, H, r]
        return rope(x, torch.arange(x.shape[1]))

    def queries(self, x):
        q, n = super().queries(x), self.config.qk_nope_head_dim
        return torch.cat([q[..., :n], self.turn(q[..., n:])], -1)

    def latents(self, x):
        latent, shared = super().latents(x)
        return latent, self.turn(shared[:, :, None])[:, :, 0]


x = np.random.default_rng(2).normal(size=(12, 24))
order = np.random.default_rng(3).permutation(11)
for kind in (GatedMLA, TurnedMLA):
    change = order_seen(as_function(with_weights(kind(config), seed=0)), x, order)
    print(f"{kind.__name__:9s} earlier tokens shuffled: the last output moves by {change:.0e}")

# %% tags=["remove"]
assert change > 0.02

# %% [markdown] tags=["slide"]
# ## 7 · Why RoPE is "destructive" when the text grows
#
# A model is trained on texts up to some length and then used on longer ones. What happens to the angles? Pair $i$
# turns by $\omega_i$ a token, a full turn takes $2\pi / \omega_i$ tokens. A quick pair has gone round many times
# in training; every angle is known to the model. A slow pair has covered only the beginning of its circle, and
# **a longer text shows it angles that never occurred in training**. Here are the eight pairs of a head with $K =
# 16$, trained on 32 tokens and used on 256, as in the experiment below (toy):

# %% tags=["slide"]
speeds = 10_000.0 ** (-2 * np.arange(8) / 16)
show(rope_dials(speeds, trained=31, longer=255),
     "Eight dials: pairs 0 and 1 have gone round in training; pairs 2 to 7 meet new angles, most of the "
     "circle for pair 3 and a sliver for pair 7", name="07_angles")

# %% tags=["remove"]
assert [round(2 * np.pi / speed, 1) for speed in speeds[:4]] == [6.3, 19.9, 62.8, 198.7]
assert sum(31 * speeds >= 2 * np.pi) == 2

# %% [markdown] tags=["slide"]
# Look for red: six of eight pairs meet angles between query and key that no training text had (derived). What a
# score does there, nobody has trained: the match that should count may get a *negative* cosine. The slowest pairs
# are the harmless ones, they hardly turn at all; a model that uses only them has learnt to do without positions.
#
# The same for a head with 64 turning channels, as wide as K3's slice, trained on texts of 8,192 tokens:

# %% tags=["slide"]
pairs = np.arange(32)
turns = {f"$\\theta$ = {theta:,}": 2 * np.pi * theta ** (pairs / 32) for theta in (10_000, 500_000)}
show(wavelengths(turns, 8192, {"trained on 8,192 tokens": 8192, "a million": 2 ** 20}),
     "Tokens for a full turn of 32 pairs: with theta 10,000 the last seven, with 500,000 the last fourteen "
     "have not gone round once in 8,192 tokens", name="07_wavelengths")

# %% tags=["remove"]
assert [int(np.sum(values > 8192)) for values in turns.values()] == [7, 14]

# %% [markdown] tags=["slide"]
# Hollow points are pairs that have not gone round once in training: 7 of 32 with $\theta$ = 10,000, 14 with
# 500,000 (derived). A larger $\theta$ slows the hands, and scaling positions down squeezes a long text into known
# angles; both are common, and both change the meaning of every distance, so models are trained further for each
# new length. The Kimi Linear paper names as an advantage of NoPE that all this tuning falls away: **what never
# turned need not be turned differently**.
#
# Length is no gift for NoPE either. Suppose the right token has a score larger by $m$ than $n$ others. Its weight
# is $e^m / (e^m + n)$; to keep one half, $m$ must be $\log n$: 3.5 for 32 tokens, 13.9 for a million (derived).
# That is true of every softmax attention. And the layers that bring the order, KDA's states, have limits of their
# own, as we shall see.

# %% tags=["remove"]
assert abs(np.log(32) - 3.5) < 0.05 and abs(np.log(2 ** 20) - 13.9) < 0.05

# %% [markdown] tags=["slide"]
# ## 8 · Does it matter? Trained on 32, read at 256
#
# One more kind of model belongs into the comparison. **Sliding-window hybrids** (Gemma 2 and 3, gpt-oss, Command
# A) have local layers in the place of KDA: attention with RoPE that sees only the last $w$ tokens, and now and
# then a global layer that sees all (in Command A it has no positions either). Their local layers bring the order
# as well, and inside a window no angle is ever new.

# %% [markdown]
# ### Exercise 7.6: the mask of a sliding window
#
# Tokens at the positions `places` ask, $S$ positions exist. Each token sees `window` positions: its own and the
# ones just before it. Return True where it may look.

# %% [markdown] tags=["hint"]
# The age of position $s$ seen from place $t$ is $t - s$: a matrix [T, S] by `places[:, None] - np.arange(S)`.

# %% id="7.6" minutes=6 difficulty=1
def my_window_mask(places, S, window):
    """places [T] (whole numbers), S and window numbers -> bool [T, S]"""
    # BEGIN SOLUTION
    age = places[:, None] - np.arange(S)
    return (age >= 0) & (age < window)
    # END SOLUTION

# %%
check("7.6", my_window_mask)

# %%
q, k, v = np.random.default_rng(4).normal(size=(3, 9, 4))
scores = np.where(window_mask(np.arange(9), 9, 3), q @ k.T / 2, -np.inf)
by_torch = softmax_attention(*(torch.tensor(a)[None, :, None] for a in (q, k, v)), window=3)[0, :, 0].numpy()
assert np.allclose(softmax(scores) @ v, by_torch)                 # the mask = the layer of the package
print("attention under this mask equals the window attention of the course")

# %% [markdown]
# The task is the plainest question about order, *what came right after this key?* Letters are keys, numbers are
# values, and the filler consists of values too, so that the key's neighbour on the left looks just like the one
# on the right:

# %%
task = RightAfter(pairs=8, filler=8, queries=8)                   # 8 pairs, 8 fillers, 8 questions
print(task.batch(np.random.default_rng(0), 1).show(symbol=task.symbol))

# %% [markdown]
# Five models of two layers, $D = 32$, two heads of 16 channels (toy): a local layer, KDA or a window of 2, and
# above it a global layer, NoPE or RoPE; and two layers of NoPE attention with nothing else. (A window of 2, a
# token and the one before it, is the smallest that can tell order. It suffices here, and it is learnt quickly:
# with a window of 8 and a convolution, two of three seeds were stuck near one half after 350 updates, measured
# while this chapter was written.) Training is short: until the last ten batches of 32 rows have 99 % right, or
# 200 updates. Two seeds each; the course's lab repeats the question with five. Then the filler grows, and the
# text with it, from 32 tokens to 256.

# %%
MODELS = {"KDA, NoPE": ("kda,attention_nope", {}), "KDA, RoPE": ("kda,attention_rope", {}),
          "window, NoPE": ("window_rope,attention_nope", {"window": 2}),
          "window, RoPE": ("window_rope,attention_rope", {"window": 2}),
          "NoPE alone": ("attention_nope,attention_nope", {})}
SIZES = preset("mini").replace(vocab_size=task.vocab_size, hidden_size=32, num_heads=2, intermediate_size=64,
                               first_k_dense=0, initializer_range=0.15, dt_min=2e-4, dt_max=0.062)


# %%
def train(name, seed, updates=200, rows=32, rate=0.01):
    """-> the trained model, share of right answers at each update"""
    layers, options = MODELS[name]
    model, right = build(layers, "swiglu", "plain", config=SIZES, seed=seed, **options), []
    optimiser = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.01)
    for i in range(updates):
        falling = 0.55 + 0.45 * np.cos(np.pi * i / updates)       # from 1 to a tenth
        optimiser.param_groups[0]["lr"] = rate * min(1, (i + 1) / 30) * falling
        batch = task.batch(np.random.default_rng([seed, i]), rows)
        targets, asked = torch.tensor(batch.targets), torch.tensor(batch.targets >= 0)
        scores = model(torch.tensor(batch.tokens))[asked]
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(scores, targets[asked]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        right.append((scores.argmax(-1) == targets[asked]).double().mean().item())
        if np.mean(right[-10:]) > 0.99 and i >= 10:
            break
    return model.eval(), np.array(right)


# %% tags=["slide"]
LENGTHS = (32, 64, 128, 256)


def right_at(model, length, seed=99, rows=96):
    """Share of right answers on unseen rows of another length."""
    longer = RightAfter(pairs=8, filler=length - 24, queries=8)
    batch = longer.batch(np.random.default_rng([seed, length]), rows, "test")
    with torch.no_grad():
        found = model(torch.tensor(batch.tokens)).argmax(-1).numpy()
    return (found == batch.targets)[batch.targets >= 0].mean()


runs = {name: [train(name, seed) for seed in range(2)] for name in MODELS}
reach = {name: np.array([[right_at(model, length) for length in LENGTHS] for model, _ in done])
         for name, done in runs.items()}
for name, done in runs.items():
    for (_, right), row in zip(done, reach[name], strict=True):
        print(f"{name:13s} {len(right):3d} updates   ", "  ".join(f"{share:.2f}" for share in row))
show(seed_curves(LENGTHS, reach, title="What came right after? Trained on 32 tokens, two seeds each",
                 x_label="tokens in the text", y_label="share of answers right", limits=(0, 1.04), log=True,
                 ticks=LENGTHS, marks={"trained here": 32}),
     "Right answers from 32 to 256 tokens: window with NoPE stays at one, both KDA models fall to about "
     "0.75, window with RoPE to two thirds, NoPE alone is below 0.3 everywhere", name="07_length")

# %% tags=["remove"]
end = {name: rows[:, -1] for name, rows in reach.items()}         # at 256 tokens
assert all(rows[:, 0].min() > 0.97 for name, rows in reach.items() if name != "NoPE alone")
assert reach["NoPE alone"].max() < 0.3 and all(len(right) == 200 for _, right in runs["NoPE alone"])
assert end["window, NoPE"].min() > 0.97
assert abs(end["window, RoPE"].max() - 0.76) < 0.07 and abs(end["window, RoPE"].min() - 0.58) < 0.07
assert abs(end["KDA, NoPE"].mean() - end["KDA, RoPE"].mean()) < 0.08
assert 0.6 < min(end["KDA, NoPE"].min(), end["KDA, RoPE"].min())
assert max(end["KDA, NoPE"].max(), end["KDA, RoPE"].max()) < 0.92

# %% [markdown] tags=["slide"]
# Look at three things (all measured here, two seeds, thin lines).
#
# - **NoPE alone** does not learn the question: it answers a quarter, as one does who knows the bag of values and
#   no order. So yes, where nothing knows order NoPE hurts, in these 200 updates at least. (These layers have no
#   convolution; what one changes stands at the end of this section.)
# - **The window models answer the question of this chapter.** They differ in the global layer alone. Both are
#   perfect at 32 tokens; at 256 NoPE still finds all but one in a hundred, while RoPE has lost about a quarter in
#   one seed and two fifths in the other.
# - **The KDA models do not:** the two lines lie on each other, and both fall. Why?
#
# A line that does not move when a part is exchanged is suspicious; [chapter
# 04](04_multi_head_latent_attention.ipynb) met such a part. So switch the global layer off, and, as a second
# test, empty the states of KDA every 32 tokens, as if the text were short:

# %%
def right_in_silence(model, length):
    """Share of right answers when the global layer's attention adds nothing."""
    with silence.silenced(model.layers[1].self_attn):
        return right_at(model, length)


def emptied(model, every=32):
    """The same model, but its KDA layer begins with an empty state every so many tokens."""
    other = copy.deepcopy(model)
    layer = other.layers[0].self_attn
    forward = layer.forward

    def fresh(x, cache=None, *, mask=None, documents=None):
        return forward(x, documents=(torch.arange(x.shape[1]) // every).expand(x.shape[:2]))

    layer.forward = fresh
    return other


# %%
mute = {name: [right_in_silence(model, 32) for model, _ in done] for name, done in runs.items()}
print("share right at 32 tokens        as trained       global layer silent")
for name, shares in mute.items():
    print(f"{name:28s}", "  ".join(f"{row[0]:.2f}" for row in reach[name]), "      ",
          "  ".join(f"{share:.2f}" for share in shares))
far = {name: [right_in_silence(model, 256) for model, _ in runs[name]]
       for name in ("KDA, NoPE", "KDA, RoPE")}
for name, shares in far.items():
    print(f"{name} at 256 tokens{'':7s}", "  ".join(f"{row[-1]:.2f}" for row in reach[name]), "      ",
          "  ".join(f"{share:.2f}" for share in shares))
fresh = [right_at(emptied(model), 256) for model, _ in runs["KDA, NoPE"]]
print("KDA, NoPE at 256 tokens, states emptied every 32:", "  ".join(f"{share:.2f}" for share in fresh))

# %% tags=["remove"]
for name in ("KDA, NoPE", "KDA, RoPE"):
    assert np.abs(np.array(mute[name]) - reach[name][:, 0]).max() < 0.03
    assert np.abs(np.array(far[name]) - reach[name][:, -1]).max() < 0.06
assert max(*mute["window, NoPE"], *mute["window, RoPE"]) < 0.2
assert max(fresh) < 0.35

# %% [markdown]
# In the KDA models the global layer is **idle**: silent or not, the answers are the same. The state holds all
# eight pairs by itself, and learnt it first. It stays so at 256 tokens; and with states emptied on the way nearly
# all answers are gone. The window models, whose lower layer holds nothing, fall to guessing without their global
# layer (all measured here).
#
# So the tie between KDA with NoPE and KDA with RoPE says *nothing* about positions, and the loss at 256 tokens is
# that of a state which reads a text eight times as long as in training: **recurrent layers have a length problem
# of their own.** In a model whose texts do not fit into states, both kinds of layers have work to do; these two
# are too small for it. Without the test of silence one could have sold the difference of two lucky seeds as a
# result.

# %% [markdown]
# ### And in the lab
#
# The lab has asked again, with six pairs, five seeds and longer training, of models that are built in three ways.
# *Decays start slow*: as above, but every layer has a convolution of 4 taps, attention too. *Decays start fast*: the
# same, but fresh KDA layers forget within a token or two, to leave the attention something to do. And *without a
# convolution*, with the window of 2 in the place of KDA. *Pure* means attention alone.

# %%
lab_table("length", values=["32 tokens", "256 tokens"])

# %% [markdown]
# Read the last three columns together with the right half of the picture, what silence leaves.
#
# - *Windows*: silence leaves guesses, so the layer is used; NoPE has .998 right at 256 tokens, RoPE .63. *Shown*.
# - *KDA, slow decays*: the attention is idle in every seed, and nothing differs, .906 and .888.
# - *KDA, fast decays*: now silence costs most answers, but for one seed of each (that of NoPE does without its
#   attention once more), and NoPE reads better in the mean, .944 against .77. The seeds scatter, so the verdict is
#   *not shown at this size*.
# - *Attention alone*: without a convolution NoPE does not learn the question, .381 at 32 tokens; RoPE does, and has
#   lost it at 256, .149. With one NoPE answers everything at eight times the length, and RoPE .778. Four taps tell a
#   key what stood just before it, and this question asks for nothing else.
#
# So order must come in from somewhere, but it need not be a recurrent layer: for a question about neighbours a
# convolution will do. Questions that need recency over long distances this lab does not ask.
#
# ![](../figures/lab_length.png)

# %% [markdown] tags=["slide"]
# ## 9 · What is readable before the global layer?
#
# What does the lower layer hand up? A **probe** tells: a linear map, fitted by ridge regression (least squares
# with a small penalty on its size), tries to read from the vector of token $t$ which token stood $j$ places
# before. If a linear map can read it, so can a query or a key. Random texts of 16 symbols, fitted on half of
# them, tested on the other; guessing gives 1/16. And from the same vectors: can the *position* $t$ be read?

# %%
LAGS = np.arange(7)


def probe(model, layer, offset=0, seed=5, rows=200, T=48, start=16):
    """What is read below attention layer `layer`   -> share of tokens at each lag [7], R2 of the position"""
    symbols = np.random.default_rng(seed).integers(16, size=(rows, T))
    with watch.watched({"into": model.layers[layer].self_attn}) as seen_by:
        model(torch.tensor(symbols + offset))
    x = seen_by["into"][0].double().numpy()                       # [rows, T, D]
    return probes.tokens_read(x, symbols, LAGS, start), probes.position_read(x, start)


# %% tags=["slide"]
raw = [build("kda,attention_nope", "swiglu", "plain", config=SIZES, seed=seed) for seed in range(2)]
probed = {"KDA, trained": [probe(model, 1) for model, _ in runs["KDA, NoPE"]],
          "KDA, untrained": [probe(model, 1) for model in raw],
          "window of 2": [probe(model, 1) for model, _ in runs["window, NoPE"]],
          "NoPE attention": [probe(model, 1) for model, _ in runs["NoPE alone"]],
          "the miniature": [probe(model, 3, offset=ord("a"), seed=seed) for seed in (5, 6)]}
for label, found in probed.items():
    print(f"{label:15s} R2 of the position:", "  ".join(f"{r2:5.2f}" for _, r2 in found),
          "   lags 0, 1, 2:", np.mean([shares for shares, _ in found], axis=0)[:3].round(2))
show(seed_curves(LAGS, {label: np.array([shares for shares, _ in found]) for label, found in probed.items()},
                 title="Which earlier token can be read below the global layer?", x_label="places back",
                 y_label="share read", limits=(0, 1.04)),
     "Share of tokens read against places back: the window knows one place back and none further, untrained "
     "KDA and the miniature fall off with distance, NoPE attention is flat near guessing", name="07_probe")

# %% tags=["remove"]
lags = {label: np.mean([shares for shares, _ in found], axis=0) for label, found in probed.items()}
r2 = {label: [value for _, value in found] for label, found in probed.items()}
assert lags["window of 2"][1] > 0.5 > 0.1 > lags["window of 2"][2:].max()
assert np.ptp(lags["NoPE attention"][1:]) < 0.03 and lags["NoPE attention"][1:].max() < 0.15
assert lags["KDA, untrained"][1] > 0.15 > 0.12 > lags["KDA, trained"][1]
assert lags["the miniature"][1] > 0.45 and lags["the miniature"][2] > 0.3
assert lags["the miniature"][1] > lags["the miniature"][2] > lags["the miniature"][6]
assert max(r2["KDA, trained"] + r2["KDA, untrained"] + r2["window of 2"]) < 0.1
assert max(r2["NoPE attention"]) < 0.2 and 0.25 < min(r2["the miniature"]) < max(r2["the miniature"]) < 0.55

# %% [markdown] tags=["slide"]
# Look at the shapes (measured here):
#
# - **NoPE attention** is flat from one place back on, a little above guessing: it hands up a bag, all earlier
#   tokens alike.
# - **The window of 2** knows the token before, and nothing else. That is all that the global layer above it
#   needed.
# - **KDA untrained** reads its three neighbours a little, through the convolution. **KDA trained on our task**
#   has given that up: it hands up answers from its state, not neighbours, as the test of silence said.
# - **The miniature**, three KDA layers trained on many kinds of text, reads the token before in half of the
#   cases, and less the further back. That is what the sentence "order comes from KDA" looks like from the inside.
#
# The **position** can be read roughly at best: $R^2$ (1: all of its variance is read, 0: none) is near 0 below
# the toys' KDA and windows, about 0.1 below NoPE attention (perhaps the clock of section 3), and 0.4 in the
# miniature. KDA carries order as recency and neighbourhood, not as a number on each token.
#
# Those were a few toys trained on one question. The lab asks the same of models of three layers and one attention layer
# on top, trained on the mixed corpus, with and without the short convolution:

# %%
lab_table("position_probes", values=["t-1", "t-2", "t-8", "untrained t-1", "position after layer 3"])

# %% [markdown]
# Read *t-1* against *t-8*. Below attention without positions the two are the same, .127 and .119: a bag, whatever lies
# between. Below the recurrent layers the neighbour is read best, .19 to .234, and eight places back no better than below
# attention. With the convolution an untrained KDA has as much of that (.22) as a trained one (.231): recency comes with
# the structure and need not be learnt. And the position itself is weak everywhere, though not always as weak as
# expected: $R^2$ after three layers is .107 to .311 in the mean of the seeds; after two layers 4 of the 34 models are
# above a third.
#
# ![](../figures/lab_position_probes.png)
#
# The convolution does one thing more. It is why attention is never compared without it in this course:

# %%
lab_table("attention_convolution", values=["accuracy", "steps to 90 %"])

# %% [markdown]
# Look at the second column: with four taps in front of its queries, keys and values attention without positions learns
# the lists of pairs in 200 updates, and in every seed; without them it has not after 1,600 in any, because nothing
# tells a value its key. RoPE can find the neighbour by its angle, and does in three seeds of five, later. A comparison
# of KDA *with* a convolution against attention *without* would have measured the convolution.
#
# ![](../figures/lab_attention_convolution.png)

# %% [markdown] tags=["slide"]
# ## 10 · In the real K3
#
# | | K3 (report, unless said otherwise) |
# |---|---|
# | attention layers | 24 of 93, every fourth and the last; none has positions |
# | layers that see order | the other 69, KDA: decay of every key channel, erasing, convolution of 4 taps |
# | below the first attention layer | three KDA layers; their convolutions reach 3 · 3 = 9 tokens back (derived) |
# | the slice that RoPE has left | `qk_rope_head_dim` = 64, a plain key, never turned |
# | context | a million tokens; at $2^{20}$ the cache is 27 GiB, the states stay at 414 MiB (derived) |
# | decays at the start of training | 0.005 to 0.476 a token: half-lives from 139 down to 1.5 tokens (derived) |
#
# - **Why does NoPE not hurt?** Because order has already come in: every attention layer has KDA layers below it.
#   **Would it without KDA?** In our small model yes, if nothing else brings order in (section 8, *NoPE alone*); a
#   convolution was enough for its question. Deep stacks of attention without positions do learn some order through
#   the mask, but the clock of section 3 is too poor for long texts.
# - **What does it bring?** In the Kimi Linear paper's long-context tests NoPE in the attention layers has an
#   average of 54.5, RoPE 51.8, and attention in all layers 52.2 (report). For K3 itself no such comparison is
#   published.
# - The MLA layers without positions can be decoded as multi-query attention over 576 numbers ([chapter
#   04](04_multi_head_latent_attention.ipynb)); a rotation between query and latent would stand in the way.
# - **No angle, no table, no limit**: nothing in K3's weights depends on the length of the text. What limits it
#   are states that fade, a softmax that must find one in a million, and the lengths of the texts it was trained
#   on.

# %%
K3 = preset("kimi_k3")
million = cache_bytes(K3, 2 ** 20)
print(f"{len(K3.mla_layers)} of {K3.num_layers} layers attend; the first is layer {K3.mla_layers[0] + 1}")
print(f"a million tokens: cache {million.mla / 2 ** 30:g} GiB, states {million.kda_state / 2 ** 20:g} MiB")
for dt in (K3.dt_min, K3.dt_max):
    g = 5 * (1 - np.exp(-dt))
    print(f"|g| at the start {g:.3f}: half-life {np.log(2) / g:.1f} tokens")

# %% tags=["remove"]
assert (len(K3.mla_layers), K3.num_layers, len(K3.kda_layers), K3.mla_layers[0]) == (24, 93, 69, 3)
assert (K3.conv_size, K3.qk_rope_head_dim, K3.gate_lower_bound) == (4, 64, -5.0)
assert K3.kv_lora_rank + K3.qk_rope_head_dim == 576 and 3 * (K3.conv_size - 1) == 9
assert million.mla == 27 * 2 ** 30 and million.kda_state == 414 * 2 ** 20
assert [round(float(np.log(2) / (5 * (1 - np.exp(-dt)))), 1) for dt in (1e-3, 1e-1)] == [138.7, 1.5]

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. Attention without positions is a ratio of sums over tokens, so it reads a set; a permutation test shows it in
#    any code, and finds a rotation that was left behind.
# 2. In K3 order comes from KDA: decay makes recency, erasing lets the later write win, the convolution brings in
#    the nearest neighbours. The attention layers read a set of vectors that carry their order with them.
# 3. RoPE turns pairs of channels by position times speed; only differences count. Slow pairs meet new angles in
#    longer texts, and nothing has trained the model for them.
# 4. In a small hybrid with windows, whose global layer works, NoPE reads texts eight times longer than in training
#    without loss, RoPE does not; where nothing knows order, neither a layer nor a convolution, NoPE fails.
# 5. Test before you believe: in the KDA hybrids of the same experiment the attention layer was idle, and what
#    failed with length was the state.
