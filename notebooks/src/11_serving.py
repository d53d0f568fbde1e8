# ---
# jupyter:
#   k3:
#     title: Serving
#     minutes: {read: 45, exercises: 40, run: about a minute}
#     needs:
#       - "the state of [chapter 02](02_kimi_delta_attention.ipynb) and the latents of [chapter 04](04_multi_head_latent_attention.ipynb)"
#       - "what a hash is"
#     objectives:
#       - "say what a conversation keeps between two questions, and which part of it grows"
#       - "say why latents can be cut anywhere and a KDA state nowhere, and show that undoing writes fails"
#       - "build names of prefixes by chained hashes, and say which prefixes can be used again"
#       - "compare policies that decide where a state is kept, in tokens saved for bytes spent"
#       - "let a small model guess and the big one check, and take back what was wrong without copies of the state"
# ---

# %% [markdown] tags=["slide"]
# # 11 · Serving
#
# *You ask a chat a question, read its answer, and ask the next one. Your program sends the whole conversation again.
# What has to be computed?*
#
# With attention alone the answer is old: the cached rows of every token are still there, the new question goes on
# behind them. K3 has two kinds of memory. Its MLA layers keep a row a token; its KDA layers keep **one matrix, whatever
# the length, overwritten at every token**. The first can be cut at any token. The second holds only *now*.
#
# **The question of this chapter: how does one go back to an earlier point of a text, when the memory has only one
# present?** It comes twice: when many conversations share beginnings, and when a guess turns out wrong.
#
# Every number says where it comes from: *report* (published about K3), *derived* (you can recompute it by hand),
# *measured here* (a cell above it ran), or *toy* (chosen to be small).

# %%
import numpy as np
import torch

from k3_scratch.accounting import cache_bytes
from k3_scratch.cache import CacheError
from k3_scratch.config import preset
from k3_scratch.course import check, progress, show
from k3_scratch.course.checks.ch11 import tokens_per_call, undo_step
from k3_scratch.generate import generate
from k3_scratch.plots.cache_lines import cache_lines
from k3_scratch.plots.prefix_blocks import prefix_blocks
from k3_scratch.plots.seed_curves import seed_curves
from k3_scratch.pretrained import pretrained
from k3_scratch.reference.kda import kda_step
from k3_scratch.serving.answering import stream
from k3_scratch.serving.hashes import block_hashes
from k3_scratch.serving.policies import at_the_end, at_turns, every
from k3_scratch.serving.prefix_store import PrefixStore
from k3_scratch.serving.rollback import Copies, Replay
from k3_scratch.serving.speculative import ModelDraft, speculate
from k3_scratch.serving.trace_replay import compare
from k3_scratch.tasks.chat_trace import chat_trace
from k3_scratch.tasks.corpus import FAMILIES, Corpus
from k3_scratch.tasks.vocabulary import NEWLINE, decode, encode
from k3_scratch.training.draft import train_draft

# %% [markdown] tags=["slide"]
# ## 1 · Two kinds of memory
#
# Between two tokens the miniature keeps three things ([chapter 08](08_miniature.ipynb), section 8): for each KDA layer the
# state $S$ (a matrix $K \times V$ a head, in float32) and the convolution's last three inputs; for each MLA layer one row
# a token, latent and shared slice. We feed it texts of several lengths and weigh its cache.

# %%
model = pretrained("mini")
lengths, measured = [16, 64, 256, 1024], []
for length in lengths:
    cache = model.new_cache(1)
    with torch.no_grad():
        model(torch.randint(256, (1, length), generator=torch.Generator().manual_seed(0)), cache)
    by_formula = cache_bytes(model.config, length, bytes_per_value=4)
    measured.append(cache.nbytes())
    assert cache.nbytes() == by_formula.total                     # measured = formula, to the byte
    print(f"{length:5} tokens: {by_formula.kda_state:,} + {by_formula.convolution:,} bytes of states and "
          f"tails, {by_formula.mla:,} of latents")

# %% [markdown]
# The same formula with K3's sizes (report): 69 KDA layers with 96 heads of $128 \times 128$ numbers in float32; 24 MLA
# layers with $512 + 64$ numbers a token in bfloat16, two bytes each.

