# ---
# jupyter:
#   k3:
#     title: Up to 2.8 T
#     minutes: {read: 60, exercises: 49, run: about a minute}
#     needs:
#       - "segments that compose, from [chapter 03](03_chunks.ipynb)"
#       - "Quantile Balancing, from [chapter 05](05_stable_latent_moe.ipynb)"
#       - "the counts of [chapter 00](00_the_map.ipynb)"
#     objectives:
#       - "cut one text over several machines and say what each must hear from the others, and what not"
#       - "cut a batch over several machines so that gradients and balancing are those of one machine, bit for bit where it matters"
#       - "store weights in four bits with a shared power of two, and measure what is lost"
#       - "say what a million tokens take, while answering and while training"
#       - "walk from the miniature to K3, one group of sizes after the other, and name the step that makes it large"
#     data: [figures/results/oracles.json]
# ---

# %% [markdown] tags=["slide"]
# # 12 · Up to 2.8 T
#
# *The released file of K3 has 1.56 terabytes, and to train on a text of a million tokens takes nearly as much again.
# Neither fits into one machine. So the model is cut, and so is the text. What changes in the result?*
#
# The answer this chapter is after: **nothing, if the machines tell each other the right little things**. Which things
# these are follows from the mathematics of the chapters before. We cut along the text (sections 1 and 2), along the
# batch (3 and 4), and at last into the numbers themselves, four bits each (5): the only cut that loses something, and we
# measure what. Then we do the sums for a million tokens (6), walk from the miniature to K3 (7), and let other people's
# programs read what we have built (8).
#
# Every number says where it comes from: *report* (published about K3), *derived* (you can recompute it by hand),
# *measured here* (a cell above it ran), or *toy* (chosen to be small).

# %%
import tempfile
import numpy as np
import torch
from k3_scratch.accounting import cache_bytes, checkpoint_bytes, count_parameters, flops_per_token
from k3_scratch.config import preset
from k3_scratch.course import check, progress, results, show
from k3_scratch.course.checks.ch12 import four_bits, llama_cpp, pooled_quantile, scan_round, side_by_side
from k3_scratch.export.huggingface import from_huggingface, to_huggingface
from k3_scratch.export.mxfp4 import error_statistics, pack, unpack
from k3_scratch.layers.quantile_histogram import pooled_bias
from k3_scratch.plots.cache_lines import cache_lines
from k3_scratch.plots.four_bit_line import four_bit_line
from k3_scratch.plots.growth_steps import growth_steps
from k3_scratch.plots.pooled_histogram import pooled_histogram
from k3_scratch.plots.scan_rounds import scan_rounds
from k3_scratch.plots.seed_curves import seed_curves
from k3_scratch.plots.segment_exchange import segment_exchange
from k3_scratch.pretrained import pretrained
from k3_scratch.reference import mxfp4, quantile_balancing as qb
from k3_scratch.reference.kda_chunk import kda_chunk, segment_transition
from k3_scratch.tasks.corpus import Corpus
from k3_scratch.training.context_parallel import forward_in_segments, in_segments, segment_map
from k3_scratch.training.evaluate import accuracy
from k3_scratch.training.options import TrainOptions
from k3_scratch.training.together import run_processes, segment_logits, train_together

# %% [markdown] tags=["slide"]
# ## 1 · One text, several machines
#
# Cut a text into segments, one a machine. Most of the model does not notice: norms, experts and the mix over depth look
# at one token at a time. Only attention looks back, and its parts look back in three ways:

# %% tags=["slide"]
show(segment_exchange([14, 20, 11]),
     "Three machines with a segment each: the last inputs, the maps M and N, and the latents go to the right",
     name="12_exchange")

# %% [markdown] tags=["slide"]
# The arrows are all that is sent. First the experiment that breaks it: the trained miniature reads rows of 80 tokens in
# 2, 4 or 8 segments, and what a segment hears from those before it is switched on bit by bit. `in_segments(model,
# before)` is the package's seam: inside it, each attention layer calls `before(mine)` with what it offers and gets what
# earlier segments offered. We put a sieve in between (kinds are told apart by their widths: a layer's inputs are
# 64 wide, rows of latents 40, maps have four axes).

# %%
model = pretrained("mini")
KINDS = {"nothing": (), "+ convolution": ("inputs",), "+ KDA maps": ("inputs", "maps"),
         "+ latents": ("inputs", "maps", "latents")}


def heard(kinds, model, tokens, pieces):
    """Logits of tokens read in equal pieces; each hears only these kinds.   [B, T] -> [B, T, vocab]"""
    offered, logits = [], []

    def before(mine):
        kind = {64: "inputs", 40: "latents"}[mine.shape[-1]] if mine.dim() == 3 else "maps"
        call = len(offered[-1])
        offered[-1].append(mine)
        return [segment[call] for segment in offered[:-1]] if kind in kinds else []

    with torch.no_grad(), in_segments(model, before):
        for part in tokens.chunk(pieces, 1):
            offered.append([])
            logits.append(model(part))
    return torch.cat(logits, 1)

# %% tags=["slide"]
pieces, share = [1, 2, 4, 8], {name: np.zeros((3, 4)) for name in KINDS}
for seed in range(3):
    batch = Corpus().batch(np.random.default_rng([seed, 12]), 96, "test")
    tokens, scored = torch.from_numpy(batch.tokens), torch.from_numpy(batch.scored)
    for name, kinds in KINDS.items():
        for column, number in enumerate(pieces):
            best = heard(kinds, model, tokens, number).argmax(-1)[scored]
            share[name][seed, column] = (best.numpy() == batch.targets[batch.scored]).mean()
show(seed_curves(np.array(pieces), share, log=True, ticks=pieces, limits=(0, 1.02),
                 title="Answers right when segments hear only a part",
                 x_label="segments in a row of 80 tokens", y_label="characters of answers right"),
     "Accuracy against the number of segments: it falls unless segments hear of each other's KDA states",
     name="12_heard")
for name, runs in share.items():
    print(f"{name:15s}" + "".join(f"{number:4} segments {mean:.3f}" for number, mean in
                                  zip(pieces, runs.mean(0), strict=True)))

