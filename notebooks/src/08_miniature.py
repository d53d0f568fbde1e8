# ---
# jupyter:
#   k3:
#     title: The miniature K3
#     minutes: {read: 50, exercises: 51, run: about one minute}
#     needs:
#       - "the parts: chapters [01](01_delta_rule_rnn.ipynb) to [06](06_attention_residuals.ipynb)"
#       - "the letters of [chapter 00](00_the_map.ipynb)"
#     objectives:
#       - "assemble a complete K3 in NumPy, in the right order, and prove that it is the same model as the one in torch"
#       - "name slips of assembly that no shape, no error and no first loss betrays"
#       - "follow one text through the model, with every shape and every source of every mix"
#       - "say where the parameters are, where the work is, and what each layer keeps of a text"
#       - "decode with both kinds of memory, pad, pack, and predict the loss before training"
# ---

# %% [markdown] tags=["slide"]
# # 08 · The miniature K3
#
# The chapters before have built the parts. This one puts them together, and what is left to decide sounds like little:
# **which part stands where, and in which order things happen.**
#
# But nothing watches over the order. All vectors between the parts have $D$ numbers, so every wrong order runs. It
# raises no error, it has the right number of parameters, and, as we shall see, before training even its loss is right.
# Public rebuilds of K3 have shipped with such slips, their own tests green.
#
# **The question of this chapter: in which order do the parts come together, and how does one know that one has it
# right?**
#
# Every number says where it comes from: *report* (published about K3), *derived* (you can recompute it by hand),
# *measured here* (a cell above it ran), or *toy* (chosen to be small).

# %%
import numpy as np
import torch

from k3_scratch.accounting import cache_bytes, count_parameters, flops_per_token, parameters_of_layer
from k3_scratch.analysis.silence import silenced
from k3_scratch.config import preset
from k3_scratch.course import check, progress, show
from k3_scratch.course.checks import ch08, ch08_wrong
from k3_scratch.generate import generate
from k3_scratch.layers.attention_residuals import Source
from k3_scratch.model import K3
from k3_scratch.plots import architecture, kept_memory, pass_trace, seed_curves, silence_map, two_shares
from k3_scratch.pretrained import pretrained
from k3_scratch.reference import decay_gates, ffn, router, unit_keys
from k3_scratch.reference.attention_residuals import depth_mix
from k3_scratch.reference.k3 import k3_forward
from k3_scratch.reference.kda import kda_recurrent
from k3_scratch.reference.mla import mla_naive
from k3_scratch.reference.rms_norm import rms_norm
from k3_scratch.reference.short_convolution import short_convolution
from k3_scratch.reference.sigmoid import sigmoid
from k3_scratch.reference.silu import silu
from k3_scratch.tasks.corpus import FAMILIES, Corpus
from k3_scratch.tasks.vocabulary import NEWLINE, decode, encode

# %% [markdown] tags=["slide"]
# ## 1 · Which part stands where
#
# A K3 is described by its **configuration** alone, about forty numbers. From it follows what each layer is made of:

# %% tags=["slide"]
config = preset("mini")
show(architecture.architecture(config, "The miniature K3: everything there is, and who reads what"),
     "Left the four layers with the vectors that each mix reads, right the inside of the parts",
     name="08_miniature")

# %% [markdown] tags=["slide"]
# Look at the red lines on the left: no box has a straight way up; each reads, through a mix, what the dots mark.
#
# Three rules place the parts (report); layers are counted from 0:
#
# 1. **Three KDA layers, then one MLA layer**, and so on: MLA are the layers 3, 7, 11, … The **last layer is always
#    MLA**, whatever its number is. (Of K3's 93 layers the last two, 91 and 92, are both MLA.)
# 2. **The first layer has a dense FFN**, all others have a Stable LatentMoE. In general the first `first_k_dense`.
# 3. **A block of attention residuals starts** at each layer whose number is a multiple of the block size.

# %% [markdown]
# ### Exercise 8.1: the plan of the layers
#
# Given the numbers of all layers, `layers` = 0, 1, 2, … (`[L]` here: as many as there are layers), return three arrays
# of true and false: is it MLA, is its FFN dense, does a block start there?

# %% [markdown] tags=["hint"]
# `layers % 4` is 0, 1, 2, 3, 0, … Which of these is the fourth of four? The last layer is `layers == len(layers) - 1`.

# %% id="8.1" minutes=6 difficulty=1
def my_layer_plan(layers, first_k_dense, block_size):
    """layers [L] whole numbers from 0 on -> mla [L], dense [L], starts [L], each true or false"""
    # BEGIN SOLUTION
    mla = (layers % 4 == 3) | (layers == len(layers) - 1)
    return mla, layers < first_k_dense, layers % block_size == 0
    # END SOLUTION

# %%
check("8.1", my_layer_plan)

# %% [markdown] tags=["slide"]
# ## 2 · The weights
#
# `pretrained("mini")` is a miniature that was trained for some minutes ([chapter 09](09_training.ipynb)). Its weights
# are named arrays, called as in the released K3. We take them as NumPy arrays in double precision and will not need
# torch to compute. Layer 1, a KDA layer with experts, has all of these:

# %%
model = pretrained("mini").double()
weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}  # they share their memory


def parts(prefix):
    """{short name: array} of all weights below a prefix, such as "q_proj", "A_log", "experts.w1"."""
    return {name.removeprefix(prefix).removesuffix(".weight"): weight for name, weight in weights.items()
            if name.startswith(prefix)}


for group in ("self_attn.", "block_sparse_moe.", "input_layernorm.", "post_attention_layernorm.",
              "self_attention_res.", "mlp_res."):
    print(group + "\n   ", "  ".join(f"{name} {list(array.shape)}"
                                     for name, array in parts("layers.1." + group).items()))
outside = [name for name in weights if not name.startswith("layers.")]
print("outside the layers:\n   ", "  ".join(f"{name} {list(weights[name].shape)}" for name in outside))

# %% tags=["remove"]
assert sum(array.size for array in weights.values()) == 497_804 == count_parameters(config).total
assert len(outside) == 5 and len(parts("layers.1.")) == 31

# %% [markdown]
# A matrix is stored as [out, in], so a vector $x$ meets it as `x @ W.T`. There is no bias anywhere (`dt_bias` and the
# router's selection bias are no biases of a product). New are only the two tables at the ends:
#
# - The **embedding** has one row of $D = 64$ numbers for each of the 260 tokens. To embed is to *look up* a row. It is
#   the product of the table with a vector that is 1 at the token's place and 0 elsewhere, but nobody computes that. No
#   scale is applied and no position added.
# - The **head** (`lm_head`) has one row for each token too: the score, or **logit**, of a token is the product of its
#   row with the last vector. In some models head and embedding are one table; in K3 they are two (report).

