"""Checks of chapter 00, the map: two tools (einsum, causal attention) and the arithmetic of parameters and bytes."""

import numpy as np

from k3_scratch.accounting import active_with_embedding, count_parameters
from k3_scratch.config import preset
from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.softmax import softmax


def _normal(seed, *shapes):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape) for shape in shapes)


# ---- 0.1 an einsum

def head_scores(q, k):
    """[B, T, H, K], [B, S, H, K] -> [B, H, T, S]"""
    return np.einsum("bthk,bshk->bhts", q, k)


def _reshaped(q, k):
    """The heads brought to the front by cutting the numbers anew."""
    (B, T, H, K), S = q.shape, k.shape[1]
    return q.reshape(B, H, T, K) @ k.reshape(B, H, S, K).swapaxes(-1, -2)


def _pairs(seed, B, T, S, H, K):
    return _normal(seed, (B, T, H, K), (B, S, H, K))


SCORES = Exercise(
    "0.1", "the scores of all heads", head_scores,
    "Name the axes of q b t h k and those of k b s h k; the result keeps b, h, t and s, in this order.",
    takes={"q": "B T H K", "k": "B S H K"}, returns={"scores": "B H T S"},
    cases=(Case("for paper (one row, one token each, one head, K = 2: q = (1, 2), k = (3, 4))",
                (np.array([1.0, 2.0]).reshape(1, 1, 1, 2), np.array([3.0, 4.0]).reshape(1, 1, 1, 2)), paper=True),
           Case("with more keys than queries (B = 2, T = 3, S = 6, H = 4, K = 5)", _pairs(0, 2, 3, 6, 4, 5)),
           Case("with more heads than tokens (B = 3, T = 2, S = 4, H = 7, K = 6)", _pairs(1, 3, 2, 4, 7, 6))),
    properties=(Property("twice the query gives twice the scores",
                         lambda f: np.allclose(f(2 * _pairs(2, 1, 2, 3, 4, 5)[0], _pairs(2, 1, 2, 3, 4, 5)[1]),
                                               2 * f(*_pairs(2, 1, 2, 3, 4, 5)))),),
    mistakes=(
        Mistake("The heads stand behind the first tokens: the letters of the result are b h t s, in this order.",
                lambda q, k: np.einsum("bthk,bshk->bths", q, k)),
        Mistake("Queries and keys have changed places: t (who looks) comes before s (who is looked at).",
                lambda q, k: np.einsum("bthk,bshk->bhst", q, k)),
        Mistake("h is missing behind the arrow: so the scores of all heads have been added up.",
                lambda q, k: np.einsum("bthk,bshk->bts", q, k)),
        Mistake("The batch has two letters: then every row meets every row; the same letter b keeps rows apart.",
                lambda q, k: np.einsum("bthk,ashk->bhts", q, k)),
        Mistake("reshape cuts the numbers anew and does not move an axis: heads and tokens are mixed up.", _reshaped),
        Mistake("The scale K ** -0.5 is in it already: here only the products are wanted.",
                lambda q, k: head_scores(q, k) * q.shape[-1] ** -0.5),
    ))


# ---- 0.2 causal attention

def causal_attention(q, k, v):
    """Softmax attention in which no token sees a later one.                  [T, K], [T, K], [T, V] -> o [T, V]"""
    scores = q @ k.T * q.shape[1] ** -0.5
    return softmax(np.where(np.tril(np.ones(scores.shape, dtype=bool)), scores, -np.inf)) @ v


def _causal(q, k, v, *, scale=None, offset=0, hidden=-np.inf, axis=-1, stable=True, mask=True, after=False):
    scores = q @ k.T * (q.shape[1] ** -0.5 if scale is None else scale)
    visible = np.tril(np.ones(scores.shape, dtype=bool), offset)
    if mask and not after:
        scores = np.where(visible, scores, hidden)
    raised = np.exp(scores - scores.max(axis=axis, keepdims=True) if stable else scores)
    weights = raised / raised.sum(axis=axis, keepdims=True)
    return (np.where(visible, weights, 0.0) if after else weights) @ v