# %% tags=["remove"]
assert share["nothing"][:, 3].max() < share["+ KDA maps"][:, 3].min() - 0.2
assert np.abs(share["+ latents"] - share["+ latents"][:, :1]).max() < 0.003
assert 0.96 < share["+ KDA maps"].min() < share["+ latents"].min() - 0.001

# %% [markdown] tags=["slide"]
# Where segments hear nothing of each other the line falls with every cut: answers whose question lies on another
# machine are guessed. The convolution's inputs alone do not mend that; the maps do, but for the last hundredth, and with
# the latents nothing is missing (measured here). That hundredth is no gain from the MLA layer: silencing it altogether
# changes hardly an answer ([chapter 08](08_miniature.ipynb)). A layer that suddenly sees other tokens than in training
# disturbs more than one that is silent.

# %% [markdown]
# ### What a segment of KDA is, in one pass
#
# [Chapter 03](03_chunks.ipynb) has shown that a segment acts on the state that enters it as $S \mapsto M S + N$. A
# machine needs more than the last state: it needs its **outputs**, and computing everything twice, once for the map and
# once for the outputs, would be a waste. Let $M_t$ and $N_t$ be the map of the segment up to token $t$. Then
#
# $$ o_t = S_t^\top q_t = (M_t S_{\mathrm{in}} + N_t)^\top q_t
#    = \underbrace{N_t^\top q_t}_{\text{output from an empty memory}}
#    + S_{\mathrm{in}}^\top \underbrace{M_t^\top q_t}_{r_t} . $$
#
# So besides the output from an empty memory we want one vector $r_t$ of $K$ numbers a token, and then any state that
# comes in later is one small product away. How to get $r_t$? The delta rule treats each value channel by itself, so we
# may add $K$ more of them with an **input of zeros and the identity as their state**: such a channel starts at a column
# of $I$ and nothing is written to it, so after $t$ tokens those columns are $M_t$, and reading them gives
# $M_t^\top q_t$.

# %%
def segment(q, k, v, g, beta):
    """One head.   q, k, g [T, K], v [T, V], beta [T] -> o_zero [T, V], r [T, K], M [K, K], N [K, V]"""
    T, K = k.shape
    V = v.shape[1]
    wide = np.concatenate([v, np.zeros((T, K))], axis=1)          # K channels more, with value 0
    start = np.concatenate([np.zeros((K, V)), np.eye(K)], axis=1)  # and the identity as their state
    o, state = kda_chunk(*(x[:, None] for x in (q, k, wide, g, beta)), start[None])
    return o[:, 0, :V], o[:, 0, V:], state[0, :, V:], state[0, :, :V]


def one_head(T, K=5, V=3, seed=0):
    """Random inputs of one head: unit q and k, gates between 0 and -1."""
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, T, K))
    q, k = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, k))
    return q, k, rng.normal(size=(T, V)), -rng.uniform(size=(T, K)), rng.uniform(size=T)

# %%
parts, S_in = one_head(23), np.random.default_rng(1).normal(size=(5, 3))
o_zero, r, M, N = segment(*parts)
wanted, last = kda_chunk(*(x[:, None] for x in parts), S_in[None])
assert np.allclose(o_zero + r @ S_in, wanted[:, 0])               # corrected afterwards = started from S_in
assert np.allclose(M @ S_in + N, last[0])                         # and the state that leaves
assert np.allclose(M, segment_transition(*(x[:, None] for x in parts[1:2] + parts[3:]))[0])  # M = reference
torch_parts = [torch.from_numpy(x)[None, :, None] for x in parts]
for ours, theirs in zip((o_zero, r), segment_map(*torch_parts)[:2], strict=True):
    assert np.allclose(ours, theirs[0, :, 0].numpy())             # here = training/context_parallel.py
print("outputs from any state, out of one pass from none")

# %% [markdown]
# ### Who needs which map: a prefix scan
#
# Machine $p$ wants the state after all segments before it: the maps $0 \dots p-1$, composed in order, applied to 0. The
# plain way is a chain: $p$ waits for $p - 1$. But composition is associative, so brackets may be set anywhere, and
# *all* prefixes can be had in $\lceil \log_2 P \rceil$ rounds. In the round with distance $d = 1, 2, 4, \dots$ every
# machine $p \ge d$ takes what machine $p - d$ held before the round and puts it **in front** of its own:

# %% tags=["slide"]
show(scan_rounds(8), "Eight machines, three rounds: each row of boxes holds maps of twice as many segments",
     name="12_scan")

# %% [markdown] tags=["slide"]
# Follow the last column: segment 8 alone, then 7–8, 5–8, 1–8. Dark boxes are done.

# %% [markdown]
# ### Exercise 12.1: one round of the scan
#
# Write a round for one head: `M` and `N` hold the maps of all $P$ machines before it, `d` is the distance. The two
# segments of a machine come in the order of the text: the one that was fetched, then its own.

# %% [markdown] tags=["hint"]
# The fetched map works first: $S \mapsto M_p (M_{p-d} S + N_{p-d}) + N_p$. And mind that all machines fetch at the same
# time, from what was there *before* the round.

# %% id="12.1" minutes=12 difficulty=2
def my_scan_round(M, N, d):
    """M [P, K, K], N [P, K, V], d a whole number below P -> the same after the round"""
    # BEGIN SOLUTION
    new_M, new_N = M.copy(), N.copy()
    new_M[d:] = M[d:] @ M[:-d]
    new_N[d:] = M[d:] @ N[:-d] + N[d:]
    return new_M, new_N
    # END SOLUTION

# %%
check("12.1", my_scan_round)

# %% [markdown]
# Eleven segments of random length, scanned, against the token loop over everything:

# %%
parts = one_head(97, seed=2)
cuts = np.sort(np.random.default_rng(2).choice(np.arange(1, 97), size=10, replace=False))
pieces_of = [np.split(x, cuts) for x in parts]
done = [segment(*piece) for piece in zip(*pieces_of, strict=True)]
M, N, rounds = np.array([x[2] for x in done]), np.array([x[3] for x in done]), 0
for d in (1, 2, 4, 8):
    M, N, rounds = *scan_round(M, N, d), rounds + 1
