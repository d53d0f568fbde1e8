"""Checks of chapter 11, serving."""

import numpy as np

from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.reference.kda import kda_step

# ---- 11.2 one token back


def _after(state, k, v, g, beta):
    """One token of KDA, one head.   -> [K, V]"""
    zero = np.zeros((1, len(k)))
    return kda_step(state[None], zero, k[None], v[None], g[None], np.array([beta]))[1][0]


def undo_step(state, k, v, g, beta):
    """The state before a token, from the one after it.   [K, V], [K], [V], [K], beta -> [K, V]"""
    decayed = state - beta * np.outer(k, v)
    decayed = decayed + beta / (1 - beta) * np.outer(k, k @ decayed)
    return np.exp(-g)[:, None] * decayed


def _undo(state, k, v, g, beta, *, factor=None, sign=-1, order="decay last", write=True):
    decay = np.exp(sign * g)[:, None]
    state = decay * state if order == "decay first" else state
    state = state - beta * np.outer(k, v) if write else state
    state = state + (beta / (1 - beta) if factor is None else factor) * np.outer(k, k @ state)
    return state if order != "decay last" else decay * state


def _token(seed, K, V, beta, low):
    """The state after one token that began from a random one."""
    rng = np.random.default_rng(seed)
    before, k, v, g = rng.normal(size=(K, V)), rng.normal(size=K), rng.normal(size=V), low * rng.uniform(size=K)
    k = k / np.linalg.norm(k)
    return _after(before, k, v, g, beta), k, v, g, beta


def _turns_back(f):
    arguments = _token(3, 5, 3, 0.7, -1.0)
    return np.allclose(_after(f(*arguments), *arguments[1:]), arguments[0])


UNDO = Exercise(
    "11.2", "one token back", undo_step,
    "Backwards: take beta k v^T away, multiply by the inverse of I - beta k k^T, then by exp(-g), a row each.",
    takes={"state": "K V", "k": "K", "v": "V", "g": "K", "beta": None}, returns={"before": "K V"},
    cases=(Case("for paper (K = V = 1: the memory 2 was halved, then 5 was written with beta = 0.5, which gave 3)",
                (np.array([[3.0]]), np.ones(1), np.array([5.0]), np.log([0.5]), 0.5), paper=True),
           Case("with gentle decay and a weak write (K = 3, V = 5)", _token(0, 3, 5, 0.2, -0.1)),
           Case("with strong decay and a strong write (K = 6, V = 2)", _token(1, 6, 2, 0.9, -4.0)),
           Case("without decay (K = 4, V = 3)", _token(2, 4, 3, 0.6, 0.0))),
    properties=(Property("the same token again leads back to the state given", _turns_back),
                Property("with beta = 0 only the decay is undone",
                         lambda f: np.allclose(f(*_token(4, 3, 4, 0.0, -1.0)),
                                               undo_step(*_token(4, 3, 4, 0.0, -1.0))))),
    mistakes=(
        Mistake("Nothing un-erases: after beta k v^T is gone, the row along k must grow by 1 / (1 - beta) again.",
                lambda *a: _undo(*a, factor=0.0)),
        Mistake("The inverse of I - beta k k^T is not I + beta k k^T: along k it must divide by 1 - beta.",
                lambda *a: _undo(*a, factor=a[-1])),
        Mistake("The factor is 1 / (1 - beta) - 1 = beta / (1 - beta): the identity is already in the sum.",
                lambda *a: _undo(*a, factor=1 / (1 - a[-1]))),
        Mistake("The decay came first, so it is undone last.", lambda *a: _undo(*a, order="decay first")),
        Mistake("The decay is not undone: multiply row c by exp(-g_c).", lambda *a: _undo(*a, order="no decay")),
        Mistake("You decayed once more: going back multiplies by exp(-g), not exp(g).", lambda *a: _undo(*a, sign=1)),
        Mistake("The written part beta k v^T is still in there: take it away first.",
                lambda *a: _undo(*a, write=False)),
        Mistake("A write with -beta is not the way back: it takes the error from the state after the write.",
                lambda S, k, v, g, b: np.exp(-g)[:, None] * (S - b * np.outer(k, v - k @ S))),
    ))