# %% tags=["slide"]
k3 = preset("kimi_k3")
contexts = 2 ** np.arange(10, 21)
sizes = [cache_bytes(k3, int(tokens)) for tokens in contexts]
STATE, ROW = sizes[0].kda_state, sizes[0].mla // 1024             # bytes: all states; one token's latents
show(cache_lines(contexts, {"KDA states": [size.kda_state for size in sizes],
                            "MLA latents": [size.mla for size in sizes],
                            "if all were MLA": [size.total_all_mla for size in sizes]}),
     "Bytes that K3 keeps of one text: the states stay at 414 MiB, the latents cross them near 16k tokens",
     name="11_bytes")

# %% tags=["remove"]
assert (STATE, ROW) == (434_110_464, 27_648)
assert STATE / 2 ** 20 == 414

# %% [markdown] tags=["slide"]
# The states are a flat line of 414 MiB; the latents, 27,648 bytes a token, pass it at some length (derived).

# %% [markdown]
# ### Exercise 11.1: when the cache outweighs the state
#
# From how many tokens on do the latents of one text weigh **more** than its KDA states? Take the sizes above; the
# convolutions' tails do not count. (A whole number.)

# %% [markdown] tags=["hint"]
# Both numbers of bytes are in the text. Divide, then ask whether the result is already enough.

# %% id="11.1" minutes=4 difficulty=1
# BEGIN SOLUTION
my_length = 69 * 96 * 128 * 128 * 4 // (24 * 576 * 2) + 1
# END SOLUTION

# %%
check("11.1", my_length)

# %% [markdown] tags=["slide"]
# Read it the other way round: **keeping a state once costs as much as keeping the latents of almost sixteen thousand
# tokens.** Whoever wants to keep states at many places of a text must choose the places.

# %% [markdown] tags=["slide"]
# ## 2 · Can one not simply go back?
#
# A row of latents belongs to one token. To forget the last three tokens, count three rows less. For the state, the
# cache of this course refuses:

# %% tags=["slide"]
cache = model.new_cache(1)
with torch.no_grad():
    model(torch.tensor([encode("a4 k7?k")]), cache)
try:
    cache.drop(3)
except CacheError as error:
    print(error)

# %% [markdown]
# Is that laziness? One token of KDA is (for one head; $\alpha = e^g$ per key channel)
#
# $$ S_t = \left(I - \beta\, k k^\top\right) \operatorname{diag}(\alpha)\, S_{t-1} + \beta\, k v^\top . $$
#
# Given $k, v, g$ and a $\beta$ below 1, every step can be inverted on paper. Take away what was written, $\hat S = S_t -
# \beta\, k v^\top$. The matrix $I - \beta k k^\top$ leaves everything at a right angle to $k$ as it is and multiplies the
# direction of $k$ by $1 - \beta$ (keys have length 1); so its inverse divides that direction by $1 - \beta$:
#
# $$ \left(I - \beta\, k k^\top\right)^{-1} = I + \frac{\beta}{1 - \beta}\, k k^\top ,
#    \qquad S_{t-1} = \operatorname{diag}(e^{-g}) \left(\hat S + \frac{\beta}{1 - \beta}\, k\, (k^\top \hat S)\right) . $$

# %% [markdown]
# ### Exercise 11.2: one token back
#
# Write this inverse for one head: from the state after a token to the one before it. `beta` is a number below 1.

# %% [markdown] tags=["hint"]
# $k^\top \hat S$ is `k @ S_hat`, a row of $V$ numbers. The decay came first on the way there, so it comes last on the way back.

# %% id="11.2" minutes=12 difficulty=2
def my_undo_step(state, k, v, g, beta):
    """state [K, V], k [K] of length 1, v [V], g [K] log-decay, beta a number -> the state before [K, V]"""
    # BEGIN SOLUTION
    decayed = state - beta * np.outer(k, v)
    decayed = decayed + beta / (1 - beta) * np.outer(k, k @ decayed)
    return np.exp(-g)[:, None] * decayed
    # END SOLUTION

# %%
check("11.2", my_undo_step)

