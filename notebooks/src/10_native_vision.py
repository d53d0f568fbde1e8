# ---
# jupyter:
#   k3:
#     title: Native vision
#     minutes: {read: 45, exercises: 35, run: about three minutes}
#     needs:
#       - "RMSNorm, softmax attention and einsum as in [chapter 00](00_the_map.ipynb)"
#       - "turned positions (RoPE) as in [chapter 07](07_nope.ipynb)"
#       - "what a KDA layer keeps, as in [chapter 02](02_kimi_delta_attention.ipynb)"
#     objectives:
#       - "cut a picture into patches and make one token of four of them"
#       - "say what a picture encoder cannot know without positions, and give it two-dimensional ones"
#       - "put pictures into a text so that the language model needs no new part"
#       - "train both together on answers alone, and check by controls that the pictures are looked at"
#       - "find out which squares of a picture an answer comes from, in attention and in a recurrence"
#     data: [figures/results/vision_seeds.json, figures/results/vision_curves.json]
# ---

# %% [markdown] tags=["slide"]
# # 10 · Native vision
#
# *"What is left of the square?"* To answer, one must see the picture and read the question, and the two must meet
# somewhere.
#
# Many models are taught to see late: a finished language model is given a finished picture encoder, and a thin layer
# learns to translate between them. K3 is **natively** multimodal: its encoder is trained from scratch together with
# the language model, by the one task that the language model has anyway, to predict the next token (report).
#
# **The question of this chapter: how does a picture get into a sequence of tokens, and how do we know that it is looked
# at?**
#
# Every number says where it comes from: *report* (published about K3), *released config* (the file that came with its
# weights), *derived* (you can recompute it by hand), *measured here* (a cell above it ran), or *toy* (chosen to be small).

# %%
import tempfile
from dataclasses import replace

import numpy as np
import torch

from k3_scratch.accounting import count_parameters, vision_parameters
from k3_scratch.analysis.picture_attention import picture_attention
from k3_scratch.analysis.silence import silenced
from k3_scratch.config import preset
from k3_scratch.course import check, progress, results, show
from k3_scratch.course.steps import steps
from k3_scratch.generate import generate
from k3_scratch.layers.patches import patches as patches_torch
from k3_scratch.plots import vision_pictures as paint
from k3_scratch.pretrained import pretrained
from k3_scratch.reference import vision as reference
from k3_scratch.tasks.glyphs import draw
from k3_scratch.tasks.pictures import MARKERS, Pictures, prompt
from k3_scratch.tasks.scenes import KINDS
from k3_scratch.tasks.vocabulary import NEWLINE, decode, encode
from k3_scratch.training.answers import whole_answers
from k3_scratch.training.loop import Trainer
from k3_scratch.training.options import defaults
from k3_scratch.vision import picture_tokens

# %% [markdown] tags=["slide"]
# ## 1 · The smallest picture
#
# A picture is an array $[Y, X, C]$ of numbers from 0 to 255: $Y$ rows, $X$ columns, $C = 3$ channels for red, green and
# blue. Ours have 12 × 12 pixels on a grey and noisy ground. On it stand two or three *things*, each one of four shapes
# in one of four colours, in different squares of a 3 × 3 grid (toy).

# %% tags=["slide"]
scene = (("plus", "gold", 0, 1), ("box", "red", 1, 0), ("tee", "blue", 2, 2))  # shape, colour, row, column
image = draw([scene], np.random.default_rng(0))[0]                # uint8 [Y, X, C]
config = preset("vision")
eye = config.vision                                               # sizes of the picture encoder
print("a picture:", image.shape, image.dtype, "  a pixel:", image[1, 5])
show(paint.picture_sequence(image, eye.patch_size, eye.merge, "red? "),
     "A picture of 12 by 12 pixels cut into 36 patches and nine tokens, which stand before a question",
     name="10_sequence")

# %% [markdown] tags=["slide"]
# From top to bottom: pixels become *patches*, patches become *tokens*, tokens stand in one row with the letters of the
# text. From there on nothing knows which vector was a picture. The chapter follows the small boxes at the right: cut,
# encode, merge, project, and then train.
#
# ### Cut
#
# A **patch** is a square of $p \times p$ pixels, written as one row of $p^2 C$ numbers: first the upper line of the
# square from left to right, then the next line; at each pixel red, green, blue. With $p = 2$ our picture becomes a grid
# of 6 × 6 patches with 12 numbers each. K3 takes $p = 14$ (released config), 588 numbers.

# %% [markdown]
# ### Exercise 10.1: a picture in patches
#
# Cut one picture, $[Y, X, C] \to [Y/p,\ X/p,\ p^2 C]$. Both sides are multiples of $p$.

# %% [markdown] tags=["hint"]
# A `reshape` may split an axis: `[Y, X, C]` into `[Y // p, p, X // p, p, C]`. Which two axes must then change places
# before the last three can be joined?

