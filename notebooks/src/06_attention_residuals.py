# ---
# jupyter:
#   k3:
#     title: Attention residuals
#     minutes: {read: 47, exercises: 60, run: about one minute}
#     needs:
#       - "softmax attention with queries, keys and values ([chapter 04](04_multi_head_latent_attention.ipynb))"
#       - "the RMSNorm before every sublayer"
#       - "the matrix memory of [chapter 01](01_delta_rule_rnn.ipynb), for one comparison"
#     objectives:
#       - "say how a residual stream grows with depth, and what a single output is worth in it"
#       - "derive attention over depth, and show that the plain residual is the same with equal weights"
#       - "write the full and the block form, and trace which sublayer reads which vector"
#       - "evaluate a mix in two phases, and estimate what it costs in FLOPs and in traffic"
#       - "compare with hyper-connections: every way to join sublayers is a triangle of weights"
#     data: [figures/results/lab_residuals.json, figures/results/lab_residual_cost.json]
# ---

# %% [markdown] tags=["slide"]
# # 06 · Attention residuals
#
# Kimi K3 has 93 layers. Suppose that layer 70 needs one thing: what layer 3 has found out about this token. In almost
# every other model it is handed **the sum of everything** that layers 0 to 69 have written, and must find layer 3 in
# it.
#
# Over a text nobody does that any more: attention lets a token choose which earlier tokens it reads. **The question of
# this chapter: why should a layer not choose in the same way which earlier layers it reads? And what becomes of the
# residual stream then?**
#
# As everywhere, numbers are *report* (here also the paper on attention residuals, arXiv 2603.15031), *derived*,
# *measured here* or *toy*.

# %%
import numpy as np
import torch

from k3_scratch.accounting.flops import depth_sources, flops_per_token
from k3_scratch.analysis.depth_attention import depth_attention
from k3_scratch.analysis.watch import watched
from k3_scratch.baselines.frame import build
from k3_scratch.baselines.hyper_connections import all_streams, doubly_stochastic
from k3_scratch.config import K3Config, preset
from k3_scratch.course import check, lab_table, progress, show
from k3_scratch.layers import attention_residuals as layer
from k3_scratch.layers import two_phase as layer_two_phase
from k3_scratch.plots.depth_triangle import depth_triangle
from k3_scratch.plots.depth_weights import depth_weights
from k3_scratch.plots.seed_curves import seed_curves
from k3_scratch.plots.source_trace import source_trace
from k3_scratch.pretrained import pretrained
from k3_scratch.reference.attention_residuals import block_attention_residuals, full_attention_residuals
from k3_scratch.reference.attention_residuals import depth_mix
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.softmax import softmax
from k3_scratch.reference.two_phase import bank_phase, merge_phase
from k3_scratch.tasks.registry import task as task_called
from k3_scratch.tasks.rewrite import Rewrite

# %% [markdown] tags=["slide"]
# ## 1 · What a sublayer is handed
#
# A **decoder layer** has two **sublayers**: a part that looks at other tokens (KDA or MLA), and a feed-forward part
# (FFN). Number the sublayers of a model $i = 0, 1, \dots, M - 1$; layer $l$ has the sublayers $2l$ and $2l + 1$. For
# one token, let
#
# - $v_0$ be its **embedding**, a vector of $D$ numbers,
# - $x_i$ what sublayer $i$ is handed, and $x_M$ what the head is handed at the end,
# - $v_{i+1} = f_i(x_i)$ what sublayer $i$ writes.
#
# Each $f_i$ begins with an RMSNorm, $\operatorname{norm}(x) = x / \sqrt{\tfrac1D \sum_c x_c^2 + \epsilon}$, times a
# learned weight; another norm stands before the head. The **plain residual** of nearly all transformers is a running
# sum $h$ to which each sublayer adds its output:
#
# $$ h_0 = v_0, \qquad x_i = h_i, \qquad h_{i+1} = h_i + v_{i+1}
#    \qquad\Longrightarrow\qquad x_i = v_0 + v_1 + \dots + v_i . $$
#
# So every way to join sublayers can be drawn as a **triangle of weights**: row $i$ says how much of each earlier
# vector $x_i$ contains. Here are three for four sublayers. In the third the rows *choose*; its numbers are made up
# (toy), and where they come from is this chapter.

# %% tags=["slide"]
exists = np.tri(5, dtype=bool)                                    # row i reads the vectors 0 ... i
made_up = np.array([[1, 0, 0, 0, 0], [.3, .7, 0, 0, 0], [.1, .15, .75, 0, 0], [.05, .8, .05, .1, 0],
                    [.55, .03, .05, .02, .35]])
panels = {"the sum": np.ones((5, 5)), "the mean": np.ones((5, 5)) / np.arange(1, 6)[:, None],
          "a choice": made_up}
show(depth_weights({name: np.where(exists, w, np.nan) for name, w in panels.items()},
                   [f"$x_{i}$" for i in range(5)], [f"$v_{i}$" for i in range(5)]),
     "Three triangles of weights: all ones, rows of equal shares, and rows in which a few weights are large",
     name="06_triangles")

# %% [markdown] tags=["slide"]
# Compare the last rows: the sum hands over all of everything, the mean a fifth of everything, the choice mostly the
# oldest and the newest vector. Sum and mean differ by a factor a row, and the norm at the head of each sublayer takes
# factors away.

# %% [markdown] tags=["slide"]
# ## 2 · An experiment that breaks it: the sum grows
#
# How large is $h$? Measure size by the **root mean square** $\operatorname{rms}(x) = \sqrt{\tfrac1D \sum_c x_c^2}$.
# For independent outputs that point in random directions the mixed products are zero on average, so *squares* add:
#
# $$ \operatorname{rms}(h_i)^2 \approx \operatorname{rms}(v_0)^2 + \dots + \operatorname{rms}(v_i)^2
#    \qquad\text{and with equal sizes}\qquad \operatorname{rms}(h_i) \approx \sqrt{i + 1}\; \operatorname{rms}(v_0) . $$
#
# The sum grows like the root of the depth, and any single output becomes a **shrinking share** of it: $1 / (i + 1)$
# of its squared length. As the norm fixes the length of what a sublayer reads, this share is all that is left of it.
#
# A test with 64 random sublayers, $f(x) = \tanh(\operatorname{norm}(x)\, A)\, B$ with random matrices, outputs about
# as large as the embedding, ten seeds, $D = 48$ (toy). The `join` decides what is read:

# %%
def random_sublayers(rng, M, D):
    """M functions x -> tanh(norm(x) A) B, each with matrices of its own; outputs of rms about 1."""
    def one(A, B):
        return lambda x: 1.6 * np.tanh(rms_norm(x, np.ones(D), 1e-9) @ A) @ B
    return [one(*(rng.normal(size=(2, D, D)) * D ** -0.5)) for _ in range(M)]


def stack(join, seed, M=64, D=48, T=20):
    """What each sublayer and the output read, and all vectors written.   -> [M + 1, T, D], [M + 1, T, D]"""
    rng = np.random.default_rng(seed)
    vectors, read = [rng.normal(size=(T, D))], []
    for f in random_sublayers(rng, M, D):
        read.append(join(vectors))
        vectors.append(f(read[-1]))
    return np.array([*read, join(vectors)]), np.array(vectors)