# %% [markdown]
# On paper it works. Now on a machine: one head with $K = V = 16$ (toy), sixty random tokens forward, then back again one
# by one, $g$ evenly between 0 and the limit named, $\beta$ between 0 and .95. How far is the result from the state that
# was there? Ten seeds, in double precision.

# %%
def way_back(seed, floor, T=60, K=16):
    """Relative error of the state after undoing 1 ... T tokens.   -> [T]"""
    rng = np.random.default_rng(seed)
    k, v = rng.normal(size=(T, K)), rng.normal(size=(T, K))
    k /= np.linalg.norm(k, axis=1, keepdims=True)
    g, beta = floor * rng.uniform(size=(T, K)), 0.95 * rng.uniform(size=T)
    states = [rng.normal(size=(K, K))]
    for t in range(T):                                            # forward, the package's step for one head
        _, S = kda_step(states[-1][None], k[t][None], k[t][None], v[t][None], g[t][None], beta[t][None])
        states.append(S[0])
    S, errors = states[-1], []
    for t in reversed(range(T)):
        S = undo_step(S, k[t], v[t], g[t], beta[t])
        errors.append(np.abs(S - states[t]).max() / np.abs(states[t]).max())
    return np.array(errors)


# %% tags=["slide"]
back = {f"g down to {floor:g}": np.array([way_back(seed, floor) for seed in range(10)])
        for floor in (-0.01, -0.5, -5.0)}
powers = {name: np.log10(np.clip(runs, 1e-17, 1e60)) for name, runs in back.items()}
show(seed_curves(np.arange(1, 61), powers, title="Undoing KDA tokens in double precision",
                 x_label="tokens taken back", y_label="relative error, powers of ten"),
     "Error of the state after taking back up to sixty tokens: it grows by a factor a token",
     name="11_undo")

# %% [markdown] tags=["slide"]
# Look at how many tokens a line needs to climb to 0: there the error is as large as the state itself. The same in
# numbers, the median of the seeds:

# %%
medians = {name: np.median(runs, axis=0) for name, runs in back.items()}
for name, errors in medians.items():
    print(f"{name:16s}" + "".join(f"{n:4} tokens {errors[n - 1]:.0e}" for n in (1, 5, 10, 20, 60)))

# %% tags=["remove"]
assert medians["g down to -5"][9] > 1
assert all(errors[0] < 1e-9 for errors in medians.values())

# %% [markdown]
# Every line rises: going back multiplies the rounding error at each token, and with K3's strongest decay nothing is
# right after ten (measured here). What was multiplied by $e^{-5}$ is, after a few tokens, below the last digit that
# the machine keeps: **it is gone.** A memory that can forget cannot be run backwards. Two ways are left: keep the state
# at some places (sections 3 and 4), or keep what is needed to compute it again from an older one (section 5).

# %% [markdown] tags=["slide"]
# ## 3 · A store of prefixes
#
# A server sees many prompts that begin alike. Cut every text into **blocks** of a few tokens and give each block a
# name that depends on the block *and on the name before it*:
#
# $$ h_1 = \operatorname{hash}(\text{block}_1), \qquad h_i = \operatorname{hash}(h_{i-1}, \text{block}_i) . $$
#
# Equal names then mean equal texts *from the beginning*, so a table of names answers "which prefix of this prompt do I
# know?" with one look-up a block. It must be chained: a block's latents depend on everything before it.

# %% tags=["slide"]
first = encode("You are helpful. What is 2+2?")
second = encode("You are helpful. What is 3+3?")
third = encode("You are harmful. What is 2+2?")
for text in (first, second, third):
    print(" ".join(name.hex()[:6] for name in block_hashes(text, 8)), " ", decode(text))

# %% tags=["remove"]
names = [block_hashes(text, 8) for text in (first, second, third)]
assert names[0][:2] == names[1][:2] and names[0][2] == names[1][2]
assert names[0][0] == names[2][0] and names[0][1:] != names[2][1:] and names[0][2] != names[2][2]