# %% [markdown] tags=["slide"]
# ## 3 · The order of evaluation
#
# Here is everything that happens between the two tables. Start with $h$ = the embedded tokens and an empty **bank**.
# For each layer:
#
# 1. $a$ = **mix** of bank and $h$ with this layer's first query. (While the bank is empty, $a = h$.)
# 2. $y$ = attention part (KDA or MLA) of $\operatorname{norm}(a)$.
# 3. If a block starts here, **bank** $h$, the raw running sum, and let $h = y$. Else $h = h + y$.
# 4. $m$ = **mix** of bank and $h$ with the layer's second query: $h$ already holds this layer's own $y$.
# 5. $h = h +$ FFN part of $\operatorname{norm}(m)$.
#
# After the last layer: one more **mix**, the last **norm**, the **head**. [Chapter 06](06_attention_residuals.ipynb)
# says why; here count the norms. Each sublayer has one, in front, *on the mix*; one stands before the head; and inside
# each mix the *keys* are normed, with a weight of their own, while what is mixed stays raw.

# %% [markdown]
# ### Exercise 8.2: one decoder layer
#
# Write steps 1 to 5. `bank` holds $N$ vectors a token, perhaps none; `starts` says whether a block starts here;
# `attention` and `ffn` are functions [T, D] → [T, D] *without* their norms. Row 0 of `queries`, `gammas` (for the keys
# of a mix) and `norms` (before a sublayer) belongs to the attention side, row 1 to the FFN side. Return the new bank
# as an array, and the new $h$. `depth_mix(sources, query, gamma)` gives the mixture and the shares, and `rms_norm(x,
# weight)` norms.

# %% [markdown] tags=["hint"]
# `[*bank, h]` is a list of sources. Make a new bank with `np.array([*bank, h])`. `len(bank)` says whether there is
# anything to mix.

# %% id="8.2" minutes=18 difficulty=3
def my_decoder_layer(bank, h, starts, attention, ffn, queries, gammas, norms):
    """bank [N, T, D], h [T, D], starts, queries, gammas, norms [2, D] -> bank [M, T, D], h [T, D]"""
    # BEGIN SOLUTION
    a = depth_mix([*bank, h], queries[0], gammas[0])[0] if len(bank) else h
    y = attention(rms_norm(a, norms[0]))
    if starts:
        bank, h = np.array([*bank, h]), y
    else:
        h = h + y
    m = depth_mix([*bank, h], queries[1], gammas[1])[0] if len(bank) else h
    return bank, h + ffn(rms_norm(m, norms[1]))
    # END SOLUTION

# %%
check("8.2", my_decoder_layer)

# %% [markdown]
# ### Exercise 8.3: from the last sum to the logits
#
# And the end: `bank` and `h` are what the last layer leaves. One array too many is given to you.

# %% [markdown] tags=["hint"]
# Mix, norm, head, in this order. A table [vocabulary, D] meets a vector as `x @ table.T`.

# %% id="8.3" minutes=6 difficulty=1
def my_last_steps(bank, h, query, gamma, norm, embedding, head):
    """bank [N, T, D], h [T, D], query, gamma, norm [D], embedding, head [vocab, D] -> logits [T, vocab]"""
    # BEGIN SOLUTION
    mixed, _ = depth_mix([*bank, h], query, gamma)
    return rms_norm(mixed, norm) @ head.T
    # END SOLUTION

# %%
check("8.3", my_last_steps)

# %% [markdown] tags=["slide"]
# ## 4 · The whole model
#
# Now all of it, from the parts of chapters 01 to 06. `kept` is what a layer remembers from one call to the next: empty
# at first, filled by the call (section 8 uses it). `see` is a list to which each part reports what it computes.

# %%
def heads(x, H):
    return x.reshape(*x.shape[:-1], H, -1)                        # [B, T, H * width] -> [B, T, H, width]


def kda(x, p, kept, see):
    """Kimi Delta Attention, chapters 01 to 03.   x [B, T, D], weights p -> y [B, T, D]"""
    H, K = config.num_heads, config.kda_key_dim
    z = np.concatenate([x @ p[name + "_proj"].T for name in "qkv"], axis=-1)
    taps = np.concatenate([p[name + "_conv1d"] for name in "qkv"])
    convolved, kept["tail"] = short_convolution(z, taps, kept.get("tail"))
    q, k, v = np.split(silu(convolved), [H * K, 2 * H * K], axis=-1)
    q, k, v = heads(q, H), heads(k, H), heads(v, H)
    q, k = unit_keys.l2_norm(q), unit_keys.l2_norm(k)             # unit length, but not the values
    decay = heads(x @ p["f_a_proj"].T @ p["f_b_proj"].T + p["dt_bias"], H)
    g = decay_gates.bounded_decay(decay, p["A_log"], config.gate_lower_bound)
    beta = sigmoid(x @ p["b_proj"].T)
    o, kept["state"] = kda_recurrent(q, k, v, g, beta, kept.get("state"))
    normed = rms_norm(o, p["o_norm"]).reshape(z.shape[:-1] + (-1,))  # each head on its own, then side by side
    y = (normed * sigmoid(x @ p["g_proj"].T)) @ p["o_proj"].T     # the gate acts after the norm
    see += [("q, k, v before the convolution", z), ("queries q", q), ("keys k", k), ("values v", v),
            ("log-decays g", g), ("strengths beta", beta), ("states S", kept["state"]), ("read from S: o", o),
            ("y", y)]
    return y

# %%
def mla(x, p, kept, see):
    """Multi-head latent attention without positions, chapter 04.   x [B, T, D] -> y [B, T, D]"""
    H, R, eps = config.num_heads, config.kv_lora_rank, config.latent_norm_eps
    q = heads(rms_norm(x @ p["q_a_proj"].T, p["q_a_layernorm"], eps) @ p["q_b_proj"].T, H)
    row = x @ p["kv_a_proj_with_mqa"].T                           # [B, T, R + r]
    row = np.concatenate([rms_norm(row[..., :R], p["kv_a_layernorm"], eps), row[..., R:]], axis=-1)
    rows = np.concatenate([kept["rows"], row], axis=1) if "rows" in kept else row
    kept["rows"] = rows                                           # of all tokens so far  [B, S, R + r]
    o = mla_naive(q, rows[..., :R], rows[..., R:], heads(p["kv_b_proj"].T, H).transpose(1, 2, 0))
    o = o.reshape(*o.shape[:2], -1)
    y = (sigmoid(x @ p["g_proj"].T) * o) @ p["o_proj"].T
    see += [("queries q", q), ("latent and shared key of a token", row), ("rows of all tokens", rows),
            ("mixed values, heads side by side", o), ("y", y)]
    return y

# %%
def dense(x, p, see):
    """The feed-forward network of layer 0.   x [B, T, D] -> y [B, T, D]"""
    y = ffn.gated_ffn(x, p["gate_proj"], p["up_proj"], p["down_proj"])  # with SiTU, chapter 05
    see += [("y", y)]
    return y


