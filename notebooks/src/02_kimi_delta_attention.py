# ---
# jupyter:
#   k3:
#     title: Kimi Delta Attention
#     minutes: {read: 51, exercises: 62, run: about one minute}
#     needs:
#       - "the delta rule, [chapter 01](01_delta_rule_rnn.ipynb)"
#       - "the exponential function and its logarithm"
#     objectives:
#       - "say what one decay for a whole memory cannot do, and show it"
#       - "derive Eq. 1 of the K3 report from three steps, and go back from it to the steps"
#       - "explain why a token forgets before it takes the error, and what goes wrong otherwise"
#       - "write the decay gate, the short convolution, head norm and output gate, and put the whole layer together"
#       - "say why the layer is called attention although it is a recurrent network"
#       - "read half-lives off a trained model, and test what they are needed for"
#     data: [figures/results/lab_forgetting.json, figures/results/lab_lifetimes.json,
#            figures/results/lab_state_size.json]
# ---

# %% [markdown] tags=["slide"]
# # 02 · Kimi Delta Attention
#
# *Mo has ice. The tram is late. Su waves. … Who has the ice? And where is the tram?*
#
# The ice must be remembered to the end. The tram is gone after a sentence or two, and nobody will come to correct the
# entry. The delta rule of [chapter 01](01_delta_rule_rnn.ipynb) overwrites an entry when its *key* comes again; an
# entry whose key never comes again stays for ever, as if it were still true.
#
# **The question of this chapter: how can a memory forget what has passed without losing what must stay?**
#
# The answer, together with what stands in front of it and behind it, is the layer that makes up three quarters of
# Kimi K3: *Kimi Delta Attention*, KDA for short. At the end of the chapter the whole layer stands here in NumPy, and
# gives the same numbers as the one that the course trains.
#
# As everywhere, numbers are *report*, *derived*, *measured here* or *toy* ([chapter 00](00_the_map.ipynb)).

# %%
import numpy as np
import torch

from k3_scratch.analysis.decay import mean_decay
from k3_scratch.config import preset
from k3_scratch.course import check, lab_table, progress, show
from k3_scratch.layers.kda_attention import KimiDeltaAttention
from k3_scratch.plots.decay_gates import decay_gates
from k3_scratch.plots.decay_spectrum import decay_spectrum, half_life
from k3_scratch.plots.frame_slider import frame_slider
from k3_scratch.plots.kda_layer import kda_layer
from k3_scratch.plots.memory_film import memory_film
from k3_scratch.plots.memory_step import memory_step
from k3_scratch.plots.seed_curves import seed_curves
from k3_scratch.plots.state_film import state_film
from k3_scratch.plots.token_weights import token_weights
from k3_scratch.pretrained import pretrained
from k3_scratch.reference.decay_gates import bounded_decay, sigmoid, softplus_decay
from k3_scratch.reference.delta_rule import delta_step
from k3_scratch.reference.kda import kda_recurrent, kda_step
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.short_convolution import short_convolution
from k3_scratch.reference.unit_keys import l2_norm
from k3_scratch.tasks.corpus import PAD, Corpus
from k3_scratch.training.evaluate import accuracy

# %% [markdown] tags=["slide"]
# ## 1 · The smallest picture
#
# As before: a key $k$ of $K$ numbers, a value $v$ of $V$ numbers, a memory $S$ with $K$ rows and $V$ columns. The
# delta rule writes $S \leftarrow S + \beta\, k\,(v - S^\top k)^\top$ and reads $S^\top q$. Three tokens (toy, $K = 3$,
# $V = 2$, $\beta = 1$): a fact to keep, a passing remark, and a third thing.

# %%
KEYS = np.eye(3)                                                  # [3 tokens, K]: each token its own row
VALUES = np.array([[2.0, 1.0], [4.0, -2.0], [1.0, 3.0]])          # [3 tokens, V]


def film(decay):
    """Fade each row by `decay` [K], then write.   -> states [4, K, V], recalled [3, V]"""
    states, recalled = [np.zeros((3, 2))], []
    for k, v in zip(KEYS, VALUES, strict=True):
        faded = decay[:, None] * states[-1]                       # [K, 1] * [K, V]
        recalled.append(k @ faded)
        states.append(delta_step(faded, k, v, 1.0))
    return np.array(states), np.array(recalled)


# %% tags=["slide"]
states, recalled = film(np.ones(3))
titles = ["a fact to keep", "a passing remark", "a third thing"]
show(memory_film(states, KEYS, VALUES, recalled, titles=titles),
     "Three writes into a memory that never forgets: after the third all three rows stand at full strength",
     name="02_film_never_forgets")

# %% [markdown] tags=["slide"]
# Look at the last memory: the passing remark, (4, −2), is as strong as on the first day. Whoever asks for it gets an
# answer in full voice, however long ago it ceased to be true.

# %% [markdown] tags=["slide"]
# ## 2 · Forgetting, with one number for everything
#
# The oldest idea: let the whole memory fade a little at each token, before the new pair is written,
#
# $$ S \leftarrow \alpha S, \qquad 0 < \alpha \le 1 . $$
#
# What was written $n$ tokens ago has then been multiplied by $\alpha^n$. Products of many small factors are easier as
# sums of logarithms, so from here on we say **log-decay** $g = \log \alpha \le 0$, measured in *nats a token* (a nat
# is a step of one in a natural logarithm). After $n$ tokens $e^{g n}$ is left. $g = 0$ forgets nothing; $g = -5$
# leaves $e^{-5} = .0067$, less than a hundredth, after a single token (derived).
#
# With $\alpha = \tfrac12$ in the three tokens of section 1:

# %% tags=["slide"]
states, recalled = film(np.full(3, 0.5))
show(memory_film(states, KEYS, VALUES, recalled, decay=np.full((3, 3), 0.5), titles=titles),
     "The same writes with a decay of one half for all rows: the remark has faded, so has the fact to keep",
     name="02_film_one_decay")

# %% [markdown] tags=["slide"]
# Look at the last memory again: the remark has faded to half, as it should; but the fact to keep is down to a quarter,
# (0.5, 0.25). The bars beside the memory say which share of each row was kept before the write.

# %% [markdown]
# ### Exercise 2.1: half-life
#
# A channel has $g = -0.01$ nats a token. After how many tokens is half of an entry left? (A number; whole tokens are
# close enough.)

# %% [markdown] tags=["hint"]
# $e^{-0.01\, n} = \tfrac12$. `np.log` is the natural logarithm.

# %% id="2.1" minutes=3 difficulty=1
# BEGIN SOLUTION
my_half_life = np.log(0.5) / -0.01
# END SOLUTION

# %%
check("2.1", my_half_life)

# %% [markdown] tags=["slide"]
# ## 3 · An experiment that breaks it: keep some, forget some
#
# Eight old facts are stored first. Then come 256 passing ones. Their keys lie on different channels: the old facts
# use the first 16 of $K = 32$ channels, the passing ones the other 16 (built by hand, toy). At the end the memory is
# asked for all of them. What it recalls counts as the value that is nearest to it, or as **"nothing"** when the zero
# vector is nearer than any value: a memory should be able to say that it holds nothing.
#
# Three things are wanted: the 8 old facts are found; the 4 newest of the passing facts are found; and the 128 that
# passed first are answered with "nothing". Decay is either the same for all channels, or only for the 16 channels of
# the passing facts. Half-lives from 3 to 1000 tokens, ten seeds.

