# ---
# jupyter:
#   k3:
#     title: Chunks
#     minutes: {read: 50, exercises: 69, run: less than a minute}
#     needs:
#       - "[chapter 01](01_delta_rule_rnn.ipynb), the delta rule"
#       - "[chapter 02](02_kimi_delta_attention.ipynb), Kimi Delta Attention"
#       - "what a triangular system of equations is"
#     objectives:
#       - "turn a loop over tokens into a few matrix products per chunk, and derive each of them"
#       - "say what is computed inside a chunk and what travels in the state"
#       - "make float32 overflow, and say why K3 bounds its decay by -5"
#       - "say why the triangular system is solved and never inverted by squaring"
#       - "compose segments of a text, and hand a state on from one to the next"
#       - "measure when a memory is quicker than softmax attention on your machine"
# ---

# %% [markdown] tags=["slide"]
# # 03 · Chunks
#
# *A thousand people stand in a queue. Each has to hear from the one in front what is written in the book, then change
# one line in it. How long must the last one wait?*
#
# The memory of [chapter 02](02_kimi_delta_attention.ipynb) is such a book: token $t$ may write only when the state
# after token $t - 1$ is there. As a loop this is exact and slow, on every machine: a small piece of work, a wait, a
# small piece of work. Nobody would train a model of 2.8 trillion parameters like that.
#
# **The question of this chapter: how do a thousand steps that wait for one another become a few products of matrices,
# with not one number changed?**
#
# The answer is two pages of algebra, two traps that only single precision shows, and the reason for a strange number in
# K3's configuration: −5. As everywhere, numbers are *report*, *derived*, *measured here* or *toy*.

# %%
import numpy as np
import torch
import torch.nn.functional as F

from k3_scratch.accounting.flops import flops_per_token
from k3_scratch.bench.gemm import kda_flops
from k3_scratch.bench.harness import interleave
from k3_scratch.bench.inputs import GATE_CASES, Shape, differentiate, direction_of, kda_inputs
from k3_scratch.bench.truth import relative_error, true_gradients
from k3_scratch.config import preset
from k3_scratch.course import check, progress, show
from k3_scratch.layers.kda import kda_chunk as layer_chunk
from k3_scratch.layers.kda import kda_recurrent as layer_recurrent
from k3_scratch.layers.kda_tiles import fits_centred
from k3_scratch.plots.chunk_chain import chunk_chain
from k3_scratch.plots.chunk_triangle import chunk_triangle
from k3_scratch.plots.error_curves import error_curves
from k3_scratch.plots.frame_slider import frame_slider
from k3_scratch.plots.tile_exponents import tile_exponents
from k3_scratch.plots.time_ratios import time_ratios
from k3_scratch.reference.kda import kda_chunk, kda_recurrent
from k3_scratch.reference.kda_chunk import forward_substitution, segment_transition

# %% [markdown] tags=["slide"]
# ## 1 · The smallest picture
#
# One head, one state $S$ with $K$ rows and $V$ columns. Chapter 02 in three lines, for each token $t$:
#
# $$ S \leftarrow \operatorname{diag}(e^{g_t})\, S, \qquad
#    S \leftarrow S + \beta_t\, k_t \left( v_t - S^\top k_t \right)^\top, \qquad
#    o_t = S^\top q_t . $$
#
# Forget, write the error, read. $g_t \le 0$ has one entry a channel ($\alpha_t = e^{g_t}$ is the share that is kept),
# $k_t$ and $q_t$ have unit length, and the scale $K^{-1/2}$ is taken to be inside $q_t$ already. As one line this is
# Eq. 1 of the report, $S_t = (I - \beta_t k_t k_t^\top) \operatorname{diag}(\alpha_t) S_{t-1} + \beta_t k_t v_t^\top$.

# %% tags=["slide"]
show(chunk_chain(12, 4),
     "Twelve tokens as twelve steps, each waiting for the state before; below, three chunks with three steps",
     name="03_chain")

# %% [markdown] tags=["slide"]
# Count the arrows between the orange boxes: above are twelve steps that wait for one another, below are three.
#
# What the picture promises is that the states *inside* a chunk (the small circles) need not be formed at all. Let us
# see for two tokens whether that can be true.

# %% [markdown] tags=["slide"]
# ## 2 · Two tokens by hand
#
# Call what token $t$ really writes $\tilde v_t$: its write is $k_t \tilde v_t^\top$ with
# $\tilde v_t = \beta_t (v_t - \text{what the decayed memory holds for } k_t)$. Let $S$ be the state that enters.
#
# **Token 1.** The decayed memory is $\operatorname{diag}(\alpha_1) S$. Reading it with $k_1$ gives
# $S^\top (\alpha_1 \odot k_1)$, where $\odot$ multiplies entry by entry (the decay can as well be applied to the key
# that reads). So
#
# $$ \tilde v_1 = \beta_1 \left( v_1 - S^\top (\alpha_1 \odot k_1) \right), \qquad
#    S_1 = \operatorname{diag}(\alpha_1)\, S + k_1 \tilde v_1^\top . $$
#
# **Token 2.** Its decayed memory is
# $\operatorname{diag}(\alpha_2) S_1 = \operatorname{diag}(\alpha_2 \odot \alpha_1)\, S +
# (\alpha_2 \odot k_1)\, \tilde v_1^\top$. Read it with $k_2$:
#
# $$ \tilde v_2 = \beta_2 \Big( v_2 - S^\top (\alpha_2 \odot \alpha_1 \odot k_2)
#    - \underbrace{\textstyle\sum_c k_{2c}\, \alpha_{2c}\, k_{1c}}_{\text{one number}}\; \tilde v_1 \Big) . $$
#
# Look at what has happened: $S_1$ is gone. All that token 2 needs to know of token 1 is $\tilde v_1$ and **one
# number**: how well the two keys match, after the decay between them. Write
# $L_{21} = \beta_2 \sum_c k_{2c}\, \alpha_{2c}\, k_{1c}$, and the two lines are a system of equations,
#
# $$ \begin{pmatrix} 1 & 0 \\ L_{21} & 1 \end{pmatrix}
#    \begin{pmatrix} \tilde v_1^\top \\ \tilde v_2^\top \end{pmatrix} =
#    \begin{pmatrix} \beta_1 \left( v_1 - S^\top (\alpha_1 \odot k_1) \right)^\top \\
#                    \beta_2 \left( v_2 - S^\top (\alpha_2 \odot \alpha_1 \odot k_2) \right)^\top \end{pmatrix} , $$
#
# whose right side contains the entering state $S$ alone. And what token 2 reads, after its own write, is in the same
# way $o_2 = S^\top (\alpha_2 \odot \alpha_1 \odot q_2) + (\sum_c q_{2c}\, \alpha_{2c}\, k_{1c})\, \tilde v_1 +
# (q_2 \cdot k_2)\, \tilde v_2$.

# %% [markdown]
# ### Exercise 3.1: two tokens by hand
#
# One channel, $K = V = 1$, an empty memory ($S = 0$), both keys and queries 1 (so no scale), $\alpha_1 = \alpha_2 =
# 0.5$, $v = (4, 5)$, $\beta = (0.5, 0.8)$. On paper: what are $L_{21}$, $\tilde v_2$ and $o_2$? Give the three numbers
# as a list.

# %% [markdown] tags=["hint"]
# The memory is empty, so $\tilde v_1 = \beta_1 v_1$. Then $L_{21}$, then the second row of the system, then $o_2$.

# %% id="3.1" minutes=8 difficulty=1
# BEGIN SOLUTION
first = 0.5 * 4
match = 0.8 * 0.5
second = 0.8 * 5 - match * first
my_two_tokens = [match, second, 0.5 * first + second]
# END SOLUTION