def rms(x):
    return np.sqrt(np.mean(x ** 2, axis=(-1, -2)))


JOINS = {"sum": lambda v: np.sum(v, axis=0), "mean": lambda v: np.mean(v, axis=0)}
sizes = {name: np.array([rms(stack(join, seed)[0]) for seed in range(10)]) for name, join in JOINS.items()}

# %% tags=["slide"]
depth = np.arange(65)
show(seed_curves(depth, {"sum": sizes["sum"], "root of i + 1": np.sqrt(depth + 1), "mean": sizes["mean"]},
                 title="What 64 random sublayers read, ten seeds", x_label="sublayer i",
                 y_label="root mean square of $x_i$", limits=(0, 9.5)),
     "The size of the sum over 64 sublayers rises from 1 to 8 along the root of the depth; the mean falls",
     name="06_growth")

# %% tags=["remove"]
assert abs(sizes["sum"][:, 64].mean() / 65 ** 0.5 - 1) < 0.08
assert sizes["mean"][:, 64].mean() < 0.2

# %% [markdown] tags=["slide"]
# The sum follows the root of the depth: after 64 sublayers it is about eight times as large as the embedding (measured
# here). The mean of the same vectors shrinks by the same rule: sizes alone say little.
#
# What does that do to the stream as a means of communication? Take the direction in which sublayer 3 wrote, and ask
# how well it can still be seen in what is read later (the cosine of the two vectors):

# %%
def seen(seed, written=4):
    """Cosine of vector number `written` with everything read after it.   -> [M + 1 - written]"""
    read, vectors = stack(JOINS["sum"], seed)
    v, x = vectors[written], read[written:]
    cosine = np.sum(v * x, axis=-1) / np.linalg.norm(v, axis=-1) / np.linalg.norm(x, axis=-1)
    return cosine.mean(axis=-1)


cosines = np.array([seen(seed) for seed in range(10)]).mean(axis=0)
for later in (0, 4, 12, 28, 60):
    print(f"{later:2d} sublayers later: {cosines[later]:.2f};  1 / sqrt(i + 1) = {(later + 5) ** -0.5:.2f}")

# %% tags=["remove"]
assert abs(cosines[0] - 0.43) < 0.03
assert abs(cosines[60] - 0.11) < 0.03

# %% [markdown]
# Right after it has been written the cosine is .43, sixty sublayers later .11 (measured here): one voice among 65.
# Three things follow:
#
# - **Dilution.** To matter as much as the early layers do, a late layer has to write larger vectors. In the paper's
#   27-block model the outputs grow from .04 to 12 (report); the early layers drown.
# - **No way back.** A sum cannot be taken apart. A later layer can remove something only by writing its negative.
#   [Chapter 01](01_delta_rule_rnn.ipynb) met the same fault: a memory that only adds.
# - **One view for all.** Attention parts and FFNs of the same depth are handed nearly the same mixture, though one
#   may need the bare word and the other what has been looked up.
#
# In its favour: the gradient has a path of weight one from the loss to every layer. Whatever takes its place must
# keep a path to every layer open.

# %% [markdown]
# ### Exercise 6.1: how large does the sum get?
#
# K3 has 93 layers (report). Suppose the embedding and all outputs of sublayers had the same size and independent
# directions, joined by a plain residual. How many times as large as the embedding is the sum that reaches the head?
# (Four digits.)

# %% [markdown] tags=["hint"]
# Count the vectors first. Then squares add.

# %% id="6.1" minutes=3 difficulty=1
# BEGIN SOLUTION
my_growth = (1 + 2 * 93) ** 0.5
# END SOLUTION

# %%
check("6.1", my_growth)

# %% [markdown] tags=["slide"]
# ## 3 · The fix: attention over depth
#
# We want the weights of row $i$ to be a choice: positive, with sum one, and different for each token. That is a
# softmax over the vectors $v_0, \dots, v_i$, here called the **sources**:
#
# $$ \boxed{\; x_i = \sum_{j \le i} p_{ij}\, v_j, \qquad
#    p_{ij} = \operatorname{softmax}_{j \le i} \big( w_i \cdot k_j \big), \qquad
#    k_j = \gamma_i \odot \operatorname{norm}(v_j) \;} $$
#
# ($\odot$ multiplies channel by channel; $\operatorname{norm}$ is without a weight.) This is an **attention residual**.
# Beside ordinary attention four things are new, and each has a reason:
#
# | | here | why |
# |---|---|---|
# | query | one learned vector $w_i$ a sublayer, the same for every token | what a sublayer needs depends on the sublayer; and a query that does not wait for $x$ lets many mixes be prepared at once (section 7) |
# | keys | the sources themselves, normed, times a learned $\gamma_i$ | without the norm a source would win by being large, and section 2 would be back |
# | values | the **raw** sources | how large a layer writes is information: a layer with nothing to say writes little |
# | scale | none, no $1/\sqrt D$ | $w_i$ is a parameter that starts at 0 and takes the size it needs; the root tames products of two *random* vectors, and here is only one |
#
# The weights still depend on the token, through the keys: two tokens in which layer 3 wrote different things give
# layer 3 different weights. And they look at one token only: nothing is averaged over tokens.
#
# The norm weight $\gamma_i$ and the query $w_i$ enter only through their product $\gamma_i \odot w_i$; K3 stores both
# all the same (report).

# %% [markdown]
# ### Exercise 6.2: one mix over depth
#
# Write the boxed line for `N` sources of `T` tokens. Return the mixture and the weights. Take $\epsilon = 10^{-5}$.

# %% [markdown] tags=["hint"]
# `np.mean(sources ** 2, axis=-1)` has shape [N, T], and so have the scores. The softmax runs over axis 0.

# %% id="6.2" minutes=10 difficulty=1
def my_depth_mix(sources, query, norm_weight):
    """sources [N, T, D], query [D], norm_weight [D] -> mixed [T, D], weights [N, T]"""
    # BEGIN SOLUTION
    size = np.sqrt(np.mean(sources ** 2, axis=-1) + 1e-5)         # [N, T]
    scores = sources @ (query * norm_weight) / size               # [N, T]
    weights = softmax(scores, axis=0)
    return np.sum(weights[:, :, None] * sources, axis=0), weights
    # END SOLUTION

# %%
check("6.2", my_depth_mix)

# %% [markdown]
# What do keys and values each do with a source that becomes large? Multiply one of five sources by a thousand:

# %%
rng = np.random.default_rng(0)
sources, query, gamma = rng.normal(size=(5, 7, 24)), 0.3 * rng.normal(size=24), rng.uniform(0.5, 1.5, 24)
louder = sources * np.array([1, 1000, 1, 1, 1])[:, None, None]
(mixed, weights), (mixed_louder, weights_louder) = (depth_mix(s, query, gamma) for s in (sources, louder))
assert np.abs(weights - weights_louder).max() < 1e-4              # its weight is as before ...
assert rms(mixed_louder) > 100 * rms(mixed)                       # ... and it is heard 100 times as loud
in_torch = layer.depth_mix(*(torch.tensor(a) for a in (sources, query, gamma)))
assert np.allclose(mixed, in_torch[0].numpy()) and np.allclose(weights, in_torch[1].numpy())  # NumPy = torch
print("weights of the first token:", weights[:, 0].round(3), "and with the loud source:",
      weights_louder[:, 0].round(3))