def moe(x, p, see):
    """Stable LatentMoE, chapter 05.   x [B, T, D] -> y [B, T, D]"""
    bias, k = p["gate.e_score_correction_bias"], config.num_experts_per_token
    chosen, share, _ = router.route(x, p["gate"], bias, k)        # from all D numbers; the bias only selects
    z = x @ p["routed_expert_down_proj"].T                        # into the latent space  [B, T, L]
    u = np.zeros(z.shape)
    for e in range(config.num_experts):                           # simple, not fast: each sees all tokens
        weight = np.sum(share * (chosen == e), axis=-1, keepdims=True)  # 0 where e was not chosen
        u = u + weight * ffn.gated_ffn(z, p["experts.w1"][e], p["experts.w3"][e], p["experts.w2"][e])
    y = rms_norm(u, p["routed_expert_norm"]) @ p["routed_expert_up_proj"].T
    y = y + ffn.gated_ffn(x, *(p[f"shared_experts.{name}_proj"] for name in ("gate", "up", "down")))
    see += [("chosen experts", chosen), ("their shares", share), ("latent z", z), ("sum of experts u", u),
            ("y", y)]
    return y

# %%
def mixed(bank, h, name, see):
    """A mix over depth, chapter 06.   bank: list of [B, T, D], h [B, T, D] -> [B, T, D]"""
    if not bank:
        shares, x = np.ones((1, *h.shape[:-1])), h                # layer 0: the embedding alone
    else:
        p = parts(name)
        x, shares = depth_mix([*bank, h], p["query"], p["weight"])
    see += [("shares of the sources", shares), ("reads", x)]      # shares [N, B, T]
    return x

# %%
def k3(tokens, memory=None, trace=None):
    """tokens [B, T] -> logits [B, T, 260].   memory: a dict a layer; trace: filled with what parts report"""
    memory, trace = memory or [{} for _ in range(config.num_layers)], {} if trace is None else trace
    h, bank = weights["embed_tokens.weight"][tokens], []
    for i in range(config.num_layers):
        at, kind = f"layers.{i}.", "MLA" if config.is_mla(i) else "KDA"
        see = trace[f"{i} {kind}"] = []
        x = rms_norm(mixed(bank, h, at + "self_attention_res.", see), weights[at + "input_layernorm.weight"])
        y = (mla if kind == "MLA" else kda)(x, parts(at + "self_attn."), memory[i], see)
        bank, h = ([*bank, h], y) if i % config.attn_res_block_size == 0 else (bank, h + y)
        see = trace[f"{i} dense" if config.is_dense(i) else f"{i} MoE"] = []
        x = rms_norm(mixed(bank, h, at + "mlp_res.", see), weights[at + "post_attention_layernorm.weight"])
        h = h + (dense(x, parts(at + "mlp."), see) if config.is_dense(i)
                 else moe(x, parts(at + "block_sparse_moe."), see))
    x = mixed(bank, h, "output_attn_res.", trace.setdefault("output", []))
    return rms_norm(x, weights["norm.weight"]) @ weights["lm_head.weight"].T

# %% [markdown]
# That is a complete K3, but for pictures ([chapter 10](10_native_vision.ipynb)). Is it *the* K3? Three programs that
# share no line of their assembly: ours above, the reference in NumPy, and the model in torch that computes in chunks.

# %%
tokens = np.random.default_rng(0).integers(0, 260, size=(3, 37))  # nonsense tests as well as sense
logits = k3(tokens)
with torch.no_grad():
    in_torch = model(torch.tensor(tokens)).numpy()
assert np.allclose(logits, k3_forward(tokens, weights, config), rtol=0, atol=1e-9)  # inline = reference
assert np.allclose(logits, in_torch, rtol=0, atol=1e-9)           # inline = torch
print(f"logits {list(logits.shape)} of size {np.abs(logits).max():.1f};",
      f"largest difference from torch {np.abs(logits - in_torch).max():.0e}")

# %% [markdown]
# They agree, and not because all are ours: llama.cpp and mlx-lm, written by other people, load the same weights and give
# the same logits up to rounding ([chapter 12](12_scaling_up.ipynb)).

# %% [markdown] tags=["slide"]
# ## 5 · An experiment that breaks it
#
# How would we have noticed a slip? `assembled` takes the sublayers of a torch model and joins them in NumPy, with one
# slip in the order. Eleven slips; those of exercises 8.2 and 8.3 are among them. For each we measure two things:
# the loss of *untrained* miniatures, three seeds, and how much of its answers the *trained* one still gets right, on 96
# held-out rows. (The **loss** is the cross-entropy: minus the logarithm of the probability of the right next token, a mean
# over all answers.)

# %%
def assembled(net, tokens, slip=None):
    """Logits of a torch model, its sublayers joined here, with one slip.   tokens [B, T] -> [B, T, vocab]"""
    def array(tensor):
        return tensor.detach().double().numpy()

    def function(part):
        return lambda x: array(part(torch.tensor(x, dtype=torch.float32)))

    h = array(net.embed_tokens(torch.tensor(tokens)))
    bank = np.zeros((1, *h.shape)) if slip == "a zero vector banked first" else np.zeros((0, *h.shape))
    for i, layer in enumerate(net.layers):
        late = slip == "blocks one layer late"
        starts = i % 2 == (1 if late else 0) and not (i == 0 and len(bank))
        mixes = (layer.self_attention_res, layer.mlp_res)
        ffn_part = layer.mlp if layer.is_dense else layer.block_sparse_moe
        bank, h = ch08_wrong.layer(
            bank, h, starts, function(layer.self_attn), function(ffn_part),
            [array(mix.query) for mix in mixes], [array(mix.weight) for mix in mixes],
            [array(norm.weight) for norm in (layer.input_layernorm, layer.post_attention_layernorm)], slip)
    last = net.output_attn_res
    return ch08_wrong.end(bank, h, array(last.query), array(last.weight), array(net.norm.weight),
                          array(net.embed_tokens.weight), array(net.lm_head.weight), slip)

# %%
def loss(logits, targets):
    """Mean cross-entropy where there is a target.   logits [B, T, vocab], targets [B, T], -1 for none"""
    wanted = targets >= 0
    z, right = logits[wanted], targets[wanted]
    z = z - z.max(axis=-1, keepdims=True)
    return np.mean(np.log(np.exp(z).sum(axis=-1)) - z[np.arange(len(z)), right])


corpus = Corpus()
rows = [corpus.batch(np.random.default_rng([8, i]), 16, "test", name) for i, name in enumerate(FAMILIES)]
held_out, targets, scored = (np.concatenate([getattr(batch, what) for batch in rows])
                             for what in ("tokens", "targets", "scored"))
SLIPS = (None, "FFN blind", "mix banked", "sum goes on", "banked before the mix", "blocks one layer late",
         "a zero vector banked first", "h added to the mix", "norm behind the sublayer", "no mix at the end",
         "no norm at the end", "embedding as head")