# %% [markdown]
# The first two agree in all three whole blocks (what differs comes after them and has no name yet). The third differs
# in its second block, and from there on everything has another name, also the third block, whose own tokens are the
# same as above.
#
# What is kept under a name? The **latents** of every block. The **states** (and the convolutions' tails) only at some
# block edges, since in K3 each costs as much as thousands of rows. A hit is the longest prefix for which *everything* is
# there: all layers' states at its end and the latents of all its blocks. Whatever lies behind must be computed.

# %% tags=["slide"]
show(prefix_blocks(6, [1, 3, 6], {"another question": 55, "exactly an edge": 48, "one token less": 47,
                                  "other user": 20}),
     "Six blocks of sixteen tokens with states at three edges; each prompt can use less than it shares",
     name="11_store")

# %% [markdown] tags=["slide"]
# The second bar of each prompt ends at the last state inside the first bar: 47 shared tokens are worth 16 here.
#
# Two rules keep it safe. What is kept is **copied** out on a hit and never written to, so a hundred conversations can go
# on from one prefix. And an entry is kept whole or thrown out whole, the longest unused first: a name that is found
# always leads to a complete memory. A wrong answer is then impossible; a miss only costs time.

# %% [markdown]
# ### Exercise 11.3: what need not be computed again
#
# A prompt has `length` tokens; the first `shared` of them agree with a kept text, which has states after the numbers of
# tokens in `edges` (an array, rising, perhaps empty). How many tokens of the prompt need not be computed? Mind that the
# store holds no logits: **at least the last token of a prompt must be fed**, or nothing says what follows.

# %% [markdown] tags=["hint"]
# Which edges can be used? Those up to two limits at once. Of them the largest; and there may be none.

# %% id="11.3" minutes=8 difficulty=1
def my_reused(shared, length, edges):
    """shared, length whole numbers, edges [N] whole numbers, rising -> a whole number"""
    # BEGIN SOLUTION
    usable = edges[edges <= min(shared, length - 1)]
    return int(usable.max()) if usable.size else 0
    # END SOLUTION

# %%
check("11.3", my_reused)

# %% [markdown]
# ### The executed equality
#
# The package's store on the trained miniature. One text is kept; then come prompts that follow it for `cut` tokens and
# go on differently, for **every** cut. In double precision the logits with the store must be those of a cold start.

# %%
exact = pretrained("mini").double()
kept = encode("w6 s6 k8 u2?k8w6\n94+86=180\n")
other = encode("flip mpady>ydapm\ncopy zq>zq")
store = PrefixStore(exact, block=8)
list(stream(exact, kept, 1, store=store, policy=every(8)))        # compute it once; the store looks on
worst, reused = 0.0, []
with torch.no_grad():
    for cut in range(len(kept) + 1):
        prompt = kept[:cut] + other[:12]
        warm, length = store.fetch(prompt)
        logits = exact(torch.tensor([prompt[length:]]), warm)
        cold = exact(torch.tensor([prompt]))[:, length:]
        worst, reused = max(worst, (logits - cold).abs().max().item()), [*reused, length]
assert worst < 1e-9                                               # with the store = without it, for every cut
print("reused for cuts 0, 1, 2, ...:", reused)
print(f"largest difference of any logit: {worst:.0e}")

# %% [markdown] tags=["slide"]
# The numbers climb in steps of 8: **a cut costs up to a block.** Providers of large models use blocks of 64 to 1,024
# tokens for what they bill as cached, and you now know why a prompt of 1,023 shared tokens may save nothing at all.

# %% [markdown] tags=["slide"]
# ## 4 · Where to keep a state?
#
# A made-up day at a chat service (toy): twelve conversations of six requests, two different system prompts of 200
# tokens, questions of about 30 and answers of about 40 tokens; in 15 % of the requests the user goes back and asks
# something else. Four policies:
#
# - **turns**: the last block edge of every turn (system prompt, question, answer);
# - **every 64** tokens, **every 256** tokens;
# - **end**: only the last edge of the finished text.
#
# A hit depends on tokens and bytes alone, so no model is needed to count. Sizes are those of the miniature in float32:
# 19,200 bytes a state with its tails, 160 a token of latents, blocks of 16. When the memory is full, the entry that has not
# been used for longest goes. Five days, that is five seeds.