def _tokens(seed, T, K, V, size=1.0):
    q, k, v = _normal(seed, (T, K), (T, K), (T, V))
    return size * q, size * k, v


def _no_future(f):
    q, k, v = _tokens(3, 4, 3, 2)
    q2, k2, v2 = (np.concatenate([a[:3], 5 + a[3:]]) for a in (q, k, v))
    return np.allclose(f(q, k, v)[:3], f(q2, k2, v2)[:3])


CAUSAL = Exercise(
    "0.2", "causal attention", causal_attention,
    "Four lines: scores = q @ k.T * K ** -0.5; np.where(visible, scores, -np.inf); softmax of each row; weights @ v.",
    takes={"q": "T K", "k": "T K", "v": "T V"}, returns={"o": "T V"},
    cases=(Case("for paper (T = 2, K = V = 1, q = k = 0, v = 2 and 4: the second token sees both alike)",
                (np.zeros((2, 1)), np.zeros((2, 1)), np.array([[2.0], [4.0]])), paper=True),
           Case("with ordinary scores (T = 5, K = 3, V = 4)", _tokens(0, 5, 3, 4)),
           Case("with scores of some thousands (T = 4, K = 7, V = 2)", _tokens(1, 4, 7, 2, size=60.0))),
    properties=(Property("a later token changes no earlier output", _no_future),
                Property("the first token sees itself alone and gets its own value",
                         lambda f: np.allclose(f(*_tokens(4, 3, 2, 5))[0], _tokens(4, 3, 2, 5)[2][0]))),
    mistakes=(
        Mistake("There is no mask: every token sees the later ones too.",
                lambda q, k, v: _causal(q, k, v, mask=False)),
        Mistake("The mask is one off: each token still sees the one after it; the diagonal is the last that counts.",
                lambda q, k, v: _causal(q, k, v, offset=1)),
        Mistake("The mask hides the diagonal: a token must see itself, or the first one sees nothing (0 / 0).",
                lambda q, k, v: _causal(q, k, v, offset=-1)),
        Mistake("The softmax runs over the wrong axis: each row, one token that looks, must sum to 1 (axis=-1).",
                lambda q, k, v: _causal(q, k, v, axis=0)),
        Mistake("The scale is missing: the scores are multiplied by K ** -0.5.",
                lambda q, k, v: _causal(q, k, v, scale=1.0)),
        Mistake("You divide by K: the scale is its root, K ** -0.5.",
                lambda q, k, v: _causal(q, k, v, scale=1 / q.shape[1])),
        Mistake("Hidden scores are 0 in place of -inf: e to the 0 is 1, so the future keeps a share.",
                lambda q, k, v: _causal(q, k, v, hidden=0.0)),
        Mistake("You mask after the softmax: the rows then no longer sum to 1; mask the scores before it.",
                lambda q, k, v: _causal(q, k, v, after=True)),
        Mistake("The exponentials overflow: subtract each row's largest score first, which changes no weight.",
                lambda q, k, v: _causal(q, k, v, stable=False)),
    ))


# ---- 0.3 to 0.6: numbers of K3

K3 = preset("kimi_k3")
COUNT = count_parameters(K3)
KDA, MOE = COUNT.modules["kda"].each, sum(COUNT.modules[part].each * number for part, number in (
    ("routed_experts", 896), ("router", 1), ("latent", 1), ("shared_experts", 1)))
D, P, L, F = 7168, 12288, 3584, 3072
ROUTED = 3 * L * F


def _active(**changes):
    return count_parameters(K3.replace(**changes)).active