entering = np.concatenate([np.zeros_like(N[:1]), N[:-1]])         # from an empty memory M S + N is N
o = np.concatenate([o_zero + r @ S for (o_zero, r, _, _), S in zip(done, entering, strict=True)])
wanted, last = kda_chunk(*(x[:, None] for x in parts))
assert np.allclose(o, wanted[:, 0], atol=1e-12) and np.allclose(N[-1], last[0])  # eleven machines = one
print(f"eleven segments, {rounds} rounds in place of 10 steps: the same outputs and the same last state")

# %% [markdown] tags=["slide"]
# ## 2 · The whole model in segments
#
# `training/context_parallel.py` does this for the whole model, in torch: 3 inputs for the convolution, $[M | N]$ a head
# for KDA, latents for MLA. Few machines gain nothing from the scan, so every machine gets all maps and folds those
# before its own. Its promise is an equality. Here for the trained miniature in double precision, random cuts, among
# them segments of a single token:

# %% tags=["slide"]
exact = pretrained("mini").double()
tokens = torch.from_numpy(Corpus().batch(np.random.default_rng(0), 2, "test").tokens)
rng, worst = np.random.default_rng(5), 0.0
with torch.no_grad():
    whole = exact(tokens)
    for _ in range(8):
        cuts = np.sort(rng.choice(np.arange(1, 80), size=rng.integers(1, 7), replace=False))
        lengths = np.diff([0, *cuts, 80]).tolist()
        worst = max(worst, (forward_in_segments(exact, tokens, lengths) - whole).abs().max().item())
    lengths = [1, 1, 40, 1, 37]
    worst = max(worst, (forward_in_segments(exact, tokens, lengths) - whole).abs().max().item())
assert worst < 1e-9                                               # segments = the whole text
print(f"nine ways to cut, largest difference of any logit: {worst:.0e}")

# %% [markdown]
# That was one process, one segment after the other. Now three processes that run at the same time and talk through
# gloo, PyTorch's way for machines without GPUs. They are started anew, load the same weights, get a segment each, and
# send back their part of the logits. (Starting them is what takes the seconds.)

# %%
lengths = [31, 12, 37]
mine = run_processes(segment_logits, 3, exact.config, exact.state_dict(), tokens, lengths)
assert [part.shape[1] for part in mine] == lengths
difference = (torch.cat(mine, 1) - whole).abs().max().item()
assert difference < 1e-9                                          # three processes = one
print(f"three processes, segments of {lengths} tokens: largest difference {difference:.0e}")

# %% [markdown]
# What would cross between machines in K3, for one layer and one segment of $2^{20} / 64 = 16{,}384$ tokens?

# %%
k3, T = preset("kimi_k3"), 2 ** 20 // 64
H, K, V, D = k3.num_heads, k3.kda_key_dim, k3.kda_value_dim, k3.hidden_size
sent = {"KDA, last 3 inputs (bfloat16)": 3 * D * 2, "KDA, M and N (float32)": H * K * (K + V) * 4,
        "MLA, latents (bfloat16)": T * (k3.kv_lora_rank + k3.qk_rope_head_dim) * 2,
        "plain attention, K and V of every head": T * H * (k3.qk_head_dim + k3.v_head_dim) * 2}
for name, size in sent.items():
    print(f"{name:40s} {size:13,} bytes = {size / 2 ** 20:7.2f} MiB")

# %% tags=["remove"]
assert sent["KDA, M and N (float32)"] == 12 * 2 ** 20 and sent["MLA, latents (bfloat16)"] == 18 * 2 ** 20
assert sent["plain attention, K and V of every head"] == 960 * 2 ** 20

# %% [markdown]
# Plain attention would send 960 MiB a layer; the latents are 18 MiB, and $M$ and $N$ are 12 MiB **for any length**
# (derived). That is why a model of mostly KDA layers can spread a text over many machines so cheaply.

# %% [markdown] tags=["slide"]
# ## 3 · One batch, several machines
#
# The other cut: every machine holds the whole model and takes some rows of each batch. A run of this course on two
# processes is
#
#     torchrun --nproc-per-node 2 -m k3_scratch train --preset mini --out runs/mini
#
# and the same command resumes it when one of them dies. The loss of a batch is the mean over its $B$ rows, so its
# gradient is a mean over rows too:
#
# $$ \nabla \mathcal L = \frac1B \sum_{b=1}^{B} \nabla \ell_b
#    = \sum_{p} \frac{B_p}{B} \; \Big( \frac{1}{B_p} \sum_{b \in p} \nabla \ell_b \Big) . $$
#
# In the brackets stands what machine $p$ computes from its $B_p$ rows by itself.

# %% [markdown]
# ### Exercise 12.2: the gradient of the whole batch
#
# `gradients` holds one row for each machine: the gradient of the mean loss of *its* rows. `rows` says how many it had.
# Return the gradient of the mean loss of all rows.

# %% [markdown] tags=["hint"]
# Read the formula from right to left: the bracket is given, and its weight is a share of the rows.

# %% id="12.2" minutes=5 difficulty=1
def my_whole_gradient(gradients, rows):
    """gradients [P, n], rows [P] whole numbers -> [n]"""
    # BEGIN SOLUTION
    return (rows / rows.sum()) @ gradients
    # END SOLUTION

# %%
check("12.2", my_whole_gradient)

# %% [markdown]
# PyTorch's `DistributedDataParallel` adds gradients while the backward pass is still running, and it takes the plain mean
# over processes. `training/rank_gradient.py` therefore multiplies each loss by $P B_p / B$ first; with equal parts
# this is 1.
#
# After that every machine has the same gradient, makes the same update, and holds the same weights. The executed
# equality: twenty updates of the smallest model, one process and two, the same global batches.

# %%
options = TrainOptions(steps=20, batch_size=6, learning_rate=0.002, validate_every=20, validation_rows=1,
                       test_rows=1, exact_examples=1, shards=1)
with tempfile.TemporaryDirectory() as folder:
    one, = run_processes(train_together, 1, preset("nano"), options, f"{folder}/one")
    two = run_processes(train_together, 2, preset("nano"), options, f"{folder}/two")
apart = (two[0]["losses"] - one["losses"]).abs().max().item()
assert apart < 1e-4                                               # two processes = one, up to rounding
assert torch.equal(two[0]["biases"], two[1]["biases"])            # the same bits on both
assert all(torch.equal(two[0]["weights"][name], two[1]["weights"][name]) for name in two[0]["weights"])
print(f"loss {one['losses'][0]:.3f} -> {one['losses'][-1]:.3f} in 20 updates, "
      f"largest difference of the two curves {apart:.0e}")

