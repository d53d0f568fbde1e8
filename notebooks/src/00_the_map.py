# ---
# jupyter:
#   k3:
#     title: The map
#     minutes: {read: 55, exercises: 53, run: about 20 seconds}
#     needs:
#       - "matrix products and the softmax"
#       - "Python and a little NumPy"
#     objectives:
#       - "name the parts of Kimi K3, say what each is for, and follow one token through them with all shapes"
#       - "read and write einsum, and say which axes meet"
#       - "write causal attention, and name five ways to get its softmax wrong"
#       - "count the 2,779,484,476,000 parameters by hand, and say why 5.5 T and 105.4 B are wrong"
#       - "work with this course: exercises, checks, hints, progress"
# ---

# %% [markdown] tags=["slide"]
# # 00 · The map
#
# *Kimi K3 has 2,779,484,476,000 numbers. When it reads one word, it multiplies with 104,189,612,640 of them.*
#
# Kimi K3 is a **language model**: a program that is given the beginning of a text and says what comes next. It was
# published in July 2026 with all its numbers. This course builds it from nothing: first each part in NumPy, a few
# lines at a time, then the whole. What we build is small, 498 thousand numbers, but it is the same architecture,
# equation by equation, and it learns on a laptop in minutes.
#
# **The question of this chapter: where do these numbers sit, and what does one word do with them on its way
# through?**
#
# You need to know what a matrix product is, what a softmax does, and some Python. Everything else is explained when
# it comes up; words in **bold** are explained where they stand, and once more in the glossary at the end.

# %%
import numpy as np
import torch
import torch.nn.functional as F

from k3_scratch.accounting import cache_bytes, checkpoint_bytes, count_parameters, tensor_shapes
from k3_scratch.accounting import vision_parameters
from k3_scratch.accounting.built import count_built
from k3_scratch.baselines.softmax_attention import softmax_attention
from k3_scratch.config import preset
from k3_scratch.course import check, progress, show
from k3_scratch.generate import generate
from k3_scratch.model import K3
from k3_scratch.plots.architecture import architecture
from k3_scratch.plots.causal_steps import causal_steps
from k3_scratch.plots.einsum_axes import einsum_axes
from k3_scratch.plots.parameter_square import parameter_square
from k3_scratch.plots.seed_curves import seed_curves
from k3_scratch.plots.token_way import token_way
from k3_scratch.pretrained import pretrained
from k3_scratch.reference.softmax import softmax
from k3_scratch.tasks.vocabulary import NEWLINE, decode, encode

# %% [markdown] tags=["slide"]
# ## 1 · One picture
#
# Here is a complete K3, the small one of this course. It is drawn from its **configuration** alone, the list of its
# sizes.

# %% tags=["slide"]
show(architecture(preset("mini"), "The miniature K3 of this course, complete"),
     "The miniature K3: left a stack of four layers read upwards, right the inside of KDA, MLA and LatentMoE")

# %% [markdown] tags=["slide"]
# Read the left side upwards. A text is cut into **tokens** (in the miniature a token is one byte, that is one plain
# letter, digit or sign). Each token becomes a **vector**, a list of 64 numbers. Four **layers** change this vector,
# each in two steps, called **sublayers**: a coloured box that looks at *other tokens* (KDA or MLA), then one that
# works on *this token alone* (dense FFN or MoE). At the top the **head** turns the vector into a score for each
# token that could come next. The right side shows what is inside the boxes; you need not understand it yet, that is
# what the course is for. (Text too small? Open the picture in a new tab of the browser: it is large enough to read
# every word.)
#
# Now the same function draws the real one, from the sizes that were published:

# %% tags=["slide"]
show(architecture(preset("kimi_k3"), "Kimi K3, the real one: 2.78 trillion parameters"),
     "The real K3: the same parts, 93 layers in eight blocks, width 7,168, 896 experts in a MoE")

# %% [markdown] tags=["slide"]
# Look at the boxes and not at the numbers: there is no box in the large picture that the small one lacks, but for
# the encoder of pictures at the bottom. What changes is how often things occur and how wide they are (a number such
# as *× 3* stands for three equal ones).
#
# ### What each part is for
#
# | part | what it is for | chapter |
# |---|---|---|
# | embedding | turns the number of a token into a vector: it looks up one row of a table | [08](08_miniature.ipynb) |
# | **KDA**, Kimi Delta Attention | a memory of fixed size: it is written, corrected and read at each token, and its cost does not grow with the text | [01](01_delta_rule_rnn.ipynb), [02](02_kimi_delta_attention.ipynb), [03](03_chunks.ipynb) |
# | **MLA**, multi-head latent attention | looks back at every earlier token, for what a fixed memory has lost; keeps one short vector a token for it | [04](04_multi_head_latent_attention.ipynb) |
# | **dense FFN** | a feed-forward network: two products, a gate, one product back, for each token alone; only in the first layer | [05](05_stable_latent_moe.ipynb) |
# | **MoE**, mixture of experts | many small FFNs, the *experts*, of which each token is sent to a few: much knowledge, little work; here they work on a shortened vector, hence *LatentMoE* | [05](05_stable_latent_moe.ipynb) |
# | router | scores the experts for a token; a balancing rule keeps all of them busy | [05](05_stable_latent_moe.ipynb) |
# | **mix** over depth | lets each sublayer choose which earlier results it reads: *attention residuals* (AttnRes) | [06](06_attention_residuals.ipynb) |
# | norm | brings a vector to a standard size before it is used (RMSNorm) | [02](02_kimi_delta_attention.ipynb) |
# | *no positions* | nothing tells the model where a token stands; the order comes out of KDA (NoPE) | [07](07_nope.ipynb) |
# | head | turns the last vector into one score for each token of the vocabulary | [08](08_miniature.ipynb) |
# | encoder of pictures | turns a picture into vectors that join those of the text | [10](10_native_vision.ipynb) |
#
# The other chapters put the parts to work: [training](09_training.ipynb), [serving](11_serving.ipynb), [the way up to
# 2.8 T](12_scaling_up.ipynb), and [a K3 with planted faults](13_bug_hunt.ipynb) that you are to find.

# %% [markdown] tags=["slide"]
# ## 2 · A first taste
#
# The miniature has been trained for some minutes on six kinds of small puzzles. Its numbers come with the course, so
# we can ask it something right now. `encode` turns a text into its tokens, the bytes 0 to 255; four further tokens
# are marks such as "end", which makes a **vocabulary** of 260. The miniature writes **greedily**: it always takes the
# token with the highest score, appends it, and goes on until it ends the line.

# %%
mini = pretrained("mini")
PROMPTS = ["flip laptop>", "copy mpady>", "94+86=", "end ([])<<(=", "w6 s6 k8 u2?k",
           "Di has rye, Mo ice. Su takes ice. Ice? "]