# %%
check("3.1", my_two_tokens)

# %% [markdown] tags=["slide"]
# ## 3 · C tokens: one triangular system
#
# Now $C$ tokens, numbered from 1 inside their chunk. Decays multiply, so their logarithms add: let
#
# $$ G_i = g_1 + g_2 + \dots + g_i \quad (\text{a vector of } K \text{ entries, never positive}). $$
#
# What was in a channel at token $j$ is multiplied by $e^{G_i - G_j}$ until token $i$. So the state after token $i$ is
# the entering state, decayed since the start, and every write, decayed since it was made:
#
# $$ S_i = \operatorname{diag}(e^{G_i})\, S + \sum_{j \le i} \left( e^{G_i - G_j} \odot k_j \right) \tilde v_j^\top . $$
#
# (Proof by one step: forgetting multiplies both parts by $e^{g_{i+1}}$, which turns $G_i$ into $G_{i+1}$; writing adds
# the term $j = i + 1$ with $e^0$.) Just before its write, token $i$ sees the same sum with $j < i$. Read that with
# $k_i$ and put it into $\tilde v_i = \beta_i (v_i - \dots)$:
#
# $$ \tilde v_i + \sum_{j < i} L_{ij}\, \tilde v_j = \beta_i \left( v_i - S^\top (e^{G_i} \odot k_i) \right),
#    \qquad \boxed{\; L_{ij} = \beta_i \sum_c k_{ic}\, k_{jc}\, e^{G_{ic} - G_{jc}} \quad (j < i) \;} $$
#
# These are $C$ equations for $C$ unknown rows. With the rows $\tilde v_i^\top$ stacked to $\tilde V$, the rows
# $e^{G_i}$ to $e^G$, and $K$, $V$ the stacked keys and values (a matrix when it stands among matrices, a number of
# channels when it stands in a shape):
#
# $$ (I + L)\, \tilde V = \operatorname{diag}(\beta) \left( V - (e^G \odot K)\, S \right) . $$
#
# $L$ is zero on and above the diagonal (*strictly lower triangular*): each row needs only rows above it, so the
# system is solved from the top down.
#
# (Letters: $L$ here, and $A$, $M$, $N$, $P$, $R$, $U$, $W$ further on, are matrices of this chapter alone, not the
# widths $L$, $P$ and $R$, the steepness $A$ of the decay gate or the number of sources $N$ of chapter 00.)

# %% [markdown]
# ### Exercise 3.2: the matrix L
#
# From the keys, log-decays and strengths of a chunk, compute $L$. One channel at a time would be a loop; with a mask
# and `np.einsum` it is three lines. Take care that nothing overflows: for $j > i$ the difference $G_i - G_j$ is
# positive and may be large, so **mask before you exponentiate**.

# %% [markdown] tags=["hint"]
# `G[:, None] - G[None, :]` has shape [C, C, K], entry (i, j, c) is $G_{ic} - G_{jc}$. `np.where(mask, difference,
# -np.inf)` and then `np.exp` give 0 where the mask is False. `np.einsum("ic,jc,ijc->ij", ...)` is the sum.

# %% id="3.2" minutes=12 difficulty=2
def my_L(k, g, beta):
    """k [C, K], g [C, K] log-decays, beta [C] -> L [C, C]"""
    # BEGIN SOLUTION
    G = np.cumsum(g, axis=0)
    earlier = np.tril(np.ones((len(k), len(k)), dtype=bool), -1)[:, :, None]
    decay = np.exp(np.where(earlier, G[:, None] - G[None, :], -np.inf))
    return beta[:, None] * np.einsum("ic,jc,ijc->ij", k, k, decay)
    # END SOLUTION

# %%
check("3.2", my_L)

# %% [markdown]
# ### Exercise 3.3: forward substitution
#
# Solve $(I + L) X = R$ for a strictly lower triangular $L$: the first row of $X$ is the first row of $R$, the second
# needs only the first, and so on. No inverse is formed.

# %% [markdown] tags=["hint"]
# `X = np.array(right)` copies the right side. Then a loop over rows `i`, one line each.

# %% id="3.3" minutes=8 difficulty=1
def my_solve(L, right):
    """L [C, C] strictly lower triangular, right [C, N] -> X [C, N] with (I + L) X = right"""
    # BEGIN SOLUTION
    X = np.array(right)
    for i in range(1, len(L)):
        X[i] = right[i] - L[i, :i] @ X[:i]
    return X
    # END SOLUTION

# %%
check("3.3", my_solve)

# %% [markdown]
# ### Solve before the state is known
#
# The right side still contains $S$, and so each chunk would have to wait with its solving for the chunk before. But
# $S$ enters **linearly**. Solve once for the two parts of the right side,
#
# $$ (I + L)\,[\,W \mid U\,] = [\,\operatorname{diag}(\beta)\, (e^G \odot K) \mid \operatorname{diag}(\beta)\, V\,],
#    \qquad\text{then}\qquad \tilde V = U - W S . $$
#
# $L$, $W$ and $U$ depend on the tokens of the chunk alone: all chunks of a text can compute them at the same time.
# Only the subtraction $U - W S$ has to wait.
#
# What is $W$? Set the values to zero: then $U = 0$ and $\tilde V = -W S$. Eq. 1 then only multiplies the state, by
# one matrix a token; and the formula for $S_i$ above, at $i = C$, reads
# $S_C = \operatorname{diag}(e^{G_C})\, S - (e^{G_C - G} \odot K)^\top W S$. Both hold for every $S$, so the matrices
# in front of it are equal:
#
# $$ \prod_{i = C}^{1} (I - \beta_i k_i k_i^\top) \operatorname{diag}(\alpha_i)
#    = \operatorname{diag}(e^{G_C}) - (e^{G_C - G} \odot K)^\top W , $$
#
# a product of $C$ matrices, written as a diagonal one and a single product. Without decay it is
# $\prod (I - \beta_i k_i k_i^\top) = I - K^\top W$. Numerical mathematicians have used this since 1987 to apply many
# reflections at once and call it the **WY form** (Bischof and Van Loan; the triangular system in it is the "UT
# transform" of Kimi Linear, arXiv 2510.26692). A cell says that it is true. The inputs of this chapter are random, with
# seven kinds of gates: from none at all (*g = 0*) over *mild* and *K3-like* to *unbounded*; the kind *same key* has
# slow decay and one key at every token.

# %%
def one_head(T, K, V, gates, seed):
    """Unit q, k [T, K], v [T, V], log-decays g [T, K] of one of the kinds GATE_CASES, beta [T]; float64."""
    return [x[0, :, 0].double().numpy() for x in kda_inputs(Shape(1, T, 1, K, V), gates, seed)]


def between(g):
    """e^(G_i - G_j) for j <= i, else 0: what token i still finds of token j.       [C, K] -> [C, C, K]"""
    G = np.cumsum(g, axis=0)
    causal = np.tril(np.ones((len(g), len(g)), dtype=bool))[:, :, None]
    return np.exp(np.where(causal, G[:, None] - G[None, :], -np.inf))


q, k, v, g, beta = one_head(T=9, K=5, V=3, gates="K3-like", seed=0)
G = np.cumsum(g, axis=0)
L = np.tril(beta[:, None] * np.einsum("ic,jc,ijc->ij", k, k, between(g)), -1)
W = forward_substitution(L, beta[:, None] * np.exp(G) * k)
product = np.eye(5)
for k_i, g_i, beta_i in zip(k, g, beta, strict=True):
    product = (np.eye(5) - beta_i * np.outer(k_i, k_i)) @ np.diag(np.exp(g_i)) @ product