# %% tags=["slide"]
mini = cache_bytes(model.config, 1, bytes_per_value=4)
PRICES = {"state_bytes": mini.kda_state + mini.convolution, "token_bytes": mini.mla}
POLICIES = {"turns": at_turns, "every 64": every(64), "every 256": every(256), "end": at_the_end}
budgets = [2 ** power for power in range(16, 23)]
days = [compare(chat_trace(seed), POLICIES, budgets, block=16, **PRICES)["saved_share"] for seed in range(5)]
saved = np.array(days)                                            # [days, policies, budgets]
show(seed_curves(np.array(budgets) / 2 ** 10,
                 {name: saved[:, row] for row, name in enumerate(POLICIES)}, log=True,
                 ticks=[size / 2 ** 10 for size in budgets], title="Prompt tokens that need not be computed",
                 x_label="memory of the store, KiB", y_label="share saved", limits=(0, 1)),
     "Share of prompt tokens saved against memory: states at turns save most when memory suffices",
     name="11_policies")

# %% [markdown] tags=["slide"]
# Look at the right end, where memory suffices: what a line misses there is what its policy never keeps. The same in
# numbers, the mean of the five days:

# %% tags=["slide"]
table = {name: dict(zip(budgets, saved[:, row].mean(0), strict=True)) for row, name in enumerate(POLICIES)}
for name, shares in table.items():
    print(f"{name:10s}" + "  ".join(f"{size // 2 ** 10:5} KiB {share:.2f}" for size, share in shares.items()))

# %% tags=["remove"]
assert table["turns"][2 ** 21] > 0.8 > table["end"][2 ** 22]
assert table["turns"][2 ** 22] > table["every 256"][2 ** 22]

# %% [markdown]
# States at the ends of turns save more than four fifths of all prompt tokens with 2 MiB (measured here). *end* is
# cheap, one state a request, but it never keeps the point where conversations part: another user's question after the
# same system prompt finds nothing, and neither does a user who goes back. Fixed distances have a chance at every branch
# and pay for it with states that nobody asks for again: with little memory *every 64* is even ahead, with 2 MiB and more
# it no longer is, and *every 256* misses most branches.
#
# The same day with other block lengths, states at turns, memory without limit:

# %% tags=["slide"]
blocks = [1, 4, 16, 64, 256, 1024]
by_block = np.array([[compare(chat_trace(seed), {"turns": at_turns}, [None], block=block,
                              **PRICES)["saved_share"][0, 0] for block in blocks] for seed in range(5)])
show(seed_curves(np.array(blocks), {"turns": by_block}, log=True, ticks=blocks,
                 title="What the block length costs", x_label="tokens in a block", y_label="share saved",
                 limits=(0, 1)),
     "Share saved against block length: hardly less up to sixteen tokens, then ever less, nothing at 1,024",
     name="11_blocks")
print("  ".join(f"{block}: {share:.2f}" for block, share in zip(blocks, by_block.mean(0), strict=True)))

# %% tags=["remove"]
assert by_block[:, -1].max() == 0 and by_block.mean(0)[0] - by_block.mean(0)[2] < 0.05

# %% [markdown] tags=["slide"]
# Short blocks lose little; at 1,024, longer than any conversation of this day, nothing is saved (measured
# here). Conversations with real models are longer, and long blocks make the table of names shorter and the copies
# larger and fewer: that is the trade.

# %% [markdown] tags=["slide"]
# ## 5 · Guess, check, take back
#
# Writing a text costs one call of the model a token, and a call with one token keeps a machine waiting for its
# weights: a call with five tokens takes little longer. **Speculative decoding** uses that (Leviathan and others, arXiv
# 2211.17192). A small *draft* guesses the next few tokens. The model is fed all of them in one call and says after each
# what *it* would have written. As long as they agree, the guesses stand; at the first that does not, the model's own
# choice takes its place. With greedy choices the text is, token for token, what the model would have written alone.

# %% [markdown]
# ### Exercise 11.4: what one call yields
#
# `guesses` are the draft's $G$ tokens. `chosen` are the model's choices, one more: `chosen[0]` is what it wants in the
# place of `guesses[0]`, and `chosen[G]` comes after the last guess. Return the tokens that this call adds to the text.