# %%
def story(seed, decay, K=32, old=8, passing=256, gone=128):
    """Shares: old facts found, the 4 newest found, those long gone answered with "nothing".   -> [3]"""
    rng = np.random.default_rng(seed)
    keys = np.zeros((old + passing, K))
    keys[:old, :K // 2] = l2_norm(rng.normal(size=(old, K // 2)))
    keys[old:, K // 2:] = l2_norm(rng.normal(size=(passing, K // 2)))
    values = l2_norm(rng.normal(size=(old + passing, K)))
    S = np.zeros((K, K))
    for k, v in zip(keys, values, strict=True):
        S = delta_step(decay[:, None] * S, k, v, 1.0)
    closeness = keys @ S @ values.T                               # recalled . value   [facts, values]
    answered = closeness.max(axis=1) > 0.5                        # then a unit value is nearer than zero
    right = answered & (closeness.argmax(axis=1) == np.arange(old + passing))
    return right[:old].mean(), right[-4:].mean(), 1 - answered[old:old + gone].mean()


HALF_LIVES = np.array([3, 7, 14, 30, 70, 200, 450, 1000])
shares = 0.5 ** (1 / HALF_LIVES)                                  # alpha of one token
one = np.array([[story(seed, np.full(32, a)) for a in shares] for seed in range(10)])  # [seeds, n, 3]
own = np.array([[story(seed, np.where(np.arange(32) < 16, 1, a)) for a in shares] for seed in range(10)])
never = np.array([story(seed, np.ones(32)) for seed in range(10)])  # [seeds, 3]
assert np.allclose(one[:, :, 1:], own[:, :, 1:])                  # the passing facts notice no difference

# %% tags=["slide"]
curves = {"old facts found, one decay": one[:, :, 0], "old facts found, own decay": own[:, :, 0],
          "newest found (both)": own[:, :, 1], "gone: \"nothing\" (both)": own[:, :, 2]}
show(seed_curves(HALF_LIVES, curves, title="Keep some, forget some", y_label="share", log=True,
                 x_label="half-life of the passing facts, tokens", limits=(-0.03, 1.04), ticks=HALF_LIVES),
     "Four shares against the half-life: with one decay the old facts are lost up to 200 tokens, with a "
     "decay of their own they are always kept; what is gone is answered with nothing if half-lives are short",
     name="02_keep_some")

# %% [markdown] tags=["slide"]
# Look at blue against yellow: with **one decay** the old facts come back only when the half-life is so long that
# little is forgotten; with **a decay of their own** they stay at every half-life. The other two lines are the same
# for both.

# %%
print("                           old facts  newest  gone: nothing")
for name, row in (("never forgets", never), ("one decay, half-life 14", one[:, 2]),
                  ("one decay, half-life 1000", one[:, -1]), ("own decay, half-life 14", own[:, 2])):
    print(f"{name:27s}  {row[:, 0].mean():.2f}     {row[:, 1].mean():.2f}      {row[:, 2].mean():.2f}")

# %% tags=["remove"]
assert np.allclose(one[:, :4, 0], 0)
assert own[:, :, 0].mean() > 0.85 and own[:, 2, 2].mean() > 0.85 and own[:, 2, 1].mean() > 0.97
assert never[:, 0].mean() > 0.85 and never[:, 1].mean() == 1 and never[:, 2].mean() < 0.5
assert one[:, -1, 0].mean() > 0.8 and one[:, -1, 2].mean() < 0.6 and one[:, 5, 0].mean() < 0.1

# %% [markdown]
# Read the table by rows (measured here). A memory that never forgets answers more than half of the questions about
# things long gone, and each such answer is wrong. One decay silences them and takes all old facts with it. A decay of
# its own for each channel keeps nine of ten old facts and is silent about nine of ten that are gone.
#
# An honest remark: the *newest* facts are found in every row, also where nothing is forgotten. The delta rule makes
# room for them by itself, by overwriting. Forgetting is for what is **never written again**. So from here on each
# channel $c$, that is each row of $S$, gets its own decay $\alpha_c$. With $\operatorname{diag}(\alpha)$ for the matrix
# that has $\alpha$ on its diagonal and zeros elsewhere, multiplying each row by its own number is a product of
# matrices (in NumPy: `alpha[:, None] * S`):
#
# $$ S \leftarrow \operatorname{diag}(\alpha)\, S . $$
#
# And like $\beta$, the decays are computed from each token anew (section 6). A token can empty some rows and leave the
# others alone.

# %% [markdown]
# ### What the lab measured
#
# The lab of the course (see [chapter 01](01_delta_rule_rnn.ipynb), section 5) has asked nearly the same, of a memory
# that adds and of the delta rule, with some noise on what is read. Only what is *found* counts there; "nothing" is no
# answer.

# %%
lab_table("forgetting", values=["old facts", "new facts"])

# %% [markdown]
# Read the last row of the table, no decay, from left to right: a memory that adds drowns in the stream and loses the
# new facts, the delta rule keeps nearly all of both. That is the honest remark from above, and the reason for the
# verdict *contrary*: a memory that erases needs no decay to make room for what is new. It needs it to fall silent
# about what is over, which this test does not ask. The picture shows the worse of the two columns, old and new.
#
# ![](../figures/lab_forgetting.png)

# %% [markdown] tags=["slide"]
# ## 4 · KDA: forget, erase, write
#
# One token of one head does three things to the memory, each with the result of the one before:
#
# 1. **Forget.** $\quad \tilde S = \operatorname{diag}(\alpha_t)\, S_{t-1}$
# 2. **Erase** what the faded memory holds under the key, as far as $\beta$ says. It recalls $\tilde S^\top k_t$, so
#    $\quad \hat S = \tilde S - \beta_t\, k_t\, (\tilde S^\top k_t)^\top$
# 3. **Write** the new value there. $\quad S_t = \hat S + \beta_t\, k_t v_t^\top$
#
# Then it **reads**, $o_t = S_t^\top q_t$, after the write: a token sees what it has just stored.
#
# **From the steps to one line.** The transpose of a product turns its order round, so
# $(\tilde S^\top k)^\top = k^\top \tilde S$. Step 2 becomes a matrix that acts on $\tilde S$:
#
# $$ \hat S = \tilde S - \beta_t k_t k_t^\top \tilde S = (I - \beta_t k_t k_t^\top)\, \tilde S . $$
#
# Put step 1 into it and the result into step 3:
#
# $$ \boxed{\; S_t = \left(I - \beta_t k_t k_t^\top\right) \operatorname{diag}(\alpha_t)\, S_{t-1}
#                    + \beta_t k_t v_t^\top, \qquad o_t = S_t^\top q_t \;} $$
#
# This is Eq. 1 of the K3 report, and of the paper that introduced KDA (Kimi Linear, arXiv 2510.26692).
#
# **And back.** Multiply the bracket out and write $\tilde S$ for $\operatorname{diag}(\alpha_t) S_{t-1}$:
#
# $$ S_t = \tilde S - \beta_t k_t k_t^\top \tilde S + \beta_t k_t v_t^\top
#        = \tilde S + \beta_t k_t \big( v_t^\top - k_t^\top \tilde S \big)
#        = \tilde S + \beta_t k_t \big( v_t - \tilde S^\top k_t \big)^\top . $$
#
# That is the delta rule, applied to the faded memory. Three older memories are special cases: $\alpha = 1$ is the delta
# rule; the same $\alpha$ in all channels is *Gated DeltaNet* (arXiv 2412.06464); without step 2 it is linear attention
# with decay.
#
# Can such a memory grow without end? The matrix $I - \beta k k^\top$ with a unit key multiplies the direction $k$ by
# $1 - \beta$ and leaves all directions at right angles to it alone; $\operatorname{diag}(\alpha)$ multiplies by at
# most 1. Neither makes any vector longer, so the old memory can only shrink; what is added at a token is at most one
# value.

# %% [markdown]
# ### Exercise 2.2: what a token does to the old memory
#
# Return the matrix $M = (I - \beta k k^\top) \operatorname{diag}(\alpha)$ that Eq. 1 puts in front of $S_{t-1}$. You
# are given the log-decay `g`, not $\alpha$.

# %% [markdown] tags=["hint"]
# `np.eye(K)` is $I$, `np.outer(k, k)` is $k k^\top$, `np.diag(a)` makes a matrix of a vector, `@` multiplies. What acts
# first on $S$ stands next to it.

# %% id="2.2" minutes=6 difficulty=1
def my_transition(k, g, beta):
    """k [K] of unit length, g [K] = log alpha, beta a number -> M [K, K]"""
    # BEGIN SOLUTION
    erase = np.eye(len(k)) - beta * np.outer(k, k)
    return erase @ np.diag(np.exp(g))
    # END SOLUTION

# %%
check("2.2", my_transition)

# %% [markdown]
# ### Exercise 2.3: one KDA step
#
# Forget, erase and write, read. The query gets the scale $K^{-1/2}$ as in chapter 01 (and nothing else gets it). Return
# the output and the new state; leave the arguments as they are.

# %% [markdown] tags=["hint"]
# Four lines, in the order of the words. The first is `S = np.exp(g)[:, None] * state`; everything after it uses `S`,
# not `state`.

# %% id="2.3" minutes=12 difficulty=2
def my_kda_step(state, q, k, v, g, beta):
    """state [K, V], q, k, g [K], v [V], beta a number -> o [V], state [K, V]"""
    # BEGIN SOLUTION
    S = np.exp(g)[:, None] * state
    error = v - k @ S
    S = S + beta * np.outer(k, error)
    return len(k) ** -0.5 * q @ S, S
    # END SOLUTION

# %%
check("2.3", my_kda_step)

# %% [markdown]
# Here it is for the rest of the chapter, with the two parts of the write apart, token after token. It equals the
# reference of the course; section 9 compares it with the torch layer.

# %%
def kda(q, k, v, g, beta, scale=None):
    """q, k, g [T, K], v [T, V], beta [T] -> o [T, V], all states [T + 1, K, V]"""
    scale = k.shape[1] ** -0.5 if scale is None else scale
    states, o = [np.zeros((k.shape[1], v.shape[1]))], np.zeros(v.shape)
    for t in range(len(k)):
        S = np.exp(g[t])[:, None] * states[-1]                    # forget
        recalled = k[t] @ S
        S = S - beta[t] * np.outer(k[t], recalled)                # erase
        S = S + beta[t] * np.outer(k[t], v[t])                    # write
        o[t] = scale * q[t] @ S                                   # read
        states.append(S)
    return o, np.array(states)


rng = np.random.default_rng(0)
q, k, v = l2_norm(rng.normal(size=(9, 5))), l2_norm(rng.normal(size=(9, 5))), rng.normal(size=(9, 4))
g, beta = -rng.uniform(0, 2, size=(9, 5)), rng.uniform(0.1, 0.9, size=9)
o, states = kda(q, k, v, g, beta)
heads = [a[:, None] for a in (q, k, v, g, beta)]                  # the axis of heads: one head
o_reference, S_reference = kda_recurrent(*heads)
assert np.allclose(o, o_reference[:, 0]) and np.allclose(states[-1], S_reference[0])  # here = reference
print("the loop above and the reference of the course give the same outputs and the same last state")

# %% [markdown]
# ### The film strip
#
# Four tokens, step by step (toy). The first row of the memory never fades; the other two fade at each token, and by
# how much depends on the token. The third token comes back to the key of the second; the key of the fourth lies
# between two rows, and its $\beta$ is one half.

# %% tags=["slide"]
KEYS = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8], [0.0, 0.0, 1.0], [0.6, 0.0, 0.8]])
VALUES = np.array([[2.0, 1.0], [5.0, -5.0], [0.0, 3.0], [0.0, 2.0]])
DECAY = np.array([[1.0, 0.8, 0.5], [1.0, 0.8, 0.5], [1.0, 0.5, 0.5], [1.0, 0.8, 0.5]])  # alpha, not g
BETA = np.array([1.0, 1.0, 1.0, 0.5])
QUERY = np.array([1.0, 0.0, 0.0])                                 # asked after each token: the first key
read, states = kda(np.tile(QUERY, (4, 1)), KEYS, VALUES, np.log(DECAY), BETA, scale=1.0)
titles = ["a fact to keep", "a passing remark", "near the remark", "between two rows"]
show(state_film(states, KEYS, VALUES, DECAY, BETA, titles=titles),
     "Four tokens in columns: the faded memory with bars of decay, what is recalled, what is erased, the "
     "value, what is written, and the memory afterwards", name="02_film_strip")