assert np.allclose(product, np.diag(np.exp(G[-1])) - (np.exp(G[-1] - G) * k).T @ W)  # WY form = the product
print("nine matrices multiplied, and the WY form: the same 5 x 5 matrix")

# %% [markdown] tags=["slide"]
# ## 4 · A whole chunk
#
# Two things are left: what the tokens read, and what is passed on. Both are the formula for $S_i$ from section 3, read
# with $q_i$ and taken at $i = C$. With the second triangle
#
# $$ A_{ij} = \sum_c q_{ic}\, k_{jc}\, e^{G_{ic} - G_{jc}} \quad (j \le i), $$
#
# they are
#
# $$ O = \underbrace{(e^G \odot Q)\, S}_{\text{across: from the entering state}}
#      + \underbrace{A\, \tilde V}_{\text{within the chunk}}, \qquad
#    S \leftarrow \operatorname{diag}(e^{G_C})\, S + (e^{G_C - G} \odot K)^\top\, \tilde V . $$
#
# Note the diagonals. In $A$ it is kept, because a token reads *after* its own write. In $L$ it is not, because a token
# takes its error *before* its own write.

# %% [markdown]
# ### Exercise 3.4: a whole chunk
#
# Put it together for one head: from $q, k, v, g, \beta$ of $C$ tokens and the entering state to all outputs and the
# state that leaves. The scale $K^{-1/2}$ acts on $q$. `forward_substitution(L, right)` is imported.

# %% [markdown] tags=["hint"]
# Nine lines: `G`; the decays between tokens as in 3.2, but with the diagonal; `L` (cut with `np.tril(..., -1)`); `A`;
# `W`; `U`; `written`; `o`; the new state.

# %% id="3.4" minutes=25 difficulty=3
def my_chunk(q, k, v, g, beta, S):
    """q, k, g [C, K], v [C, V], beta [C], S [K, V] -> o [C, V], state [K, V]"""
    # BEGIN SOLUTION
    G, q = np.cumsum(g, axis=0), k.shape[1] ** -0.5 * q
    causal = np.tril(np.ones((len(k), len(k)), dtype=bool))[:, :, None]
    decay = np.exp(np.where(causal, G[:, None] - G[None, :], -np.inf))
    L = np.tril(beta[:, None] * np.einsum("ic,jc,ijc->ij", k, k, decay), -1)
    A = np.einsum("ic,jc,ijc->ij", q, k, decay)
    W = forward_substitution(L, beta[:, None] * np.exp(G) * k)
    U = forward_substitution(L, beta[:, None] * v)
    written = U - W @ S
    o = (np.exp(G) * q) @ S + A @ written
    return o, np.exp(G[-1])[:, None] * S + (np.exp(G[-1] - G) * k).T @ written
    # END SOLUTION

# %%
check("3.4", my_chunk)

# %% [markdown]
# Here is a version for this notebook, and the loop over chunks. The last chunk may be shorter. It must give what the
# loop over tokens gives, whatever the length of the text, the length of a chunk and the gates:

# %%
def chunk(q, k, v, g, beta, S):
    """One chunk.   q, k, g [C, K], v [C, V], beta [C], S [K, V] -> o [C, V], S [K, V]"""
    G, decay, q = np.cumsum(g, axis=0), between(g), k.shape[1] ** -0.5 * q
    L = np.tril(beta[:, None] * np.einsum("ic,jc,ijc->ij", k, k, decay), -1)
    A = np.einsum("ic,jc,ijc->ij", q, k, decay)
    right = beta[:, None] * np.concatenate([np.exp(G) * k, v], axis=1)  # [C, K + V]: one solve for both
    W, U = np.split(forward_substitution(L, right), [k.shape[1]], axis=1)
    written = U - W @ S                                           # the only line that waits for S
    o = (np.exp(G) * q) @ S + A @ written
    return o, np.exp(G[-1])[:, None] * S + (np.exp(G[-1] - G) * k).T @ written


def in_chunks(q, k, v, g, beta, S, C):
    """All tokens, C at a time.   -> o [T, V], S [K, V]"""
    outputs = []
    for start in range(0, len(k), C):
        o, S = chunk(*(x[start:start + C] for x in (q, k, v, g, beta)), S)
        outputs.append(o)
    return np.concatenate(outputs), S


# %%
def token_loop(q, k, v, g, beta, S):
    """Chapter 02, for one head: the reference has an axis of heads.   -> o [T, V], S [K, V]"""
    o, S = kda_recurrent(*(x[:, None] for x in (q, k, v, g, beta)), S[None])
    return o[:, 0], S[0]


tried = 0
for seed, gates in enumerate(GATE_CASES):
    for T, C in ((1, 4), (13, 1), (13, 5), (13, 64), (32, 8)):
        x, S = one_head(T, 6, 4, gates, seed), np.random.default_rng(seed).normal(size=(6, 4))
        want, got = token_loop(*x, S), in_chunks(*x, S, C)
        o, last = kda_chunk(*(a[:, None] for a in x), S[None], chunk=C)
        assert np.allclose(got[0], want[0]) and np.allclose(got[1], want[1])  # chunks = token loop
        assert np.allclose(got[0], o[:, 0]) and np.allclose(got[1], last[0])  # here = reference
        tried += 1
print(f"{tried} times the same numbers, with gates of these kinds: {', '.join(GATE_CASES)}")

# %% [markdown]
# ### What a chunk computes, and what it leaves to the state
#
# The output is linear in the values: $o_i = \sum_{j \le i} P_{ij} v_j$ for an empty start, with one number $P_{ij}$
# for each pair of tokens. KDA never forms this matrix, but we can ask for it: put the identity in place of the values.
# Twelve tokens, $K = 4$, gentle gates (toy), so that something is left over a distance:

# %% tags=["slide"]
q, k, _, g, beta = one_head(T=12, K=4, V=1, gates="mild", seed=7)
P, _ = token_loop(q, k, np.eye(12), g, beta, np.zeros((4, 12)))  # value of token j: the j-th unit vector
show(chunk_triangle(P, 4),
     "Lower triangle of twelve tokens; three blocks on the diagonal are tiles, the rest goes through states",
     name="03_triangle")

# %% [markdown] tags=["slide"]
# Look at the outlined triangles: these numbers come from inside a chunk, out of small matrix products (they are the
# entries of $A\, (I + L)^{-1} \operatorname{diag}(\beta)$). Such a triangle of $C \times C$ numbers of one chunk, and
# $L$ and $A$ themselves, are called **tiles** from here on. The orange ones, to the left, are never computed at all,
# because two states carry them.
#
# Softmax attention must compute the whole triangle, about $T^2 / 2$ numbers. A loop over tokens ($C = 1$) needs only
# the diagonal and takes $T$ steps. A chunk is a choice **between the two**, and the numbers in the triangle do not
# depend on it. Move the slider (after running the cell), or read three of its places here: $C = 1$ has 12 numbers in
# tiles and 12 steps, $C = 4$ has 30 and 3, $C = 12$ has all 78 and a single step (derived).

# %%
LENGTHS = (1, 2, 4, 12)
for C in LENGTHS:
    # whatever C is, the same matrix
    assert np.allclose(in_chunks(q, k, np.eye(12), g, beta, np.zeros((4, 12)), C)[0], P)
frame_slider([chunk_triangle(P, C) for C in LENGTHS],
             [f"The same lower triangle, cut into chunks of C = {C}" for C in LENGTHS],
             "longer chunks")