tokens = [encode(prompt) for prompt in PROMPTS]                   # a list of numbers for each prompt
answers = [decode(answer).strip() for answer in generate(mini, tokens, 16, stop_tokens=(NEWLINE,))]
print("tokens of the first prompt:", tokens[0])
for prompt, answer in zip(PROMPTS, answers, strict=True):
    print(f"{prompt:40s} {answer}")

# %% tags=["remove"]
assert answers == ["potpal", "mpady", "180", ")>>", "8", "Su"]

# %% [markdown]
# Write a word backwards, copy it, add, close brackets, recall the digit that went with a letter, say who has the
# ice now: all six are right (measured here). Change a prompt and run the cell again. Stay close to these forms: the
# miniature has seen nothing else, so do not expect it to know that Paris is in France.
#
# To answer, a model must keep something of what it has read. K3 keeps two kinds of things, and the difference between
# them is what half of this course is about:
#
# - each KDA layer keeps a **state**: matrices whose size is fixed (and the last three inputs of a small filter, its
#   *short convolution*);
# - each MLA layer keeps a **cache**: one short vector for *every* token, so it grows with the text.
#
# How many bytes is that?

# %%
small, large = preset("mini"), preset("kimi_k3")
print("miniature, in bytes             tokens   states of KDA   filters   cache of MLA")
for length in (10, 100, 1000):
    memory = mini.new_cache(1)
    with torch.no_grad():
        mini(torch.full((1, length), ord("a")), memory)           # read the letter a so many times
    kept = cache_bytes(small, length, bytes_per_value=4)
    assert memory.nbytes() == kept.total                          # what is there = what the formula says
    print(f"{length:38,d}  {kept.kda_state:14,d}  {kept.convolution:8,d}  {kept.mla:13,d}")
print("\nreal K3, in MB (10^6 bytes)     tokens   states of KDA   filters   cache of MLA   plain attention")
for length in (1_000, 100_000, 1_000_000):
    kept = cache_bytes(large, length)
    row = [size / 1e6 for size in (kept.kda_state, kept.convolution, kept.mla, kept.total_all_mla_expanded)]
    print(f"{length:38,d}  {row[0]:14,.0f}  {row[1]:8,.0f}  {row[2]:13,.0f}  {row[3]:16,.0f}")

# %% tags=["remove"]
assert cache_bytes(small, 1000, 4).kda_state == 12_288 and cache_bytes(small, 1, 4).mla == 160
assert round(cache_bytes(large, 10).kda_state / 1e6) == 434 and cache_bytes(large, 1).mla == 27_648
assert round(cache_bytes(large, 1_000_000).mla / 1e9, 1) == 27.6
assert round(cache_bytes(large, 1_000_000).total_all_mla_expanded / 1e12, 1) == 5.7

# %% [markdown]
# The states do not grow: 12,288 bytes in the miniature, 434 MB in K3, after ten tokens as after a million. The cache
# grows by 160 bytes a token here and by 27,648 there (derived). The last column is what ordinary attention would keep
# if all 93 layers were made of it, keys and values of every head: 5.7 TB for a text of a million tokens. K3's cache
# takes 27.6 GB, and its other 69 layers do not notice how long the text is (derived).

# %% [markdown]
# ## 3 · How to use this course
#
# - **Run a cell** with *Shift + Enter*, or everything with *Run → Run All Cells*. Run All always reaches the end,
#   also when no exercise is solved: cells outside the exercises never use what you write.
# - **An exercise** is a cell with `...  # your answer` in it. Replace the dots, run the cell, then run the one
#   below it, which calls `check`. Above the cell is a folded **Hint**: click on it when you are stuck. The dots
#   behind the minutes say how hard it is: ●○○ to ●●●. The first line of a function says what goes in and what is
#   to be returned, each with its shape (section 4): `q [T, K], v [T, V] -> o [T, V]`. Where nothing else is said,
#   arrays go in and out with float64 numbers, NumPy's usual kind.
# - **`check` prints one of three signs** and never stops the notebook:
#
# ```text
# ✓ 0.1 the scores of all heads                        right, on cases of several sizes
# · 0.1 not attempted yet                              the dots are still there
# ✗ 0.1 the scores of all heads: scores must have ...  not yet; what was wanted and what came
#   Look at: h is missing behind the arrow: ...        and what is probably behind it
# ```
#
#   The second line of a ✗ names your mistake when it is one that others have made before you. So try, even when you
#   are not sure: a wrong answer is the quickest way to a good hint.
# - **`progress()`**, at the end of each chapter, shows all exercises of the course. It remembers what you have solved
#   (in the file `.progress.json` beside the notebooks).
# - **Solutions**: the link at the top leads to the same notebook with all exercises solved.
# - **Time**: the head of each chapter says how long it takes, about two hours with its exercises (an estimate).
#   Three ways through: *the whole course*, one chapter an evening, three weeks; *the new ideas*, chapters 00, 01,
#   02, 04, 05 and 06; *a weekend*, chapters 00, 01, 02 and 08. Chapters build on those before them.
# - **Something does not work?** See [troubleshooting](troubleshooting.md).
#
# Every number in the text says where it comes from: *report* (published about K3), *derived* (you can recompute it by
# hand), *measured here* (a cell above it ran), or *toy* (chosen to be small).

# %% [markdown]
# ## 4 · The letters
#
# An array has **axes**: a matrix has two, a stack of matrices three. Its **shape** says how long each axis is. In
# this course an axis always has the same letter, in formulas, in code and in pictures:
#
# | letter | what is counted | miniature | K3 |
# |---|---|---|---|
# | $B$ | **batch**: texts that are worked on at the same time | free | free |
# | $T$ | **tokens** of a text | free | free |
# | $H$ | **heads**: equal parts of a layer that work side by side, each with its own numbers | 4 | 96 |
# | $K$ | channels of a **key** (and of a query) in a head; a *channel* is one of the numbers of a vector | 16 | 128 |
# | $V$ | channels of a **value** in a head | 16 | 128 |
# | $P$ | channels of all heads side by side, $H K$ | 64 | 12,288 |
# | $D$ | **width** of the model: numbers in a token's vector | 64 | 7,168 |
# | $C$ | tokens in a **chunk**: KDA does so many at once (chapter 03) | free | free |
# | $R$ | **rank** of the short vector that MLA keeps of a token, its *latent* (chapter 04) | 32 | 512 |
# | $L$ | width of the shortened vector that the experts work on (chapter 05) | 32 | 3,584 |
# | $E$ | **experts** in a MoE | 16 | 896 |
# | $F$ | inner width of one expert | 64 | 3,072 |
# | $N$ | **sources** over depth: vectors that a mix chooses from (chapter 06) | up to 3 | up to 9 |
#
# `[B, T, H, K]` is thus an array with four axes: for each text, each token and each head a vector of $K$ numbers.
# Small letters are numbers along an axis: token $t$, head $h$. A vector in a formula is a column; $x^\top$ is the
# same as a row. (There are more things than letters: chapter 03 uses some a second time, and says so.)