# %% tags=["remove"]
assert np.allclose(states[3], [[2, 1], [1.5, -1.5], [0, 3]])
assert np.allclose(KEYS[3] @ (DECAY[3][:, None] * states[3]), [1.2, 1.8])
assert np.allclose(read, [[2, 1], [2, 1], [2, 1], [1.64, 1.06]])

# %% [markdown] tags=["slide"]
# Look down the third column. The remark has faded to (1.5, −1.5) and (2, −2). The key recalls (2, −2), exactly that
# is erased, and (0, 3) stands there instead. Only the row that the key marks is corrected; the row above it just
# fades. In the fourth column half of what is recalled, (1.2, 1.8), is erased from both rows that the key touches,
# also from the fact to keep: it now reads (1.64, 1.06). Keys that are not at right angles disturb each other, as in
# chapter 01.
#
# The last three tokens in slow motion, four steps each. Move the slider (it needs no kernel; where it does not move, the
# strip above shows the same):

# %%
def slow_motion(t, limit=5.0):
    """The four pictures of token t."""
    k, start, faded = KEYS[t], states[t], DECAY[t][:, None] * states[t]
    recalled = k @ faded
    erased = faded - BETA[t] * np.outer(k, recalled)
    word = f"token {t + 1} of 4, "
    return [
        memory_step(start, faded, word + "step 1: forget", r"$S \leftarrow \mathrm{diag}(\alpha)\,S$",
                    kept=DECAY[t], limit=limit),
        memory_step(faded, erased, word + "step 2: erase", r"$S \leftarrow S - \beta\,k\,(S^{\top}k)^{\top}$",
                    column=k, row=-BETA[t] * recalled, names=("$k$", r"$-\beta\,S^{\top}k$"), limit=limit),
        memory_step(erased, states[t + 1], word + "step 3: write", r"$S \leftarrow S + \beta\,k\,v^{\top}$",
                    column=k, row=BETA[t] * VALUES[t], names=("$k$", r"$\beta\,v$"), limit=limit),
        memory_step(states[t + 1], read[t], word + "step 4: read", r"$o = S^{\top} q$", column=QUERY,
                    names=("$q$", ""), limit=limit)]