# %% [markdown]
# The curves agree up to rounding, for sums in another order round differently. The two processes agree with **each
# other** to the last bit, and so must they: once their biases or weights differ, nothing ever brings them together
# again.
#
# What if the whole model is too large for a machine? Then each holds a slice of every matrix and all gather a layer
# when it is its turn (PyTorch's `fully_shard`, FSDP2; it runs on gloo too, and the tests compare its gradients). Muon
# needs whole matrices, so training here stays with whole copies. With 98 % of the weights in routed experts (derived)
# one would spread the experts first: a token visits 16 of 896, so it is the tokens that travel, to the machines of
# their experts and back, at the width of the latent.

# %% [markdown] tags=["slide"]
# ## 4 · Balancing over machines
#
# Quantile Balancing sets an expert's bias from *all* tokens of the batch ([chapter 05](05_stable_latent_moe.ipynb)):
# the $(q+1)$-th smallest of the biases $\alpha_i - s_{ij}$ that tokens would need, with $q$ its share of them. They
# now lie on several machines. Tempting: every machine computes biases of its own, and we take the mean. But a quantile
# is no mean. By hand: machine 0 has 1, 2, 3, machine 1 has 4, 8, 90, and the second smallest of three is wanted on
# each, the fourth smallest of six on both together. Alone they say 2 and 8, mean 5. Of 1, 2, 3, 4, 8, 90 the fourth is
# 4; if the 8 had been 40, it would still be 4, and the mean 21.
#
# What *can* be added are counts. Four machines (toy), each with another kind of text, that is with another taste for
# the eight experts:

# %% tags=["slide"]
def machines(seed, taste, tokens=512, E=8, P=4):
    """Router scores of one batch on P machines with tastes of their own.   -> draw(number) [P, tokens, E]"""
    tastes = taste * np.random.default_rng(seed).normal(size=(P, 1, E))

    def draw(number):
        noise = np.random.default_rng([seed, number]).normal(size=(P, tokens, E))
        return 1 / (1 + np.exp(-tastes - noise))

    return draw



scores, start = machines(seed=3, taste=2.0)(0), np.zeros(8)
histograms = [qb.margin_histogram(mine, start, 2, bins=60) for mine in scores]
counts, low, high = np.stack([h[0] for h in histograms]), histograms[0][1], histograms[0][2]
expert = 1
alone = [pooled_quantile(mine[expert][None], low, high, 2 / 8) for mine in counts]
together = pooled_quantile(counts[:, expert], low, high, 2 / 8)
show(pooled_histogram(np.linspace(low, high, 61), counts[:, expert], alone, together, limits=(-0.7, 1),
                      x_label="bias that a token would need to choose this expert"),
     "Counts of four machines, stacked: the quantile of the sum is not the mean of four quantiles",
     name="12_pooled")
print(f"read from the sum {together:.3f}, mean of the machines' own {np.mean(alone):.3f}")

# %% tags=["remove"]
assert abs(together - np.mean(alone)) > 0.2

# %% [markdown] tags=["slide"]
# Look at the two upright lines. A quarter of all tokens must lie left of the bias ($k / E = 2/8$): the solid line does
# that, the dashed one does not. (The tall bar at 0 holds the tokens for which this expert is the best of the refused
# ones: the smallest bias would do.)

# %% [markdown]
# ### Exercise 12.3: a quantile from summed counts
#
# `counts` are the histograms of $P$ machines for one expert, over equal bins from `low` to `high`. Return the value below
# which the fraction `share` of **all** tokens lies: find the first bin in which the running count reaches $q =$ `share` ·
# (number of all tokens) and go into it by the part of its tokens that is still needed, on a straight line.

# %% [markdown] tags=["hint"]
# `np.cumsum` of the sum. If $c$ tokens lie before the bin and $h$ in it, the part is $(q - c) / h$.

# %% id="12.3" minutes=12 difficulty=2
def my_pooled_quantile(counts, low, high, share):
    """counts [P, bins] whole numbers; low, high, share numbers -> a number"""
    # BEGIN SOLUTION
    total = counts.sum(axis=0)
    up_to, q = np.cumsum(total), share * total.sum()
    place = int(np.argmax(up_to >= q))
    part = (q - (up_to[place] - total[place])) / total[place]
    return low + (place + part) * (high - low) / len(total)
    # END SOLUTION

# %%
check("12.3", my_pooled_quantile)

# %% [markdown]
# Now the rules side by side, as training uses them: twelve batches, the bias of each from the one before. How far is
# the most loaded or most idle expert from its share, counted over all four machines on fresh tokens? Five seeds, and two
# strengths of the machines' tastes: none (each reads the same mixture) and strong.

# %%
RULES = {
    "sorted, all tokens": lambda parts, bias: qb.quantile_bias(parts.reshape(-1, 8), bias, 2),
    "counts summed": lambda parts, bias: qb.quantile_bias_histogram(parts.reshape(-1, 8), bias, 2),
    "biases averaged": lambda parts, bias: np.mean([qb.quantile_bias(p, bias, 2) for p in parts], axis=0),
}


def off_share(scores, bias):
    """Largest distance of an expert's load from its share, as a part of the share."""
    chosen = np.argsort(-(scores.reshape(-1, 8) + bias), axis=1)[:, :2]
    return np.abs(np.bincount(chosen.ravel(), minlength=8) / (chosen.size / 8) - 1).max()


def race(rule, seed, taste, batches=12):
    """-> [batches + 1] what is off after 0, 1, ... updates"""
    draw, fresh, bias = machines(seed, taste), machines(seed, taste, tokens=4096)(99), np.zeros(8)
    off = [off_share(fresh, bias)]
    for number in range(batches):
        bias = RULES[rule](draw(number), bias)
        off.append(off_share(fresh, bias))
    return off

# %% tags=["slide"]
strong = {rule: np.array([race(rule, seed, 2.0) for seed in range(5)]) for rule in RULES}
equal = {rule: np.array([race(rule, seed, 0.0) for seed in range(5)])[:, -1] for rule in RULES}
show(seed_curves(np.arange(13), strong, limits=(0, 2), title="Four machines with different texts",
                 x_label="updates", y_label="worst expert, off its share"),
     "Summed counts balance as well as sorting; averaged biases stay far off, whatever the number of updates",
     name="12_race")