# %% tags=["remove"]
for config, sizes in ((small, (4, 16, 16, 64, 32, 32, 16, 64)),
                      (large, (96, 128, 128, 7168, 512, 3584, 896, 3072))):
    assert sizes == (config.num_heads, config.kda_key_dim, config.kda_value_dim, config.hidden_size,
                     config.kv_lora_rank, config.moe_latent_size, config.num_experts,
                     config.moe_intermediate_size)
assert round(count_parameters(small).total / 1e3) == 498
assert [-(-config.num_layers // config.attn_res_block_size) + 1 for config in (small, large)] == [3, 9]

# %% [markdown] tags=["slide"]
# ## 5 · einsum: products with named axes
#
# A matrix product is a rule about axes: $y_{te} = \sum_d x_{td}\, w_{de}$. The axis $d$ occurs in both factors, and
# it is summed over; $t$ and $e$ remain. `einsum` is this formula as a text:
#
# ```python
# y = np.einsum("td,de->te", x, w)
# ```
#
# Three rules are all there is:
#
# 1. each factor names its axes, one letter an axis, in order;
# 2. **the same letter is the same axis**: there the factors meet, number by number, so the sizes must agree;
# 3. letters behind the arrow remain, in the order in which they stand there; **all others are summed over**.

# %% tags=["slide"]
show(einsum_axes({"matrix product": "td,de->te", "scores: each query with each key": "tk,sk->ts",
                  "outer product: a key writes a value": "k,v->kv",
                  "scores of all heads of a batch": "bthk,bshk->bhts"}),
     "Four products as boxes with one tag an axis: equal letters are joined, summed ones end in a sigma",
     name="00_einsum")

# %% [markdown] tags=["slide"]
# Follow the lines: a letter whose lines run down into the result stays an axis, one whose lines end in Σ is gone.
# In the last card $b$ and $h$ occur in both factors *and* in the result: there nothing is summed, each text and
# each head keeps to itself.
#
# `einsum` computes nothing new. It says in one line what loops say in many:

# %%
def scores_by_loops(q, k):
    """q [T, K], k [S, K] -> [T, S]: "tk,sk->ts" """
    scores = np.zeros((len(q), len(k)))
    for t in range(len(q)):                                       # the letters of the result: loops outside
        for s in range(len(k)):
            for channel in range(q.shape[1]):                     # a letter that is not in the result: a sum
                scores[t, s] += q[t, channel] * k[s, channel]
    return scores


rng = np.random.default_rng(0)
q, k = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
assert np.allclose(np.einsum("tk,sk->ts", q, k), scores_by_loops(q, k))  # einsum = the loops
assert np.allclose(np.einsum("tk,sk->ts", q, k), q @ k.T)         # = a product with the second one turned
assert np.allclose(np.einsum("tk->t", q), q.sum(axis=1))          # one factor: a plain sum over an axis
print("three loops, one einsum, one matrix product: the same", np.einsum("tk,sk->ts", q, k).shape, "numbers")

# %% [markdown]
# Two axes that happen to be equally long still need two letters: in "tk,sk->ts" the token that looks is $t$ and the
# one that is looked at is $s$, even if both run over the same text. Written "tk,tk->t" it would be another thing:
# each query with the key of the *same* token only.

# %% [markdown]
# ### Exercise 0.1: the scores of all heads
#
# `q` has shape $[B, T, H, K]$ and `k` has $[B, S, H, K]$, where $S$ is the number of tokens that can be looked at.
# Return the scores $[B, H, T, S]$: for each text and each head the product of each query with each key. One line.

# %% [markdown] tags=["hint"]
# It is the last card of the picture. Write the axes of both factors down, then think which of the letters must not be
# behind the arrow.

# %% id="0.1" minutes=5 difficulty=1
def my_head_scores(q, k):
    """q [B, T, H, K], k [B, S, H, K] -> scores [B, H, T, S]"""
    # BEGIN SOLUTION
    return np.einsum("bthk,bshk->bhts", q, k)
    # END SOLUTION

# %%
check("0.1", my_head_scores)

# %% [markdown] tags=["slide"]
# ## 6 · Causal attention from nothing
#
# How does a token learn something of the others? In nearly all language models by **attention**. Each token makes
# three vectors out of its own, by three matrices:
#
# - a **query** $q_t$ of $K$ numbers: what am I looking for?
# - a **key** $k_t$ of $K$ numbers: by what can I be found?
# - a **value** $v_t$ of $V$ numbers: what do I pass on?
#
# The output of token $t$ is a mixture of values, and the better a key fits its query, the larger the share:
#
# $$ o_t = \sum_{s \le t} p_{ts}\, v_s, \qquad
#    p_{ts} = \frac{e^{\,z_{ts}}}{\sum_{s' \le t} e^{\,z_{ts'}}}, \qquad
#    z_{ts} = K^{-1/2}\; q_t \cdot k_s . $$
#
# The fraction is the **softmax**: it makes positive shares with the sum 1 out of any scores. **Causal** means
# $s \le t$: a token sees itself and those before it, never a later one. Else the model would be shown the very tokens
# that it is to predict. In arrays this is three steps. Here for four tokens, with $K = V = 2$ (toy):

# %% tags=["slide"]
q = np.array([[1.0, 0.0], [0.0, 2.0], [2.0, 1.0], [1.0, 2.0]])    # [T, K]
k = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 1.0], [1.0, 2.0]])    # [T, K]
v = np.array([[2.0, 0.0], [0.0, 1.0], [-1.0, 3.0], [4.0, 1.0]])   # [T, V]

scores = 2 ** -0.5 * np.einsum("tk,sk->ts", q, k)                 # 1: how well do they fit?       [T, T]
visible = np.tril(np.ones((4, 4), dtype=bool))                    # True where s <= t
weights = softmax(np.where(visible, scores, -np.inf))             # 2: e^-inf = 0 hides the future [T, T]
o = np.einsum("ts,sv->tv", weights, v)                            # 3: mix the values              [T, V]
show(causal_steps(scores, weights, v, o, names=["Di", "has", "rye", "now"]),
     "Scores and weights of four tokens as triangles with their numbers, the values, and the outputs",
     name="00_causal_attention")

# %% tags=["remove"]
assert np.allclose(weights[1, :2], [0.8, 0.2], atol=0.005) and np.allclose(o[1], [1.61, 0.2], atol=0.005)
assert np.allclose(o[0], v[0])

