# ---
# jupyter:
#   k3:
#     title: Training it
#     minutes: {read: 55, exercises: 46, run: about five minutes}
#     needs:
#       - "the miniature of [chapter 08](08_miniature.ipynb)"
#       - "Quantile Balancing, [chapter 05](05_stable_latent_moe.ipynb)"
#       - "the singular values of a matrix"
#     objectives:
#       - "say what the miniature is asked, where its loss is taken, and why not elsewhere"
#       - "derive Muon: why the singular values of an update are made equal, and how without computing them"
#       - "say why K3 does so head by head, and measure what heads do to each other otherwise"
#       - "write the whole training loop, and train the miniature"
#       - "read five instruments and recognise four diseases of a training by them"
#     data: [figures/results/mini_curves.json, figures/results/lab_ablation.json,
#            figures/results/lab_optimisers.json]
# ---

# %% [markdown] tags=["slide"]
# # 09 · Training it
#
# *Half a million numbers, all of them noise: the untrained model answers every question with rubbish. In a few minutes
# it will copy words, add numbers and know who has the rye.*
#
# What happens in between is a loop of ten lines. Each of them can be wrong in a way that raises no error: the model
# then learns slowly, or something else, or nothing.
#
# **The question of this chapter: what does each line of the loop do, and how does one see, while it runs, that all is
# well?**
#
# Every number says where it comes from: *report* (published about K3), *derived* (you can recompute it by hand),
# *measured here* (a cell above it ran), or *toy* (chosen to be small).

# %%
import dataclasses
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from k3_scratch.analysis.decay import mean_decay
from k3_scratch.analysis.inside import inside, key_lengths
from k3_scratch.config import preset
from k3_scratch.course import check, lab_table, progress, results, show
from k3_scratch.course.checks.ch09 import answer_loss, clip, newton_schulz_step, per_head_update
from k3_scratch.course.steps import full_run, steps
from k3_scratch.generate import evaluating, generate
from k3_scratch.layers.kda_attention import KimiDeltaAttention
from k3_scratch.model import K3
from k3_scratch.plots import training_pictures as draw
from k3_scratch.tasks.corpus import FAMILIES, WEIGHTS, Corpus
from k3_scratch.tasks.splits import split_of
from k3_scratch.tasks.vocabulary import NEWLINE, PAD, decode, encode
from k3_scratch.training import evaluate, loop, muon, options, run_folder, schedule, shards

# %% [markdown] tags=["slide"]
# ## 1 · What the model is asked
#
# A miniature cannot learn language. It can learn tasks that need the same parts: to remember, to overwrite, to keep
# an order. Six programs write them, as plain characters; a token is a byte.

# %% tags=["slide"]
SHOWN = {name: FAMILIES[name].example(np.random.default_rng(5), "train") for name in FAMILIES}
show(draw.task_rows({name: (example.text, example.marks) for name, example in SHOWN.items()}),
     "One line of each of six tasks; the cells of the answers are filled, those of the questions are white",
     name="09_tasks")

# %% [markdown] tags=["slide"]
# The filled cells are what the model must write; everything else is given.
#
# | family | what it needs |
# |---|---|
# | recall | which digit went with which letter: a memory of pairs |
# | copy, reverse | a whole word in order, or the newest letter first; the letters are random |
# | brackets | what is still open: a stack |
# | addition | carries, which come from digits further right |
# | stories | who has what *now*: pairs that are overwritten |
#
# A **window** is a row of 80 characters, filled with examples of one family while they fit. A batch is 32 windows.
# Families that are learnt late come more often (stories three times as often as copying).

# %%
corpus = Corpus(80)
batch = corpus.batch(np.random.default_rng(0), 32)
print("shares:", "  ".join(f"{name} {share:.2f}" for name, share in zip(WEIGHTS, corpus.shares, strict=True)))
print("tokens", batch.tokens.shape, " targets", batch.targets.shape)
print(decode(batch.tokens[0, :48].tolist()).replace("\n", "⏎"))
print("".join(chr(t).replace("\n", "⏎") if t != -1 else "." for t in batch.targets[0, :48]))
learnt_share = np.mean(batch.targets != -1)
print(f"{learnt_share:.0%} of all places have a target")

# %% [markdown]
# `targets[t]` is the character that should follow `tokens[t]`, so the second line stands one place to the left of the
# first. A dot is a target of −1: nothing is to be learnt there.
#
# ### Train, validation, test
#
# Held-out data must hold nothing that was trained on. Lists of held-out items get lost; here the **content** decides.
# The text of a list, a word, a sum is put through a hash, a function that scatters texts evenly over numbers, and
# the last digit says where it belongs. So `47+85` is a training sum in every program that will ever ask.

# %%
print("  ".join(f"{content}: {split_of(content)}" for content in ("47+85", "wjxkqz", "4+8", "3+8")))
contents = {}
for split in ("train", "validation", "test"):
    rng, found = np.random.default_rng(1), set()
    for family in FAMILIES.values():
        for _ in range(300):
            found |= {f"{family.NAME}: {content}" for content in family.contents(family.example(rng, split))}
    contents[split] = found
print({split: len(found) for split, found in contents.items()}, "different contents")
later = contents["validation"] | contents["test"]
shared = contents["train"] & later | contents["validation"] & contents["test"]
assert not shared                                                 # no content is in two splits
print("in two splits:", len(shared))

# %% [markdown]
# (`85+47` is the same content as `47+85`, and the same list with other questions is the same list: the hash sees a
# sorted sum and no questions. Otherwise a model could look up half of the test.)

# %% [markdown] tags=["slide"]
# ## 2 · Where the loss is taken
#
# A language model usually learns from every character: each one should have been foreseen. Look at a line of recall
# with six pairs and four questions. How many **nats** (the unit of $-\log p$) must even the best model pay for it?
# A letter that nobody can know, one of 26, costs $\log 26$; the next one, different from it, $\log 25$; a digit $\log
# 10$; a question about one of six pairs $\log 6$. The answers cost nothing: whoever has read the list knows them.

# %%
letters = sum(np.log(26 - i) for i in range(6))
digits, questions = 6 * np.log(10), sum(np.log(6 - i) for i in range(4))
print(f"letters {letters:.1f} + digits {digits:.1f} + questions {questions:.1f} "
      f"= {letters + digits + questions:.1f} nats that nobody can learn")
print(f"answers, before anything is learnt: 4 x log 10 = {4 * np.log(10):.1f} nats; when it is learnt: 0")

# %% tags=["remove"]
assert abs(letters + digits + questions - 38.6) < 0.05 and abs(4 * np.log(10) - 9.2) < 0.05

# %% [markdown]
# Of the 48 nats at the beginning 39 are noise for ever (derived). Their gradients do not vanish: every batch has other
# random letters and pulls the weights to *these* letters. What is to be learnt is a fifth of the loss and drowns.
#
# So this course learns **from answers only**. One more choice: a line of addition has two characters to be learnt, a
# line of copying twenty. In a mean over characters copying would count ten times as much. We take the mean in each
# window first, then the mean over windows:
#
# $$ \ell = \frac1B \sum_{b=1}^{B} \frac{1}{n_b} \sum_{t\,:\,\text{target}_{bt} \ne -1}
#          \Big( \log \sum_j e^{z_{btj}} - z_{bt,\,\text{target}_{bt}} \Big) , $$
#
# with the model's scores (logits) $z_{bt}$ and $n_b$ targets in window $b$.