words = ("the rows fade", "what is recalled is erased", "the value is written", "the query reads")
frame_slider([frame for t in (1, 2, 3) for frame in slow_motion(t)],
             [f"token {t + 1}: {word}" for t in (1, 2, 3) for word in words], "step")

# %% [markdown]
# ### How many channels does a head need?
#
# Keys at right angles do not disturb each other, but there are only $K$ of those. So when does it pay to erase? The lab
# has trained one layer, as section 9 will put it together, on chapter 01's task: six keys, written again and again, and
# the newest value of each is asked. Two heads, with fewer, as many and more channels than there are keys.

# %%
lab_table("state_size", values=["accuracy"])

# %% [markdown]
# Read the columns from left to right. With four channels for six keys whatever is erased for one key takes something of
# the others along: no rule is clearly ahead, and the seeds lie far apart. (One trial had put *scalar decay*, which adds
# and fades, first; five seeds do not.) With six channels the rules that erase, KDA and the gated delta rule, are at
# .998 and more, since trained keys can lie at right angles as random ones do not; fading alone is at .784, and only
# with more channels does it come near, .98 and .989. Adding alone stays below .7 in the largest state.
#
# So erasing pays from as many channels as keys on. It does not show a gain of KDA over one decay a head: here nothing
# has to last, every key is soon written again. How many keys a head of K3 holds at a time, on 128 channels, nobody has
# published.
#
# ![](../figures/lab_state_size.png)

# %% [markdown] tags=["slide"]
# ## 5 · Why forget before the error is taken?
#
# The order is not a matter of taste. The error $v - S^\top k$ says what has to be changed *in the memory that is
# written into*, and that is the faded one.
#
# **Error from the undecayed memory.** Suppose the error is taken from $S$, but written into
# $\tilde S = \operatorname{diag}(\alpha) S$. With a unit key and $\beta = 1$ the new memory recalls
#
# $$ \tilde S^\top k + (v - S^\top k) = v - \left(S - \tilde S\right)^{\!\top} k , $$
#
# not $v$: what has faded away is erased a second time. In the extreme, $\alpha = 0$ (the token clears the memory) and
# $K = V = 1$ with 4 stored: the right step leaves $v$; this one leaves $v - 4$. The memory holds the *negative* of what
# it was to forget.
#
# **Decay after the write.** Then the new pair fades before anybody has read it: with $\beta = 1$ a token that asks for
# its own key gets $\operatorname{diag}(\alpha) k$ instead of $k$ in front of its value. A token could never say "all
# that came before me is over, and I am what counts now": the decay that clears the past would clear the token itself.
# In the right order it can:

# %%
clear = np.log(1e-30) * np.ones((1, 5))                           # as good as alpha = 0 in every channel
start = rng.normal(size=(5, 4))                                   # some old memory
o_clear, S_clear = kda_step(start[None], q[:1], k[:1], v[:1], clear, np.ones((1,)))
assert np.allclose(S_clear[0], np.outer(k[0], v[0]))              # the past is gone, its own pair is there
print("a token that clears everything is remembered itself: largest number", np.abs(S_clear).max().round(3))

# %% [markdown]
# ### How wrong are the wrong orders?
#
# Six faults that public rebuilds of this layer really had, each of them with all their tests green. Relative error of
# the outputs for 64 tokens, $K = V = 8$, random queries, keys and values, ten seeds; in three regimes: **strong** decay
# (mean $g = -2.5$), **gentle** decay (mean $g = -0.05$), and gentle decay with the **same key** at every token and
# $\beta$ above .9.

# %%
def faulty_kda(q, k, v, g, beta, fault):
    """One head with one fault.   -> o [T, V]"""
    S, o = np.zeros((k.shape[1], v.shape[1])), np.zeros(v.shape)
    for t in range(len(k)):
        alpha = np.full(g.shape[1], np.exp(g[t].mean())) if fault == "one decay a head" else np.exp(g[t])
        faded = alpha * S if fault == "decay on the value axis" else alpha[:, None] * S
        faded = S if fault == "decay after the write" else faded
        known = S if fault == "error from the undecayed state" else faded
        error = v[t] if fault == "no erase" else v[t] - k[t] @ known
        new = faded + beta[t] * np.outer(k[t], error)
        new = alpha[:, None] * new if fault == "decay after the write" else new
        o[t] = q[t] @ (faded if fault == "read before the write" else new)
        S = new
    return o


FAULTS = ("decay after the write", "error from the undecayed state", "no erase", "decay on the value axis",
          "one decay a head", "read before the write")

# %%
def regime(name, seed, T=64, K=8):
    """Random inputs.   -> q, k, v, g, beta"""
    rng = np.random.default_rng(seed)
    q, k, v = l2_norm(rng.normal(size=(T, K))), l2_norm(rng.normal(size=(T, K))), rng.normal(size=(T, K))
    g = -(2.5 if name == "strong" else 0.05) * rng.uniform(0, 2, size=(T, K))
    beta = rng.uniform(0.9 if name == "same key" else 0, 1, size=T)
    return q, np.tile(k[:1], (T, 1)) if name == "same key" else k, v, g, beta


wrong = {}                                                        # [faults, seeds] for each regime
for name in ("strong", "gentle", "same key"):
    inputs = [regime(name, seed) for seed in range(10)]
    right = [kda(*one, scale=1.0)[0] for one in inputs]
    wrong[name] = np.array([[np.linalg.norm(faulty_kda(*one, fault) - o) / np.linalg.norm(o)
                             for one, o in zip(inputs, right, strict=True)] for fault in FAULTS])
print("relative error, mean and spread (standard deviation) of ten seeds")
print(" " * 33 + "".join(f"{name:>14s}" for name in wrong))
for i, fault in enumerate(FAULTS):
    print(f"{fault:33s}" + "".join(f"{e[i].mean():8.2f} ± {e[i].std():.2f} " for e in wrong.values()))

# %% tags=["remove"]
mean = {name: dict(zip(FAULTS, e.mean(axis=1), strict=True)) for name, e in wrong.items()}
assert mean["strong"]["no erase"] < 0.1 and mean["gentle"]["no erase"] > 0.5
assert mean["same key"]["no erase"] > 2
assert mean["gentle"][FAULTS[1]] < 0.05 < 0.12 < mean["strong"][FAULTS[1]]
assert mean["strong"]["decay after the write"] > 0.7 and mean["gentle"]["decay after the write"] < 0.1
assert max(mean["gentle"][f] for f in ("decay after the write", "error from the undecayed state",
                                       "one decay a head", "decay on the value axis")) < 0.1

# %% [markdown]
# Look for small numbers: each is a fault that hides (measured here). With strong decay a missing erasure hardly
# shows, since there is hardly anything left to erase; with gentle decay four of the six faults move the outputs by
# less than a tenth. A test that tries one setting with random numbers and a generous tolerance passes them all. This
# is why the checks of this chapter use two decay regimes, and a key that comes again.

# %% [markdown] tags=["slide"]
# ## 6 · Where the decay comes from
#
# So far $q, k, v, \alpha, \beta$ were given. In the layer each is computed from the token's vector $x$ of $D$ numbers.
# Here is the plan of the whole layer, with the sizes of Kimi K3; the rest of the chapter goes through its boxes.

# %% tags=["slide"]
show(kda_layer(preset("kimi_k3")),
     "The KDA layer: six paths from x; q, k, v pass matrix, convolution and SiLU; decay and beta pass gates; "
     "all meet in the state; head norm, output gate and a last matrix follow", name="02_layer")