for rule in RULES:
    print(f"{rule:20s} different texts {strong[rule][:, -1].mean():.2f} ({strong[rule][:, -1].min():.2f} to "
          f"{strong[rule][:, -1].max():.2f})   the same mixture {equal[rule].mean():.2f}")

# %% tags=["remove"]
assert strong["biases averaged"][:, -1].min() > 1.5 * strong["counts summed"][:, -1].max()
assert np.abs(strong["counts summed"][:, -1] - strong["sorted, all tokens"][:, -1]).max() < 0.05
assert equal["biases averaged"].max() < 0.25

# %% [markdown] tags=["slide"]
# The lines of sorting and of summed counts lie on each other. The averaged biases level off far from balance with
# every seed: they have settled in the wrong place. With the same mixture on all machines averaging is nearly right
# (measured here), which is how such a fault gets through a test.
#
# Two more reasons to add whole numbers. Their sum has **no order**: 64 machines get the same bits however the network
# adds. Sums of fractions do not:

# %%
rng = np.random.default_rng(0)
fractions, wholes = rng.random(64).astype(np.float32), rng.integers(0, 1000, 64)
orders = [rng.permutation(64) for _ in range(200)]
sums = [len({x[order].cumsum()[-1].item() for order in orders}) for x in (fractions, wholes)]
print(f"different sums in 200 orders: {sums[0]} of 64 fractions, {sums[1]} of 64 counts")
assert sums[0] > 1 and sums[1] == 1                               # whole numbers have one sum

# %% [markdown]
# And the message has one size: $92 \cdot 896 \cdot 1000$ counts for all of K3 (derived), however many tokens a batch has.
#
# ### Near, or the same
#
# One histogram reads a bias to about the width of a bin. Fifty updates on the same batches, each from the bias before:
# by sorting, from 1,000 bins as in K3, and as this course trains (`pooled_bias`: the bin that was found is counted once
# more in 1,000 finer ones, and the smallest number in the finer bin is taken, which is the number that sorting finds;
# two messages more):

# %%
def drift(rule, seed, updates=50):
    """Largest difference to the sorted bias after each update, in bins of the first histogram."""
    draw, bias, sorted_bias, far = machines(seed, 1.0, tokens=160), np.zeros(8), np.zeros(8), []
    for number in range(updates):
        parts = draw(number).reshape(-1, 8)
        bias, sorted_bias = rule(parts, bias), qb.quantile_bias(parts, sorted_bias, 2)
        far.append(np.abs(bias - sorted_bias).max() / ((np.ptp(bias) + 2) / 1000))
    return far


def by_itself(x):
    """What one process hears from all processes: itself."""
    return x


def refined(parts, bias):
    return pooled_bias(torch.from_numpy(parts), torch.from_numpy(bias), 2, by_itself, by_itself).numpy()


# %% tags=["slide"]
drifts = {"1,000 bins": [drift(lambda s, b: qb.quantile_bias_histogram(s, b, 2), seed) for seed in range(5)],
          "1,000 bins, twice": [drift(refined, seed) for seed in range(5)]}
show(seed_curves(np.arange(1, 51), drifts, title="Distance from the sorted bias", x_label="updates",
                 y_label="bins of the first histogram"),
     "Distance of the bias from the sorted one over fifty updates, in bins, for one and for two histograms",
     name="12_drift")
print({name: f"{np.mean(runs, axis=0)[-1]:.3f} bins after 50 updates" for name, runs in drifts.items()})

# %% tags=["remove"]
assert np.array(drifts["1,000 bins, twice"]).max() < 0.001
assert 2 < np.array(drifts["1,000 bins"]).max() < 6 and 0.5 < np.mean(drifts["1,000 bins"]) < 2

# %% [markdown] tags=["slide"]
# From one histogram the worst expert's bias is mostly a bin off, at times four, for errors of earlier updates live on in
# the thresholds (measured here). For balance that is harmless: the race above could not tell the two apart. For a *run*
# it is not: where many tokens have the same scores, a bias just beside them decides for all of them, and two runs that
# differ in that are two runs. A test that wants four processes to follow one needs the second count.

# %% [markdown] tags=["slide"]
# ## 5 · Four bits a number
#
# 98 % of K3's parameters are routed experts. Stored in bfloat16, two bytes each, they alone would take 5.4 terabytes
# (derived). K3 stores them in **MXFP4** (report): four bits a number, and for every 32 neighbours of a row one byte
# that they share.
#
# Four bits make 16 codes. One bit is the sign; two are an exponent $e$, one a digit $m$ behind the point (E2M1). As in
# larger floating-point formats, $e = 0$ is the gap around zero:
#
# $$ x = \pm \begin{cases} m / 2 & e = 0 \\ (1 + m/2) \, 2^{\,e-1} & e = 1, 2, 3 \end{cases} $$

# %%
grid = [m / 2 if e == 0 else (1 + m / 2) * 2.0 ** (e - 1) for e in range(4) for m in range(2)]
assert np.array_equal(grid, mxfp4.MAGNITUDES)                          # derived = reference
print("magnitudes:", grid)

# %% [markdown]
# Weights are about .05, not about 3. So each block of 32 gets a scale $2^s$, stored as one byte, and a weight $w$ is
# stored as the code nearest to $w / 2^s$. Which $s$? The largest magnitude of the block should come out near the top.
# With $s = \lfloor \log_2 \max |w| \rfloor - 2$ it falls between 4 and 8, since $6 = 1.5 \cdot 2^2$ has exponent 2.
# What lies above 6 saturates. Together
#
# $$ 4 + \tfrac{8}{32} = 4.25 \text{ bits a number.} $$

# %% [markdown]
# ### Exercise 12.4: a block in four bits
#
# Return what a block of weights becomes: scale by the power of two, round to the nearest magnitude of the grid above,
# put sign and scale back. On a tie take the **even code** (numbered from 0: 0, 1, 2, 3, 4, 6 have places 0, 2, 4,
# 5, 6, 7 in the list, .5 and 1.5 places 1 and 3). A block of zeros stays zero.