# %% [markdown] tags=["slide"]
# Look along the second row: *has* sees *Di* and itself, with the shares .80 and .20, so its output is .80 times the
# value (2, 0) plus .20 times (0, 1), which is (1.61, .20). The hatched part is the future. The first token sees
# only itself.
#
# ### The softmax, and how to get it wrong
#
# **1. Overflow.** $e^{1000}$ is no number for a computer. But a softmax does not change when the same number is
# subtracted from all scores of a row (numerator and denominator are divided by the same factor), so one subtracts the
# largest: then every exponent is 0 or less.
#
# **2. A mask of zeros.** A hidden score must be $-\infty$. Zero is a score like any other: $e^0 = 1$.
#
# **3. The wrong axis.** Each *row* is one token that looks, so each row must sum to 1. Columns that sum to 1 are also
# shares, only of the wrong thing; no error is raised.
#
# **4. Nothing visible.** A row in which all is hidden is $0/0$. A token that sees itself never has such a row.

# %%
row = np.array([1000.0, 999.0])
with np.errstate(all="ignore"):
    print("1  without the subtraction:  ", np.exp(row) / np.exp(row).sum())
print("   with it:                  ", np.exp(row - row.max()) / np.exp(row - row.max()).sum())
zeros = softmax(np.where(visible, scores, 0.0))
print("2  hidden by 0: first row    ", zeros[0], "  the future gets", zeros[0, 1:].sum().round(2))
columns = softmax(np.where(visible, scores, -np.inf), axis=0)
print("3  the wrong axis: row sums  ", columns.sum(axis=1))
with np.errstate(all="ignore"):
    print("4  nothing visible:          ", softmax(np.full(2, -np.inf)))

# %% tags=["remove"]
assert abs(zeros[0, 1:].sum() - 0.6) < 0.005
assert abs(columns.sum(axis=1)[0] - 0.11) < 0.05

# %% [markdown]
# **5. No scale.** Why $K^{-1/2}$? If the entries of $q$ and $k$ are independent with mean 0 and variance 1, then
# $q \cdot k$ is a sum of $K$ terms of variance 1, so its variance is $K$ and its usual size $\sqrt K$. The softmax of
# large scores is nearly all on one token, and where it is, moving a score a little moves nothing: nothing can be
# learnt. How bad is it? Random queries and 64 random keys; what is the largest of the 64 shares? Ten seeds.

# %% tags=["slide"]
def largest_share(K, scale, seed, queries=200, keys=64):
    """Mean of the largest weight, over queries.   -> a number"""
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(queries, K)), rng.normal(size=(keys, K))
    return softmax(scale * q @ k.T).max(axis=1).mean()


WIDTHS = (2, 4, 8, 16, 32, 64, 128, 256)
without = np.array([[largest_share(K, 1.0, seed) for K in WIDTHS] for seed in range(10)])
scaled = np.array([[largest_share(K, K ** -0.5, seed) for K in WIDTHS] for seed in range(10)])
show(seed_curves(WIDTHS, {"no scale": without, "K ** -0.5": scaled}, title="Why the scores are scaled",
                 log=True, ticks=WIDTHS, x_label="channels K", y_label="largest of 64 shares",
                 limits=(0, 1.02), marks={"a head of K3": 128}),
     "The largest of 64 attention shares against the width of a head: without the scale it nears one",
     name="00_scale")

# %% tags=["remove"]
at = WIDTHS.index(128)
assert abs(without.mean(axis=0)[at] - 0.853) < 0.02, without.mean(axis=0)
assert np.abs(scaled.mean(axis=0) - 0.105).max() < 0.008
assert np.ptp(scaled[:, at]) < 0.05 and np.ptp(without[:, at]) < 0.12

# %% [markdown] tags=["slide"]
# Without the scale a head as wide as K3's puts .85 of its weight on a single one of 64 random tokens; with it about
# .11, at every width (measured here, mean of ten seeds; the thin lines are single seeds and hardly differ).

# %% [markdown]
# ### Exercise 0.2: causal attention
#
# Put the three steps into a function for one head and any number of tokens. Write the softmax yourself, so that
# scores of some thousands do it no harm.

# %% [markdown] tags=["hint"]
# `np.tril` gives the mask. For the softmax of each row you need `max(axis=-1, keepdims=True)` and
# `sum(axis=-1, keepdims=True)`.

# %% id="0.2" minutes=12 difficulty=2
def my_causal_attention(q, k, v):
    """q [T, K], k [T, K], v [T, V] -> o [T, V]"""
    # BEGIN SOLUTION
    scores = q.shape[1] ** -0.5 * q @ k.T
    scores = np.where(np.tril(np.ones(scores.shape, dtype=bool)), scores, -np.inf)
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True) @ v
    # END SOLUTION

# %%
check("0.2", my_causal_attention)

# %% [markdown]
# With an axis for the batch and one for the heads it is the same three steps. Three implementations must agree: the
# lines below, PyTorch's own function (which wants the heads in front), and the one of this course.

# %%
def causal_attention(q, k, v):
    """q, k [B, T, H, K], v [B, T, H, V] -> o [B, T, H, V]"""
    T, K = q.shape[1], q.shape[3]
    scores = K ** -0.5 * np.einsum("bthk,bshk->bhts", q, k)       # [B, H, T, T]
    scores = np.where(np.tril(np.ones((T, T), dtype=bool)), scores, -np.inf)
    return np.einsum("bhts,bshv->bthv", softmax(scores), v)       # [B, T, H, V]


rng = np.random.default_rng(1)
q, k, v = rng.normal(size=(2, 7, 3, 4)), rng.normal(size=(2, 7, 3, 4)), rng.normal(size=(2, 7, 3, 5))
o = causal_attention(q, k, v)
tq, tk, tv = (torch.tensor(a) for a in (q, k, v))
heads_first = [a.transpose(1, 2) for a in (tq, tk, tv)]           # [B, H, T, ...]
o_torch = F.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)
assert np.allclose(o, o_torch.numpy(), atol=1e-12)                # here = torch
assert np.allclose(o, softmax_attention(tq, tk, tv).numpy(), atol=1e-12)  # here = the package
print("NumPy, torch and the package give the same outputs", o.shape)

# %% [markdown]
# Attention has a price. To make token $t$ it needs the keys and values of all tokens before: the **cache** that
# section 2 weighed. And each new token looks at all of them, so a text of $T$ tokens costs about $T^2/2$ looks a
# head. K3 pays it in 24 of its 93 layers, with a cache made small ([chapter
# 04](04_multi_head_latent_attention.ipynb)); the other 69 do without ([chapter 01](01_delta_rule_rnn.ipynb)).

# %% [markdown] tags=["slide"]
# ## 7 · One token's way
#
# Now let a token walk through the model. PyTorch can call a function each time a part has finished (a *hook*); with
# it we write down what comes out of each part of the miniature, for the prompt `94+86=`.

# %%
NAMES = {"embed_tokens": "embedding", "self_attention_res": "mix", "self_attn": "", "mlp_res": "mix",
         "mlp": "dense FFN", "block_sparse_moe": "MoE", "output_attn_res": "mix",
         "norm": "norm", "lm_head": "head"}