# %% [markdown] tags=["slide"]
# Look at the six paths from the left to the right: query, key, value, decay, write strength, output gate. We begin with
# the fourth, the decay.
#
# A matrix product can be any number; $g$ must not be above 0. First two matrices, one down to $K$ numbers and one up to
# all channels of all $H$ heads, with **nothing in between**, and a learned bias `dt_bias` for each channel:
#
# $$ z = W_{fb} W_{fa}\, x + \mathrm{dt\_bias} . $$
#
# (Two thin matrices in place of one thick one: 7168 × 128 + 128 × 12,288 = 2.5 million numbers in place of 88 million
# in K3, derived.) Then a function that bends $z$ into a log-decay. With $\sigma(z) = 1 / (1 + e^{-z})$, the sigmoid,
# and $\operatorname{softplus}(z) = \log(1 + e^z)$, its smooth corner:
#
# | | | range |
# |---|---|---|
# | K3 (report) | $g = -5\,\sigma(e^{A} z)$ | between −5 and 0 |
# | Kimi Linear, the paper before it (report) | $g = -e^{A} \operatorname{softplus}(z)$ | below 0, without end |
#
# $A$ is one learned number a head (stored as `A_log`, since $e^A$ is what is used: it can never be negative). In K3 it
# says how *sharply* a head decides between keeping and clearing; in Kimi Linear how fast the head forgets.

# %% tags=["slide"]
z = np.linspace(-8, 8, 321)


def gate_curve(gate, A):
    return gate(z[:, None, None], np.array([A]))[:, 0, 0]         # [T, H, K] with H = K = 1 -> [T]


curves = {"K3, A = 0": gate_curve(bounded_decay, 0.0),
          "K3, A = log 2": gate_curve(bounded_decay, np.log(2.0)),
          "softplus, A = 0": gate_curve(softplus_decay, 0.0),
          "softplus, clamped": np.maximum(gate_curve(softplus_decay, 0.0), -5)}
show(decay_gates(z, curves, -5),
     "Left, log-decay against z: the bounded gates flatten towards -5, softplus falls on, its clamped "
     "version has a corner; right, the same as half-lives", name="02_gates")
at_0_and_1 = bounded_decay(np.array([[[0.0, 1.0]]]), np.log([2.0]))
assert np.allclose(at_0_and_1, [[[-2.5, -4.403985]]])             # -5 / 2 and -5 / (1 + e^-2)

# %% [markdown] tags=["slide"]
# Look at the right end of the left panel: K3's gate flattens towards −5, softplus goes on falling, and the clamped
# softplus lies exactly on the unclamped one up to a corner.
#
# **The −5 is not a clamp.** It swaps the activation: the whole curve is another one. A clamp has slope 0 behind its
# corner, so a channel that is there gets no gradient; the sigmoid has a slope everywhere, if a small one.
#
# **Why a bound at all?** A channel at the bound keeps $e^{-5} = .0067$ of itself a token: cleared, for all practical
# purposes. More is not needed, and less has a price. In [chapter 03](03_chunks.ipynb) the recurrence is computed for 16
# tokens at once, with factors up to $e^{16 \cdot 5} = e^{80}$; float32 ends near $e^{88}$ (derived). With the older
# gate there is no such limit.
#
# **Where does training start?** With $A = 0$ and `dt_bias` such that softplus of it is a number $dt$ between .001 and
# .1 in each channel. Softplus is $\log(1 + e^b) = dt$, so $e^b = e^{dt} - 1$ for $b = \mathrm{dt\_bias}$, and at
# $x = 0$ the sigmoid is $\sigma(b) = e^b / (1 + e^b) = (e^{dt} - 1) / e^{dt} = 1 - e^{-dt}$. So
# $|g| = 5\,(1 - e^{-dt})$ lies between .005 and .476, and the half-lives between 139 tokens and 1.5 (derived). A
# fresh layer remembers over many distances at once.

# %% tags=["remove"]
start_g = 5 * (1 - np.exp(-np.array([1e-3, 1e-1])))
assert np.allclose(start_g, [0.005, 0.476], atol=1e-3)
assert np.allclose(np.log(2) / start_g, [138.7, 1.457], atol=0.05)
inverse = np.log(np.expm1(np.array([1e-3, 1e-1])))                # inverse softplus
assert np.allclose(sigmoid(inverse), 1 - np.exp(-np.array([1e-3, 1e-1])))
assert (7168 * 128 + 128 * 12288, 7168 * 12288) == (2_490_368, 88_080_384)

# %% [markdown]
# ### Exercise 2.4: the decay gate
#
# From the vectors of $T$ tokens to the log-decays of all heads, as in K3, bound −5. The weights come as torch stores
# them, [out, in], so a product is `x @ w.T`; $R$ is the narrow width between the two (128 in K3; nothing to do with the
# $R$ of MLA). The rows of `w_b` are the channels of head 0, then of head 1, and so on.

# %% [markdown] tags=["hint"]
# After the two products `reshape` to [T, H, K], then add `dt_bias`. `np.exp(A_log)[:, None]` has the shape [H, 1].
# `sigmoid` is imported.

# %% id="2.4" minutes=12 difficulty=2
def my_decay(x, w_a, w_b, dt_bias, A_log):
    """x [T, D], w_a [R, D], w_b [H*K, R], dt_bias [H, K], A_log [H] -> g [T, H, K]"""
    # BEGIN SOLUTION
    z = (x @ w_a.T @ w_b.T).reshape(len(x), *dt_bias.shape) + dt_bias
    return -5 * sigmoid(np.exp(A_log)[:, None] * z)
    # END SOLUTION

# %%
check("2.4", my_decay)

# %% [markdown]
# ## 7 · The short convolution
#
# In *Mo has ice* the key is one token and the value another. A write has only one token's key and value, so the two
# must be brought together first. In chapter 01 each input had its predecessor glued to it. KDA does it with a
# **convolution** over the last four tokens, for each channel of $W_q x$, $W_k x$ and $W_v x$ by itself:
#
# $$ y_t = w_0\, x_{t-3} + w_1\, x_{t-2} + w_2\, x_{t-1} + w_3\, x_t . $$
#
# It is *causal* (nothing to the right of $t$), *depthwise* (a channel has its own four weights, the **taps**, and sees
# no other channel), and has no bias. The **last tap meets the current token**. Then follows SiLU, $y \cdot \sigma(y)$:
# without it two linear maps would follow each other.
#
#     tokens seen     a   b   c   d   e          taps of one channel:  w0 w1 w2 w3
#     y at d        w0·a w1·b w2·c w3·d
#     y at e             w0·b w1·c w2·d w3·e
#
# When a text comes in pieces, token by token in the end, the convolution must remember the three inputs before the
# piece: its **tail**. It holds what goes *into* the convolution, oldest first, always 3 rows; at the beginning of a
# text they are zeros. Tail and matrix $S$ together are all that a KDA layer remembers.

# %%
rng = np.random.default_rng(4)
x, weight = rng.normal(size=(10, 3)), rng.normal(size=(3, 4))
whole, tail_whole = short_convolution(x, weight)                  # the first tail is zeros
y, tail = np.zeros((10, 3)), np.zeros((3, 3))
for t in range(10):
    seen = np.concatenate([tail, x[t:t + 1]])                     # [4, P]: three old rows and the current one
    y[t] = np.sum(weight.T * seen, axis=0)                        # tap j meets row j
    tail = seen[1:]