# %% [markdown]
# ### Exercise 9.1: the loss on answers
#
# Write it in NumPy: `logits` [B, T, S] for S symbols, `targets` [B, T], −1 where nothing is learnt. A window without
# any target counts as 0 and is still one of the B. Logits may be as large as 1,000.

# %% [markdown] tags=["hint"]
# Subtract the largest logit of each place before `np.exp`. `np.take_along_axis` picks the logit of the right symbol;
# it needs an index everywhere, so put 0 where the target is −1 and take that place out afterwards.

# %% id="9.1" minutes=12 difficulty=2
def my_answer_loss(logits, targets):
    """logits [B, T, S], targets [B, T] -> a number"""
    # BEGIN SOLUTION
    learnt = targets >= 0
    top = logits.max(axis=-1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))
    nats = -np.take_along_axis(log_p, np.where(learnt, targets, 0)[..., None], axis=-1)[..., 0]
    return np.mean((nats * learnt).sum(axis=1) / np.maximum(learnt.sum(axis=1), 1))
    # END SOLUTION

# %%
check("9.1", my_answer_loss)

# %% [markdown]
# The package's `batch_loss` computes the same from a model and a batch, with the head only where something is learnt:

# %%
config = preset("mini")
model = K3(config)
with torch.no_grad():
    loss, _ = evaluate.batch_loss(model, batch)
    logits = model(torch.from_numpy(batch.tokens)).double().numpy()
assert np.isclose(loss.item(), answer_loss(logits, batch.targets), rtol=1e-5)  # ours = the package's
print(f"loss of the untrained miniature {loss.item():.3f};  log 260 = {np.log(260):.3f}, a guess among all")

# %% [markdown] tags=["slide"]
# ## 3 · Muon: a step in all directions at once
#
# Now downhill. Chapter 01 went with Adam, which treats each number by itself. K3 uses **Muon** for its matrices. Why
# should a matrix be more than its numbers?
#
# A weight matrix $W$ is used as $y = W x$. What a change $\Delta$ of it does to *any* input of length 1 is at most
# its largest **singular value**: write $\Delta = U \Sigma V^\top$ (columns of $U$ and of $V$ of length 1 and at
# right angles, $\Sigma$ diagonal, the singular values $\sigma_i \ge 0$), then $\Delta$ sends the direction $v_i$ to
# $\sigma_i u_i$. So ask: of all changes that move no such input by more than 1, **which lowers the loss most?** To first
# order the loss changes by $\langle G, \Delta \rangle = \sum_{ij} G_{ij} \Delta_{ij}$ with the gradient $G = U
# \Sigma V^\top$, and
#
# $$ \langle G, \Delta \rangle = \sum_i \sigma_i\, u_i^\top \Delta\, v_i \;\ge\; -\sum_i \sigma_i ,
#    \qquad\text{with equality for}\qquad \boxed{\;\Delta = -U V^\top\;} $$
#
# since each $u_i^\top \Delta v_i$ is at least −1. The best change is the gradient with **all its singular values
# set to 1**: the nearest orthogonal matrix, the gradient *orthogonalised*. A step along $G$ itself would move nearly
# only along its few largest singular directions; rare directions, in which little gradient has come together, would
# be left for later.
#
# Muon takes for $G$ not one batch's gradient $g$ but a **momentum** $m$, and looks one step ahead (Nesterov):
#
# $$ m \leftarrow \mu\, m + g, \qquad d = g + \mu\, m, \qquad \mu = .95 . $$
#
# Here are four batches' gradients of the miniature, before its first update.

# %%
def momentum_of(model, data, batches, mu=0.95):
    """What Muon orthogonalises at the last batch, d = g + mu m, for its matrices.   -> {name: [N, D]}"""
    names = list(muon.head_blocks(model))
    parameters = [dict(model.named_parameters())[name] for name in names]
    m = [torch.zeros_like(p) for p in parameters]
    for step in range(batches):
        loss, _ = evaluate.batch_loss(model, data.batch(np.random.default_rng([0, step]), 32))
        g = torch.autograd.grad(loss, parameters, allow_unused=True)  # an expert that nobody asked has none
        g = [torch.zeros_like(p) if one is None else one for p, one in zip(parameters, g, strict=True)]
        m = [mu * old + new for old, new in zip(m, g, strict=True)]
    return {name: (new + mu * old).double().numpy() for name, new, old in zip(names, g, m, strict=True)}


directions = momentum_of(model, corpus, 4)
d = directions["layers.0.self_attn.o_proj.weight"]                # W_o of the first KDA layer
s = np.linalg.svd(d / np.linalg.norm(d), compute_uv=False)
print(f"{d.shape}, divided by its norm: largest singular value {s[0]:.3f}, median {np.median(s):.3f}, "
      f"smallest {s[-1]:.4f}; share of the eight largest in the sum of squares {np.sum(s[:8] ** 2):.2f}")

# %% tags=["remove"]
assert abs(np.sum(s[:8] ** 2) - 0.66) < 0.01 and s[0] > 6 * np.median(s) and s[0] > 3000 * s[-1]

# %% [markdown]
# Eight of 64 directions hold two thirds of it (measured here). A step along this matrix would be a step along those.
#
# ### Without computing them
#
# Singular values by the usual algorithm (`np.linalg.svd`) are slow, and slower still on the chips that training runs
# on. Multiplying matrices is fast. So note what a product does: with $X = U \Sigma V^\top$ is $X X^\top = U \Sigma^2
# U^\top$, hence
#
# $$ a X + b\, (X X^\top) X + c\, (X X^\top)^2 X \;=\; U \left( a \Sigma + b \Sigma^3 + c \Sigma^5 \right) V^\top . $$
#
# A polynomial of matrices **acts on the singular values alone**, and $U$ and $V$ stay. Choose one that pushes
# every number between 0 and 1 towards 1, and apply it a few times: that is the iteration of *Newton and Schulz*. Muon's
# is tuned for speed (Jordan and others, 2024): $a = 3.4445$, $b = -4.7750$, $c = 2.0315$. It starts from the matrix
# divided by its Frobenius norm (the root of the sum of all squares), so that no singular value is above 1.

# %% [markdown]
# ### Exercise 9.2: one step of Newton and Schulz
#
# Write one step, for a matrix `x` [m, n] whose singular values are at most 1. a, b, c are `muon.COEFFICIENTS`.

# %% [markdown] tags=["hint"]
# `square = x @ x.T` occurs twice. The bracket $b\,XX^\top + c\,(XX^\top)^2$ multiplies `x` from the left.

# %% id="9.2" minutes=6 difficulty=1
def my_newton_schulz_step(x):
    """a x + (b x x^T + c (x x^T)^2) x      [m, n] -> [m, n]"""
    # BEGIN SOLUTION
    a, b, c = muon.COEFFICIENTS
    square = x @ x.T
    return a * x + (b * square + c * square @ square) @ x
    # END SOLUTION

# %%
check("9.2", my_newton_schulz_step)

# %% [markdown]
# Five steps make Muon's orthogonalisation; the package does it for many matrices at a time.

# %% tags=["slide"]
def newton_schulz(x, steps=5):
    """Push all singular values of a matrix towards 1.   [m, n] -> [m, n]"""
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(steps):
        x = newton_schulz_step(x)
    return x


packages = muon.newton_schulz(torch.from_numpy(d)[None])[0].numpy()
assert np.allclose(newton_schulz(d), packages)                    # NumPy = package
sizes = np.geomspace(1e-4, 1, 200)
after, (a, b, c) = {0: sizes}, muon.COEFFICIENTS
for count in range(1, 6):
    after[count] = a * after[count - 1] + b * after[count - 1] ** 3 + c * after[count - 1] ** 5