# ---- 11.3 what need not be computed again

def reused(shared, length, edges):
    """Tokens of a prompt that come from the store."""
    usable = edges[edges <= min(shared, length - 1)]
    return int(usable.max()) if usable.size else 0


def _nearest(shared, length, edges):
    return int(edges[np.argmin(np.abs(edges - min(shared, length - 1)))]) if edges.size else 0


def _last_before(limit, edges):
    usable = edges[edges <= limit]
    return int(usable.max()) if usable.size else 0


EDGES = np.array([16, 48, 64, 128])

REUSED = Exercise(
    "11.3", "what need not be computed again", reused,
    "The largest edge that is at most min(shared, length - 1), and 0 when there is none.",
    takes={"shared": None, "length": None, "edges": "N"}, returns={"reused": ""},
    cases=(Case("for paper (50 of 80 tokens shared, states at 16, 48, 64 and 128)", (50, 80, EDGES), paper=True),
           Case("exactly at an edge (64 of 80 shared)", (64, 80, EDGES)),
           Case("one past an edge (65 of 80 shared)", (65, 80, EDGES)),
           Case("one short of an edge (63 of 80 shared)", (63, 80, EDGES)),
           Case("with a prompt that is kept as a whole (64 of 64 shared)", (64, 64, EDGES)),
           Case("with little shared (15 of 900)", (15, 900, EDGES)),
           Case("with an empty store", (40, 41, np.array([], dtype=int)))),
    mistakes=(
        Mistake("A prompt that is kept as a whole must still be fed its last token: at most length - 1 can be saved.",
                lambda shared, length, edges: _last_before(shared, edges)),
        Mistake("An edge exactly at `shared` counts: everything before it is the same.",
                lambda shared, length, edges: _last_before(min(shared, length) - 1, edges)),
        Mistake("A state exists only at the edges: between two of them there are latents and nothing to go on from.",
                lambda shared, length, edges: min(shared, length - 1)),
        Mistake("That is the nearest edge; one beyond the shared part has seen other tokens.", _nearest),
        Mistake("That is the first edge; the last one that fits saves more.",
                lambda shared, length, edges: int(edges[0]) if edges.size and edges[0] <= min(shared, length - 1)
                else 0),
        Mistake("That is how many must still be fed; asked is how many need not.",
                lambda shared, length, edges: length - reused(shared, length, edges)),
    ))


# ---- 11.4 what one call of the model yields

def new_tokens(guesses, chosen):
    """The confirmed guesses and the model's own next token.   [G], [C] -> [A]"""
    right = int(np.cumprod(guesses == chosen[:-1]).sum())
    return chosen[:right + 1].copy()


def _count(guesses, chosen, right):
    return chosen[:right + 1].copy()


def _taken(guesses, chosen):
    right = int(np.cumprod(guesses == chosen[:-1]).sum())
    return np.append(guesses[:right], guesses[right] if right < len(guesses) else chosen[-1])