# %% [markdown]
# Being loud buys no attention. But *when* a loud source is chosen, it is heard as loud as it is.

# %% [markdown]
# ### The plain residual is its uniform cousin
#
# Set the query to zero. All scores are zero, the softmax gives $1/N$ to each of the $N = i + 1$ sources, and the
# mixture is the plain mean. But the mean is the sum divided by $N$, and the first thing a sublayer does is to divide
# by the size:
#
# $$ \operatorname{norm}\Big(\tfrac1N \sum_j v_j\Big) = \operatorname{norm}\Big(\sum_j v_j\Big)
#    \qquad\text{(but for } \epsilon\text{)} . $$
#
# **A network with attention residuals whose queries are zero computes exactly what a network with the plain residual
# computes.** Queries start at zero, so training starts from the plain residual and moves away from it where that
# pays. Executed, with eps near zero: the random stack of section 2, once with the sum and once with the mix.

# %%
zero, one = np.zeros(48), np.ones(48)
_, by_sum = stack(JOINS["sum"], seed=0)
_, by_mix = stack(lambda v: depth_mix(v, zero, one)[0], seed=0)
assert np.allclose(by_sum, by_mix, atol=1e-6)                     # zero queries = plain, 64 sublayers deep
print("largest difference in 65 x 20 x 48 outputs:", np.abs(by_sum - by_mix).max().round(9))

# %% [markdown] tags=["slide"]
# ## 4 · The full form
#
# The **full form** is the boxed line for every sublayer and for the output: $M$ sublayers, $M + 1$ mixes, each with a
# query and a norm weight of its own. Nothing is added anywhere.

# %% [markdown]
# ### Exercise 6.3: the full form
#
# `sublayers` is a list of functions [T, D] → [T, D], each with its norm inside; `queries` and `norm_weights` have one
# row more, for the output. Return what the head is handed. `depth_mix(sources, query, norm_weight)` of the import cell
# gives the mixture and the weights, and takes a list of sources too.

# %% [markdown] tags=["hint"]
# `sources = [embedding]`, then a loop: mix, apply, append. After the loop one more mix.

# %% id="6.3" minutes=8 difficulty=2
def my_full(embedding, sublayers, queries, norm_weights):
    """embedding [T, D], M functions, queries [M+1, D], norm_weights [M+1, D] -> output [T, D]"""
    # BEGIN SOLUTION
    sources = [embedding]
    for i, f in enumerate(sublayers):
        x, _ = depth_mix(sources, queries[i], norm_weights[i])
        sources.append(f(x))
    return depth_mix(sources, queries[-1], norm_weights[-1])[0]
    # END SOLUTION

# %%
check("6.3", my_full)

# %% [markdown]
# The full form pays in memory. Every sublayer reads every earlier output, so all of them stay: in K3 it would be 187
# vectors of 7,168 numbers for each token in flight, and sublayer $i$ would read $i + 1$ of them, 17,578 in all
# (derived). In a cluster that has cut the model into stages, all of them would travel from stage to stage.

# %% tags=["remove"]
assert 187 * 188 // 2 == 17_578

# %% [markdown] tags=["slide"]
# ## 5 · The block form, as in K3
#
# The way out is a compromise with the sum. Cut the layers into **blocks**. *Inside* a block the outputs are added up
# as ever, in a running sum $h$. When the next block starts, $h$ is put aside into a **bank** and $h$ starts anew. A
# sublayer attends to the vectors of the bank and to $h$. K3's blocks have 12 layers (report), which makes 24 outputs
# in one vector.
#
# The order of evaluation matters, and public rebuilds of K3 get it wrong in several ways. For layer $l$:
#
# 1. **mix** bank and $h$ with the attention side's query; this is what the attention part reads. (Only in layer 0 is
#    the bank empty; there the input is $h$, the embedding.)
# 2. If $l$ is a multiple of the block size, **a block starts**: $h$ is banked, *the raw sum, not the mix*, and *after*
#    the mix. So the attention part that opens a block still reads the finished block as a running sum.
# 3. The attention part's output $y$: $h = y$ if a block has just started, else $h = h + y$.
# 4. **mix** again, with the FFN side's query. Now $h$ contains this layer's own attention output.
# 5. The FFN's output is added to $h$.
#
# After the last layer one more **mix**, for the head. Let us execute that with words in place of vectors, for four
# layers in blocks of two: a "vector" is a list of names, and `+` puts lists together.

# %% tags=["slide"]
def trace(num_layers, block_size):
    """What each mix reads.   -> rows (reader, bank, running sum, what it writes, is the sum banked now?)"""
    bank, h, rows = [], ["embedding"], []
    for l in range(num_layers):
        y, starts = [f"$v_{{{2 * l + 1}}}$"], l % block_size == 0
        rows.append((f"{l} attention", bank, h, y[0], starts))    # mixed before anything is banked
        bank, h = ([*bank, h], y) if starts else (bank, h + y)
        y = [f"$v_{{{2 * l + 2}}}$"]
        rows.append((f"{l} FFN", bank, h, y[0], False))           # sees its own layer's attention
        h = h + y
    return [*rows, ("output", bank, h, "", False)]


def words(vector):
    return " + ".join(vector)


rows = trace(num_layers=4, block_size=2)
readers, banks, sums, writes, sealed = zip(*rows, strict=True)
show(source_trace(readers, [[words(v) for v in bank] for bank in banks], [words(h) for h in sums], writes,
                  sealed),
     "Nine mixes of four layers in blocks of two: the running sum grows and is moved into the bank twice",
     name="06_trace")

# %% [markdown] tags=["slide"]
# Follow the orange boxes down: the running sum grows by one output a row, and at each red arrow it becomes a banked
# vector. Each row reads all its boxes, blue and orange, and nothing else.
#
# - **What is banked?** First the embedding, alone; then the sum of each finished block. The sum of the last block is
#   never banked, the output reads it as $h$.
# - **Where did the residual stream go?** Inside a block it is still there: $h$ is a plain running sum, of at most 24
#   outputs in K3. Across blocks it is gone: there is no `h +` around a mix, and what an earlier block wrote reaches
#   a later layer *through the softmax alone*. The open path that section 2 asked for is the weight $p$, which is
#   never zero and starts at $1/N$.
# - With zero queries the mixture is (bank + $h$) / $N$, and bank + $h$ is again the sum of everything: the block form
#   too starts as the plain residual.

# %% tags=["remove"]
assert [len(bank) + 1 for bank in banks] == [1, 2, 2, 2, 2, 3, 3, 3, 3]
assert sums[4] == ["$v_{1}$", "$v_{2}$", "$v_{3}$", "$v_{4}$"] and sums[5] == ["$v_{5}$"]
assert sorted(sum(banks[-1], []) + sums[-1]) == sorted(["embedding", *(f"$v_{{{i}}}$" for i in range(1, 9))])

# %% [markdown]
# ### Exercise 6.4: how many sources does each mix read?
#
# On paper: a model of **nine layers in blocks of four**. Give the number of sources of every mix in order of
# evaluation, attention and FFN side of each layer and then the output: a list of 19 whole numbers. For the picture
# above it is 1, 2, 2, 2, 2, 3, 3, 3, 3.

# %% [markdown] tags=["hint"]
# Keep one number in mind, how many vectors are banked. Between the two mixes of a layer it may rise by one.