assert np.allclose(y, whole) and np.allclose(tail, tail_whole)    # token by token = all at once
assert np.allclose(whole[:, 0], np.convolve(x[:, 0], weight[0, ::-1])[:10])  # np.convolve: taps reversed
print("ten tokens one by one with a tail, and all at once: the same")

# %% [markdown]
# ### Exercise 2.5: the short convolution
#
# A piece of $T$ tokens, $P$ channels, the tail of the piece before; SiLU at the end. Return the outputs and the new
# tail. $T$ may be smaller than the number of taps.

# %% [markdown] tags=["hint"]
# `seen = np.concatenate([tail, x])` has T + taps − 1 rows. Tap j multiplies the rows `seen[j:j + T]`. The new tail is
# cut from the end of `seen`.

# %% id="2.5" minutes=14 difficulty=2
def my_short_convolution(x, weight, tail):
    """x [T, P], weight [P, taps], tail [taps - 1, P] -> y [T, P], new tail [taps - 1, P]"""
    # BEGIN SOLUTION
    T, taps = len(x), weight.shape[1]
    seen = np.concatenate([tail, x])
    y = sum(weight[:, j] * seen[j:j + T] for j in range(taps))
    return y * sigmoid(y), seen[T:]
    # END SOLUTION

# %%
check("2.5", my_short_convolution)

# %% [markdown] tags=["slide"]
# ## 8 · Unit keys, write strength, head norm, output gate
#
# Four short things are left.
#
# - **Unit length.** After SiLU each head divides its query and key by $\sqrt{\sum_c z_c^2 + 10^{-6}}$: a *sum*, and the
#   small number inside the root, so that zero stays zero. Chapter 01 showed why: a write multiplies the error by
#   $1 - \beta |k|^2$. Values are not normalised. The query alone gets the scale $K^{-1/2}$.
# - **Write strength.** $\beta = \sigma(W_b x)$, one number a head, between 0 and 1.
# - **Head norm.** What is read is as large as what was stored, which differs from head to head and grows and fades
#   along the text. So each head's output goes through RMSNorm: divide it by $\sqrt{m + 10^{-5}}$, where $m$ is the
#   *mean* of $o_c^2$ over the head's $V$ channels, then multiply by $V$ learned numbers that all heads share.
# - **Output gate.** $\sigma(W_g x)$, one number for each channel of each head: the *current token* decides which parts
#   of what was recalled it lets through. Last comes $W_o$, back to $D$ numbers.
#
# $$ y = W_o \left[\, \operatorname{RMSNorm}_{\text{head}}(o) \odot \sigma(W_g x) \,\right] $$
#
# ($\odot$ multiplies entry by entry.) The gate comes **after** the norm. The other way round the norm would undo it: a
# head whose gate is .1 throughout would be divided by its smaller size and come out as before.

# %%
o1, weight1 = np.array([3.0, -4.0, 12.0, 0.0]), np.ones(4)
print("gate .1 after the norm: ", (0.1 * rms_norm(o1, weight1)).round(3))
print("gate .1 before the norm:", rms_norm(0.1 * o1, weight1).round(3))
print("no gate at all:         ", rms_norm(o1, weight1).round(3))

# %% tags=["remove"]
assert np.allclose(rms_norm(0.1 * o1, weight1), rms_norm(o1, weight1), atol=1e-3)

# %% [markdown]
# ### Exercise 2.6: head norm, then gate
#
# Outputs of all heads and the logits of the gate (what $W_g x$ gives, before the sigmoid). Write the norm yourself,
# with `eps` 1e-5.

# %% [markdown] tags=["hint"]
# `np.mean(o * o, axis=-1, keepdims=True)` has the shape [T, H, 1], one number a head.

# %% id="2.6" minutes=15 difficulty=2
def my_gated_output(o, gate, weight):
    """o [T, H, V], gate [T, H, V] logits, weight [V] -> [T, H, V]"""
    # BEGIN SOLUTION
    normed = o / np.sqrt(np.mean(o * o, axis=-1, keepdims=True) + 1e-5) * weight
    return normed * sigmoid(gate)
    # END SOLUTION

# %%
check("2.6", my_gated_output)

# %% [markdown]
# ## 9 · The whole layer
#
# All boxes of the plan in one function. It takes the weights by the names under which the torch layer keeps them.

# %%
def kda_layer_forward(x, w, H, K, V):
    """The KDA layer for one text.   x [T, D], w {name: array} -> [T, D]"""
    def project(name):                                            # W x, convolution, SiLU    [T, D] -> [T, P]
        y, _ = short_convolution(x @ w[f"{name}_proj.weight"].T, w[f"{name}_conv1d.weight"])
        return y * sigmoid(y)

    T = len(x)
    q, k = (l2_norm(project(name).reshape(T, H, K)) for name in "qk")  # [T, H, K]
    v = project("v").reshape(T, H, V)                             # [T, H, V]
    z = x @ w["f_a_proj.weight"].T @ w["f_b_proj.weight"].T + w["dt_bias"]
    g = bounded_decay(z.reshape(T, H, K), w["A_log"])             # [T, H, K]
    beta = sigmoid(x @ w["b_proj.weight"].T)                      # [T, H]
    o = np.stack([kda(q[:, h], k[:, h], v[:, h], g[:, h], beta[:, h])[0] for h in range(H)], axis=1)
    gate = sigmoid(x @ w["g_proj.weight"].T).reshape(T, H, V)
    y = rms_norm(o, w["o_norm.weight"]) * gate                    # norm first, then gate
    return y.reshape(T, H * V) @ w["o_proj.weight"].T             # [T, H V] -> [T, D]

# %% [markdown]
# The test: make the torch layer with sizes that all differ ($D = 24$, $H = 3$, $K = 8$, $V = 10$, toy), fill **every**
# weight with random numbers (at the start $A$ is zero and the norm's weights are ones, which would hide mistakes), copy
# them, and compare.

# %%
config = preset("nano").replace(num_heads=3)
layer = KimiDeltaAttention(config).double()
generator = torch.Generator().manual_seed(7)
with torch.no_grad():
    for weight in layer.parameters():
        weight.copy_(0.4 * torch.randn(weight.shape, generator=generator, dtype=torch.float64) + 0.1)
weights = {name: weight.detach().numpy() for name, weight in layer.named_parameters()}
x = np.random.default_rng(8).normal(size=(21, config.hidden_size))
ours = kda_layer_forward(x, weights, config.num_heads, config.kda_key_dim, config.kda_value_dim)
theirs = layer(torch.tensor(x)[None])[0].detach().numpy()
assert np.allclose(ours, theirs, atol=1e-10)                      # NumPy by hand = torch, same weights
print("sizes (D, H, K, V):", config.hidden_size, config.num_heads, config.kda_key_dim, config.kda_value_dim)
print(f"largest difference {np.abs(ours - theirs).max():.0e}, largest output {np.abs(theirs).max():.2f}")

# %% [markdown]
# The torch layer does not loop over tokens: it works in chunks, the subject of [chapter 03](03_chunks.ipynb). The
# numbers are the same up to rounding.