spectrum = {count: np.linalg.svd(newton_schulz(d, count), compute_uv=False) for count in (0, 1, 3, 5)}
words = {0: "before", 1: "1 step", 3: "3 steps", 5: "5 steps"}
show(draw.singular_values(sizes, {words[count]: after[count] for count in words},
                          {words[count]: spectrum[count] for count in words}),
     "Left, five steps lift values from .002 on to about 1; right, singular values of a momentum over three "
     "powers of ten lie in the band after five steps, but for the last two", name="09_muon")

# %% tags=["remove"]
assert np.sum((spectrum[5] < 0.68) | (spectrum[5] > 1.21)) == 2
assert 0.68 < after[5][sizes >= 0.0025].min() < after[5].max() < 1.21

# %% [markdown] tags=["slide"]
# Follow the lines into the grey band: five steps turn values that differ by hundreds into values between about .7 and
# 1.2; of the 64 of this matrix two are left below (measured here).
#
# Two things to notice. A small value grows by $a = 3.44$ a step, by $3.4445^5 = 485$ in five (derived), so what is
# smaller than about .002 of the whole does not arrive. And the polynomial does not settle *at* 1 but swings around it:
# coefficients that would settle are slower, and an update need not be exact.
#
# **How long is the step?** An orthogonalised matrix of $r$ rows and $c$ columns has $\min(r, c)$ singular values of
# about 1, so the sum of its squared entries is $\min(r, c)$ and an entry has the size $\sqrt{\min(r,c) / (r\,c)} = 1 /
# \sqrt{\max(r, c)}$. Times $.2 \sqrt{\max(r, c)}$, each entry moves by about .2 of the learning rate, which is what
# Adam's entries do in practice (Moonlight, arXiv 2502.16982): both can share one rate.

# %% [markdown] tags=["slide"]
# ## 4 · Why per head
#
# $W_q$ of an attention layer is not *one* matrix. Its rows are the heads' own matrices, one below the other: 96 in K3
# (report), four here. They read the same $x$ and then never meet. Muon on the whole treats them as one. What does
# that do? The smallest example: two heads of one row each, whose gradients have the same direction, the second a
# hundred times smaller.

# %%
two_heads = np.array([[3.0, 0.0], [0.03, 0.0]])
together, alone = (per_head_update(two_heads, heads) / (0.2 * 2 ** 0.5) for heads in (1, 2))
for way, update in (("gradient", two_heads), ("as one matrix", together), ("head by head", alone)):
    print(f"{way:14}", "  ".join(str(row.round(4) + 0.0) for row in update))

# %% [markdown]
# As one matrix the gradient has a single direction. The quiet head gets a hundredth of a step along it, and a full one
# at a right angle, for which nothing asked (Newton and Schulz leave that out). Head by head both move as they ask.
# Orthogonalising the whole couples heads in two ways: **a loud head silences a quiet one, and heads that want the
# same are driven apart** (rows of an orthogonal matrix stand at right angles). K3 therefore orthogonalises each
# head's block on its own (report), and so does the miniature: $W_q, W_k, W_v$ of KDA, $W_{qb}$ and $W_{kvb}$ of MLA,
# and every expert.

# %% [markdown]
# ### Exercise 9.3: each head on its own
#
# Write the update of one such matrix, exactly (with `np.linalg.svd` in place of Newton and Schulz): `direction` [N, D]
# holds `heads` heads of N / `heads` rows each, one below the other. Each head's block becomes $U V^\top$, times $.2
# \sqrt{\max(\text{rows of a head},\, D)}$.

# %% [markdown] tags=["hint"]
# `np.linalg.svd` takes a stack [H, rows, D] and works on each; with `full_matrices=False`, `u @ vt` is what is
# wanted.

# %% id="9.3" minutes=10 difficulty=2
def my_per_head_update(direction, heads):
    """direction [N, D], heads a whole number -> [N, D]"""
    # BEGIN SOLUTION
    blocks = direction.reshape(heads, -1, direction.shape[1])
    u, _, vt = np.linalg.svd(blocks, full_matrices=False)
    return (0.2 * max(blocks.shape[1:]) ** 0.5 * (u @ vt)).reshape(direction.shape)
    # END SOLUTION

# %%
check("9.3", my_per_head_update)

# %% [markdown]
# ### Measured: three matrices of the miniature
#
# For each head: the singular values of its part of the update, and how well this part points along the head's own
# momentum (the cosine between the two; 1 is the same direction).

# %%
def by_heads(d, rows, whole):
    """An update in blocks of `rows` rows, orthogonalised as a whole or block by block.   -> [H, rows, D]"""
    blocks = d.reshape(-1, rows, d.shape[1])
    if whole:
        return newton_schulz(d).reshape(blocks.shape)
    return np.stack([newton_schulz(block) for block in blocks])


g = np.random.default_rng(0).normal(size=(12, 5))                 # three heads of four rows
p = torch.nn.Parameter(torch.zeros(12, 5, dtype=torch.double))
p.grad = torch.from_numpy(g)
muon.Muon({p: 4}, lr=1.0, weight_decay=0.0).step()                # first update: m = g, d = g + .95 g
wanted = -0.2 * 5 ** 0.5 * by_heads(1.95 * g, 4, whole=False).reshape(12, 5)
assert np.allclose(p.detach(), wanted)                            # NumPy, head by head = the package's Muon
print("one update of the package's Muon = Newton and Schulz on each head, times -.2 sqrt(5)")

# %%
def cosines(blocks, update):
    sizes = np.linalg.norm(blocks, axis=(1, 2)) * np.linalg.norm(update, axis=(1, 2))
    return np.einsum("hrd,hrd->h", blocks, update) / sizes


MATRICES = {"W_q of KDA, layer 0": "layers.0.self_attn.q_proj.weight",
            "W_v of KDA, layer 1": "layers.1.self_attn.v_proj.weight",
            "W_qb of MLA, layer 3": "layers.3.self_attn.q_b_proj.weight"}
spectra, agree = {}, {}
for title, name in MATRICES.items():
    d, rows = directions[name], muon.head_blocks(model)[name]
    for way, whole in (("whole", True), ("per head", False)):
        update = by_heads(d, rows, whole)
        spectra[title, way] = np.linalg.svd(update, compute_uv=False)  # [H, rows]
        agree[title, way] = cosines(d.reshape(update.shape), update)
        print(f"{title:21} {d.shape} {way:9} singular values {spectra[title, way].min():.2f} to "
              f"{spectra[title, way].max():.2f}, cosines", *(f"{one:.2f}" for one in agree[title, way]))

# %% tags=["remove"]
square, tall = list(MATRICES)[:2], list(MATRICES)[2]
assert all(agree[title, "whole"].max() < 0.70 and agree[title, "per head"].min() > 0.75 for title in square)
assert abs(agree[tall, "whole"].mean() - agree[tall, "per head"].mean()) < 0.03
assert spectra[tall, "whole"].min() < 0.05 and spectra[tall, "per head"].min() > 0.65

# %% tags=["slide"]
show(draw.lab_curves({title: {way: (np.arange(1, spectra[title, way].shape[1] + 1), spectra[title, way])
                              for way in ("whole", "per head")} for title in MATRICES},
                     title="Singular values of each head's part of an update (thin: heads, thick: mean)",
                     x_label="direction, largest first", y_label="singular value", limits=(0, 1.3), columns=3,
                     numbers=False),
     "Singular values by head: alike for two square matrices; for W_qb, with more rows than columns, the "
     "whole update falls to almost 0 and the one per head stays above .6", name="09_heads")