def walk(model, text):
    """What each part returns for a text, in order.   -> [(place, part, sources or None, shape)], logits"""
    steps, hooks = [], []
    for name, module in model.named_modules():
        *place, last = name.split(".")
        if last in NAMES and len(place) in (0, 2):
            part = NAMES[last] or ("MLA" if model.config.is_mla(int(place[1])) else "KDA")

            def note(_, given, result, place=" ".join(place).replace("layers", "layer"), part=part):
                steps.append((place, part, len(given[0]) if part == "mix" else None, list(result.shape)))
            hooks.append(module.register_forward_hook(note))
    with torch.no_grad():
        logits = model(torch.tensor([encode(text)]))
    for hook in hooks:
        hook.remove()
    return steps, logits


# %%
steps, logits = walk(mini, "94+86=")
for place, part, sources, shape in steps:
    print(f"{place:9s} {part:10s} {str(shape):13s}" + (f" out of {sources}" if sources else ""))
p = torch.softmax(logits[0, -1], dim=-1)                          # the last token's scores as probabilities
best = p.argsort(descending=True)[:3].tolist()
print("after 94+86= comes", ", ".join(f"{decode([token])!r} ({p[token]:.4f})" for token in best))

# %% tags=["remove"]
assert decode([best[0]]) == "1" and p[best[0]] > 0.9
assert [step[2] for step in steps if step[1] == "mix"] == [1, 2, 2, 2, 2, 3, 3, 3, 3], steps

# %% [markdown]
# Every part hands on `[B, T, D]` = `[1, 6, 64]` (one text, six tokens, 64 numbers each); only the head ends
# differently, in a score for each of 260 tokens. These scores are called **logits**; their softmax is the probability
# of what comes next. The model is nearly sure that the sum begins with a 1 (measured here). A mix chooses among more
# and more vectors (*out of ...*): at first there is the embedding alone, at last there are three.
#
# Inside a part a token's vector does become wider and narrower. Here is what happens to *one* token of the real K3
# in a layer with KDA and MoE, on its way to the head:

# %% tags=["slide"]
WAY = [("embedding: one row of a table", 1, 7168, "plain", "[D]"),
       ("mix over depth, norm", 1, 7168, "mix", "[D]"),
       ("KDA: q, k, v, decay, gate", 5, 12288, "KDA", "5 × [H, K], and β [H]"),
       ("read from the state, times gate", 1, 12288, "KDA", "[H, V]"),
       ("output matrix of KDA", 1, 7168, "KDA", "[D], added to the sum"),
       ("mix over depth, norm", 1, 7168, "mix", "[D]"),
       ("router: scores, 16 are chosen", 1, 896, "MoE", "[E]"),
       ("down to the latent", 1, 3584, "MoE", "[L]"),
       ("inside the 16 chosen experts", 16, 3072, "MoE", "16 × [F]"),
       ("their weighted sum, norm", 1, 3584, "MoE", "[L]"),
       ("up again, plus shared experts", 1, 7168, "MoE", "[D], added to the sum"),
       ("... after 93 layers: the head", 1, 163840, "plain", "[vocabulary], cut off")]
show(token_way(WAY, "One token of K3: how many numbers describe it", limit=66000),
     "Bars for twelve steps: the token's vector of 7,168 numbers widens inside KDA and inside the experts",
     name="00_token_way")

# %% tags=["remove"]
assert large.hidden_size == WAY[0][2] and large.num_heads * large.kda_key_dim == WAY[2][2]
assert (large.num_experts, large.moe_latent_size, large.moe_intermediate_size) == (896, 3584, 3072)
assert (WAY[8][1], WAY[-1][2]) == (large.num_experts_per_token, large.vocab_size)

# %% [markdown] tags=["slide"]
# Look at the two long bars: the work is done inside KDA, where 96 heads have 128 channels each, and inside the 16
# chosen experts; between the parts a token is always one vector of 7,168 numbers. With $T$ tokens in $B$ texts all
# shapes get `B, T` in front. Beside its vectors, a KDA layer has a state of $[B, H, K, V]$, here 96 matrices of
# 128 × 128. An MLA layer (chapter 04) makes queries `[B, T, H, 192]`, keeps `[B, T, 512]` and `[B, T, 64]` for
# later tokens, and has weights `[B, H, T, T]`.

# %% [markdown] tags=["slide"]
# ## 8 · All parameters, counted by hand
#
# A **parameter** is a number that training has set. Nearly all of them sit in matrices: a matrix that turns $a$
# numbers into $b$ numbers has $a\,b$ of them. The rest are a few short vectors, so counting K3 is
# multiplication and addition, nothing more. K3 adds no constants after its products (no *biases*), but for two
# small vectors that are named below. A **norm** divides a vector by its usual size and then multiplies each channel
# by a weight of its own, so it has as many parameters as channels.
#
# We go part by part. First the two easiest: the table of the **embedding**, one row of $D$ numbers for each of the
# 163,840 tokens; and the **dense FFN** of layer 0. It computes $W_2\,(f(W_1 x) \odot W_3 x)$, where $\odot$
# multiplies number by number and $f$ is a fixed function: three matrices between $D$ and 33,792 numbers.

# %%
VOCABULARY, D, H, K = 163_840, 7168, 96, 128                      # report
P = H * K                                                         # all heads side by side: 12,288 channels
embedding = VOCABULARY * D
dense = 3 * D * 33_792
print(f"embedding {embedding:,}    dense FFN {dense:,}")

# %% [markdown]
# Then **MLA** (chapter 04 says why it is built like this; here we only read its matrices off the picture in section
# 1, from left to right):

# %%
mla = (D * 1536 + 1536                                            # W_qa to 1,536 numbers, weights of a norm
       + 1536 * H * (128 + 64)                                    # W_qb: a query of 192 numbers in each head
       + D * (512 + 64) + 512                                     # W_kva: what is cached, a norm on the 512
       + 512 * H * (128 + 128)                                    # W_kvb: a key and a value for each head
       + D * H * 128                                              # W_g: the output gate
       + H * 128 * D)                                             # W_o: from all heads back to D
print(f"one MLA layer {mla:,}")
count = count_parameters(large)                                   # the package's count
assert embedding == count.modules["embedding"].each               # by hand = the package
assert dense == count.modules["dense_ffn"].each and mla == count.modules["mla"].each  # the same for these two

# %% [markdown]
# ### Exercise 0.3: the parameters of one KDA layer
#
# Here is everything that a KDA layer of K3 has. $D = 7168$, $H = 96$ heads of 128 channels, $P = 96 \cdot 128$.
#
# | what | how many numbers |
# |---|---|
# | $W_q$, $W_k$, $W_v$ | from $D$ to $P$, each of the three |
# | short convolution on q, on k and on v | 4 for each of the $P$ channels, each of the three |
# | decay: $W_{fa}$, then $W_{fb}$ | from $D$ to 128, then from 128 to $P$ |
# | decay: a factor $A$, and a bias | one a head; one a channel ($P$) |
# | $\beta$: $W_b$ | from $D$ to one number a head |
# | output gate $W_g$ | from $D$ to $P$ |
# | norm after the read | 128 weights, shared by all heads |
# | $W_o$ | from $P$ to $D$ |
#
# How many parameters is that (one whole number)? Let Python multiply.