LAYER = Exercise(
    "0.3", "the parameters of one KDA layer", KDA,
    "Go down the table: multiply each shape out, times how often it is there, and add; P = 96 * 128 = 12288.",
    tolerance=0.0,
    mistakes=(
        Mistake("You counted 56 heads: K3 has 96; 7168 / 128 = 56 is the width D in heads, which says nothing.",
                count_parameters(K3.replace(num_heads=56)).modules["kda"].each),
        Mistake("One matrix of P times D is missing: q, k, v, the output gate and the way back are five of them.",
                KDA - P * D),
        Mistake("The output gate goes through 128 channels: that is Kimi Linear; in K3 it is one full matrix.",
                KDA - P * D + 128 * (D + P)),
        Mistake("The decay has a full matrix: it goes through 128 channels, 128 D + 128 P numbers.",
                KDA - 128 * (D + P) + P * D),
        Mistake("The convolutions are missing: q, k and v each have P channels of 4 taps.", KDA - 3 * 4 * P),
        Mistake("One convolution of 4 taps is not enough: q, k and v have one each.", KDA - 2 * 4 * P),
        Mistake("The head norm has 128 weights, shared by all heads, not 128 for each head.", KDA - 128 + P),
        Mistake("A matrix for beta is missing: one number for each head, H times D.", KDA - 96 * D),
    ))

MIXTURE = Exercise(
    "0.4", "the parameters of one MoE", MOE,
    "896 experts of three matrices between L and F; once each: router, its bias, down, up, norm, shared experts.",
    tolerance=0.0,
    mistakes=(
        Mistake("Your experts work at full width D: they read and write the latent, L = 3584 numbers.",
                MOE + 896 * 3 * (D - L) * F),
        Mistake("An expert has three matrices, not two: gate, up and down.", MOE - 896 * L * F),
        Mistake("The ways down to the latent and up from it are there once a layer, not once for each expert.",
                MOE + 895 * 2 * D * L),
        Mistake("The shared experts are missing: three matrices between D and 2 F = 6144.", MOE - 3 * D * 2 * F),
        Mistake("Half of the shared part is missing: two experts, together 6144 wide, at full width D and not L.",
                MOE - 3 * D * F),
        Mistake("The router reads the token at full width D, not its latent.", MOE - 896 * (D - L)),
        Mistake("The selection bias is missing: one number for each of the 896 experts.", MOE - 896),
    ))

ACTIVE = Exercise(
    "0.5", "the parameters that one token uses", COUNT.active,
    "All parts of all layers, but 16 experts in place of 896 in each of the 92 MoE; the head, not the embedding.",
    tolerance=0.0,
    mistakes=(
        Mistake("The embedding is counted: a token looks up one of its rows and multiplies with none of it.",
                active_with_embedding(K3)),
        Mistake("Layer 0 is counted as MoE: its FFN is dense, so there are 92 MoE and not 93.",
                _active(first_k_dense=0)),
        Mistake("You counted 56 heads in place of 96: D / 128 is not the number of heads.", _active(num_heads=56)),
        Mistake("The shared experts are forgotten: every token uses them.", _active(num_shared_experts=0)),
        Mistake("The ways down and up are counted for each chosen expert: there is one of each in a layer.",
                COUNT.active + 92 * 15 * 2 * D * L),
        Mistake("The head is missing: every token is multiplied with all of it.",
                COUNT.active - COUNT.modules["lm_head"].total),
        Mistake("The router is missing: to choose 16 experts it must score all 896.",
                COUNT.active - COUNT.modules["router"].total),
        Mistake("That is the total: 880 of the 896 experts of a layer rest while one token passes.", COUNT.total),
    ))

BYTES = Exercise(
    "0.6", "the bytes of one expert", ROUTED // 32 * 17,
    "Every 32 numbers take 32 times 4 bits and one byte more, the scale: 17 bytes.",
    tolerance=0.0,
    mistakes=(
        Mistake("The scales are missing: each group of 32 numbers has a byte of its own.", ROUTED // 2),
        Mistake("Those are bits: eight of them make a byte.", ROUTED * 17 // 4),
        Mistake("That is bfloat16, two bytes a number: routed experts have 4 bits each and a scale.", ROUTED * 2),
        Mistake("You gave each number a whole byte beside the scale: two numbers share one.", ROUTED // 32 * 33),
        Mistake("Groups hold 32 numbers, not 16: a scale belongs to 32 of them.", ROUTED // 16 * 9),
        Mistake("An expert has three matrices: you counted the bytes of one.", ROUTED // 3 // 32 * 17),
    ))

EXERCISES = (SCORES, CAUSAL, LAYER, MIXTURE, ACTIVE, BYTES)