# %% [markdown] tags=["hint"]
# `np.floor(np.log2(...))` of the largest magnitude. For ties, compare the distances to the neighbours below and above;
# or look at odd and even places of the grid one after the other.

# %% id="12.4" minutes=16 difficulty=3
def my_four_bits(w):
    """w [n], the weights of one block -> [n] what is read back"""
    # BEGIN SOLUTION
    largest = np.abs(w).max()
    if largest == 0:
        return np.zeros_like(w)
    grid = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    scale = 2.0 ** (np.floor(np.log2(largest)) - 2)
    distance = np.abs(np.abs(w[:, None]) / scale - grid)          # [n, 8]
    order = [0, 2, 4, 6, 1, 3, 5, 7]                              # even codes first: they win a tie
    nearest = np.array(order)[distance[:, order].argmin(axis=1)]
    return np.sign(w) * grid[nearest] * scale
    # END SOLUTION

# %%
check("12.4", my_four_bits)

# %% tags=["slide"]
weights = model.moe_layers()[1].experts.w1.detach().double().numpy()      # [E, F, L] trained
row = weights[3, 7]                                               # 32 wide: one block
codes, scales = mxfp4.mxfp4_pack(row[None])
stored, unit = mxfp4.mxfp4_unpack(codes, scales)[0], 2.0 ** (int(scales[0, 0]) - 127)
assert np.array_equal(stored, four_bits(row))                     # the exercise = reference
assert np.array_equal(stored, unpack(*pack(torch.from_numpy(row))).double().numpy())  # = export
levels = np.unique(np.concatenate([-mxfp4.MAGNITUDES, mxfp4.MAGNITUDES]))
show(four_bit_line(row, stored, levels * unit),
     "The 32 weights of one row of an expert and the fifteen places where four bits can put them",
     name="12_four_bits")
print(f"the block as bytes: {codes.size} of codes and {scales.size} of scale, {8 * 17 / 32} bits a weight")

# %% [markdown] tags=["slide"]
# Small weights move little, large ones may move far: the grid's steps grow with the value, as those of every floating-point
# format do. Is 32 a good size for a block? Smaller blocks cost more scales, and one expects them to lose less. Measured
# on the miniature's trained experts (one thin line a layer), on normal random numbers, and on random numbers with rare
# large values (Student's $t$ with 3 degrees of freedom; five seeds each).

# %% tags=["slide"]
def lost(w, size):
    """Relative error (root mean square) when each run of `size` numbers shares a power of two."""
    cut = w.reshape(-1, size)
    scale = 2.0 ** (np.floor(np.log2(np.abs(cut).max(axis=1, keepdims=True))) - 2)
    nearest = levels[np.abs(cut[:, :, None] / scale[:, :, None] - levels).argmin(axis=-1)] * scale
    return np.sqrt(((nearest - cut) ** 2).sum() / (cut ** 2).sum())


rng, sizes = np.random.default_rng(0), np.array([2, 4, 8, 16, 32, 64, 128, 256])
flat = [moe.experts.w1.detach().double().numpy().reshape(-1)[:16384] for moe in model.moe_layers().values()]
kinds = {"trained experts": flat, "normal": rng.normal(size=(5, 16384)),
         "rare large ones": rng.standard_t(3, (5, 16384))}
errors = {name: [[lost(w, size) for size in sizes] for w in runs] for name, runs in kinds.items()}
show(seed_curves(sizes, errors, log=True, ticks=sizes, title="What four bits lose", limits=(0, 0.25),
                 x_label="numbers that share a scale", y_label="relative error"),
     "Relative error against the size of a block for trained weights and two kinds of random numbers",
     name="12_blocks")
for name, runs in errors.items():
    print(f"{name:16s}" + "".join(f"{size:5}: {error:.3f}" for size, error in
                                  zip(sizes, np.mean(runs, axis=0), strict=True)))

# %% tags=["remove"]
at_32 = {name: np.array(runs)[:, 4] for name, runs in errors.items()}
trained = np.mean(errors["trained experts"], axis=0)
assert 0.11 < at_32["trained experts"].min() and at_32["trained experts"].max() < 0.12
assert trained.argmin() == 4
assert trained[0] > 1.05 * trained[4]
assert np.mean(errors["rare large ones"], axis=0)[-1] > 1.3 * np.mean(errors["normal"], axis=0)[-1]

# %% [markdown] tags=["slide"]
# Look at the left end: **smaller blocks do not lose less** (measured here). The largest number of a block always comes
# out in the coarse top of the grid, between 4 and 8, where steps are wide and everything above 6 is cut; in a block of
# two that is half of all numbers, in a block of 32 one. Rare large values are what a shared scale suffers from: one of
# them pushes the others towards zero, and that line climbs to the right. Trained experts behave much like normal
# numbers. At 32 they have the least error, and the scales cost a quarter of a bit.
#
# Does the model notice? All three layers of routed experts packed and read back, 384 held-out rows, three seeds:

# %%
packed = pretrained("mini")
with torch.no_grad():
    for moe in packed.moe_layers().values():
        for w in (moe.experts.w1, moe.experts.w2, moe.experts.w3):
            w.copy_(unpack(*pack(w), columns=w.shape[-1]))
statistics = [error_statistics(moe.experts.w1) for moe in model.moe_layers().values()]
right = {name: np.array([np.mean(list(accuracy(which, Corpus(), "test", 64, seed)[0].values()))
                         for seed in range(3)]) for name, which in (("float32", model), ("MXFP4", packed))}
for name, values in right.items():
    print(f"{name:8s} characters of answers right: " + "  ".join(f"{value:.4f}" for value in values))
print("relative error of w1, layer by layer:", [round(s["relative_rms"], 3) for s in statistics],
      " saturated:", [f"{s['saturated']:.2%}" for s in statistics])

# %% tags=["remove"]
assert np.abs(right["float32"] - right["MXFP4"]).max() < 0.001
assert all(0.11 < s["relative_rms"] < 0.12 and 0.02 < s["saturated"] < 0.03 for s in statistics)

# %% [markdown]
# The weights are off by 12 % of their typical size, and no share of right answers moves by a thousandth (measured
# here): the errors of the many products in a sum point in all directions. The miniature was trained without knowing of
# it.