# %% [markdown] tags=["slide"]
# ## 10 · Why is it called attention?
#
# It has a state that is updated token by token: a **recurrent network**. But write Eq. 1 out over all tokens, from an
# empty memory: what token $s$ wrote, $\beta_s k_s v_s^\top$, has since been multiplied by one matrix a token. With
# $M_t = (I - \beta_t k_t k_t^\top) \operatorname{diag}(\alpha_t)$ of exercise 2.2,
#
# $$ S_t = \sum_{s \le t} M_t M_{t-1} \cdots M_{s+1}\, \beta_s k_s v_s^\top,
#    \qquad o_t = \sum_{s \le t} w_{ts}\, v_s,
#    \qquad w_{ts} = q_t^\top\, M_t \cdots M_{s+1}\, k_s\, \beta_s . $$
#
# Each output is a weighted sum of the values up to there, and the weights come from queries and keys: the shape of
# attention, a lower triangle of $T \times T$ weights. The name says what it *computes*; "recurrent" says how. What is
# missing is the softmax: the weights may be negative and need not sum to one. And the triangle is never stored. Still,
# one can see it, with a small trick: feed unit vectors as values, $v_s = e_s$; then $o_t$ *is* the row $w_{t\cdot}$.
#
# Six tokens that speak of Mo, Su or Di (toy): Su's key is near to Mo's, Di's points partly away from Su's;
# $\beta = .8$; in KDA the three channels keep all, .7 and .5; queries are the keys.

# %% tags=["slide"]
NAMES = ["Mo", "Su", "Mo", "Di", "Su", "Mo"]
KEY_OF = {"Mo": [1.0, 0.0, 0.0], "Su": [0.6, 0.8, 0.0], "Di": [0.0, -0.6, 0.8]}
k = np.array([KEY_OF[name] for name in NAMES])                    # [6, K]
beta, unit_values = np.full(6, 0.8), np.eye(6)                    # [6], [6 tokens, V = 6]
g_channels = np.log(np.tile([1.0, 0.7, 0.5], (6, 1)))             # [6, K]
g_one = np.full((6, 3), np.log(0.7))
weights = {"only adds": faulty_kda(k, k, unit_values, 0 * g_one, beta, "no erase"),
           "adds, one decay": faulty_kda(k, k, unit_values, g_one, beta, "no erase"),
           "KDA": kda(k, k, unit_values, g_channels, beta, scale=1.0)[0]}
show(token_weights(weights, NAMES),
     "Three triangles of weights of six tokens: adding weighs all with the same key alike, one decay fades "
     "with the distance, KDA has replaced older entries of the same key", name="02_weights")

# %% tags=["remove"]
assert np.allclose(weights["only adds"][5], [0.8, 0.48, 0.8, 0, 0.48, 0.8])
assert all(w[3, 1] < -0.02 for w in weights.values()) and np.allclose(np.diag(weights["KDA"]), 0.8)
assert abs(weights["KDA"][5, 2]) < 0.15 and weights["KDA"][2, 0] < 0.2

# %% [markdown] tags=["slide"]
# Look along the last rows, the second time Mo is mentioned again: adding gives all three mentions of Mo the same
# weight; one decay prefers the newer ones whatever they are about; in KDA the newest has nearly all of it, because each
# mention *replaced* the one before. Blue weights are negative, in all three: where the keys of Su and Di meet.

# %% [markdown]
# ### Does the mask carry the decay?
#
# In code for attention one finds a causal **mask**, a triangle of ones. Could one not write the decays in there? For
# one decay a head: yes. The share $\alpha_{s+1} \cdots \alpha_t = e^{G_t - G_s}$, with the running sum
# $G_t = g_1 + \dots + g_t$, is a number, and so
#
# $$ w_{ts} = (q_t \cdot k_s)\; e^{G_t - G_s}\, \beta_s \qquad\text{(linear attention with one decay),} $$
#
# all products at once, times a matrix of shares in place of the ones. With a decay for each channel the shares differ
# *inside* the scalar product,
#
# $$ w_{ts} = \sum_c q_{tc}\, k_{sc}\; e^{G_{tc} - G_{sc}}\; \beta_s
#    \qquad\text{(linear attention with decay by channel),} $$
#
# and no matrix in front of $q_t \cdot k_s$ can do that: the mask says only who may look at whom; the decay sits in the
# sum over channels. (And KDA erases on top of it, so that earlier tokens also act on each other: the products of $M$
# above, which chapter 03 solves.)

# %%
def running_difference(g):
    """G_t - G_s for s <= t, zero above the diagonal.   g [T, K] -> [T, T, K]"""
    G = np.cumsum(g, axis=0)
    return np.tril(np.ones((len(g), len(g))))[:, :, None] * (G[:, None] - G[None, :])


q, k, v, g, beta = regime("gentle", seed=1, T=12, K=4)
g_one = np.repeat(g.mean(axis=1, keepdims=True), 4, axis=1)       # one decay for all channels
mask = np.tril(np.ones((12, 12)))                                 # who may look at whom
in_the_mask = (q @ k.T) * mask * np.exp(running_difference(g_one)[:, :, 0]) * beta
in_the_sum = np.einsum("tc,sc,tsc->ts", q, k, np.exp(running_difference(g))) * mask * beta
assert np.allclose(in_the_mask @ v, faulty_kda(q, k, v, g_one, beta, "no erase"))  # fits into the mask
assert np.allclose(in_the_sum @ v, faulty_kda(q, k, v, g, beta, "no erase"))  # belongs into the sum
misfit = np.abs(in_the_mask @ v - in_the_sum @ v).max()
print(f"mean decay in the mask against decay by channel: outputs differ by up to {misfit:.2f}")

# %% tags=["remove"]
assert misfit > 0.02

# %% [markdown]
# Both lines of algebra are executed above. One mask for all channels is another layer, not a way to write this one.

# %% [markdown] tags=["slide"]
# ## 11 · What a trained memory has learnt to keep
#
# The course comes with a trained miniature K3 (half a million weights, made in [chapter 08](08_miniature.ipynb) and
# trained in [chapter 09](09_training.ipynb)): four layers, the first three of them KDA with four heads of $K = V = 16$.
# It answers small questions such as `a4 k7 q2?k` → `7`. How long do its channels remember? For each channel the
# log-decay is averaged over the tokens of 96 unseen texts and turned into a half-life.

# %% tags=["slide"]
model, data = pretrained("mini"), Corpus(80, families=("recall", "copy", "addition", "stories"))
tokens = torch.from_numpy(data.batch(np.random.default_rng(0), 96, "test").tokens)
decay = mean_decay(model, tokens, tokens != PAD)                  # {layer: alpha [H, K]}
show(decay_spectrum(decay),
     "Decay and half-life of 16 channels in each of four heads in three layers: from less than one token to "
     "many hundreds", name="02_half_lives")

# %% tags=["remove"]
lives = {name: half_life(alpha) for name, alpha in decay.items()}
every = np.concatenate([life.ravel() for life in lives.values()])
assert every.min() < 1 and every.max() > 100 and np.median(every) < 20
assert np.median(np.stack([np.sort(life, axis=1)[:, -1] / np.sort(life, axis=1)[:, 0]
                           for life in lives.values()])) > 8

# %% [markdown] tags=["slide"]
# Look at how steep the lines are: inside a *single head* the slowest channel remembers many times longer than the
# fastest (measured here, at least eight times in more than half of the heads). Some channels hold an entry for less
# than a token, others for more than a hundred; the texts have at most 80 tokens.