# %% [markdown] tags=["hint"]
# Five matrices have $D P$ numbers. Then there are the two of the decay, one small matrix for $\beta$, the three
# convolutions and three vectors.

# %% id="0.3" minutes=8 difficulty=1
D, H = 7168, 96
P = 96 * 128
# BEGIN SOLUTION
my_kda_layer = 3 * D * P + 3 * 4 * P + (D * 128 + 128 * P) + H + P + D * H + D * P + 128 + P * D
# END SOLUTION

# %%
check("0.3", my_kda_layer)

# %% [markdown]
# Written out, with each tensor's shape as it lies in the published file (a **tensor** is an array; a matrix is
# stored as [out, in]):

# %%
kda = 0
for name, shape in tensor_shapes(large)["kda"].items():
    numbers = int(np.prod(shape))
    kda += numbers
    print(f"{name:10s} {str(list(shape)):16s} {numbers:12,d}")
print(f"one KDA layer               {kda:12,d}")
assert kda == count.modules["kda"].each                           # line by line = the package

# %% [markdown]
# Note that $P = 12{,}288$ is more than $D = 7{,}168$. In most models the heads side by side are as wide as the
# token's vector; who assumes this of K3 gets $7{,}168 / 128 = 56$ heads in place of 96, and a model that is far too
# small.

# %% [markdown]
# ### Exercise 0.4: the parameters of one MoE
#
# A MoE of K3 has, with $L = 3584$ and $F = 3072$:
#
# - 896 routed experts, each an FFN of three matrices like the dense one, but between $L$ and $F$;
# - a router: one matrix from the token's $D$ numbers to 896 scores, and for each expert one **selection bias**, a
#   constant that is added to its score when experts are chosen;
# - one matrix from $D$ down to $L$ and one from $L$ up to $D$, and a norm with $L$ weights between;
# - two shared experts, which every token uses: together one FFN of three matrices between $D$ and $2 F$.
#
# How many parameters are these together (one whole number)?

# %% [markdown] tags=["hint"]
# Write one line for each of the four items. Which of them is there 896 times?

# %% id="0.4" minutes=10 difficulty=2
D, L, F_inner = 7168, 3584, 3072                                  # F alone is a module of torch here
# BEGIN SOLUTION
experts = 896 * 3 * L * F_inner
router = D * 896 + 896
latent = D * L + L * D + L
shared = 3 * D * (2 * F_inner)
my_moe = experts + router + latent + shared
# END SOLUTION

# %%
check("0.4", my_moe)

# %%
L, E, expert = 3584, 896, 3 * 3584 * 3072                         # report; three matrices between L and F
router = D * E + E                                                # scores, and the selection bias
latent = D * L + L * D + L                                        # down, up, and the norm between
shared = 3 * D * 6144                                             # two shared experts, fused into one
moe = E * expert + router + latent + shared
print(f"one expert {expert:,}    one MoE {moe:,}")
assert expert == count.modules["routed_experts"].each             # by hand = the package, part by part
by_package = [count.modules[part].each for part in ("router", "latent", "shared_experts")]
assert [router, latent, shared] == by_package                     # the same for the other three

# %% [markdown]
# What is left is small: before each of the two sublayers of a layer a norm ($D$ weights) and a mix over depth,
# which has a query and a norm of its own ($2 D$); and the same once more before the head. Of the 93 layers 24 have
# MLA and 69 KDA; one has the dense FFN and 92 a MoE. The head is a matrix from $D$ to the vocabulary, not the same
# numbers as the embedding.

# %%
head = D * VOCABULARY
layers = 69 * kda + 24 * mla + dense + 92 * moe
layers = layers + 93 * 2 * (D + 2 * D)                            # a sublayer: norm; query, norm of the mix
total = embedding + layers + 2 * D + D + head                     # the last mix and the last norm
print(f"{total:,}")
assert total == 2_779_484_476_000 == count.total                  # by hand = the package

# %% [markdown]
# **2,779,484,476,000**, to the last digit. A second witness: PyTorch can build the whole text model on a device called
# *meta*, where arrays have shapes and no content, and count what is there.

# %%
with torch.device("meta"):
    built = K3(large.replace(vision=None))                        # no encoder of pictures yet
assert count_built(built).total == total                          # the model itself = by hand
print(f"{len(list(built.parameters())):,} tensors, {count_built(built).total:,} numbers, no memory used")

# %% [markdown]
# ### The first common mistake: 5.5 T
#
# One reads that K3 has about 5.5 trillion parameters. This is what comes out when the experts are taken to work at
# the full width $D$, as in other models of this kind. Let us make the mistake:

# %%
wrong_expert = 3 * D * 3072                                       # D in place of L
wrong_routed = 92 * E * wrong_expert
wrong_total = total - 92 * (moe - router - shared) + wrong_routed  # and then there is no way down and up
print(f"routed experts alone {wrong_routed:,}    everything {wrong_total:,}")

# %% tags=["remove"]
assert wrong_total == 5_497_497_995_872
assert round(wrong_routed / 1e12, 3) == 5.445
assert wrong_expert == 2 * expert

# %% [markdown]
# 5.445 T for the routed experts and 5.50 T for everything (derived). An expert of K3 reads and writes the *latent*,
# which is half as wide, so it has half of the parameters. That is what LatentMoE is for: the same memory and the
# same work buy twice as many experts ([chapter 05](05_stable_latent_moe.ipynb) shows what it costs).

# %% [markdown] tags=["slide"]
# ## 9 · What one token uses
#
# A token is sent to 16 of the 896 experts of a MoE; the other 880 rest. The parameters that one token is multiplied
# with are called **active**. They decide how much work a token is, while the total decides how much memory is
# needed.

# %% [markdown]
# ### Exercise 0.5: the parameters that one token uses
#
# Count the active parameters of K3: everything that *works* for a token. Two rules, with which the published 104.2
# billion come out: the head counts (every token is multiplied with all of it); the embedding does not (a token
# takes one row out of the table, nothing is multiplied). The router and its selection bias count, since all 896
# scores must be computed. The answer is one whole number.

# %% [markdown] tags=["hint"]
# The shortest way is from the total: take away what does not work. How many experts rest in a layer, and in how many
# layers?

# %% id="0.5" minutes=14 difficulty=2
TOTAL, EMBEDDING, ONE_EXPERT = 2_779_484_476_000, 1_174_405_120, 33_030_144
# BEGIN SOLUTION
resting = 92 * (896 - 16) * ONE_EXPERT
my_active = TOTAL - EMBEDDING - resting
# END SOLUTION

# %%
check("0.5", my_active)