# %% [markdown]
# ### Exercise 12.5: bytes of K3's routed experts
#
# The routed experts of K3 have 2,722,740,830,208 parameters; all widths are multiples of 32. How many bytes do they take
# in MXFP4? (A whole number.)

# %% [markdown] tags=["hint"]
# Count one block first: how many bytes for 32 numbers?

# %% id="12.5" minutes=4 difficulty=1
# BEGIN SOLUTION
my_bytes = 2_722_740_830_208 // 32 * 17
# END SOLUTION

# %%
check("12.5", my_bytes)

# %%
experts = count_parameters(k3).routed_experts
everything, in_bfloat16 = checkpoint_bytes(k3), checkpoint_bytes(k3.replace(expert_dtype="bfloat16"))
assert everything == 1_560_860_324_864                            # the index of the released file (report)
assert round(in_bfloat16 / 1e12, 1) == 5.6
print(f"the released file {everything / 1e12:.2f} TB, of that experts {experts // 32 * 17 / 1e12:.2f} TB; "
      f"with experts in bfloat16 it would have {in_bfloat16 / 1e12:.2f} TB")

# %% [markdown] tags=["slide"]
# ## 6 · A million tokens
#
# Now the sums for one text of $2^{20}$ tokens. What is kept **between** tokens was weighed in [chapter
# 11](11_serving.ipynb). *While* tokens are read there is more: each token carries its sources over depth (8 banked
# vectors and the running sum, [chapter 06](06_attention_residuals.ipynb)), $D$ numbers each in bfloat16. And training
# must keep something of every layer for the way back; the thrift is to keep only the running sum that enters a
# layer and to compute the rest again.

# %% tags=["slide"]
contexts = 2 ** np.arange(10, 21, 2)
kept = [cache_bytes(k3, int(tokens)) for tokens in contexts]
banked = 1 + (k3.num_layers - 1) // k3.attn_res_block_size        # seals: layers 0, 12, ... 84
sources, saved = (banked + 1) * D * 2, (banked + k3.num_layers) * D * 2   # bytes a token
show(cache_lines(contexts, {"KDA states": [size.kda_state for size in kept],
                            "MLA latents": [size.mla for size in kept],
                            "sources, reading": contexts * sources,
                            "layer inputs, training": contexts * saved}),
     "Bytes against the length of a text: states flat, latents, sources over depth, what training keeps",
     name="12_million")
text = kept[-1]
print(f"2^20 tokens: states {text.kda_state / 2 ** 20:.0f} MiB, latents {text.mla / 2 ** 30:.0f} GiB, "
      f"sources {contexts[-1] * sources / 2 ** 30:.0f} GiB, "
      f"training {contexts[-1] * saved / 2 ** 30:.0f} GiB")

# %% tags=["remove"]
assert banked == 8 and sources == 129_024 and saved == 1_447_936
assert contexts[-1] * sources == 126 * 2 ** 30 and contexts[-1] * saved == 1414 * 2 ** 30
assert 64 * 22 < 1414 < 64 * 22.2

# %% [markdown] tags=["slide"]
# Only the blue line is flat. Reading needs no miracle, though: sources belong to single tokens and are gone when the
# token is through, so a text read in pieces of 16,384 tokens has 2 GiB of them at a time (derived), and state and
# latents are all that goes on to the next piece. Training has no such way out: 1,414 GiB of layer inputs for one text
# (derived). Cut over 64 machines as in section 1, that is 22 GiB each. **Passing on 12 or 18 MiB a layer is what makes a
# million tokens trainable.**

# %% [markdown] tags=["slide"]
# ## 7 · From the miniature to K3
#
# The same dataclass describes both. First side by side; every number is computed from the presets by the accounting of
# [chapter 00](00_the_map.ipynb).

# %%
def column(config):
    """What a configuration comes to, as texts."""
    count, cache = count_parameters(config), cache_bytes(config, 1)
    return {"width D": f"{config.hidden_size:,}",
            "layers KDA + MLA": f"{len(config.kda_layers)} + {len(config.mla_layers)}",
            "heads, K x V": f"{config.num_heads}, {config.kda_key_dim} x {config.kda_value_dim}",
            "experts, a token": f"{config.num_experts}, {config.num_experts_per_token}",
            "width of experts": f"{config.expert_size:,}", "AttnRes block": f"{config.attn_res_block_size}",
            "parameters": f"{count.total:,}", "active": f"{count.active:,}",
            "routed experts": f"{count.routed_experts / count.total:.1%}",
            "file, bytes": f"{checkpoint_bytes(config):,}", "state, bytes": f"{cache.kda_state:,}",
            "latents, numbers a token": f"{cache.mla_values_per_token:,}",
            "FLOPs, first token": f"{flops_per_token(config).total:,}"}


columns = {name: column(preset(name)) for name in ("mini", "kimi_linear_48b", "kimi_k3")}
print(f"{'':26s}" + "".join(f"{name:>22s}" for name in columns))
for line in columns["mini"]:
    print(f"{line:26s}" + "".join(f"{table[line]:>22s}" for table in columns.values()))

# %% tags=["remove"]
assert columns["kimi_k3"]["parameters"] == "2,779,484,476,000"
assert columns["kimi_k3"]["active"] == "104,189,612,640"
assert columns["kimi_linear_48b"]["parameters"] == "49,122,681,728"

# %% [markdown]
# Every line has the same meaning in all columns. Now *walk* from the first to the last, one group of fields at a time,
# and count after each step.