# %% tags=["remove"]
assert [sum(n * (n + 1) // 2 for n in [C] * (12 // C)) for C in (1, 4, 12)] == [12, 30, 78]
q4, k4, g4, beta4 = (x[4:8] for x in (q, k, g, beta))
L4 = np.tril(beta4[:, None] * np.einsum("ic,jc,ijc->ij", k4, k4, between(g4)), -1)
A4 = np.einsum("ic,jc,ijc->ij", 4 ** -0.5 * q4, k4, between(g4))
assert np.allclose(P[4:8, 4:8], A4 @ np.linalg.inv(np.eye(4) + L4) @ np.diag(beta4))

# %% [markdown]
# ### Does the mask carry the decay?
#
# Not in KDA, for the reason given in [chapter 02](02_kimi_delta_attention.ipynb), section 10. With **one decay a head**
# $e^{G_i - G_j}$ can be pulled out of the sum in $A_{ij}$ and put into a mask on $Q K^\top$. Here **each channel**
# forgets at its own rate, so the factor stands *inside* the sum, where no mask on the finished product reaches.
# Whoever writes `tril(Q K^T)` has forgotten to forget: in exercise 3.1 that gives 5.2 instead of 4.2, or 4.4 when it
# is done in both triangles (derived).

# %% [markdown] tags=["slide"]
# ## 5 · An experiment that breaks it
#
# `between` makes $C \times C \times K$ exponentials, and the sum over channels in `einsum` is no matrix product. All
# the speed lies in matrix products. So everybody's next idea is
#
# $$ e^{G_i - G_j} = e^{G_i} \cdot e^{-G_j}
#    \qquad\Longrightarrow\qquad A = \operatorname{tril}\!\left( (e^{G} \odot Q)\,(e^{-G} \odot K)^\top \right) , $$
#
# one product with $2\,C K$ exponentials. In exact arithmetic it is the same. More generally one may put any reference
# $r$ (one number a channel) between the two: $e^{G_i - G_j} = e^{G_i - r} \cdot e^{r - G_j}$. Above, $r = 0$: the
# start of the chunk.
#
# The whole is at most 1, because $G$ falls. But $e^{-G_j}$ is a large number. The largest float32 is
# $3.4 \cdot 10^{38} = e^{88.7}$. Take the worst that K3's gates allow, $g = -5$ at every token:

# %%
def split_tile(rows, columns, g, place):
    """The tile, split at a reference r, in the precision of its inputs.     [C, K] x 3 -> [C, C]"""
    G = np.cumsum(g, axis=0)
    r = {"start": 0 * G[:1], "end": G[-1:], "centre": (G[:1] + G[-1:]) / 2}[place]
    with np.errstate(all="ignore"):
        return np.tril((rows * np.exp(G - r)) @ (columns * np.exp(r - G)).T)


def tile_error(tile, C, gates, seed, kind=np.float32):
    """Largest error of A over its largest entry; inf when anything is not finite."""
    q, k, _, g, _ = one_head(C, 16, 1, gates, seed)
    truth = np.einsum("ic,jc,ijc->ij", q, k, between(g))
    got = tile(*(x.astype(kind) for x in (q, k, g)))
    return np.abs(got - truth).max() / np.abs(truth).max() if np.isfinite(got).all() else np.inf


PLACES = ("start", "end", "centre")
sizes = (8, 16, 17, 18, 19, 32, 36, 37, 64)
print("all gates -5, float32; C = " + "".join(f"{C:>8d}" for C in sizes))
for place in PLACES:
    errors = [tile_error(lambda *x, p=place: split_tile(*x, p), C, "all -5", 0) for C in sizes]
    words = [f"{error:8.0e}" if np.isfinite(error) else "    lost" for error in errors]
    print(f"reference at the {place:10s}" + "".join(words))

# %% tags=["remove"]
for kind, ends in ((np.float32, (17, 18, 36)), (np.float64, (141, 142, 284))):
    for place, C in zip(PLACES, ends, strict=True):
        there, beyond = (tile_error(lambda *x, p=place: split_tile(*x, p), n, "all -5", 0, kind)
                         for n in (C, C + 1))
        assert there < 1e-6 and beyond == np.inf, (kind, place, there, beyond)
assert np.log(np.finfo(np.float32).max) // 0.1 / 10 == 88.7

# %% [markdown]
# With the reference at the start the tile is exact up to 17 tokens and **lost at 18**: not a number where a number
# should be (measured here). At the end it is one token more; in the middle, 36. In float64 the same three limits are
# 141, 142 and 284 (measured here), so a test in double precision sees nothing.
#
# Nor does a test with random gates, which do not all sit at their bound. Here is the share of 20 random tiles that is
# lost when gates are drawn as $g = -5\,\operatorname{sigmoid}(\text{normal})$, with a mean of −2.5:

# %%
lost, sizes = {}, (16, 24, 32, 40, 64)
print("random gates, float32, 20 seeds; C = " + "".join(f"{C:>6d}" for C in sizes))
for place in PLACES:
    errors = [[tile_error(lambda *x, p=place: split_tile(*x, p), C, "K3-like", seed) for seed in range(20)]
              for C in sizes]
    lost[place] = np.mean(np.isinf(errors), axis=1)
    print(f"lost, reference at the {place:14s}" + "".join(f"{share:6.0%}" for share in lost[place]))

# %% tags=["remove"]
assert list(lost["start"][:2]) == [0, 0] and lost["start"][3] == 1 and 0.3 < lost["start"][2] < 0.9
assert list(lost["centre"][:4]) == [0] * 4

# %% [markdown]
# Split at the start, tiles of 24 pass in all 20 seeds (measured here). Then one day a head learns to forget quickly,
# its gates go to −5, and the training ends in `nan`. **The fault is not in the data; the split was never safe.**
#
# ### Why −5, then?
#
# Read the first table the other way round. If every log-decay is *known* to be at least $-b$, then a tile of $C$
# tokens split at its start has no factor above $e^{b\,C}$. For tiles of 16, the natural size of the small matrix
# products that GPUs and their like are built for, this must stay below $e^{88.7}$: $b \le 5.5$. K3 takes
# $g = -5\,\operatorname{sigmoid}(\dots)$ and has $e^{80}$ (report: `gate_lower_bound` −5; derived: the rest). That is
# the reason why K3 bounds its decay: **the bound makes a tile a plain matrix product**. What it costs is little: after
# one token of −5 a channel keeps $e^{-5}$, less than one per cent.
#
# Kimi Linear, its predecessor, had the gate $-e^{A}\operatorname{softplus}(\dots)$ without a bound, for which no
# fixed size of tile is safe ([chapter 02](02_kimi_delta_attention.ipynb) shows both gates).
#
# ### The centred tile
#
# With the reference half-way between the first and the last $G$, both exponents lie between $-b\,(C - 1)/2$ and
# $+b\,(C - 1)/2$. Half the exponent, twice the tile: for $b = 5$ and $C = 32$ the factors stay below
# $e^{77.5}$ (derived). This is what `layers/kda_tiles.py` does with K3's gates.
#
# ### The dyadic tile: safe for any gate
#
# If nothing is known about the gates, make **every exponent negative**: cut the chunk into halves, and these again
# (*dyadic* means by twos). For a row in the later half and a column in the earlier one, take as reference the border
# between the two. From a column to the border there is decay, from the border to the row there is decay: both factors
# are at most 1. Where a factor is too small for float32 and becomes zero, the true number is smaller still. The two
# triangles that are left are cut into halves in the same way:

# %%
def dyadic_tile(rows, columns, g):
    """The same tile from two halves and the square below.                    [C, K] x 3 -> [C, C]"""
    C = len(g)
    if C == 1:
        return rows @ columns.T
    half, G = C // 2, np.cumsum(g, axis=0)
    border = G[half - 1]
    below = (rows[half:] * np.exp(G[half:] - border)) @ (columns[:half] * np.exp(border - G[:half])).T
    earlier, later = (dyadic_tile(*(x[part] for x in (rows, columns, g)))
                      for part in (slice(None, half), slice(half, None)))
    return np.block([[earlier, np.zeros((half, C - half), dtype=below.dtype)], [below, later]])


worst = {gates: max(tile_error(dyadic_tile, C, gates, seed) for C in (7, 16, 64) for seed in range(5))
         for gates in ("mild", "K3-like", "all -5", "unbounded to -60")}
for gates, error in worst.items():
    print(f"dyadic tile, float32, gates {gates:18s} largest error {error:.0e}")

# %% tags=["remove"]
assert max(worst.values()) < 1e-5

# %% tags=["slide"]
def exponents(C, place):
    """For all gates -5: the larger of the two exponents that entry (i, j) needs.            -> [C, C]"""
    G = -5.0 * np.arange(1, C + 1)
    if place != "dyadic":
        r = {"start": 0.0, "centre": (G[0] + G[-1]) / 2}[place]
        return np.maximum(G[:, None] - r, r - G[None, :])
    if C == 1:
        return np.zeros((1, 1))
    half = C // 2
    below = np.maximum(G[half:, None] - G[half - 1], G[half - 1] - G[None, :half])
    earlier, later = exponents(half, place), exponents(C - half, place)
    return np.block([[earlier, np.zeros((half, C - half))], [below, later]])


limit = float(np.log(np.finfo(np.float32).max))                   # 88.7
show(tile_exponents({"split at the start": exponents(32, "start"), "centred": exponents(32, "centre"),
                     "dyadic": exponents(32, "dyadic")}, limit),
     "Exponents in a tile of 32 at gates of -5: lost from column 18 on, at most 77.5, and never positive",
     name="03_exponents")

# %% tags=["remove"]
assert np.tril(exponents(32, "centre")).max() == 77.5 and np.tril(exponents(32, "dyadic")).max() == 0
assert 5 * 16 == 80 and 5.5 < limit / 16 < 5.6 and np.exp(-5) < 0.01
assert np.sum(np.tril(exponents(32, "start")) > limit) == 15 * 16 // 2

# %% [markdown] tags=["slide"]
# From left to right: split at the start, the columns from 18 on are lost (black); centred, all exponents stay inside
# the range, dark red in the corners; dyadic, nothing is positive, and one sees the squares, each with its own border.

# %% [markdown]
# ### Exercise 3.5: how long a tile may be
#
# Someone wants channels that can forget faster and moves the bound from −5 to −8. How many tokens may a **centred**
# tile have in float32, at most, if all gates may sit at the bound? (The largest exponent is 88.7.)

# %% [markdown] tags=["hint"]
# $r$ is half-way between $G_1$ and $G_C$. How far is $G_1$ from it?

# %% id="3.5" minutes=6 difficulty=2
# BEGIN SOLUTION
my_tile = int(88.7 * 2 / 8) + 1
# END SOLUTION

# %%
check("3.5", my_tile)

# %% [markdown] tags=["slide"]
# ## 6 · Solve, do not invert
#
# The second trap. $(I + L)^{-1}$ can be had from matrix products alone, which is tempting on machines that do nothing
# else quickly. $L$ is strictly lower triangular: each further power is zero on one more diagonal, and $L^C = 0$. So
# $(I + L)(I - L + L^2 - \dots \pm L^{C-1}) = I \pm L^C = I$: this sum (the *Neumann series*) is the inverse. And a
# few squarings give all of its terms, since each factor below doubles their number:
#
# $$ (I + L)^{-1} = I - L + L^2 - \dots \pm L^{C-1} = (I - L)(I + L^2)(I + L^4)(I + L^8) \cdots $$
#
# For $C = 64$ these are six factors instead of 64 rows. On paper it is exact. In float32, with five seeds, once with
# random keys and once with the same key at every token and slow decay (a text that repeats itself):

# %%
def by_doubling(L):
    """(I + L)^-1 as a product of log2(C) factors.                                     [C, C] -> [C, C]"""
    one = torch.eye(len(L))
    inverse, power, terms = one - L, L @ L, 2
    while terms < len(L):
        inverse, power, terms = inverse @ (one + power), power @ power, 2 * terms
    return inverse


def solve_error(method, C, gates, seed):
    """Error of (I + L)^-1 beta v in float32, over its largest number."""
    _, k, v, g, beta = one_head(C, 16, 8, gates, seed)
    L = np.tril(beta[:, None] * np.einsum("ic,jc,ijc->ij", k, k, between(g)), -1)
    truth, L32 = torch.tensor(forward_substitution(L, beta[:, None] * v)), torch.tensor(L).float()
    right = torch.tensor(beta[:, None] * v).float()
    if method == "solve":
        got = torch.linalg.solve_triangular(L32, right, upper=False, unitriangular=True)
    else:
        got = by_doubling(L32) @ right
    return relative_error(got, truth)


# %% tags=["slide"]
lengths = (4, 8, 16, 32, 64, 128)
kinds = {"one key": "same key", "random keys": "mild"}
errors = {f"{method}, {name}": np.array([[solve_error(method, C, gates, seed) for C in lengths]
                                         for seed in range(5)])
          for method in ("doubling", "solve") for name, gates in kinds.items()}
show(error_curves(lengths, errors, title="(I + L)⁻¹ in float32, five seeds", x_label="C, tokens per chunk"),
     "Errors of solving and of doubling: all stay near rounding, but doubling with one key climbs beyond one",
     name="03_doubling")

# %% tags=["remove"]
assert all(runs.max() < 1e-5 for name, runs in errors.items() if name.startswith("solve"))
assert errors["doubling, random keys"].max() < 1e-4
by_length = dict(zip(lengths, np.median(errors["doubling, one key"], axis=0), strict=True))
assert by_length[8] < 1e-6 and 1e-4 < by_length[32] < 2e-3 and by_length[64] > 5
ones = np.tril(np.ones((64, 64)), -1)
assert max(np.linalg.matrix_power(ones, n).max() for n in range(64)) > 1e17

# %% [markdown] tags=["slide"]
# Look at the line that leaves the others: with one key, doubling has three digits left at 32 tokens, and at 64 its
# error is larger than the result (measured here). With random keys nothing is to be seen, at any length.
#
# Why? Say all keys are equal, nothing is forgotten and $\beta = 1$. Then all entries of $L$ below the diagonal are 1,
# and those of $L^n$ count the ways to come from one token to another in $n$ steps, binomials: for $C = 64$ the
# largest is above $10^{17}$ (derived). The true inverse is harmless (its entries are 1, −1 and 0), so all those terms
# must cancel, and float32 has seven digits to do it with. Forward substitution works with the rows of the result
# itself, which stay small. **A solve, or substitution; never repeated squaring** beyond tiny tiles.

# %% [markdown] tags=["slide"]
# ## 7 · Segments compose
#
# A chunk acts on the state that enters it as $S \mapsto M S + N$, with
#
# $$ M = \operatorname{diag}(e^{G_C}) - (e^{G_C - G} \odot K)^\top W, \qquad
#    N = (e^{G_C - G} \odot K)^\top U : $$
#
# put $\tilde V = U - W S$ into the last line of section 4. $M$ says what the segment does to what was there, $N$ what
# it leaves in an empty memory. Nothing in this needs the segment to be short: any stretch of text is such an *affine
# map*, a matrix $[K, K]$ and a matrix $[K, V]$.

# %%
def as_map(k, v, g, beta):
    """A segment as S -> M S + N.   k, g [T, K], v [T, V], beta [T] -> M [K, K], N [K, V]"""
    G = np.cumsum(g, axis=0)
    L = np.tril(beta[:, None] * np.einsum("ic,jc,ijc->ij", k, k, between(g)), -1)
    W = forward_substitution(L, beta[:, None] * np.exp(G) * k)
    U = forward_substitution(L, beta[:, None] * v)
    kept = (np.exp(G[-1] - G) * k).T                              # [K, T]
    return np.diag(np.exp(G[-1])) - kept @ W, kept @ U


q, k, v, g, beta = one_head(T=24, K=5, V=3, gates="mild", seed=3)
S = np.random.default_rng(3).normal(size=(5, 3))
M, N = as_map(k, v, g, beta)
assert np.allclose(M, segment_transition(k[:, None], g[:, None], beta[:, None])[0])  # here = reference
assert np.allclose(M @ S + N, token_loop(q, k, v, g, beta, S)[1])  # the map = the token loop
print("24 tokens as one map: the same last state as the loop")

# %% [markdown]
# ### Exercise 3.6: two segments as one
#
# A segment $S \mapsto M_1 S + N_1$ is followed by $S \mapsto M_2 S + N_2$. Which $M$ and $N$ have both together?

# %% [markdown] tags=["hint"]
# Call the state in the middle $S_1$ and put it into the second map.

# %% id="3.6" minutes=10 difficulty=2
def my_compose(M1, N1, M2, N2):
    """M1, M2 [K, K], N1, N2 [K, V] -> M [K, K], N [K, V]"""
    # BEGIN SOLUTION
    return M2 @ M1, M2 @ N1 + N2
    # END SOLUTION

# %%
check("3.6", my_compose)

# %% [markdown]
# Composition is **associative**: the brackets do not matter. So a long text can be given to several devices, a segment
# each. All compute their maps at the same time, without waiting; then small maps are joined, two by two; then each
# device knows the state that enters its segment and computes its outputs. This is *context parallelism* for KDA:
#
# 1. every device: its segment from an empty memory, giving $N$, and its $M$;
# 2. between devices: only $M$ and $N$, $K (K + V)$ numbers a head, **however long the segments are** (softmax
#    attention would have to send all keys and values round);
# 3. every device: its segment again, or corrected, from the right state.
#
# Eight segments, joined in a tree of three levels in place of seven steps:

# %%
def joined(maps):
    """Neighbours are composed until one map is left.   [(M, N)], a power of two of them -> M, N, levels"""
    levels = 0
    while len(maps) > 1:
        maps = [(M2 @ M1, M2 @ N1 + N2) for (M1, N1), (M2, N2) in zip(maps[::2], maps[1::2], strict=True)]
        levels += 1
    return *maps[0], levels


maps = [as_map(*(x[start:start + 3] for x in (k, v, g, beta))) for start in range(0, 24, 3)]
M_tree, N_tree, levels = joined(maps)
assert np.allclose(M_tree, M) and np.allclose(N_tree, N)          # eight maps in a tree = one map of all
print(f"eight segments, {levels} levels: the same map")

# %% [markdown]
# Why do the chunks on *one* machine not do this? A map costs more than a state: $M$ is a $K \times K$ matrix that has
# to be formed and multiplied, while the plain loop over chunks needs only $W S$. The tree pays when someone would
# otherwise stand idle.
#
# ### The state is what is passed on
#
# The simplest form of the same fact: a text may be cut *anywhere*, and all that the second part needs is one matrix
# for each head (a whole layer also the convolution's tail). A conversation goes on from the state of yesterday; a
# prompt of a million tokens is read in pieces; a model that answers token by token starts from the state that the
# chunks have left ([chapter 11](11_serving.ipynb)).

# %%
x, S0 = one_head(T=50, K=6, V=4, gates="K3-like", seed=4), np.zeros((6, 4))
whole, last = token_loop(*x, S0)
rng = np.random.default_rng(4)
for _ in range(20):
    cuts = np.sort(rng.choice(np.arange(1, 50), size=3, replace=False))
    parts, S = [], S0
    for part in np.split(np.arange(50), cuts):
        o, S = in_chunks(*(a[part] for a in x), S, C=int(rng.integers(1, 20)))
        parts.append(o)
    assert np.allclose(np.concatenate(parts), whole) and np.allclose(S, last)  # cut anywhere = in one go
print("cut at three random places, chunks of random length, 20 times: the same outputs and last state")

# %% [markdown] tags=["slide"]
# ## 8 · The torch layer
#
# `layers/kda_chunk.py` is this chapter with axes for batch and heads, in three files:
#
# | file | what it does | from this chapter |
# |---|---|---|
# | `kda_tiles.py` | $L$, $A$ and the decayed $q$, $k$; centred where the gates allow it, dyadic otherwise | section 5 |
# | `kda_chunk.py` | cuts and pads, one triangular solve for all chunks of all heads, all outputs as one product | 3, 4, 6 |
# | `kda_scan.py` | the only loop: $\tilde V = U - W S$ and the next $S$, chunk after chunk | sections 3 and 7 |
#
# **The last chunk** is filled up with tokens that change nothing: $k = v = g = \beta = 0$.
#
# **The solve** is asked for from the right. $(I + L) X = R$ is the same as $X^\top (I + L)^\top = R^\top$, and the
# library that solves it is quicker in the second form: a matter of how it walks through memory, not of mathematics.
#
# **The centred state.** The row factors are $e^{G_i - r}$, but the entering state is to be read with $e^{G_i}$. Nothing
# is computed twice: the layer keeps the state *as it stands in the middle of the chunk*, $e^{r} \odot S$. Then
# $e^{G_i} = e^{G_i - r} \cdot e^{r}$, and one set of row factors serves the tiles and the state. Here is a chunk in
# that form, with four copies of $r$, one for each place where it occurs; we need them in a moment. (`unitriangular`
# takes the ones of $I + L$ on the diagonal for granted.)

# %%
def centred_chunk(q, k, v, g, beta, S, r_row, r_column, r_enter, r_leave):
    """One chunk, split at r [K].   q, k, g [C, K], v [C, V], beta [C], S [K, V] -> o [C, V], S [K, V]"""
    G, scale = g.cumsum(0), k.shape[1] ** -0.5
    row, column = (G - r_row).exp(), (r_column - G).exp()         # [C, K] each
    enter, leave = r_enter.exp(), (G[-1] - r_leave).exp()         # [K]: to the middle, from it to the end
    L = torch.tril((beta[:, None] * k * row) @ (k * column).T, -1)
    A = torch.tril((scale * q * row) @ (k * column).T)
    S = enter[:, None] * S                                        # the state in the middle of the chunk
    right = beta[:, None] * (v - (k * row) @ S)
    written = torch.linalg.solve_triangular(L, right, upper=False, unitriangular=True)
    return (scale * q * row) @ S + A @ written, leave[:, None] * (S + (k * column).T @ written)


numbers = one_head(T=11, K=5, V=4, gates="K3-like", seed=5)
S = np.random.default_rng(5).normal(size=(5, 4))
x = [torch.tensor(a) for a in (*numbers, S)]
G = x[3].cumsum(0)
for r in ((G[0] + G[-1]) / 2, 0 * G[0], G[0] - 3.0):              # the middle, the start, somewhere else
    o, after = centred_chunk(*x, r, r, r, r)
    want, want_after = token_loop(*numbers, S)
    assert np.allclose(o.numpy(), want) and np.allclose(after.numpy(), want_after)  # any r = token loop
print("three references, the same outputs and the same state")

# %% [markdown]
# ### A gradient that need not be computed
#
# The tiles of the layer have a backward pass written by hand, and it leaves something out: $r$ is computed from $G$,
# $G$ from $g$, so by the book the gradient must flow from the factors through $r$ into $g$. The layer drops it. A
# mistake?
#
# No. $r$ says only **where a product is split**, and the results do not depend on that. A function that does not
# depend on $r$ has the derivative zero in $r$, whatever $r$ is computed from. Each of the four places where $r$ occurs
# has a gradient, but they cancel. One can watch it:

# %%
r = (G[0] + G[-1]) / 2
copies = [r.clone().requires_grad_() for _ in range(4)]
o, after = centred_chunk(*x, *copies)
weights = [torch.tensor(np.random.default_rng(n).normal(size=a.shape)) for n, a in ((1, o), (2, after))]
loss = (o * weights[0]).sum() + (after * weights[1]).sum()        # any function of all results
gradients = torch.autograd.grad(loss, copies)
for name, gradient in zip(("row", "column", "enter", "leave"), gradients, strict=True):
    print(f"through r in {name:6s}: " + "  ".join(f"{value:8.4f}" for value in gradient.tolist()))
total = sum(gradients)
assert total.abs().max() < 1e-13                                  # they cancel,
assert min(gradient.abs().max() for gradient in gradients) > 0.01  # though none of them is zero
print("their sum          : " + "  ".join(f"{value:8.4f}" for value in total.abs().tolist()))

# %% [markdown]
# Four rows of numbers, and their sum is zero to rounding, channel by channel. So the hand-written backward pass holds
# $r$ fixed, skips the passes over memory that these gradients would need, and loses nothing. Such arguments from
# *invariance* are worth looking for: whenever a program contains a choice that does not change its result, the
# gradient through that choice can be thrown away.

# %% [markdown]
# ### The same numbers
#
# The layer against this notebook, the reference and the token loop, outputs and gradients; several chunks, a length
# that is no multiple of the chunk, a batch, heads, seven kinds of gates. First in float64, where everything must agree
# to rounding:

# %%
shape, tight = Shape(B=2, T=77, H=3, K=16, V=24), {"rtol": 1e-9, "atol": 1e-12}
for seed, gates in enumerate(GATE_CASES):
    x64 = [a.double() for a in kda_inputs(shape, gates, seed)]
    o, state = layer_chunk(*x64)
    loop, loop_state = layer_recurrent(*x64)
    reference, reference_state = kda_chunk(*(a.numpy() for a in x64))
    here, here_state = in_chunks(*(a[1, :, 2].numpy() for a in x64), np.zeros((16, 24)), C=20)
    for mine, others in ((o, (loop, reference)), (state, (loop_state, reference_state))):
        # the layer = its token loop, = the reference
        assert all(np.allclose(mine, other, **tight) for other in others)
    assert np.allclose(o[1, :, 2], here, **tight)                 # = this notebook
    assert np.allclose(state[1, 2], here_state, **tight)          # and its state
    direction = direction_of(o).double()
    _, chunks = differentiate(lambda *x: layer_chunk(*x)[0], x64, direction)
    _, tokens = differentiate(lambda *x: layer_recurrent(*x)[0], x64, direction)
    assert all(np.allclose(a, b, **tight) for a, b in zip(chunks, tokens, strict=True))  # five gradients
print(f"{len(GATE_CASES)} kinds of gates: outputs, states and gradients agree")

# %% [markdown]
# Then in float32, as the model runs, against a token loop in float64: the largest error over the largest number.

# %%
print(f"{'gates':18s} tile       output    dq       dk       dv       dg       dbeta")
found = {}
for seed, gates in enumerate(GATE_CASES):
    x32 = kda_inputs(shape, gates, seed)
    direction = direction_of(x32[2])
    truth, true_grads = true_gradients(x32, direction)            # token loop, float64
    o, grads = differentiate(lambda *x: layer_chunk(*x)[0], x32, direction)
    found[gates] = [relative_error(a, b) for a, b in zip([o, *grads], [truth, *true_grads], strict=True)]
    tile = "centred" if fits_centred(x32[3], 16) else "dyadic"    # C = 16 for heads as small as these
    print(f"{gates:18s} {tile:8s}" + "".join(f"{error:9.0e}" for error in found[gates]))

# %% tags=["remove"]
assert max(errors[0] for errors in found.values()) < 3e-6
assert max(max(errors) for gates, errors in found.items() if gates != "all -5") < 5e-6
assert found["all -5"][4] < 3e-4 and max(np.delete(found["all -5"], 4)) < 3e-6

# %% [markdown]
# All are roundings, below five in a million (measured here), but for one: the gradient of $g$ when every gate is −5. It
# is nearly zero there, because nothing is left of the past whose decay could matter, and its few digits are compared
# with that.

# %% [markdown] tags=["slide"]
# ## 9 · Speed, measured
#
# Now the reward. What you see below was measured where this notebook was built; run the cells to see your machine.
# Times differ from run to run, so the contenders take turns, each round gives one ratio, and shown are medians with
# bars from quartile to quartile. CPU time on one thread, one text, 4 heads of $K = V = 64$. No time is asserted.

# %%
def attention(q, k, v, g=None, beta=None):
    """Causal softmax attention of the same heads; it has no use for g and beta."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def forward(function, inputs):
    """A call that keeps nothing for a backward pass."""
    def call():
        with torch.no_grad():
            return function(*inputs)
    return call


def race(calls, rounds=7):
    """{name: call} -> seconds {name: [rounds]}, on one thread, taking turns."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    timed = interleave(calls, rounds, least_seconds=0.01)
    torch.set_num_threads(threads)
    return timed.seconds


# %% tags=["slide"]
TEXTS = (64, 128, 256, 512, 1024, 2048, 4096)
inputs = {T: kda_inputs(Shape(1, T, 4, 64, 64)) for T in TEXTS}
runners = {"token loop": layer_recurrent, "softmax attention": attention, "chunks": layer_chunk}
seconds = race({(name, T): forward(f, inputs[T]) for T in TEXTS for name, f in runners.items()})
ratios = {name: np.stack([seconds[name, T] / seconds["chunks", T] for T in TEXTS], axis=1)
          for name in ("softmax attention", "token loop")}
show(time_ratios(TEXTS, ratios, title="Time over that of the chunks, forward, one thread",
                 x_label="T, tokens in the text", y_label="times as long as chunks", even="chunks"),
     "Time over that of the chunk form: the token loop lies above one, softmax attention crosses one",
     name="03_speed")

# %% [markdown] tags=["slide"]
# Two things to see: how far the token loop lies above 1, everywhere, and where softmax attention crosses 1. Left of
# the crossing attention is quicker, because its triangle is still small; right of it each doubling of the text makes
# it fall further behind, because its triangle grows with the square of $T$ and the chunks grow with $T$.

# %%
middle = {name: np.median(rounds, axis=0) for name, rounds in ratios.items()}
for name, values in middle.items():
    print(f"{name:18s}" + "".join(f"   T {T}: {value:.1f}" for T, value in zip(TEXTS, values, strict=True)))
above = middle["softmax attention"] > 1
if above.any() and not above[0]:
    at = int(np.argmax(above))
    low, high = np.log(middle["softmax attention"][at - 1:at + 1])
    crossing = TEXTS[at - 1] * 2 ** (-low / (high - low))
    print(f"softmax attention crosses the chunks at about {crossing:.0f} tokens (in this run)")

# %% [markdown]
# And in training, forward and backward, a text of 512 tokens:

# %%
x = inputs[512]
direction = direction_of(x[2])
seconds = race({"chunks": lambda: differentiate(lambda *a: layer_chunk(*a)[0], x, direction),
                "token loop": lambda: differentiate(lambda *a: layer_recurrent(*a)[0], x, direction),
                "softmax attention": lambda: differentiate(attention, x[:3], direction)}, rounds=5)
for name in ("token loop", "softmax attention"):
    low, ratio, high = np.percentile(seconds[name] / seconds["chunks"], (25, 50, 75))
    print(f"{name:18s} {ratio:5.1f} times as long as chunks (quartiles {low:.1f} and {high:.1f})")

# %% [markdown]
# The chunks do **more** arithmetic than the loop: with $C = 32$ and $K = V = 64$, counted in multiplications and
# additions, 40,960 a token and head against 28,672 (derived: the products of sections 3 and 4; for the loop 7 for each
# number of the state: decay, recall, write, read). They are quicker because of *where the numbers are*. The loop
# fetches the whole state and puts it back at every token, and does a handful of operations with each number. A matrix
# product fetches a number once and uses it many times.

# %% tags=["remove"]
assert kda_flops(Shape(1, 1, 1, 64, 64)) == 40_960 and 7 * 64 * 64 == 28_672

# %% [markdown]
# ### Why is the GPU's C = 64 not the CPU's?
#
# Public GPU kernels for such layers take chunks of 64; our layer takes 16 or 32 on a CPU. Per token and head there are
#
# $$ \underbrace{4\,C K + C (K + V) + 2\,C V}_{\text{tiles and solve: grows with } C}
#    + \underbrace{6\,K V}_{\text{state}} \quad\text{operations},\qquad
#    \frac{T}{C} \text{ steps that wait.} $$
#
# A GPU has thousands of arithmetic units, in blocks that multiply small matrices; a product with few rows leaves most
# of them idle, and each step that waits costs all of them. There operations are cheap and steps dear: large $C$. One
# CPU core is kept busy by a product of 16 rows already and pays for every operation, so the term that grows with $C$
# is felt. Measured, against $C = 32$, with gates so gentle that the centred tile is safe at each length, and with gates
# down to −5:

# %% tags=["slide"]
CHUNKS = (4, 8, 16, 32, 64, 128, 256)
kinds = {"gentle gates": "mild", "gates down to −5": "K3-like"}
x = {name: kda_inputs(Shape(1, 2048, 4, 64, 64), kind) for name, kind in kinds.items()}
seconds = race({(name, C): forward(lambda *a, C=C: layer_chunk(*a, chunk=C), x[name])
                for name in kinds for C in CHUNKS})
lines = {name: np.stack([seconds[name, C] / seconds[name, 32] for C in CHUNKS], axis=1) for name in kinds}


def operations(C, K=64, V=64):
    """Of one token and head."""
    return 4 * C * K + C * (K + V) + 2 * C * V + 6 * K * V


lines["operations (derived)"] = np.array([[operations(C) / operations(32) for C in CHUNKS]])
show(time_ratios(CHUNKS, lines, title="Time against the length of a chunk, one CPU thread",
                 x_label="C, tokens per chunk", y_label="over C = 32", even="as C = 32"),
     "Time over the length of a chunk: lowest near 16 to 32; to the right it grows, as the operations do",
     name="03_chunk_length")

# %% [markdown] tags=["slide"]
# On the right the measured lines climb, though less than the count of operations, because long products run faster; on
# the left they climb against it, because the steps become many and the products small. The lowest place is where the
# two balance. It is flat: with gentle gates 64 loses little. It moves with the machine: the same algorithm, another $C$.
#
# The second line shows another reason. With gates down to −5 a centred tile of 64 is not safe (section 5), the layer
# goes over to dyadic tiles, and on a CPU that is more small pieces of work for nothing.

# %% tags=["remove"]
assert operations(32) == 40_960

# %% [markdown] tags=["slide"]
# ## 10 · In the real K3
#
# With the published sizes the arithmetic can be done here:

# %%
config = preset("kimi_k3")
heads, K, V = config.num_heads, config.kda_key_dim, config.kda_value_dim
print(f"a tile of 16 split at its start: e^{-16 * config.gate_lower_bound:g}; float32 ends at e^{limit:.1f}")
print(f"states of one layer: {heads * K * V * 4 / 2 ** 20:g} MiB; M and N of a segment: "
      f"{heads * K * (K + V) * 4 / 2 ** 20:g} MiB")
work = heads * operations(64, K, V)                               # of one token, in one layer
projections = flops_per_token(config).modules["kda_projections"] / len(config.kda_layers)
print(f"recurrence in chunks of 64: {work / 1e6:.1f} million operations a token and layer; "
      f"projections: {projections / 1e6:.0f} million")

# %% [markdown]
# | | K3 |
# |---|---|
# | layers in this form | 69 of 93, each with 96 heads of $K = V = 128$ (report) |
# | bound of the log-decay | −5, per channel and token (report) |
# | tile of 16 tokens, split at its start | largest factor $e^{80}$; float32 ends at $e^{88.7}$ (derived) |
# | one state | 128 · 128 float32 = 64 KiB a head, 6 MiB a layer (derived) |
# | passed between devices by a segment, $M$ and $N$ | 12 MiB a layer, for any length (derived) |
# | a context of 1,048,576 tokens, chunks of 64 | 16,384 steps that wait in place of 1,048,576 (derived) |
# | work of the recurrence in chunks of 64 | 163,840 operations a token and head, 15.7 million a layer (derived) |
# | work of the layer's projections | 887 million operations a token (derived) |
#
# The last two lines say that the memory itself, made parallel, is less than 2 % of its layer's arithmetic: nearly all
# of the cost is the matrices before and behind it, as in any layer. That is what the algebra of this chapter has
# bought. Training, reading a prompt and answering use the same state: chunks for many tokens, one step of [chapter
# 02](02_kimi_delta_attention.ipynb) for a single one.

# %% tags=["remove"]
assert (len(config.kda_layers), config.num_layers, config.num_heads) == (69, 93, 96)
assert (config.kda_key_dim, config.kda_value_dim, config.gate_lower_bound) == (128, 128, -5.0)
assert 128 * 128 * 4 == 64 * 2 ** 10 and 96 * 64 * 2 ** 10 == 6 * 2 ** 20
assert 96 * 128 * (128 + 128) * 4 == 12 * 2 ** 20
assert 2 ** 20 == 1_048_576 and 2 ** 20 // 64 == 16_384
assert operations(64, 128, 128) == 163_840 and round(work / 1e6, 1) == 15.7
assert round(projections / 1e6) == 887
assert work / (work + projections) < 0.02

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. Inside a chunk the states need not be formed: what each token writes solves a triangular system,
#    $(I + L)\,[W \mid U] = [\beta e^G K \mid \beta V]$, and $\tilde V = U - W S$.
# 2. $O = (e^G Q) S + A \tilde V$: the state carries what lies across chunks, the triangle $A$ what lies within; only
#    one state a chunk is passed on.
# 3. $e^{G_i - G_j}$ must not be split carelessly: K3's bound of −5 keeps a tile of 16 finite, a centred one of 32, and
#    dyadic tiles are safe for any gate. The system is solved, never inverted by squaring.
# 4. A segment is an affine map $S \mapsto M S + N$, segments compose, and where a text is cut changes no result (nor
#    does it need a gradient).
# 5. In chunks the time grows with $T$, not with its square; on one CPU thread it falls below that of softmax attention
#    at some hundreds of tokens.