# %% tags=["slide"]
PARTS = {"routed experts, 16 of 896": (92 * 16 * expert, "MoE"), "KDA, 69 layers": (69 * kda, "KDA"),
         "shared experts": (92 * shared, "MoE"), "MLA, 24 layers": (24 * mla, "MLA"),
         "down and up in the MoE": (92 * latent, "MoE"), "head": (head, "plain"),
         "dense FFN, layer 0": (dense, "dense"),
         "router": (92 * router, "MoE"), "norms and mixes": (93 * 6 * D + 3 * D, "mix")}
active = sum(numbers for numbers, _ in PARTS.values())
print(f"active {active:,}")
assert active == 104_189_612_640 == count.active                  # part by part = the package
show(parameter_square(PARTS, total, active, ("routed experts", 92 * E * expert)),
     "A large square, 98 percent of it routed experts, in its corner a small one for the active parameters; "
     "beside it the active parameters by part", name="00_parameters")

# %% tags=["remove"]
assert round(100 * active / total, 1) == 3.7 and round(100 * 92 * E * expert / total) == 98
assert round(100 * 92 * 16 * expert / active) == 47

# %% [markdown] tags=["slide"]
# Compare the two squares, which are drawn to scale: 98 % of K3 are routed experts, and 3.7 % of K3 are used for one
# token (derived). Within the small square things look different: the chosen experts are less than half of the work,
# KDA more than a quarter.
#
# ### The second common mistake: 105.4 B
#
# The other number that circulates is 105.4 billion active parameters. It counts the embedding:

# %%
print(f"{active + embedding:,}")

# %% tags=["remove"]
assert round((active + embedding) / 1e9, 1) == 105.4

# %% [markdown] tags=["slide"]
# ## 10 · Where the bytes go
#
# A parameter is stored in a number of bits:
#
# | format | bits | used for |
# |---|---|---|
# | **float32** | 32 | a few small tensors of KDA and the selection biases: 4 bytes a number |
# | **bfloat16** | 16 | nearly everything else: 2 bytes, the range of float32 with 8 bits of precision |
# | **MXFP4** | 4 and a bit | routed experts: 4 bits a number, and for each 32 numbers of a row one byte that scales them |

# %% [markdown]
# ### Exercise 0.6: the bytes of one expert
#
# One routed expert has 33,030,144 parameters in three matrices, whose rows have lengths that 32 divides. How many
# bytes does it take in MXFP4?

# %% [markdown] tags=["hint"]
# How many bytes do 32 numbers take together with their scale? And how many such groups has an expert?

# %% id="0.6" minutes=4 difficulty=1
# BEGIN SOLUTION
my_bytes = 33_030_144 // 32 * (32 * 4 // 8 + 1)
# END SOLUTION

# %%
check("0.6", my_bytes)

# %% [markdown]
# Now the whole file. It holds the text model and the encoder of pictures with its **projector** (which brings the
# encoder's vectors to the width $D$). The encoder has 27 layers of width 1,024; each has four matrices between
# 1,024 and 1,536, two between 1,024 and 4,096, and two norms. A picture is cut into patches of 14 × 14 points in
# three colours, and there is a table of 64 × 64 positions.

# %%
encoder = 27 * (4 * 1024 * 1536 + 2 * 1024 * 4096 + 2 * 1024) + 14 ** 2 * 3 * 1024 + 64 ** 2 * 1024 + 1024
projector = 4096 * 4096 + 4096 * D + D
assert [encoder, projector] == list(vision_parameters(large).values())  # by hand = the package

routed = 92 * E * expert
in_float32 = 69 * (3 * 4 * P + P + H + 128) + 92 * E              # KDA: filters, bias, A, norm; MoE: bias
in_bfloat16 = total + encoder + projector - routed - in_float32
padding = 69 * (128 - H)                                          # A is filled up to 128 numbers, with zeros
parts = {"routed experts, 4.25 bits": routed // 32 * 17, "bfloat16": 2 * in_bfloat16,
         "float32": 4 * (in_float32 + padding)}
for name, size in parts.items():
    print(f"{name:26s} {size:22,d}")
print(f"{'the file':26s} {sum(parts.values()):22,d}")
assert sum(parts.values()) == 1_560_860_324_864 == checkpoint_bytes(large)  # by hand = the package

# %% tags=["remove"]
assert (encoder, projector) == (401_214_464, 46_144_512)
assert count.total_with_vision == 2_779_931_834_976
assert round(parts["routed experts, 4.25 bits"] / sum(parts.values()), 2) == 0.93

# %% [markdown]
# **1,560,860,324,864 bytes**: exactly what the list of contents of the published file says (report). The encoder
# has 401,214,464 parameters and the projector 46,144,512 (derived), so with them K3 has 2,779,931,834,976. In
# bfloat16 alone the file would be 3.6 times as large (derived). How a number fits into four bits is shown in
# [chapter 12](12_scaling_up.ipynb).

# %% tags=["remove"]
assert round(2 * count.total_with_vision / sum(parts.values()), 1) == 3.6

# %% [markdown] tags=["slide"]
# ## 11 · The smaller relative: Kimi Linear 48B
#
# Kimi Linear (October 2025) is where KDA was first published. It has the same stack with fewer new parts, and the
# same arithmetic works: no latent in the MoE; MLA with a single matrix for its queries and no gate; KDA's gate
# through 128 channels; no mixes.

# %%
D2, H2, F2 = 2304, 32, 1024                                       # report: 27 layers, 20 KDA and 7 MLA
P2 = H2 * 128
kda2 = 4 * D2 * P2 + 3 * 4 * P2 + 2 * (D2 * 128 + 128 * P2) + H2 + P2 + D2 * H2 + 128
mla2 = D2 * H2 * 192 + D2 * 576 + 512 + 512 * H2 * 256 + H2 * 128 * D2
moe2 = 256 * 3 * D2 * F2 + (D2 * 256 + 256) + 3 * D2 * F2         # experts, router, one shared expert
total2 = 2 * VOCABULARY * D2 + 27 * 2 * D2 + D2 + 20 * kda2 + 7 * mla2 + 3 * D2 * 9216 + 26 * moe2
active2 = total2 - VOCABULARY * D2 - 26 * (256 - 8) * 3 * D2 * F2
count2 = count_parameters(preset("kimi_linear_48b"))
assert total2 == 49_122_681_728 == count2.total                   # by hand = the package = the published file
assert active2 == count2.active                                   # 8 of 256 experts work for a token
print(f"Kimi Linear: {total2:,} parameters, {active2:,} active")

# %% tags=["remove"]
assert round(active2 / 1e9, 1) == 3.1
assert round(100 * active2 / total2, 1) == 6.3

# %% [markdown]
# 49,122,681,728 parameters, the number that its own file states (report), and 3.1 billion of them active (derived):
# 6.3 %, where K3 has 3.7 %. The larger model is the *sparser* one.