# %% [markdown] tags=["hint"]
# How many guesses are right before the first wrong one? `np.cumprod` of equal / not equal turns everything behind the
# first zero into zeros.

# %% id="11.4" minutes=8 difficulty=2
def my_new_tokens(guesses, chosen):
    """guesses [G], chosen [G + 1] whole numbers -> the new tokens [right guesses + 1]"""
    # BEGIN SOLUTION
    right = int(np.cumprod(guesses == chosen[:-1]).sum())
    return chosen[:right + 1].copy()
    # END SOLUTION

# %%
check("11.4", my_new_tokens)

# %% [markdown] tags=["slide"]
# ### Taking back without copies
#
# After a wrong guess the model has read tokens that are not in the text. Latents: count fewer rows. The state: it
# would have to be the one after the last right token, and section 2 said that there is no way back. There are two
# ways *forward* to it:
#
# - **copies**: put the state aside after every guessed token, $H K V$ numbers a token and layer;
# - **replay**: keep the *old* state and, for every guessed token, what goes into the recurrence: $k, v, g, \beta$, which is
#   $H (2K + V + 1)$ numbers, and the layer's input, $D$ numbers, for the convolution's tail. Then run the right ones
#   onto the old state. The projections, the experts and all other layers are not computed again.

# %%
prompt, guessed, right = encode("flip mpady>"), encode("ydaXm"), 3
results = {}
with torch.no_grad():
    want = exact.new_cache(1)
    exact(torch.tensor([prompt + guessed[:right]]), want)         # as if only the right ones had been read
    for rollback in (Replay, Copies):
        cache = exact.new_cache(1)
        exact(torch.tensor([prompt]), cache)
        with rollback(exact, cache) as fed:
            exact(torch.tensor([guessed]), cache)
        fed.keep(right)
        error = max((cache.layers[i].state - want.layers[i].state).abs().max().item() for i in range(3))
        assert error < 1e-10 and cache.nbytes() == want.nbytes()  # replayed = copied = never read
        results[rollback.__name__] = fed.nbytes()
print("bytes held for five guessed tokens (miniature, float64):", results)
H, K, V, D = k3.num_heads, k3.kda_key_dim, k3.kda_value_dim, k3.hidden_size
print(f"K3, numbers a token and layer: replay {H * (2 * K + V + 1) + D:,}, a copy {H * K * V:,}")

# %% tags=["remove"]
assert H * (2 * K + V + 1) + D == 44_128 and H * K * V == 1_572_864
assert results["Replay"] * 3 < results["Copies"]

# %% [markdown]
# In K3 a copy is 36 times as large as what replay needs (derived). The replayed recurrence is the package's
# `kda_chunk`, and nothing new: state in, a few tokens, state out, as in [chapter 03](03_chunks.ipynb).
#
# ### A draft of one layer
#
# The draft is the first layer of the miniature, KDA, with its embedding and head, trained for some seconds by itself on
# what the miniature was trained on.

# %%
draft, losses = train_draft(model, Corpus(), steps=400, batch_size=16)
print(f"loss {losses[0]:.2f} -> {np.mean(losses[-20:]):.2f} in {len(losses)} updates; parameters: "
      f"{sum(p.numel() for p in draft.parameters()):,} of {sum(p.numel() for p in model.parameters()):,}")


def questions(name, count):
    """Held-out prompts of one family."""
    rng = np.random.default_rng(3)
    return [encode(FAMILIES[name].example(rng, "test").turns[0][0]) for _ in range(count)]


def run(name, guesses, count=8):
    """-> share of guesses confirmed, tokens a call; the text is compared with the model's own"""
    proposed = accepted = calls = tokens = 0
    for asked in questions(name, count):
        done = speculate(model, ModelDraft(draft), asked, 24, guesses=guesses, stop_tokens=(NEWLINE,))
        assert done.tokens == generate(model, asked, 24, stop_tokens=(NEWLINE,))  # the same text, always
        proposed, accepted = proposed + done.proposed, accepted + done.accepted
        calls, tokens = calls + done.calls, tokens + len(done.tokens)
    return accepted / max(1, proposed), tokens / calls