# %% id="6.4" minutes=6 difficulty=1
# BEGIN SOLUTION
my_counts = [1] + 8 * [2] + 8 * [3] + 2 * [4]
# END SOLUTION

# %%
check("6.4", my_counts)

# %% [markdown]
# ### Exercise 6.5: the block form
#
# Now with vectors. `sublayers` alternate, two for each of $L$ layers: attention 0, FFN 0, attention 1, … `queries`
# and `norm_weights` have one row for each and one for the output; row 0 is never used. Return what the head is
# handed. Never change a banked vector in place: `h += y` would.

# %% [markdown] tags=["hint"]
# Take `trace` above and put vectors in place of words: `rows.append` becomes a mix and a sublayer.

# %% id="6.5" minutes=22 difficulty=3
def my_block(embedding, sublayers, queries, norm_weights, block_size):
    """embedding [T, D], 2 L functions, queries [2L+1, D], norm_weights [2L+1, D] -> output [T, D]"""
    # BEGIN SOLUTION
    bank, h = [], embedding
    for i, f in enumerate(sublayers):
        x = depth_mix([*bank, h], queries[i], norm_weights[i])[0] if bank else h
        y = f(x)
        if i % (2 * block_size) == 0:
            bank, h = [*bank, h], y
        else:
            h = h + y
    return depth_mix([*bank, h], queries[-1], norm_weights[-1])[0] if bank else h
    # END SOLUTION

# %%
check("6.5", my_block)

# %% [markdown]
# Finally the executed equality: the torch model, whose sublayers are KDA, MLA and experts, against the NumPy reference
# that is handed these sublayers as functions. The queries are random, so that the mixes choose.

# %%
LAYERS, TOKENS = "kda,kda,kda,mla", torch.arange(18).reshape(2, 9) % 7
SMALL = K3Config(vocab_size=7, hidden_size=32, attn_res_block_size=3, rms_norm_eps=1e-12,
                 initializer_range=0.2)


def with_queries(residual, spread=0.4, **options):
    """A small float64 model with four layers and random depth queries."""
    model = build(LAYERS, "latent_moe", residual, config=SMALL, seed=3, **options).double().eval()
    rng = np.random.default_rng(4)
    for mix in (*model.residual.mixes, model.residual.output_mix):
        mix.query.data.copy_(torch.tensor(spread * rng.normal(size=32)))
    return model


def in_numpy(model, form, *block_size):
    """The model's logits, its sublayers as functions of arrays, joined by a form of the reference."""
    parts = [part for one in model.layers for part in (one.attend, one.feed_forward)]
    functions = [lambda x, f=f: f(torch.tensor(x)).detach().numpy() for f in parts]
    mixes = [*model.residual.mixes, model.residual.output_mix]
    queries, gammas = (torch.stack([getattr(mix, name) for mix in mixes]).detach().numpy()
                       for name in ("query", "weight"))
    embedded = model.embed_tokens(TOKENS).detach().numpy()
    output, _, _ = form(embedded, functions, queries, gammas, *block_size, eps=SMALL.rms_norm_eps)
    return model.lm_head(model.norm(torch.tensor(output)))


# %%
full, blocks = with_queries("full_attention"), with_queries("attention")
assert torch.allclose(full(TOKENS), in_numpy(full, full_attention_residuals), atol=1e-9)  # torch = NumPy
assert torch.allclose(blocks(TOKENS), in_numpy(blocks, block_attention_residuals, 3), atol=1e-9)  # in blocks
single = with_queries("attention", boundaries=range(8))           # a block starts at every sublayer
assert torch.allclose(single(TOKENS), full(TOKENS), atol=1e-9)    # blocks of one sublayer = the full form
plain = build(LAYERS, "latent_moe", "plain", config=SMALL, seed=3).double().eval()
for name in ("full_attention", "attention"):
    started = with_queries(name, spread=0.0)
    assert torch.allclose(started(TOKENS), plain(TOKENS), atol=1e-6)  # queries of zero = plain residual
print("full form, blocks, blocks of one sublayer, queries of zero: all as derived")

# %% [markdown]
# The last two lines are the derivations of this chapter: with blocks of a single *sublayer* the block form is the full
# form, and with queries of zero both are the plain residual, weights and all.

# %% [markdown] tags=["slide"]
# ## 6 · What a trained model chooses
#
# The course's miniature K3 has four layers in blocks of two: the trace above is its own. It was trained on six
# families of small tasks ([chapter 09](09_training.ipynb)). Its mean weights on 64 rows that it has not seen:

# %% tags=["slide"]
mini, corpus = pretrained("mini"), task_called("corpus")
rows = [corpus.batch(np.random.default_rng(seed), 64, "test") for seed in range(3)]
weights, readers, sources = depth_attention(mini, torch.tensor(rows[0].tokens))
show(depth_triangle(weights, readers, sources),
     "Mean weights of nine mixes of the trained miniature; attention parts read mostly the embedding",
     name="06_mini_depth")

# %% tags=["remove"]
attention_rows = [readers.index(name) for name in ("1 KDA", "2 KDA")]
assert weights[attention_rows, 0].min() > 0.6
assert all(abs(weights[readers.index(name), 0] - 1 / 3) < 0.15 for name in ("2 MoE", "3 MoE", "output"))

# %% [markdown] tags=["slide"]
# Look at the first column: the KDA parts of layers 1 and 2 take most of their input from the **embedding**, the bare
# token, and the FFNs of the same layers spread theirs (measured here). That is a division of labour a sum cannot
# express: under a plain residual both would read nearly the same vector. It is also modest: most other rows are not
# far from equal shares, and one model with one seed is an anecdote.
#
# A mean over tokens can hide two things: weights that hardly matter, and weights that differ from token to token. So
# take the choice away from the trained model, in two steps, and count right answers on three batches:
#
# - *fixed*: each mix uses its mean weights for every token;
# - *equal*: each mix takes the plain mean, as if its query were zero.

# %%
def accuracy(model, batch, weighing):
    """Share of right answers when each mix weighs its sources by `weighing`."""
    def replaced(mix, inputs, output):
        sources = inputs[0]
        p = layer.mixing_weights(sources, mix.query, mix.weight)  # [N, B, T]
        return layer.mixture(sources, weighing(p)) if len(sources) > 1 else output
    mixes = [module for module in model.modules() if isinstance(module, layer.DepthMix)]
    hooks = [mix.register_forward_hook(replaced) for mix in mixes]
    with torch.no_grad():
        right = model(torch.tensor(batch.tokens)).argmax(-1).numpy() == batch.targets
    for hook in hooks:
        hook.remove()
    return right[batch.scored].mean()


WEIGHINGS = {"as trained": lambda p: p, "fixed": lambda p: p.mean((1, 2), keepdim=True).expand_as(p),
             "equal": lambda p: torch.full_like(p, 1 / len(p))}
shares = {name: [accuracy(mini, batch, weighing) for batch in rows] for name, weighing in WEIGHINGS.items()}
for name, share in shares.items():
    print(f"{name:10s}", "  ".join(f"{one:.2f}" for one in share))

# %% tags=["remove"]
assert np.mean(shares["as trained"]) > 0.97
assert np.mean(shares["fixed"]) < 0.75
assert np.mean(shares["equal"]) < np.mean(shares["fixed"]) - 0.05