single, fresh = pretrained("mini"), [K3(config, seed=seed).eval() for seed in range(3)]
table = {}
for slip in SLIPS:
    untrained = [loss(assembled(net, held_out[::4], slip), targets[::4]) for net in fresh]
    answer = assembled(single, held_out, slip)
    right = (answer.argmax(-1) == targets)[scored].mean()
    table[slip] = (untrained, right, loss(answer, targets))
    print(f"{slip or 'the right order':28s} untrained loss", " ".join(f"{one:.2f}" for one in untrained),
          f"   trained: {right:.2f} right, loss {table[slip][2]:.2f}")

# %% tags=["remove"]
base, right, final = table[None]
assert right > 0.97 and final < 0.05
assert np.abs(np.array([untrained for untrained, _, _ in table.values()]) - base).max() < 0.06
mild = ("no norm at the end", "banked before the mix")
assert all(share < 0.85 for slip, (_, share, _) in table.items() if slip not in (None, *mild))
assert 0.005 < right - table["banked before the mix"][1] < 0.04
assert table["banked before the mix"][2] > 2 * final
assert table["no norm at the end"][1] > 0.97 and table["no norm at the end"][2] > 1
assert table["embedding as head"][1] < 0.05
by_torch = single(torch.tensor(held_out[:8])).detach().numpy()
assert np.abs(assembled(single, held_out[:8]) - by_torch).max() < 1e-3

# %% [markdown]
# Read the first column of losses: **before training every order has the same loss**, to a few hundredths (measured
# here). So a first loss near $\log 260 = 5.56$ proves nothing about the assembly, and since a network learns round almost
# anything, a falling loss proves little. Trained weights tell at once: nine of the eleven slips cost between a sixth and
# nearly all of the answers (measured here).
#
# Two pass the second test as well. *Banked before the mix*, where the attention that opens a block reads $h$ twice, costs
# two answers in a hundred, as much as another seed might. And without the last norm the answers are as right as before: the
# norm divides all logits of a token by one number, and the largest stays the largest (its weight hardly changes that). Only
# the *loss* sees these two: it more than doubles, and it grows from .04 to more than 1 (measured here). Hence the rule of
# this course: **compare numbers, not scores**. Logits, to nine digits, against a program that somebody else has written,
# on trained weights.

# %% [markdown] tags=["slide"]
# ## 6 · One forward pass, everything shown
#
# The text is `w6 s6 k8 u2?k`: four pairs (`k8` says that the digit 8 goes with the letter k), then k is asked. First the
# shapes: everything that the parts report, for one layer of each kind. ($B = 1$ text, $T = 13$ tokens.)

# %%
text, NO_SIZE = "w6 s6 k8 u2?k", ("shares of the sources", "chosen experts", "their shares")
trace, memory = {}, [{} for _ in range(4)]
answer = k3(np.array([encode(text)]), memory, trace)
print("the miniature continues with", repr(chr(answer[0, -1].argmax())))
for reader in ("0 KDA", "0 dense", "1 MoE", "3 MLA", "output"):
    print(f"\n{reader}")
    for what, array in trace[reader]:
        size = f"size {np.sqrt(np.mean(array ** 2)):.2f}" if what not in NO_SIZE else ""
        print(f"    {what:36s} {str(list(array.shape)):18s} {size}")

# %% tags=["remove"]
assert chr(answer[0, -1].argmax()) == "8" and len(trace) == 9
assert [len(trace[name][0][1]) for name in trace] == [1, 2, 2, 2, 2, 3, 3, 3, 3]

# %% [markdown]
# (*size* is the root mean square.) Check a few by hand: the convolution sees $2HK + HV = 3 \cdot 64$ channels; a state is
# $4 \times 16 \times 16$ and has no axis of tokens, there is one for the whole text; a row of MLA's has $32 + 8$ numbers
# and there are as many rows as tokens.
#
# Next the sources of all nine mixes, at two tokens: the digit 8, where the pair *k8* is complete, and the last k, where
# the answer must be given.

# %% tags=["slide"]
SOURCES = ("embedding", "layers 0 and 1 (so far)", "layers 2 and 3 (so far)")
places = {"at the 8 of k8": 7, "at the last k": 12}


def shares_at(place):
    """The shares of each mix at one token, NaN for a source that does not exist.   -> [9, 3]"""
    found = np.full((len(trace), len(SOURCES)), np.nan)
    for row, see in enumerate(trace.values()):
        p = see[0][1][:, 0, place]                                # oldest first: the embedding, the blocks
        found[row, :len(p)] = p
    return found


shares = {name: shares_at(place) for name, place in places.items()}
readers = [(name, name.split()[-1] if name != "output" else "plain") for name in trace]
sizes = [np.nan if name == "output" else np.sqrt(np.mean(see[-1][1][0, 12] ** 2))
         for name, see in trace.items()]
show(pass_trace.pass_trace(readers, SOURCES, shares, sizes, title=f"One pass of the miniature over  {text}"),
     "Shares of the embedding and of both blocks in nine mixes at two tokens, and sizes of the outputs",
     name="08_pass")

# %% [markdown] tags=["slide"]
# Read it upwards, and compare the two columns: the same queries choose differently at different tokens. (Blue and orange
# are sums of a block's outputs, those written *so far*.) The same as a table, with the size of what each sublayer reads
# and writes at the last token:

# %%
print("reader    embedding  layers 0-1  layers 2-3    reads   writes")
for row, (name, see) in enumerate(trace.items()):
    cells = ["-" if np.isnan(p) else f"{p:.2f}" for p in shares["at the last k"][row]]
    read = np.sqrt(np.mean(see[1][1][0, 12] ** 2))
    wrote = "-" if name == "output" else f"{sizes[row]:.2f}"
    print(f"{name:8s} {cells[0]:>10s} {cells[1]:>11s} {cells[2]:>11s} {read:8.2f} {wrote:>8s}")

# %% tags=["remove"]
assert abs(shares["at the last k"][-1, 1] - 0.87) < 0.01
assert shares["at the last k"][1, 1] > 0.8

# %% [markdown]
# At the last k the output takes .87 of its mixture from the finished block, the sum of layers 0 and 1: **the answer was
# there before layer 2 began**, and the upper half of the model is nearly passed over (measured here, one text). Section
# 11 tests that guess by taking parts away.

# %% [markdown] tags=["slide"]
# ## 7 · Where the parameters are, and where the work is
#
# One token multiplies with most matrices once. So parameters and work would be the same account, but for three things:
# of the experts only two in sixteen work; the embedding is looked up; and attention and recurrence do work that belongs
# to no matrix. `accounting` counts both from the configuration. The miniature after 80 tokens, K3 after 4,096:

# %%
GROUPS = {"embedding": ("plain", ["embedding"], []), "KDA": ("KDA", ["kda"], ["kda_"]),
          "MLA": ("MLA", ["mla"], ["mla_"]), "dense FFN": ("dense", ["dense_ffn"], ["dense_ffn"]),
          "routed experts": ("MoE", ["routed_experts"], ["routed_experts"]),
          "shared experts": ("MoE", ["shared_experts"], ["shared_experts"]),
          "router, latent": ("MoE", ["router", "latent"], ["router", "latent"]),
          "norms, depth mixes": ("mix", ["sublayer_norms", "depth_mixes", "output_depth_mix", "final_norm"],
                                 ["depth_mixes"]),
          "head": ("plain", ["lm_head"], ["lm_head"])}


def accounts(config, context):
    """Shares of parameters and of multiplications of each group.   -> [9], [9]"""
    count, work = count_parameters(config), flops_per_token(config, context)
    held = [sum(count.modules[name].total for name in names) for _, names, _ in GROUPS.values()]
    done = [sum(n for kind, n in work.modules.items() if any(kind.startswith(k) for k in kinds))
            for _, _, kinds in GROUPS.values()]
    assert sum(held) == count.total and sum(done) == work.total   # nothing is left out
    return np.array(held) / count.total, np.array(done) / work.total

# %% tags=["slide"]
both = {"miniature": accounts(config, 80), "Kimi K3": accounts(preset("kimi_k3"), 4096)}
show(two_shares.two_shares(both, [(name, group[0]) for name, group in GROUPS.items()],
                first="share of the parameters", second="share of the work for one token"),
     "Paired bars of parameters and work by part: routed experts hold most and work little, KDA the reverse",
     name="08_accounts")
mini_count, work = count_parameters(config), flops_per_token(config, 80)
print(f"miniature: {mini_count.total:,} parameters, {mini_count.active:,} of them work for a token;",
      f"{work.total:,} operations a token")

# %% tags=["remove"]
held, done = both["miniature"]
assert abs(held[4] - 0.59) < 0.01 and abs(done[4] - 0.15) < 0.01
assert abs(both["Kimi K3"][0][4] - 0.98) < 0.005 and 0.4 < both["Kimi K3"][1][4] < 0.5
assert abs(held[1] - 0.14) < 0.01 and abs(done[1] - 0.33) < 0.01
assert mini_count.active == 223_116

# %% [markdown] tags=["slide"]
# Compare the two bars of the routed experts: in the miniature they hold 59 % of the parameters and do 15 % of the work,
# in K3 98 % and less than half (derived). Each expert is a place to put things; a token pays only for those it visits.
# KDA is the other way round.

# %% [markdown]
# ### Exercise 8.4: one layer counted
#
# How many parameters has layer 1 of the miniature, and how many of them work for one token? All shapes stand in the
# output of section 2. The selection biases count as parameters that work (all sixteen scores must be computed). Answer
# with a list of two whole numbers.

# %% [markdown] tags=["hint"]
# Add the sizes of all arrays. Of each array of experts, [16, …], two sixteenths work.

# %% id="8.4" minutes=8 difficulty=2
# BEGIN SOLUTION
kda_part = 5 * 64 * 64 + 3 * 64 * 4 + 16 * 64 + 64 * 16 + 4 * 64 + 4 + 64 + 16
one_expert = 3 * 64 * 32
moe_part = 16 * 64 + 16 + 2 * 32 * 64 + 32 + 3 * 64 * 64
my_answer = [kda_part + moe_part + 16 * one_expert + 6 * 64, kda_part + moe_part + 2 * one_expert + 6 * 64]
# END SOLUTION

# %%
check("8.4", my_answer)

# %% tags=["remove"]
assert sum(parameters_of_layer(config, 1).values()) == sum(a.size for a in parts("layers.1.").values())

# %% [markdown] tags=["slide"]
# ## 8 · Two kinds of memory, and decoding
#
# To write a text, a model is called once for each token. It would be wasteful to read the whole text again each time.
# What must be kept so that a call with *one* token gives what a call with all of them gives? Look through
# section 4 for everything that crosses tokens:
#
# - in KDA the **state** $S$, and the **tail** of the convolution: its last three inputs, before convolution and SiLU;
# - in MLA the **rows** of all tokens so far, latent and shared key;
# - and nothing else. Norms, experts, gates, mixes over depth and head look at one token alone. The bank is made anew
#   for each token and forgotten.

# %% tags=["slide"]
show(kept_memory.kept_memory(config, 80),
     "Three KDA layers keep four squares and a thin strip each, the MLA layer eighty rows of forty numbers",
     name="08_memory")
for length in (1, 13, 80, 800):
    kept = cache_bytes(config, length, bytes_per_value=4)
    print(f"{length:4} tokens: states {kept.kda_state // 4:,} numbers, tails {kept.convolution // 4:,},",
          f"rows {kept.mla // 4:,}")

# %% tags=["remove"]
assert cache_bytes(config, 80, 4).mla == 4 * 3200 and cache_bytes(config, 80, 4).kda_state == 4 * 3072
assert cache_bytes(config, 80, 4).convolution == 4 * 1728
assert (memory[0]["tail"].shape, memory[0]["state"].shape) == ((1, 3, 192), (1, 4, 16, 16))
assert memory[3]["rows"].shape == (1, 13, 40)

# %% [markdown] tags=["slide"]
# The blue areas have this size for any text; the yellow one gets one row wider with each token, and at 80 tokens its
# 3,200 numbers have passed the 3,072 of all three states (derived).

# %% [markdown]
# ### Exercise 8.5: one token through the convolution
#
# The tail is the part that rebuilds get wrong most easily. Write one token's step: `tail` holds the last inputs, oldest
# first; `taps[:, -1]` meets the current input `x`. Return $y$ (before SiLU) and the new tail.

# %% [markdown] tags=["hint"]
# `np.concatenate([tail, x[None]])` has as many rows as there are taps.

# %% id="8.5" minutes=8 difficulty=2
def my_tail_step(tail, x, taps):
    """tail [W - 1, P], x [P], taps [P, W] -> y [P], the new tail [W - 1, P]"""
    # BEGIN SOLUTION
    seen = np.concatenate([tail, x[None]])                        # [W, P], oldest to newest
    return np.sum(seen * taps.T, axis=0), seen[1:]
    # END SOLUTION

# %%
check("8.5", my_tail_step)

# %% [markdown]
# ### Token by token = all at once
#
# Our `k3` takes a memory and goes on from it, so it can decode already. The executed equality, ours first: 37 tokens one
# by one against all at once. Then the torch model, which computes in chunks of 16 tokens and in decoding switches to
# other formulas (one step of the recurrence, absorbed MLA, mixes in two phases): it is cut after *every* number of
# tokens, before, at and in the middle of a chunk, and what follows comes in one call, or one by one.

# %%
tokens = np.random.default_rng(1).integers(0, 260, size=(2, 37))
whole, memory = k3(tokens), [{} for _ in range(4)]
steps = np.concatenate([k3(tokens[:, t:t + 1], memory) for t in range(37)], axis=1)
assert np.abs(steps - whole).max() < 1e-9                         # one by one = all at once, inline
assert np.allclose(steps, k3_forward(tokens, weights, config), rtol=0, atol=1e-9)