# %% tags=["slide"]
confirmed = {name: run(name, guesses=4) for name in FAMILIES}
print("family     guesses confirmed   tokens a call")
for name, (share, per_call) in confirmed.items():
    print(f"{name:10s}       {share:.2f}             {per_call:.2f}")

# %% tags=["remove"]
assert all(0.15 < share < 0.7 for share, _ in confirmed.values()) and confirmed["recall"][1] == 1.0
assert max(per_call for _, per_call in confirmed.values()) > 1.8

# %% [markdown]
# Every text was the model's own, token for token (asserted above). What one layer can guess is another matter: between a
# quarter and three fifths, depending on the family (measured here). Long answers gain most, up to two tokens a call. A
# recalled digit gains nothing: one token and the end of the line leave nothing to guess ahead.

# %% [markdown]
# ### Exercise 11.5: tokens a call
#
# Guess $i$ is right with probability $a_i$, once all before it were right. How many tokens does one call yield on
# average with the $G$ guesses in `a`? (Count the model's own token.)

# %% [markdown] tags=["hint"]
# The first guess helps with probability $a_1$. When does the second help?

# %% id="11.5" minutes=8 difficulty=2
def my_tokens_per_call(a):
    """a [G] probabilities -> a number"""
    # BEGIN SOLUTION
    return 1.0 + float(np.cumprod(a).sum())
    # END SOLUTION

# %%
check("11.5", my_tokens_per_call)

# %% [markdown]
# If all $a_i$ are one number $a$, the sum $1 + a + a^2 + \dots$ never passes $1 / (1 - a)$: with $a = 0.5$ two guesses
# bring most of it, and each further one must be computed whether it is used or not.

# %% tags=["slide"]
guesses = np.arange(9)
show(seed_curves(guesses, {f"a = {a:g}": [tokens_per_call(np.full(n, a)) for n in guesses]
                           for a in (0.3, 0.5, 0.7, 0.9)},
                 title="Tokens a call when each guess is right with probability a", x_label="guesses",
                 y_label="tokens a call"),
     "Tokens a call against the number of guesses: the curves flatten, the earlier the worse the draft",
     name="11_guesses")

# %% [markdown] tags=["slide"]
# At $a = .3$ the third guess adds .03 of a token; at $a = .9$ the eighth still adds .43 (derived).

# %% [markdown] tags=["slide"]
# ## 6 · In the real K3
#
# | | K3 |
# |---|---|
# | states of one text | 69 · 96 · 128 · 128 numbers in float32 = 414 MiB (derived), whatever its length |
# | convolution tails | 69 · 3 · 36,864 numbers in bfloat16 = 15,261,696 bytes (derived) |
# | latents of a token | 24 · 576 numbers in bfloat16 = 27,648 bytes (derived) |
# | one more checkpoint of a text | as much as the latents of 15,701 tokens (derived) |
# | a text of 1,048,576 tokens | 27 GiB of latents; the states are 1.5 % beside it (derived) |
# | a state at every 1,024 tokens | 15 times the latents (derived): nobody keeps that, so edges must be chosen |
# | taking back one guessed token | 44,128 numbers a layer by replay, 1,572,864 by a copy (derived) |

# %% tags=["remove"]
full = cache_bytes(k3, 2 ** 20)
assert full.convolution == 15_261_696 and full.mla == 27 * 2 ** 30
assert abs(full.kda_state / full.mla - 0.015) < 0.0005
assert 15 < STATE / 1024 / ROW < 15.5

# %% [markdown]
# `k3 chat` in a terminal is all of this at once: every line sends the whole conversation again, answers are streamed, and
# `/stats` says what the store saved.

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. K3 keeps a row a token in 24 layers and one matrix a head in 69: the rows can be cut anywhere, the matrix nowhere.
# 2. A KDA token can be undone on paper; on a machine the decay has pushed the past below the last digit.
# 3. A prefix store names blocks by chained hashes; a hit is the longest prefix with all latents *and* all states, copied.
# 4. States are kept where texts branch: at the ends of turns. A cut in between costs up to a block.
# 5. Guesses are checked several at a time and taken back by replaying the recurrence's inputs onto the old state.