# %% [markdown]
# As trained it answers nearly everything, with fixed weights about half, with equal ones less still (measured here).
# So the weights matter, and their dependence on the token does most of the work. Keep the conclusion small:
# the model grew up with this part, and taking a used part out of any trained model hurts. Whether a model *trained
# without it* would be worse is another question; section 9 asks it, at toy size.

# %% [markdown] tags=["slide"]
# ## 7 · Two phases, and what it costs
#
# All mixes of a block read the same bank; only $h$ differs. And the queries are known before anything is computed. So
# the bank's part can be done once for all of them. Split the softmax of one mix into bank and $h$: let $s_b$ be the
# scores of the banked vectors $v_b$ and $s$ that of $h$, and
#
# $$ Z = \sum_b e^{s_b}, \qquad m = \frac1Z \sum_b e^{s_b}\, v_b . $$
#
# $m$ is the mixture over the bank alone. Then the mixture over bank and $h$ is
#
# $$ x = \frac{Z\, m + e^{s} h}{Z + e^{s}}
#      = m + \frac{e^s}{Z + e^s}\, (h - m)
#      = m + \operatorname{sigmoid}(s - \log Z)\, (h - m) . $$
#
# **A softmax over (bank, $h$) is a sigmoid between the bank's own mixture and $h$.** Phase one computes $m$ and
# $\log Z$ for all queries of a block while reading the bank once; phase two is one line a sublayer. It is exact, and
# it is the same trick by which attention over a long text is computed piece by piece (*online softmax*).

# %% [markdown]
# ### Exercise 6.6: merge the two parts
#
# `log_total` is $\log Z$, `mean` is $m$. It must survive scores of ±900, where $e^{900}$ is infinite.

# %% [markdown] tags=["hint"]
# Only one exponential is needed. The sigmoid of a number $a$ is `0.5 * (1 + np.tanh(0.5 * a))`, which never overflows.

# %% id="6.6" minutes=11 difficulty=2
def my_merge(log_total, mean, h, score):
    """log_total [T], mean [T, D], h [T, D], score [T] -> mixed [T, D]"""
    # BEGIN SOLUTION
    share = 0.5 * (1 + np.tanh(0.5 * (score - log_total)))        # sigmoid          [T]
    return mean + share[:, None] * (h - mean)
    # END SOLUTION

# %%
check("6.6", my_merge)

# %% [markdown]
# Phase one inline, for several queries at once, and the equalities: both phases here = `reference` = `layers` = the
# plain softmax. The cell after it is the one that counts: the course's model decodes token by token in two phases and
# reads a whole text without them, and the logits agree.

# %%
def first_phase(bank, queries, gammas, eps=1e-5):
    """bank [N, T, D], queries [Q, D], gammas [Q, D] -> log Z [Q, T], m [Q, T, D]"""
    normed = bank / np.sqrt(np.mean(bank ** 2, axis=-1, keepdims=True) + eps)  # once for all queries
    scores = np.einsum("ntd,qd->qnt", normed, queries * gammas)
    top = scores.max(axis=1)                                      # the largest exponential becomes 1
    log_total = top + np.log(np.sum(np.exp(scores - top[:, None]), axis=1))
    return log_total, np.einsum("qnt,ntd->qtd", np.exp(scores - log_total[:, None]), bank)


rng = np.random.default_rng(6)
bank, h, queries, gammas = (rng.normal(size=size) for size in ((3, 5, 8), (5, 8), (4, 8), (4, 8)))
log_total, mean = first_phase(bank, queries, gammas)
for got, wanted in zip((log_total, mean), bank_phase(bank, queries, gammas), strict=True):
    assert np.allclose(got, wanted)                               # here = reference
for got, wanted in zip((log_total, mean), layer_two_phase.bank_phase(
        *(torch.tensor(a) for a in (bank, queries, gammas))), strict=True):
    assert np.allclose(got, wanted.numpy())                       # here = torch
for q in range(4):
    merged = merge_phase(log_total[q], mean[q], h, queries[q], gammas[q])
    assert np.allclose(merged, depth_mix([*bank, h], queries[q], gammas[q])[0])  # two phases = one softmax

# %%
exact, text = pretrained("mini").double(), torch.tensor(rows[0].tokens[:2, :24])
with torch.no_grad():
    whole, cache = exact(text), exact.new_cache(2)
    steps = torch.cat([exact(text[:, t:t + 1], cache) for t in range(24)], dim=1)
assert torch.allclose(whole, steps, atol=1e-9)                    # decoding in two phases = reading in one
print(f"24 tokens, one by one and all at once: logits differ by less than 1e-9 of {whole.abs().max():.0f}")

# %% [markdown]
# ### Why 4 % in training and 2 % in inference?
#
# The paper measures *less than* 4 % more time in training and less than 2 % in inference (report). Where does it come
# from? First the arithmetic. One source costs a mix $6 D$ FLOPs a token: $2D$ for the mean square, $2D$ for the score,
# $2D$ for the weighted sum. With $\bar N$ sources on average that is $6 \bar N D$ a sublayer, and the sublayer itself
# is made of matrices, $c\, D^2$ FLOPs with some number $c$. **The share falls as the model gets wider:**
#
# $$ \text{share of FLOPs} = \frac{6 \bar N D}{c\, D^2} = \frac{6 \bar N}{c\, D} . $$

# %%
for name in ("mini", "kimi_k3"):
    config, work = preset(name), flops_per_token(preset(name))
    D, M, reads = config.hidden_size, 2 * config.num_layers, sum(depth_sources(config))
    share = work.modules["depth_mixes"] / work.total
    print(f"{name:8s} D {D:5d}, {M:3d} sublayers, {reads:5d} sources read for a token "
          f"({reads / M:.1f} a sublayer): {share:.3%} of all FLOPs")

# %% tags=["remove"]
assert reads == 1002 and depth_sources(preset("kimi_k3"))[-1] == 9
assert abs(share - 0.00021) < 1e-5
mini_work = flops_per_token(preset("mini"))
assert abs(mini_work.modules["depth_mixes"] / mini_work.total - 0.0163) < 5e-4

# %% [markdown]
# In K3 it is .02 % (derived): arithmetic is not the price. The price is **traffic**: vectors that are fetched from
# memory and put back. Count in units of $D$ numbers, for a sublayer and a token; what the sublayer reads goes
# straight into its norm and is not counted, in any row. $S$ is the number of sublayers in a block, $N_b$ that of
# banked vectors.
#
# | | reads | writes | sum |
# |---|---|---|---|
# | plain residual | $h$, the last output | $h$ | 3 |
# | blocks, one mix at a time | $N_b$, $h$, the last output | $h$ | $N_b + 3$ |
# | blocks, two phases | $N_b / S$ (the bank once a block), $m$, $h$, the last output | $m$, $h$ | $N_b/S + 5$ |
# | full form | all $i + 1$ sources | – | 94 on average |
#
# The paper gives $5.5$ for blocks in two phases, that is $N_b/S = \tfrac12$, and 34 for hyper-connections with four
# streams (report). How much time is that? Assume a machine that does 300 FLOPs in the time in which it moves one byte
# (toy, but near today's accelerators), numbers of two bytes, and that neither waits for the other:

# %%
config, work = preset("kimi_k3"), flops_per_token(preset("kimi_k3"))
M, mixes = 2 * config.num_layers, 2 * config.num_layers + 1
banked = (sum(depth_sources(config)) - M) / M                     # mean bank of a mix; the first reads none
blocks_read = sum(range(1, 9)) / M                                # banks of 1 ... 8 vectors, each read once
traffic = {"plain": 3, "blocks, one by one": banked + 3, "blocks, two phases": blocks_read + 5,
           "full form": (mixes + 1) / 2}
unit = 2 * config.hidden_size * 300 / (work.total / M)            # D numbers moved, in FLOPs of one sublayer
extra = {name: (vectors - 3) * unit for name, vectors in traffic.items()}
for name, vectors in traffic.items():
    print(f"{name:20s} {vectors:5.1f} D of traffic, {extra[name]:6.2%} more time than plain")
training = 4 * banked * unit / 3
print(f"training, one by one: {training:.1%} more")

# %% tags=["remove"]
assert abs(extra["blocks, one by one"] - 0.017) < 0.002
assert abs(extra["blocks, two phases"] - 0.008) < 0.001
assert abs(extra["full form"] - 0.35) < 0.02 and abs(traffic["full form"] - 94) < 0.01
assert abs(training - 0.022) < 0.003
assert abs(traffic["blocks, two phases"] - 5.2) < 0.05

# %% [markdown]
# **Inference:** in two phases about 1 % (derived under the assumption), within the reported 2 %. **Training** has the
# backward pass as well: each source is read once more, and the gradient of each source, to which every reader
# contributes, is read and written, four times $N_b$ in place of one, while the FLOPs only triple. That gives about
# 2 %. On top comes what this estimate leaves out: in a model cut into stages the bank travels with $h$ from stage to
# stage, and many small steps are slower than one large one. So *twice as much in training* is what one expects, and
# both figures are upper ends of measurements on other models. On a miniature it is far more, for the formula has $D$
# below the line.
#
# How far more, and does it fall? The lab has timed models of eight layers against the same models with the plain sum.
# The numbers are per cent of additional time (the name of the third form is explained in the next section):

# %%
lab_table("residual_cost", values=["D 32", "D 128", "D 512", "D 1024"])

# %% [markdown] tags=["slide"]
# Follow a row from left to right: at width 32 blocks double the time of a training step (95.5 % more), at width 1,024
# they add 3.75 %, and the full form 7.72 %. One decoding step, which has a single token to share the small operations
# among, costs 8.4 % more at that width. Each doubling of $D$ quadruples the work of a sublayer and only doubles that of
# a mix. So a measurement on a miniature says nothing about the price in a large model; the direction it moves in does.
# That the 3.75 % lie near the reported 4 % is chance: K3 is seven times as wide, trains on other machines, and there
# the traffic decides.
#
# ![](../figures/lab_residual_cost.png)

# %% [markdown]
# ## 8 · Beside it: hyper-connections
#
# Others repaired the sum in another way. **Hyper-connections** keep $n$ residual streams, the rows of a matrix $H$ with
# $n$ rows and $D$ columns, at first $n$ copies of the embedding. Each sublayer has three sets of weights, made from
# the streams themselves for each token: $a$ ($n$ numbers, what it reads), $b$ ($n$ numbers, where it writes), and a
# matrix $C$ ($n \times n$, how the streams are mixed on the way):
#
# $$ x_i = H^\top a, \qquad H \leftarrow C^\top H + b\, v_{i+1}^\top . $$
#
# The write is an old friend: an outer product, as in the matrix memory of [chapter 01](01_delta_rule_rnn.ipynb).
# **Hyper-connections are a recurrent network over depth**, with a state of $n$ vectors; attention residuals are
# attention over depth. With $n = 1$ and $a = b = C = 1$ it is the plain residual.
#
# A product of 186 matrices $C$ explodes or dies unless they are tamed. The *manifold-constrained* form (mHC, arXiv
# 2512.24880) makes $C$ **doubly stochastic**: no entry negative, each row and each column with sum 1. A product of two
# such matrices is again one, so whatever the depth, $C$ only ever averages: it makes nothing larger, and the sum of
# all streams passes through unchanged. To get such a matrix from any numbers, divide columns and rows by their sums in
# turn (Sinkhorn's algorithm):

# %%
def sinkhorn(logits, turns=20):
    """[n, n] -> a doubly stochastic matrix [n, n]"""
    C = softmax(logits, axis=-1)
    C = C / C.sum(axis=-2, keepdims=True)
    for _ in range(turns - 1):
        C = C / C.sum(axis=-1, keepdims=True)                     # rows
        C = C / C.sum(axis=-2, keepdims=True)                     # columns
    return C


logits = np.random.default_rng(8).normal(size=(24, 3, 3))
C = sinkhorn(logits)
assert np.allclose(C, doubly_stochastic(torch.tensor(logits), 20, 0.0).numpy())  # here = baselines
assert np.allclose(C.sum(axis=-1), 1, atol=1e-4) and np.allclose(C.sum(axis=-2), 1)  # rows and columns
product = np.linalg.multi_dot(list(C))
assert np.allclose(product.sum(axis=-1), 1, atol=1e-3) and np.allclose(product.sum(axis=-2), 1)  # 24 times
print(C[0].round(2), "  times 23 more:", product.round(2), sep="\n")

# %% [markdown]
# After 24 factors nothing has grown, and everything is an average: the streams have become equal. That is the price
# of taming: what shall stay apart over many layers needs matrices near the identity. (In a model the next output is
# written with another $b$ into each stream, which keeps them different.)
#
# And the executed equality: one stream, $a = b = 1$, is the plain residual.

# %%
hyper = build(LAYERS, "latent_moe", "hyper", config=SMALL, seed=3, streams=1, eps=1e-12).double().eval()
hyper.load_state_dict(plain.state_dict(), strict=False)           # embedding, norms, sublayers, head
with torch.no_grad():
    for connection in (*hyper.residual.connections, hyper.residual.head):
        connection.fn.zero_()                                     # the weights depend on no token
        connection.base.zero_()                                   # b = 2 sigmoid(0) = 1
        connection.base[0] = 40.0                                 # a = sigmoid(40) = 1
assert torch.allclose(hyper(TOKENS), plain(TOKENS), atol=1e-8)    # one stream, C = 1: the plain residual
print("one stream that reads and writes with weight one: the plain residual")

# %% [markdown]
# How do they compare? The losses are those of one study with 436 M active parameters (report, AttnRes); smaller is
# better:
#
# | | plain | mHC, $n$ streams | attention, full | attention, blocks |
# |---|---|---|---|---|
# | over depth it is | a sum | a recurrence, state $n D$ | attention, cache $(i + 1) D$ | attention over sums of blocks |
# | an old output passes through | nothing | every $C$ since | one softmax | one softmax |
# | new parameters a sublayer | 0 | $n\,(n + 2)\, n D$ | $2 D$ | $2 D$ |
# | traffic, in $D$ (report) | 3 | 34 ($n = 4$) | – | 5.5 |
# | validation loss (report) | 1.766 | 1.747 | 1.737 | 1.746 |
#
# So blocks and hyper-connections gain about the same there, at very different cost; the full form gains most. Two
# more rows of the same study say which parts matter: without the norm on the keys the full form falls back to 1.743,
# and with weights that do not depend on the token to 1.749.

# %% [markdown] tags=["slide"]
# ## 9 · Four ways in one small deep model
#
# Now trained side by side (toy): ten sublayers, $D = 24$, softmax attention with a short convolution and SwiGLU, on a
# small version of the rewrite task of chapter 01; 80 updates, three seeds. Only the way of joining differs.