NEW = Exercise(
    "11.4", "what one call yields", new_tokens,
    "Count the guesses that agree before the first that does not, then take that many tokens of `chosen` and one more.",
    takes={"guesses": "G", "chosen": "C"}, returns={"tokens": "A"},
    cases=(Case("for paper (the third guess is wrong)",
                (np.array([3, 1, 4, 1]), np.array([3, 1, 5, 1, 9])), paper=True),
           Case("when all are right", (np.array([7, 2, 2]), np.array([7, 2, 2, 8]))),
           Case("when the first is wrong", (np.array([6, 2]), np.array([5, 2, 9]))),
           Case("without a guess", (np.array([], dtype=int), np.array([4]))),
           Case("when only the middle one is wrong", (np.array([1, 9, 3, 4, 5]), np.array([1, 2, 3, 4, 5, 6])))),
    mistakes=(
        Mistake("A guess counts only when all before it were right: later choices were made after a wrong token.",
                lambda guesses, chosen: _count(guesses, chosen, int(np.sum(guesses == chosen[:-1])))),
        Mistake("The model's own token after the last right guess is missing: every call yields at least that one.",
                lambda guesses, chosen: new_tokens(guesses, chosen)[:-1]),
        Mistake("The wrong guess has got into the text: the model's choice stands in its place.", _taken),
        Mistake("The choices are one place off: chosen[i] is what the model wants where guesses[i] stands.",
                lambda guesses, chosen: _count(guesses, chosen, int(np.cumprod(guesses == chosen[1:]).sum()))),
        Mistake("One wrong guess does not spoil the right ones before it.",
                lambda guesses, chosen: _count(guesses, chosen, len(guesses) * bool(np.all(guesses == chosen[:-1])))),
        Mistake("Those are the model's choices after every guess; the ones behind a wrong guess are of no use.",
                lambda guesses, chosen: chosen.copy()),
    ))


# ---- 11.5 tokens a call

def tokens_per_call(a):
    """Mean tokens that one call yields; a [G]: how likely guess i is right once all before it are."""
    return 1.0 + float(np.cumprod(a).sum())


PER_CALL = Exercise(
    "11.5", "tokens a call", tokens_per_call,
    "Guess i helps when it and all before it are right, the product a_1 ... a_i; one token more is always there.",
    takes={"a": "G"}, returns={"tokens": ""},
    cases=(Case("for paper (two guesses, each right in half of the cases: 1 + 1/2 + 1/4)",
                (np.array([0.5, 0.5]),), paper=True),
           Case("with a good draft (four guesses around 0.9)", (np.array([0.95, 0.9, 0.85, 0.9]),)),
           Case("with a bad draft (three guesses below 0.2)", (np.array([0.1, 0.2, 0.15]),)),
           Case("with a draft that is always right (three guesses)", (np.ones(3),)),
           Case("with a first guess that is always wrong", (np.array([0.0, 0.9, 0.9, 0.9]),)),
           Case("without a guess", (np.zeros(0),))),
    mistakes=(
        Mistake("A guess helps only when all before it were right too: multiply the probabilities up to it.",
                lambda a: 1.0 + float(np.sum(a))),
        Mistake("The model's own token is missing: a call yields at least one.",
                lambda a: float(np.cumprod(a).sum())),
        Mistake("One guess too few: the last one helps as well, with the product of all.",
                lambda a: 1.0 + float(np.cumprod(a[:-1]).sum())),
        Mistake("That counts only calls in which every guess was right; a part of them helps too.",
                lambda a: 1.0 + len(a) * float(np.prod(a) if len(a) else 0.0)),
        Mistake("That is for endlessly many guesses of one quality; here there are G.",
                lambda a: 1.0 / max(1e-3, 1.0 - float(np.mean(a) if len(a) else 0.0))),
    ))


EXERCISES = (
    Exercise("11.1", "when the cache outweighs the state", 15702,
             "69 * 96 * 128 * 128 numbers of 4 bytes against T * 24 * 576 numbers of 2 bytes.",
             mistakes=(
                 Mistake("At 15,701 tokens the states are still a little heavier; one token more turns it.", 15701),
                 Mistake("The state is kept in float32, 4 bytes a number; the latents take 2.", 7851),
                 Mistake("A latent has two bytes a number: 13,824 numbers are 27,648 bytes.", 31403),
                 Mistake("That is one MLA layer against the states of all KDA layers: there are 24.", 376833),
                 Mistake("That is one KDA layer against the latents of all MLA layers: 69 have a state.", 228))),
    UNDO, REUSED, NEW, PER_CALL)