worst, ids = 0.0, torch.tensor(tokens)
with torch.no_grad():
    for cut in range(38):
        cache = model.new_cache(2)
        pieces = [ids[:, :cut], ids[:, cut:]]
        if cut in (0, 3, 15, 16, 17, 24):                          # the rest token by token
            pieces[1:] = pieces[1].split(1, dim=1)
        got = torch.cat([model(piece, cache) for piece in pieces], dim=1).numpy()
        worst = max(worst, np.abs(got - whole).max())
assert worst < 1e-9                                               # every cut, in torch = all at once, inline
print(f"largest difference: inline {np.abs(steps - whole).max():.0e}, torch over all cuts {worst:.0e},",
      f"in logits up to {np.abs(whole).max():.0f}")

# %% [markdown]
# ### Which memory holds the answer?
#
# Equality says that nothing more is needed. Is all of it needed? Read 300 lists of six pairs up to the question mark,
# wipe one piece of memory, then ask a letter. Three sets of lists.

# %%
def lists(seed, count=300, pairs=6):
    """Lists with a question, and their answers.   -> tokens [count, 3 pairs + 1], answers [count]"""
    rng, texts, answers = np.random.default_rng(seed), [], []
    for _ in range(count):
        letters, digits = rng.choice(26, pairs, replace=False), rng.integers(0, 10, pairs)
        asked = rng.integers(pairs)
        named = [f"{chr(97 + letter)}{digit}" for letter, digit in zip(letters, digits, strict=True)]
        texts.append(encode(" ".join(named) + "?" + named[asked][0]))
        answers.append(ord(str(digits[asked])))
    return torch.tensor(texts), np.array(answers)


def after_wiping(seed):
    """Share of right digits after one piece of memory was wiped.   -> {(layer, piece): share}"""
    ids, answers = lists(seed)
    read, found = single.new_cache(len(ids)), {}
    with torch.no_grad():
        single(ids[:, :-1], read)
        for layer, piece in PIECES:
            cache = read.clone()
            if piece:
                getattr(cache.layers[layer], piece).zero_()
            found[layer, piece] = (single(ids[:, -1:], cache)[:, 0].argmax(-1).numpy() == answers).mean()
    return found

# %%
PIECES = [(0, ""), *((i, piece) for i in range(3) for piece in ("state", "tail")), (3, "rows")]
runs = [after_wiping(seed) for seed in range(3)]
wiped = {piece: [found[piece] for found in runs] for piece in PIECES}
for (layer, piece), found in wiped.items():
    name = f"layer {layer}: {piece} wiped" if piece else "nothing wiped"
    print(f"{name:24s}", "  ".join(f"{share:.2f}" for share in found))

# %% tags=["remove"]
assert min(wiped[0, ""]) > 0.95 and max(wiped[0, "state"]) < 0.3
assert min(min(found) for piece, found in wiped.items() if piece != (0, "state")) > 0.95
assert max(abs(a - b) for a, b in zip(wiped[3, "rows"], wiped[0, ""], strict=True)) < 0.01

# %% [markdown]
# Without the state of layer 0 only guesses are left (a tenth would be chance); every other piece can go, and nearly all
# answers stay (measured here). **For this question the memory of the whole list is four matrices of 16 × 16 numbers in one
# layer.** The rows of MLA can be wiped without any effect: in this miniature the attention layer is idle, as
# [chapter 04](04_multi_head_latent_attention.ipynb) found. Other questions need other pieces; section 11 looks at all six
# families.

# %% [markdown] tags=["slide"]
# ## 9 · Two texts in one batch
#
# Texts in a batch have different lengths, but an array is a rectangle. So the shorter one is **padded**, in this course on
# the left, and a **mask** says which tokens are real. What must a pad not do? It must not write into or fade a state
# ($\beta = 0$ and $g = 0$ there), not enter the convolution (its input is 0), not be looked at by MLA, and not count as load of
# an expert. In training several short texts are **packed** into one row the other way: `documents` numbers them, and
# nothing may cross from one to the next. If both are right, each text comes out as if it were alone:

# %%
one, two = encode("flip laptop>"), encode("94+86=")
pads = len(one) - len(two)
batch = torch.tensor([one, [0] * pads + two])
mask = torch.tensor([[True] * len(one), [False] * pads + [True] * len(two)])
with torch.no_grad():
    alone = [model(torch.tensor([text]))[0] for text in (one, two)]
    padded = model(batch, mask=mask)
    packed = model(torch.tensor([one + two]), documents=torch.tensor([[0] * len(one) + [1] * len(two)]))[0]
    careless = [model(batch)[1, pads:], model(torch.tensor([one + two]))[0, len(one):]]
assert torch.allclose(torch.cat([padded[0], padded[1, pads:]]), torch.cat(alone), atol=1e-9)
assert torch.allclose(packed, torch.cat(alone), atol=1e-9)        # padded = packed = alone
for name, got in zip(("without a mask", "without documents"), careless, strict=True):
    print(f"{name}: logits of the second text are off by {(got - alone[1]).abs().max():.1f}")

# %% tags=["remove"]
assert min((got - alone[1]).abs().max().item() for got in careless) > 0.5

# %% [markdown]
# With mask and documents both texts come out as alone; without them the second one is disturbed by strangers (measured
# here), and again no error is raised.

# %% [markdown] tags=["slide"]
# ## 10 · Before training
#
# Where does a K3 start? All matrices are drawn from a normal distribution with standard deviation .02; all norm weights
# are 1; and four kinds of numbers are set with a purpose:
#
# | | start | why |
# |---|---|---|
# | depth queries $w$ | 0 | each mix is the plain mean: the network begins as one with a plain residual ([chapter 06](06_attention_residuals.ipynb)) |
# | selection biases | 0 | no expert is preferred; balancing sets them from the first batch on ([chapter 05](05_stable_latent_moe.ipynb)) |
# | `A_log` | 0 | the slope $e^{A}$ of the decay's sigmoid is 1 |
# | `dt_bias` | $\log(e^{dt} - 1)$, with $\log dt$ spread evenly from $\log .001$ to $\log .1$ | forgetting at many speeds, none too fast |
#
# [Chapter 02](02_kimi_delta_attention.ipynb), section 6, has derived what the last one does: a channel starts with
# $g = -5\,(1 - e^{-dt})$, between $-.005$ and $-.476$, so what it holds halves within 139 to 1.5 tokens. With `dt_bias` = 0
# it would be $g = -2.5$, half gone in about a quarter of a token: no error could reach back even two tokens.

# %%
def half_lives(net, i):
    """Tokens after which a channel of KDA layer i holds half, for an input of zero.   -> [H * K]"""
    with torch.no_grad():
        return np.log(0.5) / net.layers[i].self_attn.decay(torch.zeros(1, 1, 64)).numpy().ravel()