# %%
task = Rewrite(keys=3, values=4, writes=5, queries=3)
WAYS = {"plain": "plain", "full": "full_attention", "blocks": "attention", "hyper": "hyper"}


def new_model(way, seed):
    """Five layers; blocks of two layers, four streams with three turns of Sinkhorn."""
    config = K3Config(vocab_size=task.vocab_size, hidden_size=24, num_heads=2, kda_key_dim=12,
                      kda_value_dim=12, intermediate_size=48, first_k_dense=0, initializer_range=0.15,
                      attn_res_block_size=2)
    options = {"iterations": 3} if way == "hyper" else {}
    return build(["attention_nope"] * 5, "swiglu", WAYS[way], config=config, seed=seed, convolution=True,
                 **options)


def loss_on(model, batch):
    scores, targets = model(torch.tensor(batch.tokens)), torch.tensor(batch.targets)
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=-1)


# %%
def train(way, seed, updates=80, rate=8e-3):
    """-> trained model, loss on 512 rows it has not seen"""
    model, rng = new_model(way, seed), np.random.default_rng(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), fused=True)
    for step in range(updates):
        optimiser.param_groups[0]["lr"] = rate * min(1, (step + 1) / 20)
        loss = loss_on(model, task.batch(rng, 16))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    with torch.no_grad():
        return model, loss_on(model, task.batch(np.random.default_rng(99), 512, "test")).item()


trained = {way: [train(way, seed) for seed in range(3)] for way in WAYS}
losses = {way: np.array([loss for _, loss in runs]) for way, runs in trained.items()}
for way, loss in losses.items():
    print(f"{way:8s} loss of three seeds:", *loss.round(2), " mean", loss.mean().round(2))

# %% tags=["remove"]
assert all(0.2 < loss.min() and loss.max() < 0.95 for loss in losses.values())
means = [loss.mean() for loss in losses.values()]
assert max(means) - min(means) < 0.055
assert 0.25 < max(np.ptp(loss) for loss in losses.values()) < 0.33

# %% [markdown]
# **No effect at this size.** The four means lie within .05 of each other, the three seeds of one way up to .3 apart
# (measured here). Nothing else was to be expected: the gain in the paper is .02 to .03 in the loss of models with
# hundreds of millions of parameters, and ten sublayers are not deep enough to drown anybody.
#
# What did change is what travels up the model. We look into all twelve models: what each sublayer reads, what it
# writes, and the parts that join them.