# %%
print("half-life in tokens        fastest  quarter   half  three quarters  slowest")
for name, alpha in decay.items():
    quarters = np.quantile(half_life(alpha), [0, 0.25, 0.5, 0.75, 1])
    print(f"{name} (64 channels)     " + "".join(f"{life:9.1f}" for life in quarters))

# %% [markdown]
# Does it *need* them? A causal test: take the decays away and ask the same questions. Three changes, without training
# again: every head uses the mean share of its channels for all of them; every channel uses its mean over all tokens, so
# that the token has no say; nothing is forgotten at all. Share of answer characters that are right, three draws of
# texts.

# %%
def with_decay(change):
    """The miniature again, but its KDA layers use change(g) in place of g [B, T, H, K]."""
    other = pretrained("mini")
    for i in other.config.kda_layers:
        layer = other.layers[i].self_attn
        layer.decay = lambda x, layer=layer: change(KimiDeltaAttention.decay(layer, x))
    return other


CHANGES = {"as trained": lambda g: g,
           "one decay a head": lambda g: g.exp().mean(-1, keepdim=True).log().expand_as(g),
           "the same for all tokens": lambda g: g.mean((0, 1), keepdim=True).expand_as(g),
           "nothing forgotten": lambda g: 0 * g}
scores = {name: [accuracy(with_decay(change), data, "test", 12, seed=seed)[0] for seed in range(3)]
          for name, change in CHANGES.items()}
print(" " * 26 + "".join(f"{family:>16s}" for family in data.families))
for name, draws in scores.items():
    cells = [[draw[family] for draw in draws] for family in data.families]
    print(f"{name:26s}" + "".join(f"{f'{np.mean(c):.2f} ({min(c):.2f}–{max(c):.2f})':>17s}" for c in cells))

# %% tags=["remove"]
score = {name: {f: np.mean([d[f] for d in draws]) for f in data.families} for name, draws in scores.items()}
assert min(score["as trained"].values()) > 0.95
assert score["one decay a head"]["recall"] < 0.7 < score["nothing forgotten"]["recall"]
assert score["one decay a head"]["copy"] < 0.3 and score["nothing forgotten"]["copy"] < 0.3
assert score["one decay a head"]["addition"] > score["nothing forgotten"]["addition"] + 0.1
assert all(s["stories"] > 0.75 for s in score.values())

# %% [markdown]
# As trained, everything is right in more than 95 of 100 cases (measured here). **Recall**, where pairs must be held
# to the end, survives best when nothing is forgotten at all, and breaks with one decay a head: the fast channels drag
# the slow ones with them, as in section 3. **Addition** is the other way round: it needs the forgetting more than the
# difference between channels. **Copy** needs both. The short **stories** lose a tenth with one decay a head and
# hardly anything otherwise (measured here).
#
# What this does not show: that a model *trained* with one decay a head would be as bad. It would learn other heads. It
# shows that this model has put its channels to different uses. For the other question one has to train them all:

# %%
lab_table("lifetimes", values=["accuracy", "64 rounds", "lasting, 64 rounds"])

# %% [markdown]
# Compare the first two columns of numbers with the others. At the length of training the gated delta rule, with one
# decay a head, is as good as KDA. On texts four times as long both memories with one decay lose many of the facts that
# should last, and KDA loses fewer. But again the delta rule *without any decay* is no worse than KDA: it has learnt to
# let facts expire by writing over them, which a toy with a dozen keys can do. So the gain of decays by channel over one
# decay shows here; the gain over none does not.
#
# ![](../figures/lab_lifetimes.png)

# %% [markdown] tags=["slide"]
# ## 12 · In the real K3
#
# | | K3 (report) |
# |---|---|
# | KDA layers | 69 of 93, in groups of three before one attention layer |
# | heads, $K$, $V$ | 96, 128, 128 |
# | decays | $-5\,\sigma(e^A z)$; 69 · 96 · 128 = 847,872 of them a token (derived) |
# | $A$ | one number a head: 96 a layer; `dt_bias` one a channel: 12,288 |
# | convolutions | 4 taps, on all 3 · 12,288 channels of q, k and v; tails of one text 69 · 3 · 36,864 = 7,630,848 numbers (derived) |
# | state | 69 · 96 · 128 · 128 numbers in float32, 414 MiB a text of any length (derived) |
# | output gate | full rank, $W_g$ 7168 → 12,288 (in Kimi Linear: low rank, through 128) |
# | weights of one KDA layer | 443,740,384 (derived, below) |
#
# - Five matrices of 7168 × 12,288, those of $q$, $k$, $v$, gate and output, are 99 % of the layer (derived). All that is
#   special about KDA, decays, $\beta$, convolutions, norm, is the remaining 1 %.
# - What do the parts bring? In the Kimi Linear paper's 16-layer comparison (report) validation perplexity, a measure of
#   surprise where lower is better, is 5.65 with all of them, 5.67 without the output gate and 5.70 without the
#   convolution. K3's own report has no such table.
# - The order of the words in a text enters K3 here: through convolution and decay. Its attention layers add no
#   positions ([chapter 07](07_nope.ipynb)).
# - 69 layers that go token by token would be slow in training. [Chapter 03](03_chunks.ipynb) makes Eq. 1 into products
#   of large matrices, and needs the −5 for it.

# %%
with torch.device("meta"):                                        # shapes without memory
    real = KimiDeltaAttention(preset("kimi_k3"))
sizes = {name: weight.numel() for name, weight in real.named_parameters()}
for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
    print(f"{name:18s} {size:12,d}")
print(f"{'all of one layer':18s} {sum(sizes.values()):12,d}")

# %% tags=["remove"]
k3, linear = preset("kimi_k3"), preset("kimi_linear_48b")
assert sum(sizes.values()) == 443_740_384
assert 0.985 < sum(size for size in sizes.values() if size == 7168 * 12288) / 443_740_384 < 0.995
assert sum(size == 7168 * 12288 for size in sizes.values()) == 5
assert (len(k3.kda_layers), k3.num_layers, k3.num_heads) == (69, 93, 96)
assert (k3.kda_key_dim, k3.kda_value_dim) == (128, 128)
assert len(k3.kda_layers) * 96 * 128 == 847_872 and 69 * 3 * 3 * 12_288 == 7_630_848
assert (k3.gate_lower_bound, linear.gate_lower_bound, k3.conv_size) == (-5.0, None, 4)
assert (k3.use_full_rank_gate, linear.use_full_rank_gate) == (True, False)
assert (k3.dt_min, k3.dt_max, k3.rms_norm_eps, k3.l2_norm_eps) == (1e-3, 1e-1, 1e-5, 1e-6)
assert sizes["A_log"] == 96 and sizes["dt_bias"] == 12_288 and 69 * 96 * 128 * 128 * 4 / 2 ** 20 == 414

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. One decay for the whole memory cannot keep some things and forget others; a decay for each channel can.
# 2. KDA is three steps, forget, erase, write, and then the read; in one line
#    $S_t = (I - \beta k k^\top) \operatorname{diag}(\alpha) S_{t-1} + \beta k v^\top$.
# 3. Forgetting comes first: the error must be that of the memory one writes into. Wrong orders hide in one decay regime
#    and show in another.
# 4. $g = -5\,\sigma(e^A z)$ is a smooth gate with a floor, no clamp; convolution with SiLU brings neighbours together;
#    the head norm comes before the output gate.
# 5. It computes a triangle of weights, as attention does, and computes it as a recurrent network with a state of fixed
#    size; a trained one uses half-lives from below one token to beyond its texts.