# %% id="10.1" minutes=8 difficulty=1
def my_patches(image, size):
    """image [Y, X, C], size p -> [Y / p, X / p, p * p * C]"""
    # BEGIN SOLUTION
    Y, X, C = image.shape
    grid = image.reshape(Y // size, size, X // size, size, C).swapaxes(1, 2)
    return grid.reshape(Y // size, X // size, size * size * C)
    # END SOLUTION

# %%
check("10.1", my_patches)

# %%
pixels = image[None] / 127.5 - 1                                  # [P, Y, X, C], from -1 to 1; P = 1 picture
cut = reference.patches(pixels, eye.patch_size)                             # [P, y, x, 12]
assert np.array_equal(cut, patches_torch(torch.tensor(pixels), eye.patch_size).numpy())  # reference = layer
print("patches:", cut.shape, "  a patch of nothing but ground:", cut[0, 2, 3].round(2))

# %% [markdown] tags=["slide"]
# ## 2 · The encoder, and what breaks without positions
#
# Each patch is multiplied with a matrix, $x = W_e\,\text{patch}$, and becomes a vector of $h$ numbers (48 here, 1,024 in
# K3, released config). Then come encoder layers, each with two parts and matrices $W$ of its own:
#
# $$ x \leftarrow x + W_o\,\mathrm{Att}(\mathrm{norm}(x)), \qquad
#    x \leftarrow x + W_d\,\mathrm{GELU}\!\left(W_u\,\mathrm{norm}(x)\right). $$
#
# $\mathrm{norm}$ is RMSNorm, there are no biases (report). $\mathrm{Att}$ is softmax attention with several heads and
# **without a mask**: a picture has no before and after, each patch sees all patches of its picture, and none of another
# picture. GELU is a smooth corner: close to $x$ for large $x$, close to 0 for very negative $x$; its tanh form is
# $\tfrac{x}{2}\big(1 + \tanh\big(\sqrt{2/\pi}\,(x + 0.044715\,x^3)\big)\big)$ (that it is this form is our choice; the
# sources do not say).
#
# In NumPy, one layer, with a switch for the positions that we need in a moment:

# %%
def attend(x, qkv, output, positions):
    """Every patch reads every patch.   x [P, y, x, h], qkv [3, H, K, h], output [h, H K] -> [P, y, x, h]"""
    q, k, v = np.einsum("pyxh,snkh->spyxnk", x, qkv)              # [P, y, x, H, K] each
    if positions:
        q, k = reference.rope_2d(q), reference.rope_2d(k)
    P, y, width, H, K = q.shape
    q, k, v = (part.reshape(P, y * width, H, K) for part in (q, k, v))
    weight = reference.softmax(np.einsum("pqnk,psnk->pnqs", q, k) * K ** -0.5)  # over all patches s
    return np.einsum("pnqs,psnk->pqnk", weight, v).reshape(P, y, width, H * K) @ output.T


def encoder_layer(x, w, name, positions):
    """w: name -> array.   [P, y, x, h] -> [P, y, x, h]"""
    normed = reference.rms_norm(x, w[name + "attention_norm.weight"])
    x = x + attend(normed, w[name + "attention.qkv"], w[name + "attention.output.weight"], positions)
    hidden = reference.gelu(reference.rms_norm(x, w[name + "mlp_norm.weight"]) @ w[name + "up.weight"].T)
    return x + hidden @ w[name + "down.weight"].T


model = pretrained("vision").double()                             # trained; double precision for exact checks
w = {name.removeprefix("vision."): value.numpy() for name, value in model.state_dict().items()
     if name.startswith("vision.")}
print({name: value.shape for name, value in w.items() if "layers.0" in name or "." not in name})

# %% [markdown]
# Now the experiment that breaks it. Two pictures with the same three things, standing elsewhere: what was on the left
# is now on the right. Without positions, what can the encoder know about *where*?

# %%
def without_positions(image):
    """All encoder outputs, the patches' places forgotten.   -> [patches, h], sorted"""
    x = reference.patches(image[None] / 127.5 - 1, eye.patch_size) @ w["patch_embedding.weight"].T
    for i in range(eye.num_layers):
        x = encoder_layer(x, w, f"layers.{i}.", positions=False)
    rows = x.reshape(-1, x.shape[-1])
    return rows[np.lexsort(rows.T)]


mirrored = image.reshape(12, 6, 2, 3)[:, ::-1].reshape(12, 12, 3)  # patches in each row turned about
one, other = without_positions(image), without_positions(mirrored)
print(f"largest difference between the two bags of vectors: {np.abs(one - other).max():.0e}")
assert np.allclose(one, other)                                    # the same vectors, in other places

# %% [markdown]
# The same bag of vectors: attention over all patches is a function of a *set* ([chapter 07](07_nope.ipynb) proved it).
# Each vector still stands in its place, but what a patch knows about its neighbours does not depend on where they are.
# In the language model K3 gets the order from KDA. The encoder has no KDA, so it gets positions, in two ways, and **in
# here only** (report):
#
# 1. a **learned table**: to the patch in row $i$ and column $j$ a vector $E_{ij}$ is added, $x \leftarrow x + E_{ij}$
#    (64 × 64 of them in K3, 6 × 6 here);
# 2. **RoPE in two directions** on queries and keys: the first half of a head's channels turns by the row, the
#    second half by the column.
#
# To turn means: in a half, channels $c$ and $c + K/4$ are taken as one point $(a, b)$ of the plane and turned by an angle,
# $(a \cos\varphi - b \sin\varphi,\; b \cos\varphi + a \sin\varphi)$ with $\varphi = \text{row} \cdot 10000^{-4c/K}$ in the
# first half and $\varphi = \text{column} \cdot 10000^{-4c/K}$ in the second, for $c = 0 \dots K/4 - 1$.
# A product of two turned vectors depends on the *difference* of their angles alone; so $q \cdot k$ knows how many rows
# and columns lie between two patches, which is what "left of" needs. The table says where a patch is in the picture.

# %% [markdown]
# ### Exercise 10.2: turned by row and column
#
# Turn the vector of one patch, $[K] \to [K]$.

# %% [markdown] tags=["hint"]
# One half first: its first $K/4$ numbers are `a`, the others `b`, and `np.arange(K // 4)` is all $c$ at once. Then the
# other half, and put four pieces together.

# %% id="10.2" minutes=10 difficulty=2
def my_turn(x, row, column):
    """x [K], row and column whole numbers -> [K]"""
    # BEGIN SOLUTION
    K, pieces = len(x), []
    for half, place in ((x[:K // 2], row), (x[K // 2:], column)):
        a, b = half[:K // 4], half[K // 4:]
        angle = place * 10_000.0 ** (-4 * np.arange(K // 4) / K)
        pieces += [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
    return np.concatenate(pieces)
    # END SOLUTION

# %%
check("10.2", my_turn)

# %%
q, k = np.random.default_rng(1).normal(size=(2, 16))
grid = np.broadcast_to(k, (1, 6, 6, 1, 16))                       # the same key in every place
turned_k = reference.rope_2d(grid)[0, :, :, 0]                              # [6, 6, 16]
turned_q = reference.rope_2d(np.broadcast_to(q, (1, 6, 6, 1, 16)))[0, :, :, 0]
products = np.einsum("yxk,YXk->yxYX", turned_q, turned_k)         # every query place, every key place
for dy, dx in ((0, 1), (2, -1)):
    same = [products[y, x, y + dy, x + dx] for y in range(4) for x in range(1, 5)]
    assert np.allclose(same, same[0])                             # only the step counts, not where
    print(f"key {dy} rows below, {dx} columns to the right: q . k = {same[0]:.3f} wherever the query is")

# %% [markdown] tags=["slide"]
# ## 3 · Merge, project, place
#
# 36 patches would be 36 tokens, and every token passes through the whole language model. **Pixel shuffle** puts each
# square of 2 × 2 patches side by side in one vector of $4h$ numbers: a quarter of the tokens, and nothing is lost.

# %% [markdown]
# ### Exercise 10.3: four patches, one token
#
# $[y, x, h] \to [y/m,\ x/m,\ m^2 h]$: upper left, upper right, lower left, lower right (for $m = 2$).

# %% [markdown] tags=["hint"]
# You have written this function already, with other names.

# %% id="10.3" minutes=4 difficulty=1
def my_shuffle(x, merge):
    """x [y, x, h], merge m -> [y / m, x / m, m * m * h]"""
    # BEGIN SOLUTION
    y, width, h = x.shape
    squares = x.reshape(y // merge, merge, width // merge, merge, h).swapaxes(1, 2)
    return squares.reshape(y // merge, width // merge, merge * merge * h)
    # END SOLUTION

# %%
check("10.3", my_shuffle)

# %% [markdown]
# The **projector** brings the merged vectors to the width $D$ of the language model: a matrix, GELU, a matrix, RMSNorm
# (released config). The whole way from pixels to vectors, inline, against the reference and against the torch layers:

# %%
def encode_pictures(images, w):
    """Pictures to vectors for the sequence.   [P, Y, X, C] of 0 to 255 -> [P, N, D]"""
    x = reference.patches(images / 127.5 - 1, eye.patch_size) @ w["patch_embedding.weight"].T  # [P, y, x, h]
    x = x + w["position_table"][:x.shape[1], :x.shape[2]]
    for i in range(eye.num_layers):
        x = encoder_layer(x, w, f"layers.{i}.", positions=True)
    x = reference.pixel_shuffle(reference.rms_norm(x, w["norm.weight"]), eye.merge)   # [P, y/2, x/2, 4h]
    x = x.reshape(len(x), -1, x.shape[-1])                        # [P, N, 4h], row by row
    x = reference.gelu(x @ w["projector_in.weight"].T) @ w["projector_out.weight"].T
    return reference.rms_norm(x, w["projector_norm.weight"])


some = draw([scene, scene[1:], scene[:1]], np.random.default_rng(5))  # three pictures
vectors = encode_pictures(some, w)
full = {"vision." + name: value for name, value in w.items()}
assert np.allclose(vectors, reference.encode_pictures(some, full, config))  # inline = reference
with torch.no_grad():
    assert np.allclose(vectors, model.vision(torch.tensor(some)).numpy())  # inline = layers
print("three pictures of", some.shape[1:], "->", vectors.shape, "(P, N, D), equal three times")

# %% [markdown]
# Now the meeting. In the text a picture stands as $N$ **marker** tokens, number 259 here, one for each of its vectors. The
# embedding looks up a row for every token; then the rows of the markers are **replaced** by the picture's vectors. There
# is no other change to the language model: image tokens are causal like any other, they pass through KDA, MLA and the
# experts, they lie in the same cache, and they get no positions there.

# %% [markdown]
# ### Exercise 10.4: in the place of the markers
#
# One row of tokens. Give back the embeddings with the rows of the marker (token 9 in this exercise) replaced by the
# vectors, in order. The argument must stay as it was.

# %% [markdown] tags=["hint"]
# `tokens == 9` is a mask of length $T$, and a mask may stand on the left of an assignment.

# %% id="10.4" minutes=4 difficulty=1
def my_place(embeddings, tokens, vectors):
    """embeddings [T, D], tokens [T], vectors [N, D] -> [T, D]"""
    # BEGIN SOLUTION
    placed = embeddings.copy()
    placed[tokens == 9] = vectors
    return placed
    # END SOLUTION

# %%
check("10.4", my_place)

# %%
row = prompt("@red? ")                                            # @: as many markers as a picture takes
h = model.embed_tokens.weight.detach().numpy()[row][None]         # [1, T, D]
by_hand = reference.place_pictures(h, np.array([row]), vectors[:1], eye.image_token)
with torch.no_grad():
    placed = model.vision.place(torch.tensor(h), torch.tensor([row]), torch.tensor(some[:1]))
assert np.allclose(by_hand, placed.numpy())                       # reference = layer
print(row)
print("rows that changed:", np.flatnonzero(np.abs(placed.numpy() - h)[0].max(-1) > 0).tolist())

# %% [markdown]
# ### Exercise 10.5: what the loss counts
#
# Training predicts token $t + 1$ at place $t$. A picture's vectors are not tokens: nothing is to be predicted
# *there*, and K3 counts the loss on text alone (report). Of our text we count the answers: a question cannot be foreseen.
# Given $T + 1$ tokens and for each a mark, 1 when it belongs to an answer, return the $T$ targets and a mask of the places that
# count: those whose target is in an answer **and** is no marker (token 9 here).

# %% [markdown] tags=["hint"]
# Which of the $T + 1$ tokens is the target at place 0?

# %% id="10.5" minutes=6 difficulty=2
def my_targets(tokens, marks):
    """tokens [T + 1], marks [T + 1] of 0 and 1 -> targets [T], counts [T] of True and False"""
    # BEGIN SOLUTION
    targets = tokens[1:].copy()
    return targets, (marks[1:] == 1) & (targets != 9)
    # END SOLUTION

# %%
check("10.5", my_targets)

# %% [markdown] tags=["slide"]
# ## 4 · Questions about pictures
#
# Rows of training hold two pictures, each followed by questions and answers about it, as many as there is room for
# (toy). Four kinds:
#
# | kind | example | what it takes |
# |---|---|---|
# | shape | `red? box` | find the one red thing, name its shape |
# | colour | `plus? gold` | find the one plus, name its colour |
# | count | `boxes? 2`, `reds? 1`, `things? 3` | find all, count them |
# | relation | `left of plus? box` | find the plus, then the one thing in a column further left, whatever its row |
#
# Only what has exactly one answer is asked, and nothing whose answer stands in the text already. Beside one other thing,
# or two of one shape, the answer to a relation is known without looking where they are. So in training relations are asked
# only where two other things are there, and every second picture shows three different shapes; what is scored has no
# such choice. Which arrangements belong to training and which are **held out** is decided by a hash of the
# arrangement, so no picture of the test has ever been seen with other noise.

# %% tags=["slide"]
data = Pictures()
pages = [data.page(np.random.default_rng(seed), "train") for seed in range(4)]
pictures = [draw([part[0]], np.random.default_rng(seed))[0] for seed, (part, _) in enumerate(pages)]
asked = [[(question.strip(), answer, answer) for question, answer in part[1].turns] for part, _ in pages]
show(paint.picture_answers(np.array(pictures), asked),
     "Four pictures of two or three coloured shapes, under each the questions asked about it in training",
     name="10_questions")

# %% [markdown] tags=["slide"]
# Under each picture its part of the row, exactly as it is trained on. What can be answered without the picture? Always
# giving the commonest answer to a question is right for a quarter of the shapes and colours, a third of the relations and
# a little more than half of the counts (counted below as *text only*).
#
# ## 5 · Training both from scratch
#
# The model is the miniature of [chapter 08](08_miniature.ipynb) with an encoder of two layers in front, all weights
# random. Loss: cross-entropy on the characters of answers, nothing else; its gradient flows through the language model into
# the projector, the encoder and the patch matrix. The optimisers are those of [chapter 09](09_training.ipynb). Here
# a short run; the long ones, of `k3 train --preset vision` with three seeds, are committed.

# %%
count = count_parameters(config)
print(f"language model {count.total:,} parameters, encoder and projector {count.vision:,}")
UPDATES = steps(400)
options = replace(defaults(config), steps=UPDATES, validate_every=max(1, UPDATES // 5), test_rows=32,
                  checkpoint_every=UPDATES)
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(config, options, folder, device="cpu", quiet=True)
    short = trainer.run()                                         # trains, then tests on held-out pictures
    checks = [entry for entry in trainer.folder.read_metrics() if "validation_accuracy" in entry]
print(f"{UPDATES} updates in {short['train_seconds']:.0f} s")
print("whole answers right:", {kind: round(value, 2) for kind, value in short["exact_match"].items()})

# %% tags=["slide"]
long = results("vision_curves")
by_seed = np.array([[run["accuracy"][kind] for kind in KINDS] for run in long["runs"]])  # [seeds, kinds, n]
here = np.array([[entry["validation_accuracy"][kind] for kind in KINDS] for entry in checks])
show(paint.vision_curves(KINDS, long["steps"], by_seed.swapaxes(1, 2), [entry["step"] for entry in checks],
                         here),
     "Right characters of answers against updates for four kinds of questions: a short run over three long",
     name="10_training")

# %% [markdown] tags=["slide"]
# The thick line is the run above, the thin ones are the committed runs (measured on held-out pictures, in single
# characters: once the first letter of an answer is there, the others follow, so guessing starts well above zero). What
# a picture *contains* is learnt first: naming any shape that is there is already better than a guess. That the *red*
# thing is the one asked for takes some hundred updates more: text and encoder must agree on what red is before either
# gains from it.

# %% [markdown] tags=["slide"]
# ## 6 · Asking
#
# From here on the published model, `pretrained("vision")`: seed 2 of the long runs, the best. A question is text, the answer is
# written as text by the same greedy generation as anywhere else in this course. In `"@red? "` the `@` stands for nine
# markers.

# %% tags=["slide"]
seeing = pretrained("vision")


def ask(images, text):
    """The model's answer to the end of `text`, in which each @ is a picture.   images uint8 [P, Y, X, C]"""
    written = generate(seeing, prompt(text), 5, stop_tokens=(NEWLINE, ord(" ")), images=torch.tensor(images))
    return decode(written).strip()


held_out = [data.page(np.random.default_rng(seed), "test")[0] for seed in range(40, 48)]
pictures = draw([scene_there for scene_there, *_ in held_out], np.random.default_rng(7))
told = [[(question.strip(), ask(image[None], "@" + question.strip() + " "), answer)
         for question, answer in example.turns]
        for image, (_, example, _) in zip(pictures, held_out, strict=True)]
show(paint.picture_answers(pictures, told),
     "Eight pictures that were never trained on, the questions about them and the answers of the model",
     name="10_answers")

# %% tags=["remove"]
assert [(question, given) for lines in told for question, given, right in lines if given != right] == [
    ("blues?", "1"), ("limes?", "2")]

# %% [markdown] tags=["slide"]
# Each question was asked alone, behind its picture. Two answers are wrong, both of them counts, the kind whose curve is
# the last to reach the top. Now questions about the picture of section 1, and several pictures interleaved with text:
# the second question follows a second picture, in the same cache.

# %%
asked_about = draw([scene], np.random.default_rng(3))             # the picture of section 1
for question in ("left of plus?", "right of plus?", "below box?", "things?", "tee?"):
    print(f"@{question} {ask(asked_about, '@' + question + ' ')}")
text, images = "", []
for image, lines in zip(pictures[:3], told[:3], strict=True):
    question = lines[0][0]
    text, images = text + "@" + question + " ", [*images, image]
    answer = ask(np.array(images), text)                          # all pictures so far, all text so far
    text += answer + "\n"
print(text)

# %% [markdown]
# "The same cache" can be checked. Feed the picture alone, then the question alone, into one cache; or everything at once;
# the logits must agree. And a picture costs the cache what nine letters cost.

# %%
exact, one = model, torch.tensor(asked_about)                     # `model`: double precision
row = prompt("@left of plus? ")
with torch.no_grad():
    whole = exact(torch.tensor([row]), images=one)
    cache = exact.new_cache(1)
    exact(torch.tensor([row[:MARKERS]]), cache, images=one)       # the picture
    after_picture = cache.nbytes()
    piece = exact(torch.tensor([row[MARKERS:]]), cache)           # the question, no picture any more
    letters = exact.new_cache(1)
    exact(torch.tensor([encode("nine more")]), letters)
assert (whole[:, MARKERS:] - piece).abs().max() < 1e-9            # in two calls = in one
assert after_picture == letters.nbytes()                          # nine markers = nine letters
print(f"cache after the picture: {after_picture:,} bytes; after nine letters: {letters.nbytes():,} bytes")

# %% [markdown] tags=["slide"]
# ## 7 · Does it look?
#
# A high score alone does not show that pictures are used: questions can be guessed. Three controls, each takes away
# the right picture and leaves everything else:
#
# - **blanked**: every picture is black;
# - **swapped**: every row gets the pictures of another row, so that all looks as in training and nothing fits;
# - **text only**: no model at all, the commonest answer to the same question in the training data.

# %% tags=["slide"]
runs = results("vision_seeds")
scores = {"pictures": [[run["exact_match"][kind] for kind in KINDS] for run in runs]}
for control in ("blanked", "swapped", "text_only"):
    scores[control.replace("_", " ")] = [[run["controls"][control][kind] for kind in KINDS] for run in runs]
GOALS = {"shape": 0.95, "colour": 0.95, "count": 0.9, "relation": 0.9}
show(paint.control_bars(list(KINDS), scores, goals=GOALS,
                  title="Whole answers about held-out pictures, three seeds"),
     "Answers right with pictures, with blanked and swapped pictures and from the text alone, for four kinds",
     name="10_controls")

# %% [markdown] tags=["slide"]
# The filled bars are the committed runs with their own pictures, a dot a seed; dashed lines are what this course set out
# to reach. Without the right picture the same weights fall to about what the text gives, so the answers do come from
# the pictures. Three remarks.
#
# - *All lines are reached, by all seeds* (measured, the committed runs), and how that came about is a lesson in
#   training. With half as many rows in an update, and 1,050 updates in place of 600, relations stayed at .89 in one seed:
#   *left* and *right* come later than *above* and *below*, since rows stand one after the other in the sequence and
#   columns are known from the encoder's positions alone. Larger updates and fewer of them cost less time, and all seeds
#   are at .94 or above.
# - *Counts* are guessed well without a picture: more than six of ten are right with black pictures, more than the
#   commonest answer gives. The text helps: `red?` is only asked when there is one red thing, so `reds? 1` can be foreseen.
#   A control shows such hints; a score alone hides them.
# - *Relation* has three possible answers, not four: the thing asked about is never the answer.

# %% tags=["remove"]
for kind, goal in GOALS.items():
    assert min(run["exact_match"][kind] for run in runs) >= goal
assert min(run["exact_match"]["relation"] for run in runs) >= 0.94
assert 0.6 < np.mean([run["controls"]["blanked"]["count"] for run in runs]) < 0.7
assert np.mean([run["controls"]["text_only"]["count"] for run in runs]) < 0.58
for run in runs:
    for control in run["controls"].values():
        assert max(control[kind] for kind in KINDS if kind != "count") < 0.45

# %% [markdown] tags=["slide"]
# ## 8 · Where does an answer come from?
#
# Cover one square of the picture after the other with plain ground, and see how much less likely the right answer becomes
# (its log-probability, summed over its characters, in nats: 0.7 of them halve the probability). That works for any
# model and sees all ways, through states and through attention.

# %%
def log_probability(images, question, answer):
    """Of the true answer behind each picture.   images uint8 [P, Y, X, C] -> [P]"""
    start, target = prompt("@" + question + " "), encode(answer)
    tokens = torch.tensor([start + target]).repeat(len(images), 1)
    with torch.no_grad():
        logs = seeing(tokens, images=torch.tensor(images)).log_softmax(-1)
    places = torch.arange(len(start) - 1, tokens.shape[1] - 1)
    return logs[:, places, torch.tensor(target)].sum(1).numpy()


def covered(image, question, answer):
    """What each square is worth to the answer.   -> [3, 3], not below 0"""
    unit, versions = eye.patch_size * eye.merge, [image]
    for y, x in np.ndindex(3, 3):
        version = image.copy()
        version[y * unit:(y + 1) * unit, x * unit:(x + 1) * unit] = 128
        versions.append(version)
    logs = log_probability(np.array(versions), question, answer)
    return np.maximum(logs[0] - logs[1:], 0).reshape(3, 3)

# %% tags=["slide"]
cases = [("red?", "box", (1, 0)), ("tee?", "blue", (2, 2)), ("left of plus?", "box", (1, 0)),
         ("below box?", "tee", (2, 2))]
image = asked_about[0]
maps = np.array([covered(image, question, answer) for question, answer, _ in cases])
show(paint.picture_looks(np.array([image] * 4), maps,
                         [f"{question} {answer}" for question, answer, _ in cases],
                   [place for *_, place in cases], label="nats lost when the square is covered"),
     "Four questions about one picture; under each, how much every square is worth to the answer",
     name="10_covered")
costs = [drops[place] for drops, (*_, place) in zip(maps, cases, strict=True)]
print("the framed squares:", [f"{cost:.2f} nats" for cost in costs])

# %% [markdown] tags=["slide"]
# The framed square holds the thing that the answer names, and covering it costs five to eight nats for three of the
# questions; no other square costs anything. For the third it costs little, .39 nats: without the box the model has to
# guess, and guesses well, still *box*, with a probability of $e^{-.39} = .68$. One picture can mislead, so here are many:
# held-out pictures, each with one question of a kind, and the mean over squares with the thing named, with other
# things, and with nothing.

# %% tags=["remove"]
assert np.allclose(costs, [8.25, 5.27, 0.39, 6.75], atol=0.006) and maps.sum() - sum(costs) < 0.01
box_hidden = image.copy()
box_hidden[4:8, :4] = 128
assert abs(np.exp(log_probability(box_hidden[None], "left of plus?", "box"))[0] - 0.68) < 0.005

# %%
def places(scene, question, answer, kind):
    """The squares of the thing that the answer is read from."""
    word = question.rstrip("?").split()[-1]
    named = {"shape": word, "colour": word, "relation": answer}[kind]
    return {thing[2:] for thing in scene if named in thing[:2]}


rng, table = np.random.default_rng(11), {}
for kind in ("shape", "colour", "relation"):
    lost = {"named": [], "other things": [], "nothing": []}
    for seed in range(40):
        there, example, _ = data.page(np.random.default_rng([8, seed]), "test", kind)[0]
        (question, answer), here = example.turns[0], {thing[2:] for thing in there}
        drops = covered(draw([there], rng)[0], question.strip(), answer)
        named = places(there, question.strip(), answer, kind)
        for square in np.ndindex(3, 3):
            which = "named" if square in named else "other things" if square in here else "nothing"
            lost[which].append(drops[square])
    table[kind] = {which: np.mean(values) for which, values in lost.items()}
    print(f"{kind:9s}", {which: f"{value:.2f} nats" for which, value in table[kind].items()})

# %% tags=["remove"]
for kind in table:
    assert 3 < table[kind]["named"] < 5.5, table
    assert max(table[kind]["other things"], table[kind]["nothing"]) < 0.1, table

# %% [markdown]
# The thing named costs three to five nats, everything else next to nothing (measured here). Next to nothing even for the
# thing that a relation starts from: cover the plus in `left of plus?`, and the answer hardly suffers. With two or
# three things in a picture it can mostly be told from where the others stand: the model need not take the way that the
# question describes.
#
# ### Attention, and whether it is used
#
# One of the four layers of this model is attention (MLA, layer 3), and its weights can be read directly: how strongly
# does the place that predicts the answer's first letter attend to each marker?

# %% tags=["slide"]
heads = {}
for question, answer, _ in cases:
    tokens = torch.tensor([prompt("@" + question + " ")])
    looked, shares = picture_attention(seeing, tokens, torch.tensor(asked_about), [tokens.shape[1] - 1])
    heads[f"{question} {answer}"] = (looked["layer 3"][0, :, 0].mean(0), shares["layer 3"][0].mean())
show(paint.picture_looks(np.array([image] * 4), np.array([weights for weights, _ in heads.values()]),
                         list(heads),
                   [place for *_, place in cases], label="attention of layer 3, mean of its heads"),
     "Four questions about one picture; under each, the attention of layer 3 to every square",
     name="10_attention")
print("share of the attention on the picture:", [round(float(share), 2) for _, share in heads.values()])

# %% [markdown] tags=["slide"]
# The second map is a fine figure for the words "the model looks here": asked for the tee's colour, .89 of the attention
# lies on the tee. The first is spread over all three things, with .35 on the box that was asked for. The third looks
# past the answer: *left of plus* is the box, and more than twice as much lies on the plus; the answer was right.
# [Chapter 04](04_multi_head_latent_attention.ipynb) showed a miniature whose attention could be switched off without
# any loss. So, before believing a map: what happens when the attention part of a layer says nothing?

# %%
loss_of = {}
for number, layer in enumerate(seeing.layers):
    kind = "MLA" if config.is_mla(number) else "KDA"
    with silenced(layer.self_attn):
        loss_of[f"layer {number}, {kind}"] = whole_answers(seeing, data, "test", 32)
whole = whole_answers(seeing, data, "test", 32)
print(f"{'silenced':14s}" + "".join(f"{kind:>10s}" for kind in KINDS))
for name, values in {"nothing": whole, **loss_of}.items():
    print(f"{name:14s}" + "".join(f"{values[kind]:10.2f}" for kind in KINDS))

# %% tags=["remove"]
on_place = [weights[place] for (weights, _), (*_, place) in zip(heads.values(), cases, strict=True)]
assert np.allclose(on_place, [0.35, 0.89, 0.24, 0.52], atol=0.006)
assert all(loss_of["layer 3, MLA"][kind] > whole[kind] - 0.01 for kind in ("count", "relation"))
assert 0.94 < loss_of["layer 3, MLA"]["shape"] < 0.96 and 0.9 < loss_of["layer 3, MLA"]["colour"] < 0.92
assert min(whole.values()) > 0.985 and max(loss_of["layer 0, KDA"].values()) < 0.08
assert all(0.55 < loss_of["layer 1, KDA"][kind] < 0.57 for kind in ("count", "relation"))

# %% [markdown]
# Read the last line (measured here, one trained model): with MLA silent, a tenth of the *colours* and one *shape* in
# twenty-five are lost, and of counts and relations none. **The map that finds its square belongs to the kind of question
# that needs the layer most, and even there nine answers of ten come without it; a map for a relation shows a layer that
# has no say in it**, even where, as in the fourth, the right place has the largest share. What sees there is KDA:
# without layer 0 nothing is left, and without layer 1 nearly half of the counts and relations are gone. The pictures
# are read through states of fixed size, written while the nine tokens pass, before anybody has asked. KDA has no map of
# attention to draw; covering squares needed none.
#
# What this does not show: how K3 shares the work. With 69 layers of KDA below 24 of attention, contexts of a million
# tokens and pictures of a thousand, there is more to be found than in nine squares.

# %% [markdown] tags=["slide"]
# ## 9 · In the real K3
#
# | | K3 | here (toy) |
# |---|---|---|
# | encoder | 27 layers, width 1,024, 12 heads, q, k and v 1,536 wide, MLP 4,096 (released config) | 2 layers, width 48, 4 heads, 48, 96 |
# | patch | 14 × 14 pixels, 588 numbers (released config) | 2 × 2 pixels, 12 numbers |
# | table of positions | 64 × 64 vectors (released config) | 6 × 6 |
# | merge | 2 × 2 patches a token: 28 × 28 pixels (report) | 2 × 2: 4 × 4 pixels |
# | projector | 4,096 → 4,096 → GELU → 7,168 → RMSNorm (released config) | 192 → 192 → 64 |
# | parameters | encoder 401,214,464, projector 46,144,512 (derived) | below |
# | share of the whole model | 0.016 % (derived) | below |
# | training | from scratch with the language model, next-token prediction (report) | the same |

# %%
k3 = preset("kimi_k3")
parts = vision_parameters(k3)
share = count_parameters(k3).vision / count_parameters(k3).total_with_vision
small = vision_parameters(config)
print("K3:", {name: f"{size:,}" for name, size in parts.items()}, f"{100 * share:.3f} %")
print("here:", small, f"{100 * count.vision / count.total_with_vision:.0f} %")
print("a square of 896 x 896 pixels:", f"{picture_tokens(k3.vision, 896, 896):,} tokens in K3")

# %% tags=["remove"]
assert list(parts.values()) == [401_214_464, 46_144_512]
assert round(100 * share, 3) == 0.016
def sizes(v):
    return v.num_layers, v.hidden_size, v.num_heads, v.qkv_size, v.intermediate_size


assert sizes(k3.vision) == (27, 1024, 12, 1536, 4096) and sizes(eye) == (2, 48, 4, 48, 96)
assert (k3.vision.patch_size, k3.vision.position_table, k3.vision.projector_size) == (14, 64, 4096)
assert (eye.position_table, eye.projector_size, config.hidden_size, MARKERS) == (6, 192, 64, 9)
assert picture_tokens(k3.vision, 560, 896) == 640

# %% [markdown]
# Encoder and projector together have about as many parameters as one KDA layer: 0.016 % of K3's weights (derived). A token
# of a picture costs the language model as much as any other, 104 billion active parameters; the encoder runs once a picture.

# %% [markdown]
# ### Exercise 10.6: tokens of a photograph
#
# How many tokens does a photograph of 560 × 896 pixels take in K3? (A whole number.)

# %% [markdown] tags=["hint"]
# How many pixels wide and high is what becomes one token?

# %% id="10.6" minutes=3 difficulty=1
# BEGIN SOLUTION
my_photo_tokens = (560 // 28) * (896 // 28)
# END SOLUTION

# %%
check("10.6", my_photo_tokens)

# %%
progress()

# %% [markdown] tags=["slide"]
# ## Summary
#
# 1. A picture is cut into patches, each a vector; an encoder without a mask lets every patch see all others.
# 2. Without positions the encoder knows what there is and not where: a learned table and RoPE in two directions, inside
#    the encoder only.
# 3. 2 × 2 patches become one token, and the projector's vectors replace the marker's embeddings; the language model does
#    not change, nor do its caches.
# 4. Encoder and language model are trained together, from scratch, on the text after the pictures.
# 5. A score needs controls: blanked, swapped, text only. And a map of attention needs a look at whether that layer is
#    used.