# %%
def look(model, tokens):
    """Inputs and outputs of all parts of one forward pass: {(kind, sublayer): (input, output)}."""
    M = 2 * len(model.layers)
    parts = {("write", -1): model.embed_tokens, ("read", M): model.norm}
    for i in range(M):
        one, second = model.layers[i // 2], i % 2
        parts["read", i] = one.post_attention_layernorm if second else one.input_layernorm
        parts["write", i] = one.ffn if second else one.self_attn
        parts |= {("join", i): module for module in model.residual.modules_for(i).values()}
    parts |= {("join", M): module for module in model.residual.final_modules().values()}
    with watched(parts) as seen:
        model(tokens)
    return seen


fresh = torch.tensor(task.batch(np.random.default_rng(7), 64, "test").tokens)
looks = {way: [look(model, fresh) for model, _ in runs] for way, runs in trained.items()}
read = {way: np.array([[rms(one["read", i][0].flatten(0, 1).numpy()) for i in range(11)] for one in found])
        for way, found in looks.items()}

# %% tags=["slide"]
names = {"plain": "plain residual", "full": "attention, full", "blocks": "attention, blocks of 2",
         "hyper": "hyper-connections"}
show(seed_curves(np.arange(11), {names[way]: sizes for way, sizes in read.items()},
                 title="What ten trained sublayers and the output read, three seeds", x_label="sublayer",
                 y_label="root mean square", ticks=range(11), limits=(0, 7)),
     "Sizes over ten sublayers: plain and hyper-connections rise, full attention stays low, blocks between",
     name="06_magnitudes")

# %% tags=["remove"]
assert abs((read["plain"][:, 10] / read["plain"][:, 0]).mean() - 16.4) < 2
assert all(read["full"][:, 10] < 0.8 * read["full"][:, 2])
assert all(read["full"].max(axis=1) < 1) and all(read["hyper"][:, 10] > read["plain"][:, 10])
assert all(read["full"][:, 10] < read["blocks"][:, 10])
assert all(read["blocks"][:, 10] < 0.5 * read["plain"][:, 10])

# %% [markdown] tags=["slide"]
# Look at the lines from left to right: the plain sum grows to about sixteen times the size of the embedding, the full
# form stays below one and blocks lie between (measured here). Do not read too much into it. A mean *is* smaller than
# a sum, and four streams that are all read with weights near one half add up to twice a stream; the norm behind it
# makes all of that the same. In the paper it is the *outputs* of deep plain models that grow until the early layers
# drown; in 80 updates of ten sublayers there is no such thing.
#
# ### Every way is a triangle
#
# Section 1 promised that any way to join sublayers is a triangle of weights, $x_i = \sum_j P_{ij} v_j$. For the plain
# residual $P_{ij} = 1$. For the full form it is the softmax. For blocks, each member of a block has its block's
# weight. For hyper-connections follow one output through the streams: it enters with $b$, each later sublayer mixes it
# with its $C$, and it is read with $a$:
#
# $$ P_{ij} = a_i^\top\, C_{i-1}^\top \cdots C_{j}^\top\, b_{j-1} , $$
#
# ($b_{j-1}$: the sublayer that wrote $v_j$; the embedding enters with ones.) We compute $P$ for every token and check
# that it rebuilds what was read.

# %%
def by_sum_alone(model, seen, M):
    """P of the plain residual.   -> [M + 1, M + 1, B, T]"""
    return torch.ones(M + 1, M + 1).tril()[:, :, None, None].expand(-1, -1, *fresh.shape)


def by_attention(model, seen, M):
    """P of the full and the block form.   -> [M + 1, M + 1, B, T]"""
    mixes, P = [*model.residual.mixes, model.residual.output_mix], []
    boundaries = getattr(model.residual, "boundaries", range(M))  # full form: a block at every sublayer
    groups, running = [], [0]                                     # which vectors are in which source
    for i, mix in enumerate(mixes):
        p = layer.mixing_weights(seen["join", i][0], mix.query, mix.weight)
        row = torch.zeros(M + 1, *p.shape[1:])
        for weight, members in zip(p, [*groups, running], strict=True):
            row[members] = weight
        P.append(row)
        groups, running = ([*groups, running], [i + 1]) if i in boundaries else (groups, [*running, i + 1])
    return torch.stack(P)


# %%
def by_streams(model, seen, M):
    """P of hyper-connections: one vector follows another through the streams.   -> [M + 1, M + 1, B, T]"""
    place = torch.ones(1, *seen["join", 0][1][0].shape)           # [vectors so far, B, T, n]: the embedding
    P = []
    for i in range(M):
        a, b, C = seen["join", i][1]
        P.append((place * a).sum(-1))                             # what is read of each vector
        place = torch.cat([torch.einsum("vbtj,btjk->vbtk", place, C), b[None]])
    head = model.residual.head
    moving = all_streams(seen["join", M][0], head.fn, head.norm_eps)
    a = torch.sigmoid(head.scale * moving + head.base) + head.eps
    P.append((place * a).sum(-1))
    return torch.stack([torch.cat([row, row.new_zeros(M + 1 - len(row), *row.shape[1:])]) for row in P])


# %% tags=["slide"]
def triangle(way, seed=0, M=10):
    """Mean over tokens, 1 = an equal share of the row.   -> [M + 1, M + 1], NaN above"""
    model, seen = trained[way][seed][0], looks[way][seed]
    with torch.no_grad():
        P = {"plain": by_sum_alone, "hyper": by_streams}.get(way, by_attention)(model, seen, M)
        written = torch.stack([seen["write", i][1] for i in range(-1, M)])           # [M + 1, B, T, D]
        rebuilt = torch.einsum("ijbt,jbtd->ibtd", P, written)
    read = torch.stack([seen["read", i][0] for i in range(M + 1)])
    assert torch.allclose(rebuilt, read, atol=1e-4)               # the triangle is all there is to it
    shares = (P / P.sum(1, keepdim=True)).mean((2, 3)).numpy() * np.arange(1, M + 2)[:, None]
    return np.where(np.tri(M + 1, dtype=bool), shares, np.nan)


triangles = {names[way]: triangle(way) for way in WAYS}
readers = [*(f"$x_{{{i}}}$" for i in range(10)), "output"]
show(depth_weights(triangles, readers, [f"$v_{{{j}}}$" for j in range(11)], label="times an equal share",
                   limit=2.0),
     "Four triangles of trained weights: plain is flat, attention differs by rows, hyper by columns",
     name="06_trained_triangles")

# %% tags=["remove"]
late = {way: triangles[names[way]][6:, :7] for way in WAYS}          # rows with all of v_0 ... v_6
spread = {way: np.log(one[:, 1:] / one[:, :1]).std(axis=0).mean() for way, one in late.items()}
assert spread["hyper"] < 0.025 and abs(spread["full"] - 0.205) < 0.02  # columns look alike from row to row
assert all(0.58 < np.nanmin(triangles[names[way]]) for way in WAYS)
assert all(np.nanmax(triangles[names[way]]) < 1.5 for way in WAYS)

# %% [markdown] tags=["slide"]
# A cell that is as bright as the plain triangle is an equal share. After so short a training all weights lie between
# .6 and 1.5 times that (measured here): the queries started at zero and have hardly moved. Where the triangles differ
# from plain, they do so in different *directions*. In the one of hyper-connections **columns** stand out, alike from
# row to row, the ratio of two columns to within 2 %: each output decides when it is written how loud it is to be, and
# nobody later asks for it again. In the full form that ratio moves by 20 % from **row** to row (measured here): each
# reader decides anew. That is the difference between a recurrence and attention, over depth as over a text.

# %% [markdown]
# ### And in the lab
#
# The lab of the course ([chapter 01](01_delta_rule_rnn.ipynb), section 5) has trained twice as many sublayers for
# longer, and given the queries over depth ten times the common learning rate, so that they leave zero. Two variants
# are there to be compared with: queries that are held at zero, so that every mix is a plain average, and blocks whose
# queries learn at the common rate.

# %%
lab_table("residuals", values=["loss", "last read", "gradient spread", "structure", "lost without choice"])

# %% [markdown] tags=["slide"]
# Look at *structure* first, the share of the weight that is away from equal shares: .356 and .26 when the queries may
# learn quickly, .0532 at the common rate, which is why the triangles above are so pale. And these models **use** their
# choice: set their queries to zero after training, and they lose .27 and .215 of accuracy. Bright cells in the
# picture's triangles lie at other places in the second seed: there is no one right place to read from.
#
# What the choice does *not* do here: keep sizes small. Plain averaging does that, and better (.115 at the last
# sublayer, .193 in the full form, 2.31 under the plain sum). Nor are gradients spread more evenly, 79 in the full
# form against 17.5, nor do the outputs of the plain model grow, as they do in the paper. The losses are lower than the
# plain sum's, .12 and .126 against .144, but even with five seeds that is *not shown*; with queries held at zero it
# is .135. One rule was too strict: an average is no larger than the largest of its vectors for each *token*, but what was
# measured is a mean over tokens, which may choose different ones.
#
# ![](../figures/lab_residuals.png)

# %% [markdown] tags=["slide"]
# ## 10 · In the real K3
#
# | | K3 (report) |
# |---|---|
# | layers, sublayers | 93, 186 |
# | block | 12 decoder layers = 24 sublayers |
# | mixes | 187, of which the first is never used: one query and one norm weight of 7,168 numbers each |
# | new parameters | 187 · 2 · 7,168 = 2,680,832, one millionth of the model (derived) |
# | banked vectors | 8: the embedding and 7 finished blocks (derived) |
# | sources at the output | 9 (derived) |
# | vectors read for a token | 1,002 in blocks; 17,578 in the full form (derived) |
# | a cache from token to token | none: depth starts anew with every token |
#
# - The last block has 9 layers, 84 to 92; its sum is never banked.
# - "Block" counts decoder layers here and in the released configuration, sublayers in the paper. Whoever mixes them up
#   gets blocks of half the length.
# - The paper varies the length of a block, counted in sublayers: validation loss 1.746 at 2 and at 4, 1.748 at 8,
#   1.753 at 16, 1.757 at 32 (report). Longer is cheaper and slightly worse; K3's 24 lies at the cheap end.
# - It also puts the gain in other units: what attention residuals reach, the plain residual reaches with 1.25 times
#   the compute (report).
#
# Why is *attention* affordable here and so dear over a text? Because depth is short. A text has a million positions
# and each has a key; over depth there are 187, in blocks 9. For the same reason a layer can afford one query: it does
# not search, it has learnt where its input lies.

# %% tags=["remove"]
config = preset("kimi_k3")
assert (config.num_layers, config.attn_res_block_size, config.hidden_size) == (93, 12, 7168)
assert 187 * 2 * config.hidden_size == 2_680_832
assert 2_680_832 / 2_779_484_476_000 < 1.1e-6
_, banks, sums, _, _ = zip(*trace(93, 12), strict=True)
assert len(banks[-1]) == 8 and len(banks[-1]) + 1 == 9
assert sum(len(bank) + 1 for bank in banks[1:]) == 1002
assert [len(block) for block in banks[-1]] == [1] + [24] * 7
assert len(sums[-1]) == 18 and sums[-1][0] == "$v_{169}$"          # layers 84 to 92

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. A plain residual hands every sublayer the sum of all outputs: it grows like the root of the depth, and each output
#    is a shrinking share of it.
# 2. Attention residuals weigh the outputs with a softmax over depth: keys normed, values raw, no $1/\sqrt D$, one
#    learned query a sublayer. With queries of zero they *are* the plain residual.
# 3. In blocks only sums of blocks are banked; inside a block the stream lives on, across blocks everything goes through
#    the softmax.
# 4. A softmax over (bank, $h$) is a sigmoid between the bank's mixture and $h$: the bank is read once a block. The price
#    is traffic, not arithmetic, and falls with the width.
# 5. Every way to join sublayers is a triangle of weights; hyper-connections fill it by a recurrence, attention
#    residuals by a softmax. At toy size none of them wins.