# %% [markdown] tags=["slide"]
# ## 12 · In the real K3
#
# | | miniature (toy) | Kimi Linear 48B (report) | Kimi K3 (report) |
# |---|---|---|---|
# | layers: KDA + MLA | 3 + 1 | 20 + 7 | 69 + 24 |
# | width $D$, heads $H$ | 64, 4 | 2,304, 32 | 7,168, 96 |
# | channels of a head $K = V$ | 16 | 128 | 128 |
# | experts $E$, chosen, shared | 16, 2, 1 | 256, 8, 1 | 896, 16, 2 |
# | width the experts work at | $L$ = 32 | $D$ = 2,304 | $L$ = 3,584 |
# | reads over depth | mix, blocks of 2 layers | plain sum | mix, blocks of 12 layers |
# | vocabulary | 260 | 163,840 | 163,840 |
# | parameters (derived) | 497,804 | 49,122,681,728 | 2,779,484,476,000 |
# | active (derived) | 223,116 | 3,106,972,544 | 104,189,612,640 |
#
# The layers come in fours: three KDA, then one MLA, again and again, and the last layer is always MLA. 93 is not a
# multiple of four, so in K3 the last *two* layers are MLA.

# %% tags=["remove"]
linear = preset("kimi_linear_48b")
for config, (kdas, mlas, width, heads, channels, experts_, chosen, shared_, at_width, block, words, all_,
             used) in {
        small: (3, 1, 64, 4, 16, 16, 2, 1, 32, 2, 260, 497_804, 223_116),
        linear: (20, 7, 2304, 32, 128, 256, 8, 1, 2304, None, 163_840, 49_122_681_728, 3_106_972_544),
        large: (69, 24, 7168, 96, 128, 896, 16, 2, 3584, 12, 163_840, total, active)}.items():
    assert (len(config.kda_layers), len(config.mla_layers), config.hidden_size) == (kdas, mlas, width)
    assert (config.num_heads, config.kda_key_dim, config.kda_value_dim) == (heads, channels, channels)
    assert (config.num_experts, config.num_experts_per_token) == (experts_, chosen)
    assert config.num_shared_experts == shared_
    assert (config.expert_size, config.attn_res_block_size, config.vocab_size) == (at_width, block, words)
    assert (count_parameters(config).total, count_parameters(config).active) == (all_, used)
assert large.mla_layers[-2:] == (91, 92)

# %% [markdown]
# ## 13 · Symbols and words
#
# Come back here whenever you meet one that you have forgotten. The letters of the axes are in section 4.
#
# | symbol | what it is |
# |---|---|
# | $x$ | what a part reads: a token's vector after mix and norm, $D$ numbers |
# | $W_{\text{name}}$ | a matrix; products are written $W x$ in formulas and `x @ W.T` or einsum in code |
# | $q, k, v$; $o$ | query, key, value; output of a head |
# | $p$ | shares that sum to 1: attention weights, mixing weights of experts, weights over depth |
# | $S$ | the state of a KDA head, a matrix $[K, V]$; as an axis: the number of tokens that can be looked at |
# | $\alpha$; $g = \log \alpha$ | what a channel of the state keeps of itself, between 0 and 1; its logarithm, never above 0 |
# | $\beta$ | how strongly a token is written into the state, between 0 and 1 |
# | $A$ | a number in each head of KDA that sets how steeply its decay reacts |
# | $c$ | the latent of MLA, $R$ numbers |
# | $z$ | a value on the way, before a last step; in the MoE the latent, $L$ numbers |
# | $s$; $b$ | scores of the router; the selection bias that balances the experts |
# | $h$ | the running sum of a block's outputs, $D$ numbers |
# | $w$, $\gamma$ | query of a mix over depth; weights of a norm |
# | $\sigma$ | sigmoid, $1 / (1 + e^{-x})$: any number becomes one between 0 and 1 |
# | $\odot$; $\operatorname{diag}(\alpha)$ | multiplied number by number; the matrix with $\alpha$ on its diagonal |
# | $\ell$; $\mathrm dX$ | a loss; its gradient in $X$, of the shape of $X$ |
#
# | word | in plain words |
# |---|---|
# | active parameters | those that one token is multiplied with |
# | AttnRes, attention residuals | each sublayer reads a mixture of earlier results in place of their plain sum |
# | batch | texts that are worked on at the same time |
# | bias, selection bias | a constant that is added; the one that is added to an expert's score only to choose |
# | cache | what is kept of earlier tokens so that they need not be read again |
# | causal | a token sees itself and what came before, never what comes after |
# | channel | one of the numbers of a vector |
# | checkpoint | the file with all parameters |
# | chunk | tokens that KDA handles together, as a few matrix products |
# | convolution, short | a weighted sum of a channel's last four values |
# | decay | the fading of a memory from token to token; $\alpha$ is what stays |
# | decoding, prefill | writing token by token; reading a whole prompt at once |
# | embedding | the vector that stands for a token |
# | expert; router | one of many small FFNs; what chooses among them |
# | FFN | feed-forward network: matrices and a fixed function, for each token alone |
# | gate | a factor, mostly between 0 and 1, that lets through or holds back |
# | gradient | how the loss moves when a number is moved a little |
# | greedy | always taking the likeliest token |
# | head | one of several equal parts of a layer; also the last matrix, from vectors to logits |
# | held out | kept away from training, for testing |
# | latent | a shorter vector that stands for a longer one |
# | layer, sublayer | one storey of the model; its two steps |
# | logits | scores of all tokens that could come next, before the softmax |
# | loss | how wrong the model is, as one number; training makes it smaller |
# | low rank | a matrix made as a product through a narrow middle |
# | MoE | mixture of experts: a token asks a few of many FFNs |
# | NoPE | no position encoding: nothing tells where a token stands |
# | parameter | a number that training sets |
# | RMSNorm | divides a vector by the root of its mean square, then multiplies with a weight a channel |
# | seed | the number that random draws start from: the same seed, the same draws |
# | SiLU, SiTU | $x\,\sigma(x)$; K3's bounded relative of it (chapter 05) |
# | state | the matrix that a KDA head keeps |
# | tensor | an array |
# | token; vocabulary | a piece of text with a number; all of them |

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. K3 is 93 layers: 69 with a memory of fixed size (KDA), 24 that look back at every token (MLA), each followed by a
#    feed-forward part, 92 of them mixtures of 896 experts; every sublayer chooses what it reads from below.
# 2. einsum: the same letter is the same axis; what is not behind the arrow is summed over.
# 3. Causal attention: scores times $K^{-1/2}$, the future at $-\infty$, softmax of each row, mixture of values.
# 4. 2,779,484,476,000 parameters, 98 % of them in experts; a token uses 104,189,612,640. Experts at full width
#    would make 5.5 T, and counting the embedding makes 105.4 B: both are wrong.
# 5. The file has 1,560,860,324,864 bytes, because routed experts take 4.25 bits a number.