# %% [markdown] tags=["slide"]
# In the third panel the two ways part: $W_{qb}$ has 96 rows and only 32 columns, so as a whole it has only 32
# directions for four heads of 24 rows, and each head gets a share of them.
#
# In the two square matrices the *sizes* are alike, since rows at right angles stay so in every part. The directions
# are not: as a whole a head's step agrees with its own momentum to .56 to .69, per head to .76 to .92 (measured here).
# What is lost is what the other heads have turned away. In the tall matrix the cosines are about the same, .69 and
# .67: there the whole leaves a head's weak directions weak, which keeps it closer to the momentum and further from an
# equal step.

# %% [markdown]
# Now the loud head. We multiply the momentum of the first head of $W_q$ by a factor and look at the three others:

# %%
d, rows = directions["layers.0.self_attn.q_proj.weight"], 16
factors, quiet = 10.0 ** np.arange(0, 4.5, 0.5), {"whole": [], "per head": []}
for factor in factors:
    louder = d.copy()
    louder[:rows] *= factor
    for way, whole in (("whole", True), ("per head", False)):
        update = by_heads(louder, rows, whole)
        scale = 0.2 * max(d.shape if whole else (rows, d.shape[1])) ** 0.5
        quiet[way].append(scale * np.sqrt(np.mean(update[1:] ** 2, axis=(1, 2))))  # [3 heads]
print("first head's momentum, times   size of a quiet head's step: whole   per head")
for factor, whole, alone in zip(factors, quiet["whole"], quiet["per head"], strict=True):
    print(f"{factor:27,.0f} {whole.mean():33.3f} {alone.mean():10.3f}")

# %% tags=["remove"]
left = [float(one.mean()) for one in quiet["whole"]]
assert abs(left[2] - 0.167) < 0.004 and abs(left[4] - 0.128) < 0.005 and abs(left[6] - 0.018) < 0.003
assert np.ptp([one.mean() for one in quiet["per head"]]) < 1e-9

# %% [markdown]
# The last column stays the same: per head a step depends on the head's own gradient and on nothing else. As a whole the
# others keep .167 of .175 at a factor of ten, .13 at a hundred and a tenth at a thousand (measured here): they sink
# below what five steps of Newton and Schulz can lift.
#
# In a model of four heads with gradients of like size this matters little, and the lab could not show that it helps
# (section 9). With 96 heads, some of them near a softmax that has made up its mind, sizes should differ more (a guess:
# no comparison has been published). What is sure is that it is **cheaper**: the products grow with the square of the
# smaller side.

# %%
def work(m, n):
    """Multiplications of one step of Newton and Schulz on a matrix, smaller side m."""
    return 2 * m * m * n + m ** 3


whole, per_head = work(7168, 96 * 128), 96 * work(128, 7168)
print(f"W_q of K3, one step: {whole:.2e} multiplications as a whole, {per_head:.2e} per head, "
      f"{whole / per_head:.0f} times fewer")

# %% tags=["remove"]
assert round(whole / per_head) == 72

# %% [markdown] tags=["slide"]
# ## 5 · Everything else: AdamW, the rate, the clip
#
# Not every parameter is a matrix in the sense of section 3. Muon leaves to **AdamW**: all vectors (norms, decays, the
# queries over depth), the convolutions (four numbers a channel), the embedding and the head (a token picks *one row*,
# so "any input of length 1" says nothing about them), and the router, for which an expert is a row.