# %% tags=["slide"]
STEPS = {
    "vocabulary": {"vocab_size": 163_840},
    "depth": {"num_layers": 93, "attn_res_block_size": 12},
    "width": {"hidden_size": 7168, "intermediate_size": 33_792},
    "heads": {"num_heads": 96, "kda_key_dim": 128, "kda_value_dim": 128, "q_lora_rank": 1536,
              "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    "size of an expert": {"moe_latent_size": 3584, "moe_intermediate_size": 3072, "num_shared_experts": 2},
    "number of experts": {"num_experts": 896, "num_experts_per_token": 16},
}
path = [preset("mini")]
for changes in STEPS.values():
    path.append(path[-1].replace(**changes))
files = {"checkpoint_dtype": "bfloat16", "expert_dtype": "mxfp4"}  # how it is stored changes no count
assert path[-1].replace(**files) == k3.replace(vision=None)       # arrived
sizes = [count_parameters(config).total for config in path]
show(growth_steps(["the miniature", *(f"+ {name}" for name in STEPS)], sizes),
     "Parameters after each step from the miniature to K3 on a scale of factors", name="12_growth")
for name, config in zip(["the miniature", *STEPS], path, strict=True):
    count = count_parameters(config)
    print(f"{name:18s} {count.total:>21,} parameters, {count.active:>15,} active")

# %% tags=["remove"]
assert sizes[-1] == 2_779_484_476_000
active = [count_parameters(config).active for config in path]
assert round(sizes[-1] / sizes[-2], 1) == 26.5 and round(active[-1] / active[-2], 1) == 1.7

# %% [markdown] tags=["slide"]
# The last step is the one that makes 2.8 T of it: 56 times as many experts, of which each token visits eight times as
# many. It multiplies the parameters by 26.5 and the active ones by 1.7 (derived). Width and heads, the steps before,
# multiply both. **Width and heads make the model slow, the number of experts makes it large.** What no step changes is a
# line of code: the model file of this course builds every one of these configurations (on PyTorch's `meta` device, which
# knows shapes and stores nothing):

# %%
with torch.device("meta"):
    giant = type(model)(path[-1])                                 # the class of the miniature, K3's sizes
built = sum(tensor.numel() for tensor in giant.state_dict().values())
assert built == sizes[-1]                                         # built = counted
print(f"K3's text part, built from model.py: {built:,} parameters in shapes")

# %% [markdown] tags=["slide"]
# ## 8 · Other people's programs
#
# A program that checks itself proves little. The miniature's file has the layout of the released checkpoint, so programs
# written for K3 by other people can read it. First the round trip, with the routed experts in four bits:

# %%
with tempfile.TemporaryDirectory() as folder:
    to_huggingface(model, f"{folder}/mini", mxfp4=True)
    back = from_huggingface(f"{folder}/mini")
for layer, moe in back.moe_layers().items():
    assert torch.equal(moe.experts.w1, packed.moe_layers()[layer].experts.w1)  # read back = packed by us
tokens = torch.from_numpy(Corpus().batch(np.random.default_rng(3), 4, "test").tokens)
with torch.no_grad():
    assert torch.equal(back(tokens), packed(tokens))              # and so is every logit
print("four bits written and read back: the same logits to the last bit")

# %% [markdown]
# Then llama.cpp, a program in C++ whose K3 was written from the released checkpoint. `k3 export --format gguf` writes its
# file; `k3 demo` lets both programs continue the same prompts side by side. What the tests measured when the results
# were stored (`figures/results/oracles.json`): with which weights, what, and how much.

# %% tags=["slide"]
rows = [row for row in results("oracles")["rows"] if row["oracle"] == "llama.cpp"]
for row in rows:
    if "miniature" in row["covers"]:
        print(f"{row['covers']:52s} {row['quantity']:46s} {row['value']:8.1e}")
worst = max(row["value"] for row in rows if row["quantity"] == "largest difference of a logit")
print(f"\nllama.cpp {rows[0]['version']}: {len(rows)} measurements,",
      f"largest difference of a logit {worst:.1e}")

# %% tags=["remove"]
differ, = [row["value"] for row in rows if "greedy tokens that differ" in row["quantity"]]
assert differ == 0 and worst < 1e-3
values, = [row["value"] for row in rows if row["quantity"] == "stored values that differ"]
assert values == 0
stored = [theirs for _, _, theirs in side_by_side(model)]
assert llama_cpp(model) in (stored, None)                         # None: not installed here

# %% [markdown] tags=["slide"]
# Twenty prompts, 64 tokens each, and not one token differs (measured by the tests): that is the sense in which this
# miniature *is* a K3. The differences of logits are those of float32 sums in another order; of the values stored in four bits
# none differs. Side by side, three held-out prompts; the second line was written by llama.cpp:

# %% tags=["slide"]
for prompt, ours, theirs in side_by_side(model):
    print(f"{prompt!r}\n    ours       {ours!r}\n    llama.cpp  {theirs!r}")

# %% tags=["remove"]
assert all(ours == theirs for _, ours, theirs in side_by_side(model))

# %% [markdown]
# `make oracles` measures again where the programs are installed, and `make demo` lets both write.

# %% [markdown] tags=["slide"]
# ## 9 · In the real K3
#
# | | K3 |
# |---|---|
# | parameters, active for a token | 2,779,484,476,000 and 104,189,612,640 (derived; rounded in the report) |
# | released file | 1,560,860,324,864 bytes; experts at 4.25 bits (report; derived to the byte) |
# | passed on by a KDA layer, a segment of any length | 12 MiB of $M$ and $N$, 43,008 bytes of inputs (derived) |
# | passed on by an MLA layer | 1,152 bytes a token; keys and values of all heads would be 61,440 (derived) |
# | histograms of one update | 92 layers · 896 experts · 1,000 bins = 82,432,000 counts (derived) |
# | a text of $2^{20}$ tokens, kept between tokens | 414 MiB of states, 27 GiB of latents (derived) |
# | the same, layer inputs for training | 1,414 GiB, over 64 machines 22 GiB each (derived) |

# %% tags=["remove"]
assert 3 * D * 2 == 43_008 and 92 * 896 * 1000 == 82_432_000
assert (k3.kv_lora_rank + k3.qk_rope_head_dim) * 2 == 1152
assert H * (k3.qk_head_dim + k3.v_head_dim) * 2 == 61_440
assert len(path[-1].mla_layers) == 24 and experts * 4.25 / 8 == experts // 32 * 17

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. A text may be cut over machines: three inputs for the convolution, $M$ and $N$ for KDA, latents for MLA, and nothing changes.
# 2. One pass with the identity as extra channels gives a segment's map and what any incoming state adds; a scan gives all prefixes.
# 3. A batch may be cut too: gradients are weighted by rows, counts are added, quantiles are never averaged.
# 4. MXFP4 stores 32 numbers in 17 bytes; the miniature's answers do not notice, and K3's file shrinks from 5.6 to 1.56 TB.
# 5. Between the miniature and K3 lie six groups of sizes and no other line of code; llama.cpp writes the same tokens.