print("half-lives in tokens     shortest  a quarter below  median  a quarter above  longest")
for i in range(3):
    for name, net in (("at the start", fresh[0]), ("trained", single)):
        low, lower, middle, upper, high = np.quantile(half_lives(net, i), [0, 0.25, 0.5, 0.75, 1])
        print(f"layer {i} {name:14s} {low:12.1f} {lower:16.1f} {middle:7.1f} {upper:16.1f} {high:8.0f}")

# %% tags=["remove"]
starts = np.concatenate([half_lives(net, i) for net in fresh for i in range(3)])
assert 1.45 < starts.min() < 2 and 120 < starts.max() < 139
assert half_lives(single, 0).max() > 1000 and np.median(half_lives(single, 1)) < 10
assert np.isclose(np.log(0.5) / -2.5, 0.277, atol=0.001)
assert np.isclose(5 * (1 - np.exp(-0.1)), 0.476, atol=5e-4)

# %% [markdown]
# Training has pulled the speeds further apart: layer 0 keeps some channels for thousands of tokens, layer 1 has become
# quicker (measured here).
#
# ### The loss at the start
#
# Untrained, all tokens should be about equally likely, and the loss $\log \mathrm{vocab} = \log 260 = 5.56$. A little
# more precisely: the last norm gives a vector of $D$ numbers with mean square 1; a row of the head has $D$ random
# numbers with variance $\sigma^2$; so each logit is a sum with variance $s^2 = D \sigma^2$. The loss is $\log \sum_j
# e^{z_j} - z_\text{right}$. The right token's logit is 0 on average, and for normal $z$ the mean of $e^z$ is
# $e^{s^2/2}$, so for many tokens
#
# $$ \text{loss} \approx \log\!\big(\mathrm{vocab}\, e^{s^2 / 2}\big) = \log \mathrm{vocab} + \tfrac12 D \sigma^2 . $$
#
# **An untrained model is not undecided but randomly decided, and that costs.**

# %% [markdown]
# ### Exercise 8.6: the loss before training
#
# Write the formula, for several standard deviations at once. Then put K3's size in: `vocab` = 163,840, $D$ = 7,168 and
# $\sigma = .02$, how far above $\log \mathrm{vocab}$ does it start?

# %% [markdown] tags=["hint"]
# `np.log` is the natural logarithm.

# %% id="8.6" minutes=5 difficulty=1
def my_first_loss(vocab, width, std):
    """vocab, width whole numbers, std [n] -> the loss before training [n]"""
    # BEGIN SOLUTION
    return np.log(vocab) + width * std ** 2 / 2
    # END SOLUTION

# %%
check("8.6", my_first_loss)

# %% [markdown]
# Does it hold? Miniatures with five spreads of their matrices, five seeds each, loss on held-out rows of the six tasks.

# %% tags=["slide"]
spreads = np.array([0.02, 0.05, 0.1, 0.15, 0.2])


def untrained_loss(std, seed):
    net = K3(config.replace(initializer_range=std), seed=seed).eval()
    with torch.no_grad():
        return loss(net(torch.tensor(held_out[::4])).double().numpy(), targets[::4])


first = np.array([[untrained_loss(std, seed) for std in spreads] for seed in range(5)])  # [seeds, spreads]
expected = ch08.first_loss(260, 64, spreads)
show(seed_curves.seed_curves(
    spreads, {"measured": first, "derived": expected}, title="Loss of an untrained miniature, five seeds",
    x_label="standard deviation of the matrices", y_label="loss", limits=(5.4, 7.0), ticks=spreads),
     "Loss before training against the spread of the matrices: five seeds lie on the derived parabola",
     name="08_first_loss")
print("derived ", expected.round(2))
print("measured", first.mean(axis=0).round(2), "+-", first.std(axis=0).round(2))

# %% tags=["remove"]
assert np.abs(first.mean(axis=0) - expected).max() < 0.1 and np.abs(first - expected).max() < 0.3
assert abs(first[:, 0].mean() - 5.57) < 0.02 and first[:, 0].std() < 0.02
assert abs(ch08.first_loss(163_840, 7168, np.array([0.02]))[0] - 13.44) < 0.005

# %% [markdown] tags=["slide"]
# The mean of the seeds lies on the parabola within a tenth; single seeds scatter, the more the larger $\sigma$ is
# (measured here). The miniature starts at 5.57, which is $\log 260$ and a hundredth. A model of K3's width with
# $\sigma = .02$ would start at 13.44, 1.43 above $\log 163{,}840 = 12.01$ (derived; what K3 itself started with is not
# published). A first loss *far* from this formula, on the other hand, is worth a search: then the last norm, or the
# scale of the head, is wrong.

# %% [markdown] tags=["slide"]
# ## 11 · What the trained miniature says
#
# One held-out question of each family, answered greedily, and the answer that was wanted:

# %%
rng = np.random.default_rng(21)
examples = [FAMILIES[name].example(rng, "test").turns[0] for name in FAMILIES]
written = generate(single, [encode(prompt) for prompt, _ in examples], 24, stop_tokens=(NEWLINE,))
for name, (prompt, wanted), out in zip(FAMILIES, examples, written, strict=True):
    print(f"{name:9s} {prompt:52s} {decode(out).rstrip()[:len(wanted)]:14s} wanted {wanted}")
print("\nand left alone, with some chance (temperature 1):")
for seed in range(3):
    print("   ", repr(decode(generate(single, encode("copy "), 32, temperature=1.0, seed=seed))))

# %% tags=["remove"]
assert all(decode(out).startswith(wanted) for (_, wanted), out in zip(examples, written, strict=True))

# %% [markdown]
# Six of six are right (measured here). Left alone it babbles: training looked only at the characters of answers, so nobody
# ever taught it to ask a question.
#
# ### Taking parts away
#
# Which sublayer does what? Let one say nothing, that is, put zeros in the place of its output, and count the answers that
# stay right: characters of answers, in three batches of 48 rows a family, 864 rows. (A layer's inputs do not depend on the
# layers above it, so we start each time from what reaches the silent layer.)

# %%
NAMES = [name for name in trace if name != "output"]
PARTS = [part for layer in single.layers for part in
         (layer.self_attn, layer.mlp if layer.is_dense else layer.block_sparse_moe)]