# %%
blocks, named = muon.head_blocks(model), dict(model.named_parameters())
moved = sum(named[name].numel() for name in blocks)
count = sum(named[name].numel() // (rows * named[name].shape[-1]) for name, rows in blocks.items())
everything = sum(p.numel() for p in named.values())
print(f"{everything:,} numbers: Muon moves {moved:,} of them in {count} blocks, AdamW the rest")
left_over = sorted({name.split(".", 2)[-1] for name in named if name not in blocks})
print("AdamW:", ", ".join(left_over[:7]), "...")

# %% tags=["remove"]
assert (everything, moved, count) == (497_756, 456_960, 225)

# %% [markdown]
# AdamW is Adam of chapter 01 (mean of gradients over the root of the mean of their squares) with one more line, the
# W: **decoupled weight decay**. Before each update a matrix shrinks a little, $W \leftarrow (1 - \eta \lambda)\, W$
# with the rate $\eta$ and $\lambda = .1$ (report). Why not as a term $\lambda W$ in the gradient? Adam divides every
# gradient by its usual size, and Muon makes all sizes equal: inside, the decay would be divided away as well.
# Vectors are not decayed: a norm's weight or a decay's bias has no reason to be near 0.
#
# **The rate** rises in equal steps over the first 1 % of the updates (momenta and means still know little) and then
# falls along half a cosine to a small rest: at the end the steps must be small, since the noise of single batches is
# as large as what is left to learn (K3: cosine with 1 % of warm-up; report).

# %% [markdown]
# ### Exercise 9.4: the learning rate over time
#
# `step` [n] holds numbers of updates, which count from 0 to `steps` − 1; give the rate of each. The warm-up lasts
# `max(1, round(steps * warmup))` updates, in which the rate rises in equal steps and reaches `peak` in the last. After
# it, `progress` (0 in the first update behind it, 1 after the very last) leads along half a cosine from `peak` to
# `final * peak`.

# %% [markdown] tags=["hint"]
# `(1 + cos(pi * progress)) / 2` runs from 1 to 0. Stretch it so that it runs from 1 to `final`. `np.where` chooses.

# %% id="9.4" minutes=8 difficulty=1
def my_learning_rates(step, steps, peak, warmup, final):
    """step [n], the others numbers -> the rate of each update [n]"""
    # BEGIN SOLUTION
    rise = max(1, round(steps * warmup))
    progress = (step - rise) / max(1, steps - rise)
    falling = peak * (final + (1 - final) * (1 + np.cos(np.pi * progress)) / 2)
    return np.where(step < rise, peak * (step + 1) / rise, falling)
    # END SOLUTION

# %%
check("9.4", my_learning_rates)

# %% [markdown]
# **The clip.** Now and then a batch has a gradient many times as large as usual. If the norm of the whole gradient,
# all parameters together, is above 1, it is scaled down to 1. The factor is one for all, so the *direction* stays.

# %% [markdown]
# ### Exercise 9.5: clipping
#
# Two gradients, `a` [m, n] and `b` [k]: return both, scaled so that their norm *together* is at most `limit`.

# %% [markdown] tags=["hint"]
# The norm is the root of the sum of all squares, of both. A factor above 1 is none.

# %% id="9.5" minutes=6 difficulty=1
def my_clip(a, b, limit):
    """a [m, n], b [k], limit a number -> a [m, n], b [k]"""
    # BEGIN SOLUTION
    norm = np.sqrt(np.sum(a ** 2) + np.sum(b ** 2))
    factor = min(1.0, limit / norm)
    return factor * a, factor * b
    # END SOLUTION

# %%
check("9.5", my_clip)

# %%
a, b = np.random.default_rng(0).normal(size=(5, 4)), np.random.default_rng(1).normal(size=3)
tensors = [torch.nn.Parameter(torch.zeros(array.shape, dtype=torch.double)) for array in (a, b)]
for tensor, array in zip(tensors, (a, b), strict=True):
    tensor.grad = torch.from_numpy(array.copy())
torch.nn.utils.clip_grad_norm_(tensors, 1.0)
for tensor, ours in zip(tensors, clip(a, b, 1.0), strict=True):
    assert np.allclose(tensor.grad, ours, atol=1e-6)              # ours = torch's
print("norm before", f"{np.sqrt(np.sum(a ** 2) + np.sum(b ** 2)):.3f}, after 1.000: as torch clips")

# %% [markdown]
# Does a clip matter to Muon, which makes every step equally long? Yes, through the momentum: one huge gradient would
# fill it for twenty updates.
#
# ## 6 · The loop
#
# One line is missing, the one of chapter 05: after each update every router's selection bias is set by **Quantile
# Balancing** from the scores of the batch that has just passed; it holds for the next. No gradient flows through it.
# Then all is there. (`ShardedGradient` runs the two halves of a batch on two cores and adds their gradients; inside is
# `batch_loss` and torch's backward pass.)

# %%
def train(model, data, updates, *, rate, batch_size=32, seed=0, warmup=0.01, parts=2, balance=True,
          watch=None):
    """Train `model` in place; `watch(step, model)` after each update.   -> {"loss", "norm", "rate": [n]}"""
    optimizers, log = muon.make_optimizers(model.train(), rate), {"loss": [], "norm": [], "rate": []}
    with shards.ShardedGradient(model, parts, torch.device("cpu")) as gradient:
        for step in range(updates):
            loss = gradient(data.batch(np.random.default_rng([seed, step]), batch_size))
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            now = schedule.learning_rate(step, updates, rate, warmup)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = now
                optimizer.step()
            if balance:
                model.balance()
            for name, value in (("loss", loss.item()), ("norm", norm.item()), ("rate", now)):
                log[name].append(value)
            if watch is not None:
                watch(step + 1, model)
    return {name: np.array(values) for name, values in log.items()}

# %% [markdown]
# Is that what `k3 train` does? Its `Trainer` adds files, checkpoints and Ctrl-C. Three updates of both, of the smallest
# preset, must have the same losses and norms:

# %%
asked = options.TrainOptions(steps=3, batch_size=6, validation_rows=1, test_rows=1, exact_examples=1)
with tempfile.TemporaryDirectory() as folder:
    loop.Trainer(preset("nano"), asked, folder, device="cpu", quiet=True).run()
    theirs = run_folder.RunFolder(folder).read_metrics()
ours = train(K3(preset("nano")), corpus, 3, rate=asked.learning_rate, batch_size=6)
assert np.allclose(ours["loss"], [line["loss"] for line in theirs], rtol=1e-6)  # our loop = the package's
assert np.allclose(ours["norm"], [line["gradient_norm"] for line in theirs], rtol=1e-5)
print("three updates:", *(f"{loss:.4f}" for loss in ours["loss"]), "- the same in both")

# %% [markdown]
# ### Answers only, or everything?
#
# A first use of the loop: was section 2 right? Two small models of the same seed, two KDA layers wide 32, read lists
# of pairs with questions (recall alone). One learns from the answers, the other from every character. Both are asked
# for answers in the end. Three seeds each; 160 updates.

# %%
SMALL = config.replace(num_layers=2, mla_layers=(), hidden_size=32, num_heads=2, intermediate_size=80,
                       num_experts=8, moe_intermediate_size=32, moe_latent_size=16, initializer_range=0.03)
lists = Corpus(48, families=("recall",))
SEEDS, UPDATES = range(3), steps(160)


class EveryCharacter:
    """The same rows, and everything but the padding is learnt."""

    def batch(self, rng, batch_size):
        batch = lists.batch(rng, batch_size)
        following = np.concatenate([batch.tokens[:, 1:], batch.targets[:, -1:]], axis=1)
        return dataclasses.replace(batch, targets=np.where(following == PAD, -1, following))


def side_by_side(jobs):
    """Call `train(*arguments, **settings)` for each job, two at a time, a thread and a core each."""
    with ThreadPoolExecutor(2, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(lambda job: train(*job[0], batch_size=24, warmup=0.1, parts=1, **job[1]), jobs))

# %%
def right_in_the_end(model):
    return evaluate.accuracy(model, lists, "test", 96)[0]["recall"]


curriculum = {"answers only": lists, "every character": EveryCharacter()}
learners = {name: [K3(SMALL, seed=seed) for seed in SEEDS] for name in curriculum}
side_by_side([((learners[name][seed], data, UPDATES), {"rate": 0.01, "seed": seed})
              for name, data in curriculum.items() for seed in SEEDS])
drowned = {name: [right_in_the_end(one) for one in learners[name]] for name in curriculum}
for name, shares in drowned.items():
    print(f"{name:16} answers right, three seeds:", *(f"{share:.2f}" for share in shares))

# %% tags=["remove"]
if full_run():
    lowest, highest = np.min(list(drowned.values()), axis=1), np.max(list(drowned.values()), axis=1)
    assert np.allclose(lowest, [0.39, 0.09], atol=0.02) and np.allclose(highest, [0.62, 0.16], atol=0.02)

# %% [markdown]
# Same model, same rows, same number of updates: the three that learnt from answers know .39 to .62 of them, the three
# that learnt from everything .09 to .16 (measured here; a guess among the ten digits is .10). Those have learnt much,
# namely how often each letter comes. A large language model trained on text is not in this place: most of its
# characters can be foreseen to some part, and it has seen enough of them to get to the rest.

# %% [markdown] tags=["slide"]
# ## 7 · The run
#
# Now the miniature itself, all six families. The committed weights were trained for 2,000 updates; here we have time
# for 600, with the same settings and the cosine drawn in accordingly. While it runs we write down: losses and norms at
# every update; held-out accuracy, expert loads and the answers to five fixed questions now and then; and at four
# moments the inside of the model.

# %%
TOTAL = steps(600)
MARKS = sorted({max(1, round(TOTAL * part / 12)) for part in range(1, 13)})
MOMENTS = [0, *sorted({max(1, TOTAL // 12), max(1, TOTAL // 3), TOTAL})]
QUESTIONS = {name: FAMILIES[name].example(np.random.default_rng(8), "test").turns[0]
             for name in ("recall", "copy", "brackets", "addition", "stories")}
held = torch.from_numpy(corpus.batch(np.random.default_rng([1, 1]), 64, "validation").tokens)


def reading(model):
    """The instruments of section 8, at this moment."""
    with evaluating(model):
        return inside(model, held, held != PAD)


def answers_of(model):
    texts = generate(model, [encode(prompt) for prompt, _ in QUESTIONS.values()], 16, stop_tokens=(NEWLINE,))
    return {name: decode(text).split("\n")[0][:len(QUESTIONS[name][1])]
            for name, text in zip(QUESTIONS, texts, strict=True)}

# %%
model = K3(config)
seen = {"accuracy": [], "loss": [], "load": [], "answers": {0: answers_of(model)}}
moments = {0: reading(model)}
counts = {layer: np.zeros(config.num_experts) for layer in model.moe_layers()}


def look(step, model):
    """Called after each update: count, and write down what there is to see at this step."""
    for layer, moe in model.moe_layers().items():
        counts[layer] += moe.expert_counts.numpy()
    if step in MARKS:
        by_family, loss = evaluate.accuracy(model, corpus, "validation", 32)
        seen["accuracy"].append(by_family)
        seen["loss"].append(loss)
        seen["load"].append([count / count.mean() for count in counts.values()])
        counts.update({layer: np.zeros(config.num_experts) for layer in counts})
        seen["answers"][step] = answers_of(model)
    if step in MOMENTS:
        moments[step] = reading(model)


log = train(model, corpus, TOTAL, rate=5e-3, watch=look)
print(f"{TOTAL} updates: loss {log['loss'][0]:.2f} -> {log['loss'][-10:].mean():.2f}")

# %% tags=["slide"]
show(draw.loss_curve(np.arange(1, TOTAL + 1), log["loss"], validation_steps=MARKS,
                     validation_loss=seen["loss"], learning_rate=log["rate"]),
     "The loss falls from 5.6 to 1.9 within forty updates, then slowly to .46; validation goes with it",
     name="09_loss")

# %% [markdown] tags=["slide"]
# The steep part is over after forty updates, at about 1.85: by then the model knows *which* characters answers are made
# of, and guesses among them. All the rest is slow: task by task it finds out how to know. (Validation lies a little
# higher because it asks all families equally often, and training asks more for stories.)
#
# ### Family by family, on top of the full runs

# %% tags=["slide"]
full, families = results("mini_curves"), list(FAMILIES)
here = {name: [each[name] for each in seen["accuracy"]] for name in families}
longer = {name: [run["accuracy"][name] for run in full["runs"]] for name in families}
show(draw.run_overlay(MARKS, here, full["steps"], longer,
                      "Held-out characters right: this run (colour), three full runs, 2,000 updates (grey)"),
     "Six panels of accuracy over updates; the run here rises earlier than the grey ones, ends before them",
     name="09_families")

# %% tags=["remove"]
last = seen["accuracy"][-1]
at_600 = {name: [run["accuracy"][name][2] for run in full["runs"]] for name in families}
assert full["steps"][2] == 600
assert all(run["accuracy"][name][-1] > 0.965 for run in full["runs"] for name in families)
if full_run():
    assert abs(log["loss"][30:50].mean() - 1.87) < 0.1 and abs(log["loss"][-10:].mean() - 0.46) < 0.03
    wanted = [0.99, 0.68, 0.68, 0.89, 0.62, 0.80]                 # in the order of FAMILIES
    assert np.allclose([last[name] for name in families], wanted, atol=0.02)
    assert last["recall"] > max(at_600["recall"]) and last["brackets"] > max(at_600["brackets"])

# %% [markdown] tags=["slide"]
# Each panel has its own pace. Recall comes first, .99 at the end of this run, then brackets with .89; stories rest at
# .80 (half of their characters, the second letters of names, are easy, so that is about .6 of the first ones); copying
# and reversing, .68 each, climb together, since both need a word kept in order; addition is last with .62 (measured
# here).
#
# Why does the coloured line end above the grey ones in recall and brackets? Its rate has already come down; at the
# same update a longer run still takes large steps, and looks worse for it. **Curves of runs with other lengths cannot
# be compared at the same update**, which is an easy way to fool oneself. How far one gets with more time the grey
# ends show: .97 to 1.00 everywhere, three seeds (measured; `figures/results/mini_curves.json`).

# %% [markdown]
# ### The same questions again and again

# %%
print("asked:")
for name, (prompt, answer) in QUESTIONS.items():
    print(f"  {name:9} {prompt}   (right: {answer})")
print("\nupdate  " + "  ".join(f"{name:<{max(len(name), len(QUESTIONS[name][1]))}}" for name in QUESTIONS))
for step, written in seen["answers"].items():
    if step in (0, *MARKS[::2], TOTAL):
        cells = [f"{written[name]:<{max(len(name), len(QUESTIONS[name][1]))}}" for name in QUESTIONS]
        print(f"{step:6}  " + "  ".join(cells).encode("ascii", "replace").decode())

# %% [markdown]
# Read a column downwards: noise, then the right *kind* of character, then the right ones, from the left to the right. A
# word goes wrong in the middle and then stays wrong, since each letter is written after those before. (These are five
# questions, not a measurement; the curves above are.)
#
# ## 8 · Watching the inside
#
# A loss says *that* a model learns. Four more instruments say whether its parts work. The first two: how long the KDA
# channels remember, and which earlier vectors each sublayer reads.

# %% tags=["slide"]
def lives(moment):
    """Half-lives of every channel, sorted, one row a head.   -> {layer: [H, K]}"""
    return {layer: np.sort(draw.half_life(alpha), axis=1) for layer, alpha in moments[moment].decay.items()}


channels, three = np.arange(1, config.kda_key_dim + 1), (0, MOMENTS[-2], TOTAL)
show(draw.lab_curves({layer: {f"update {moment}": (channels, lives(moment)[layer]) for moment in three}
                      for layer in lives(0)}, title="How long the channels of each head remember",
                     x_label="channel, fastest first", y_label="half-life, tokens", log_y=True, columns=3,
                     numbers=False),
     "Half-lives over channels in three KDA layers at three moments, from one token to a few hundred",
     name="09_half_lives")

# %% tags=["remove"]
medians = {moment: [round(float(np.median(x)), 1) for x in lives(moment).values()] for moment in moments}
assert medians[0] == [19.3, 14.6, 12.1]
if full_run():
    assert np.allclose(medians[TOTAL], [17.0, 9.4, 7.8], atol=1.0)

# %% [markdown] tags=["slide"]
# The lines hardly move. Half-lives begin spread from one or two tokens to over a hundred, because `dt_bias` is drawn
# that way, and training only bends them: the medians of the three layers go from 19, 15 and 12 tokens to 17, 9 and 8
# (measured here). A decay is a slow thing to learn: to find out that remembering for 100 tokens pays, a channel must
# already remember for something like 100 tokens. So the *start* decides, and section 10 shows what happens without it.

# %% tags=["slide"]
show(draw.depth_weights({f"update {moment}": moments[moment].depth for moment in three}, moments[0].readers,
                        ["emb", "0-1", "own"]),
     "Three maps of who reads what over depth: equal shares at first, then uneven rows", name="09_depth")

# %% tags=["remove"]
assert moments[0].sources == ["embedding", "layers 0-1", "this block"]
start, end = moments[0].depth, moments[TOTAL].depth
assert np.allclose(start[1:5, 0], 0.5) and np.allclose(start[5:], 1 / 3)
if full_run():
    assert np.allclose(end[[2, 4, 6], 0], [0.80, 0.76, 0.71], atol=0.05)
    assert np.allclose(end[[7, 8], 1], [0.55, 0.54], atol=0.05)

# %% [markdown] tags=["slide"]
# Compare the first map with the last. (*emb* is the embedding, *0-1* the sum of the first block of two layers, *own*
# the running sum of the reader's own block.) The queries over depth begin at zero, so every mix is a plain mean. In
# the end the attention parts of layers 1, 2 and 3 take .80, .76 and .71 from the embedding: to look something up they
# want the token itself. The last MoE and the output take more than half from the first block (measured here). One run
# shows *that* rows differ, not that they must differ in this way.

# %% tags=["slide"]
show(draw.expert_load(MARKS, np.array(seen["load"]), [f"layer {layer}" for layer in model.moe_layers()]),
     "Load of sixteen experts in three layers over the run: an even colour, busiest and idlest close to 1",
     name="09_loads")

# %% tags=["remove"]
loads = np.array(seen["load"])                                    # [marks, layers, E]
if full_run():
    assert abs(loads[0].max() - 1.55) < 0.1 and abs(loads[0].min() - 0.69) < 0.1
    assert abs(loads[-1].max() - 1.14) < 0.04 and abs(loads[-1].min() - 0.93) < 0.04

# %% [markdown] tags=["slide"]
# The maps turn into one colour. In the first fifty updates, while routers move fast, the busiest expert has 1.55 times
# its fair share and the idlest .69 times; in the last fifty it is 1.14 and .93 (measured here). A bias is always set
# from the batch before, so some noise of single batches remains.

# %%
print("update  " + "".join(f"{name:>9s}" for name in moments[0].sublayers))
for moment in MOMENTS:
    print(f"{moment:6d}  " + "".join(f"{size:9.3f}" for size in moments[moment].sizes))

# %% tags=["remove"]
if full_run():
    assert np.allclose(moments[0].sizes[[0, 3]], [0.020, 0.044], atol=0.001)
    assert np.allclose(moments[TOTAL].sizes[[0, -1]], [0.069, 0.323], atol=0.02)
    assert np.abs(moments[TOTAL].sizes / moments[MOMENTS[-2]].sizes - 1).max() < 0.2

# %% [markdown]
# Compare the last two rows. Sizes (root mean square of what a sublayer reads) begin at .02 to .04, where the
# initialisation puts them, grow to .07 to .32 and have come to rest by update 200: from then on they change by less than
# a fifth (measured here). A column that keeps growing is an early warning. The teeth (small before an attention part,
# large before a MoE) come from the maps above: what is taken mostly from the embedding is as small as the embedding.
#
# (That the MLA layer of the *published* miniature is idle, which no picture of this section shows, was found by
# silencing it: [chapter 04](04_multi_head_latent_attention.ipynb). Instruments show only what they measure.)

# %% [markdown] tags=["slide"]
# ## 9 · What each part did
#
# One run proves nothing about a part: take the part away and train again, with several seeds. The lab has done so for a
# small K3 and three families, for 240 updates.

# %%
lab_table("ablation", values=["loss", "recall", "brackets", "addition"])

# %% [markdown] tags=["slide"]
# Read the ± first. Five seeds of the *same* K3 lie between .95 and 1.23 in loss and between .50 and .80 in recall: a
# difference of .1 in the means says nothing. What stands out of that: attention alone learns hardly anything in this
# time; experts without a latent (here half as wide, for equal work) and models without the convolution are behind K3 in
# all seeds. **The delta rule does not help here**: one decay a head with it is at 1.22, without it at 1.02, the least
# mean of all rows, and that is contrary to what had been expected. Nor is anything shown for the norm before $W_{up}$,
# SiTU, the gate of MLA or balancing: what they are for (stability and capacity at scale) three small tasks do not ask.
#
# ![](../figures/lab_ablation.png)

# %% tags=["remove"]
cells = results("lab_ablation")["cells"]
k3_loss = [cell["values"]["loss"] for cell in cells if cell["variant"] == "K3"]
k3_recall = [cell["values"]["recall"] for cell in cells if cell["variant"] == "K3"]
assert len(k3_loss) == 5 and (min(k3_loss) // 0.01, round(max(k3_loss), 2)) == (95, 1.23)
assert (round(min(k3_recall), 2), round(max(k3_recall), 2)) == (0.50, 0.80)
by_variant = {}
for cell in cells:
    by_variant.setdefault(cell["variant"], []).append(cell["values"]["loss"])
means = {name: np.mean(values) for name, values in by_variant.items()}
adds = "one decay a head, no delta rule"
assert abs(means["one decay a head"] - 1.22) < 0.005 and abs(means[adds] - 1.02) < 0.005
assert min(means, key=means.get) == adds
behind = ("softmax attention alone", "experts without a latent", "no short convolution")
assert all(min(by_variant[name]) > max(k3_loss) for name in behind)

# %% [markdown]
# And the optimiser? Each at the best of three rates:

# %%
lab_table("optimisers", values=["loss", "accuracy", "rate"])

# %% [markdown] tags=["slide"]
# Both forms of Muon are far ahead of AdamW after the same number of updates (.92 and .87 against 1.61), in every seed.
# **Per head is not better than whole here**: five seeds of one overlap with five of the other, and the means are a third
# of their spread apart. With two heads there is little to couple (section 4); nobody should read more out of it, in
# either direction.
#
# ![](../figures/lab_optimisers.png)

# %% tags=["remove"]
losses = {}
for cell in results("lab_optimisers")["cells"]:
    losses.setdefault(cell["variant"], []).append(cell["values"]["loss"])
adamw, whole_matrices, each_head = (losses[name] for name in ("AdamW", "Muon, whole matrices",
                                                              "Muon, each head and expert"))
assert [round(float(np.mean(each)), 2) for each in (adamw, whole_matrices, each_head)] == [1.61, 0.87, 0.92]
assert max(whole_matrices + each_head) < min(adamw) and max(whole_matrices) > min(each_head)

# %% [markdown] tags=["slide"]
# ## 10 · A clinic of failures
#
# None of the following raises an error. Four illnesses, each a copy of the small model of section 6 (which is the
# healthy one) with one thing wrong:
#
# - **rate × 20**: a learning rate of .2 in place of .01.
# - **no balancing**: the line `model.balance()` is missing.
# - **no key norm**: keys (and queries) keep the length that they have. Since a norm hides how large $W_k$ is, this
#   patient comes twice: as it is, and with a $W_k$ ten times as large at the start.
# - **dt_bias 0**: the biases of the decays were never initialised. $g = -5\,\sigma(0) = -2.5$ then, so every channel
#   keeps $e^{-2.5} = .08$ of what it holds, at every token (derived).
#
# The third needs another layer; everything else is a parameter or an argument.

# %%
class LongKeys(KimiDeltaAttention):
    """KDA whose queries and keys keep their length."""

    def queries_keys_values(self, x, cache=None, mask=None, documents=None):
        heads = []
        for project, convolve in ((self.q_proj, self.q_conv1d), (self.k_proj, self.k_conv1d),
                                  (self.v_proj, self.v_conv1d)):
            mixed, _ = convolve(project(x))
            heads.append(torch.nn.functional.silu(mixed).unflatten(-1, (self.config.num_heads, -1)))
        return tuple(heads)                                       # [B, T, H, K] twice, [B, T, H, V]


def patient(illness, seed):
    """A small model, not trained yet, with the illness."""
    model = K3(SMALL, seed=seed)
    for layer in model.layers:
        if "W_k × 10" in illness:
            layer.self_attn.k_proj.weight.data.mul_(10)
        if "no key norm" in illness:
            sound, layer.self_attn = layer.self_attn, LongKeys(SMALL)
            layer.self_attn.load_state_dict(sound.state_dict())
        if illness == "dt_bias 0":
            torch.nn.init.zeros_(layer.self_attn.dt_bias)
    return model

# %%
probe = torch.from_numpy(lists.batch(np.random.default_rng(7), 16, "validation").tokens)
VISITS = sorted({max(1, round(UPDATES * part / 10)) for part in range(1, 11)})


class Nurse:
    """Writes down expert loads and key lengths now and then; called after each update."""

    def __init__(self):
        self.loads, self.keys, self.counts = [], [], 0

    def __call__(self, step, model):
        (moe,) = model.moe_layers().values()
        self.counts = self.counts + moe.expert_counts.numpy()
        if step in VISITS:
            self.loads.append(self.counts)
            with evaluating(model):
                lengths = key_lengths(model, probe)["layer 0"]
            self.keys.append((lengths.mean(), lengths.max()))
            self.counts = 0

# %%
ILLNESSES = {"healthy": {}, "rate × 20": {"rate": 0.2}, "no balancing": {"balance": False}, "no key norm": {},
             "no key norm,\nW_k × 10": {}, "dt_bias 0": {}}
ward = {illness: [(patient(illness, seed), Nurse()) for seed in range(2)] for illness in ILLNESSES}
logs = side_by_side([((one, lists, UPDATES), {"rate": 0.01, **settings, "seed": seed, "watch": nurse})
                     for illness, settings in ILLNESSES.items()
                     for seed, (one, nurse) in enumerate(ward[illness])])

# %%
charts, right = {}, {}
for place, (illness, beds) in enumerate(ward.items()):
    both = logs[2 * place:2 * place + 2]
    decays = [np.concatenate([a.ravel() for a in mean_decay(one, probe).values()]) for one, _ in beds]
    with np.errstate(divide="ignore"):
        half_lives = np.log(0.5) / np.log(np.clip(decays, 1e-30, 1 - 1e-12))
    charts[illness] = {"loss": [log["loss"] for log in both], "norm": [log["norm"] for log in both],
                       "load": beds[0][1].loads, "keys": np.transpose(beds[0][1].keys),
                       "half_life": half_lives}
    right[illness] = [right_in_the_end(one) for one, _ in beds]
    print(f"{' '.join(illness.split()):22} loss of the last ten updates",
          *(f"{log['loss'][-10:].mean():.2f}" for log in both),
          "  answers right", *(f"{share:.2f}" for share in right[illness]))

# %% tags=["slide"]
TELL = {"rate × 20": "norm", "no balancing": "load", "no key norm": "keys", "no key norm,\nW_k × 10": "keys",
        "dt_bias 0": "half_life"}
show(draw.clinic_chart(np.arange(1, UPDATES + 1), VISITS, charts, TELL),
     "Six rows of five instruments; framed: jumps of the gradient norm at a rate too high, uneven loads "
     "without balancing, key lengths without the norm, half-lives below a token without dt_bias",
     name="09_clinic")

# %% tags=["remove"]
ends = {illness: np.array(chart["loss"])[:, -10:].mean(axis=1) for illness, chart in charts.items()}
too_long, idle = "no key norm,\nW_k × 10", np.array(charts["no balancing"]["load"][-1])
idle = idle / idle.mean()
if full_run():
    assert min(np.nanmin(ends[name]) for name in ("rate × 20", "dt_bias 0", too_long)) > 1.7
    assert max(max(ends[name]) for name in ("healthy", "no balancing", "no key norm")) < 1.4
    assert max(max(right[name]) for name in ("rate × 20", "dt_bias 0", too_long)) < 0.2
    assert abs(idle.max() - 2.9) < 0.3 and idle.min() < 0.15 and np.isnan(ends[too_long]).sum() == 1
    assert np.max(charts["rate × 20"]["norm"]) > 30 and np.nanmax(charts[too_long]["norm"]) > 1000
    assert np.quantile(charts["dt_bias 0"]["half_life"], 0.95) < 0.6
    assert abs(charts["no key norm"]["keys"][1, -1] - 1.66) < 0.1 and charts[too_long]["keys"][1, -1] > 8

# %% [markdown] tags=["slide"]
# Each row against the grey of the healthy run:
#
# - **rate × 20.** The loss falls *faster* at first and then stays at the level of guessing. The norm of the gradient
#   lies below the healthy one and jumps now and then, once to 50. Loads flicker, and half-lives are torn apart, since
#   the biases of the decays move at the same rate.
# - **no balancing.** Nothing to see in the loss. The map tells: two experts take close to three times their share,
#   others next to nothing. At this size it costs nothing (measured here); in a large model idle experts are weights
#   that were paid for, and a busy one is the machine that all others wait for.
# - **no key norm** *did not fail*: in 160 updates this patient is as good as the healthy one. Its keys begin short and
#   grow, the longest to 1.7 (measured here). A write multiplies the error along its key by $1 - \beta |k|^2$ (chapter
#   01), which is harmless as long as $\beta |k|^2 < 2$.
# - **no key norm, $W_k$ × 10** is beyond that from the first update on. Gradients of more than a thousand; the clip
#   keeps one of the two seeds alive, which learns nothing, and the other ends in NaN (where its lines end; `k3 train`
#   stops there and says in which module). With the norm a larger $W_k$ cannot make a key longer. *That* is what it
#   does: it makes an accident impossible, and does not make the rest better.
# - **dt_bias 0.** A calm, even loss curve at the level of guessing: all looks well, only that nothing happens. The
#   half-lives tell at a glance: almost all at a third of a token. A memory that short cannot find out that a longer
#   one would pay.
#
# Two of the five patients (no balancing; no norm but short keys) cannot be found by looking at the loss. Three end at the
# loss of guessing, 1.85, each for another reason. This is why one looks at more than the loss, and why one should know
# what one's model gets for guessing.

# %% [markdown]
# ### Exercise 9.6: a patient
#
# A colleague sends five readings of a run of 300 updates. *Loss: falls quickly to 1.85 and stays. Gradient norm: calm,
# around .5. Loads: busiest 1.2, idlest .9. Half-lives: all between .2 and .4 tokens. Length of keys: 1.* What is wrong?
# Answer with one word: `"rate"`, `"balance"`, `"norm"`, `"decay"` or `"healthy"`.

# %% [markdown] tags=["hint"]
# Go through the columns of the chart: which reading differs from the grey one?

# %% id="9.6" minutes=4 difficulty=1
# BEGIN SOLUTION
my_diagnosis = "decay"
# END SOLUTION

# %%
check("9.6", my_diagnosis)

# %% [markdown] tags=["slide"]
# ## 11 · In the real K3

# %%
k3 = preset("kimi_k3")
experts = (k3.num_layers - k3.first_k_dense) * k3.num_experts * 3
heads = len(k3.kda_layers) * 3 * k3.num_heads + len(k3.mla_layers) * 2 * k3.num_heads
adamw_numbers = 2 * k3.vocab_size * k3.hidden_size + 92 * k3.num_experts * k3.hidden_size
print(f"matrices of experts {experts:,}; blocks of heads {heads:,}")
print(f"embedding, head and routers: {adamw_numbers:,} of 2,779,484,476,000 numbers "
      f"({adamw_numbers / 2_779_484_476_000:.2%}) are left to AdamW")

# %% tags=["remove"]
assert (experts, heads, adamw_numbers) == (247_296, 24_480, 2_939_682_816)
assert k3.num_layers - k3.first_k_dense == 92

# %% [markdown]
# | | K3 |
# |---|---|
# | optimiser | Muon for matrices, per head for the projections of q, k, v; AdamW for the rest (report) |
# | weight decay, schedule | .1, cosine with 1 % of linear warm-up (report) |
# | blocks orthogonalised on their own | 247,296 of experts, 24,480 of heads, and the other matrices (derived) |
# | left to AdamW beside vectors | embedding, head, routers: 2,939,682,816 numbers, .11 % (derived; choice ours) |
# | memory of the optimiser | one momentum a number with Muon, two means with AdamW: half as much (derived) |
# | balancing | Quantile Balancing, from a histogram over all machines ([chapter 12](12_scaling_up.ipynb)) (report) |
# | not published, ours | $\mu$ = .95, Nesterov, five steps with these coefficients, scale $.2\sqrt{\max}$, clip 1 |
#
# One thing is left out here: QK-Clip, which bounds the logits of attention during training.

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. The loss is taken on answers only, first the mean in each window: random characters would drown what can be learnt.
# 2. Muon moves a matrix along the nearest orthogonal matrix of its momentum, found by five odd polynomials; all
#    directions get an equal step.
# 3. Per head, so that a head's step depends on its own gradient alone; AdamW for what is not a matrix in that sense.
# 4. Ten lines make the loop: batch, loss, backward, clip, rate, step, balance. Minutes later the miniature answers.
# 5. Watch more than the loss: norms, loads, half-lives, key lengths and sizes tell diseases that the loss alone hides.