def right_answers(batch):
    """Share of right characters with nothing silent, then with each sublayer silent.   -> [9]"""
    asked = torch.tensor(batch.scored)
    reached = [(single.new_bank(None, asked), single.embed_tokens(torch.tensor(batch.tokens)))]
    for layer in single.layers:
        reached.append(layer(*reached[-1]))                       # all that goes up from a layer: bank and h

    def finish(i):
        bank, h = reached[i]
        for layer in single.layers[i:]:
            bank, h = layer(bank, h)
        x = bank.read(single.output_attn_res, Source(h, config.rms_norm_eps))
        found = single.lm_head(single.norm(x[asked])).argmax(-1)
        return (found.numpy() == batch.targets[batch.scored]).mean()

    found = [finish(len(single.layers))]
    for number, part in enumerate(PARTS):
        with silenced(part):
            found.append(finish(number // 2))
    return found

# %% tags=["slide"]
with torch.no_grad():
    silent = np.array([[right_answers(corpus.batch(np.random.default_rng([9, seed, i]), 48, "test", name))
                        for i, name in enumerate(FAMILIES)] for seed in range(3)])  # [batches, families, 9]
mean = silent.mean(axis=0).T                                      # [9, families]
show(silence_map.silence_map(mean[1:], [(name, name.split()[1]) for name in NAMES], list(FAMILIES), mean[0],
                 title="Right answers with one sublayer silent"),
     "Right answers of six families with each of eight sublayers silent; the row of MLA is unchanged",
     name="08_silence")
print("largest difference between two batches:", np.ptp(silent, axis=0).max().round(2))
print("largest change when MLA is silent:     ", np.abs(silent[:, :, 7] - silent[:, :, 0]).max().round(4))

# %% tags=["remove"]
assert np.abs(silent[:, :, 7] - silent[:, :, 0]).max() < 0.003 and np.ptp(silent, axis=0).max() < 0.09
recall, copied, flipped, closed, added, told = mean.T             # [9]: whole, 0 KDA, 0 dense, 1 KDA, ...
assert recall[1] < 0.25 and recall[2:].min() > 0.97
assert copied[5] < 0.15 and 0.2 < flipped[5] < 0.32 and min(recall[5], closed[5], told[5]) > 0.94
assert closed[3] < 0.6 and added[3] < 0.65
assert all(0.6 < added[i] < 0.77 for i in (2, 6, 8)) and added[4] > 0.9
assert min(part[i] for part in (recall, copied, flipped, closed, told) for i in (2, 6, 8)) > 0.93

# %% [markdown] tags=["slide"]
# Look for the dark cells (measured here, all of it):
#
# - **KDA in layer 0** is needed by everyone. Recall falls to .19, near the .10 of guessing, and as nothing else brings it
#   down, recall is done there and nowhere above: the guess of section 6 is confirmed, and so is the wiped state.
# - **KDA in layer 2** copies: without it .09 of copies are right and .25 of reversals, but recall, brackets and stories do not
#   notice. **KDA in layer 1** serves brackets and sums most.
# - **The FFNs** are needed for sums: each of three of them alone costs about three tenths there, and little elsewhere.
# - **MLA** does nothing. No cell of its row moves by more than .003 in any batch. This miniature would answer as well without its only
#   attention layer; no gain from it is claimed anywhere in this course. [Chapter
#   04](04_multi_head_latent_attention.ipynb) shows the same layer at work where answers cannot be had otherwise, and
#   [chapter 07](07_nope.ipynb) meets idle attention again.
#
# And what such a map does not say: it is one model with one seed (batches differ by up to .06). A part that others can stand
# in for looks useless, though without all of them nothing would work. And silence is harsher than never having had the part:
# the layers above have learnt to read it, as the weights of [chapter 06](06_attention_residuals.ipynb) show. What *training*
# without a part costs is another experiment, in [chapter 09](09_training.ipynb).

# %% [markdown] tags=["slide"]
# ## 12 · In the real K3
#
# The same function draws the real one. Nothing above it was about size, so nothing changes but numbers:

# %% tags=["slide"]
k3_config = preset("kimi_k3")
show(architecture.architecture(k3_config, "Kimi K3: the same plan with other numbers"),
     "The real K3 drawn from its configuration: eight blocks of twelve layers, 896 experts in a MoE",
     name="08_kimi_k3")

# %% [markdown] tags=["slide"]
# Compare with section 1: only the encoder of pictures at the bottom is new ([chapter 10](10_native_vision.ipynb)).

# %%
print(f"{'':34s}{'miniature':>16s}{'Kimi K3':>24s}")
lines = []
for each in (config, k3_config):
    count, work, kept = count_parameters(each), flops_per_token(each, 4096), cache_bytes(each, 4096)
    starts = sum(i % each.attn_res_block_size == 0 for i in range(each.num_layers))
    lines.append({"KDA / MLA layers": f"{len(each.kda_layers)} / {len(each.mla_layers)}",
                  "blocks; sources of the last mix": f"{starts}; {starts + 1}",
                  "parameters": f"{count.total:,}", "working for a token": f"{count.active:,}",
                  "a KDA layer with experts": f"{sum(parameters_of_layer(each, 1).values()):,}",
                  "operations a token (at 4,096)": f"{work.total:,}",
                  "states, bytes": f"{kept.kda_state:,}", "tails, bytes": f"{kept.convolution:,}",
                  "rows of a token, numbers": f"{kept.mla_values_per_token:,}"})
for name in lines[0]:
    print(f"{name:34s}{lines[0][name]:>16s}{lines[1][name]:>24s}")

# %% tags=["remove"]
assert (len(k3_config.kda_layers), len(k3_config.mla_layers)) == (69, 24)
assert lines[1]["parameters"] == "2,779,484,476,000" and lines[1]["working for a token"] == "104,189,612,640"
assert [line["blocks; sources of the last mix"] for line in lines] == ["2; 3", "8; 9"]
assert k3_config.mla_layers[-2:] == (91, 92)

# %% [markdown]
# | | K3 |
# |---|---|
# | order of evaluation | that of section 3, step by step (report) |
# | layers | 69 KDA, 24 MLA; the last two, 91 and 92, are both MLA (report) |
# | first FFN | dense, 33,792 wide; the other 92 are Stable LatentMoE with 896 experts, 16 for a token, and two shared (report) |
# | blocks | of 12 layers; 8 vectors are banked, the embedding and seven blocks; the last mix reads 9 (derived) |
# | embedding and head | 163,840 rows of 7,168 numbers each, two tables (report): 2.35 billion parameters, .08 % of all (derived) |
# | kept of a text | 414 MiB of states, 15 MB of tails, 13,824 numbers a token (derived) |
#
# What the miniature does **not** show of the real one: a use for its attention layer, and anything that comes with size.
# What it does show is the computation, number for number.

# %% tags=["remove"]
assert abs(2 * 163_840 * 7168 / 1e9 - 2.35) < 0.005
assert abs(2 * 163_840 * 7168 / 2_779_484_476_000 - 0.0008) < 1e-4

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. Three KDA layers to one MLA, the last always MLA; the first FFN dense; each sublayer reads the norm of a mix.
# 2. Within a layer: mix, norm, attention, bank if a block starts, add, mix again, norm, FFN, add. At the end: mix, norm, head.
# 3. Wrong orders run, and untrained they have the same loss, $\log \mathrm{vocab} + D \sigma^2 / 2$. Only trained weights and another
#    program's logits, to nine digits, tell.
# 4. Between two tokens a KDA layer keeps state and tail, an MLA layer one row a token; with these, one by one equals all
#    at once at every cut.
# 5. Silencing says what a part is used for: here layer 0 recalls, layer 2 copies, and the MLA layer does nothing.
