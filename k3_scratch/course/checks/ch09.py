"""Checks of chapter 09, training: the loss on answers, Newton-Schulz, heads, the rate, clipping, a diagnosis."""

import numpy as np

from k3_scratch.course.checks import ch09_wrong as wrong
from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.training.muon import COEFFICIENTS
from k3_scratch.training.schedule import learning_rate

# ---- 9.1 the loss on answers

def answer_loss(logits, targets):
    """Mean over rows of each row's mean cross-entropy where targets are not -1.      [B, T, S], [B, T] -> a number"""
    learnt = targets >= 0
    top = logits.max(axis=-1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True))      # [B, T, S]
    nats = -np.take_along_axis(log_p, np.where(learnt, targets, 0)[..., None], axis=-1)[..., 0]
    return np.mean((nats * learnt).sum(axis=1) / np.maximum(learnt.sum(axis=1), 1))


def _rows(seed, B, T, S, share, empty=False):
    rng = np.random.default_rng(seed)
    targets = np.where(rng.random((B, T)) < share, rng.integers(0, S, (B, T)), -1)
    targets[0, :2] = [S - 1, 0]
    if empty:
        targets[-1] = -1
    return 2 * rng.normal(size=(B, T, S)), targets


LOSS = Exercise(
    "9.1", "the loss on answers", answer_loss,
    "Per target: log(sum of e^logit) minus the logit of the right symbol. Then a mean in each row, then over the rows.",
    takes={"logits": "B T S", "targets": "B T"}, returns={"loss": ""},
    cases=(Case("for paper (two rows of two targets, two symbols; the first row has one target, the second two)",
                (np.array([[[np.log(3), 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, np.log(3)]]]),
                 np.array([[0, -1], [1, 0]])), paper=True),
           Case("with few answers (B = 5, T = 9, S = 4)", _rows(0, 5, 9, 4, 0.2)),
           Case("with many answers (B = 3, T = 6, S = 7)", _rows(1, 3, 6, 7, 0.7)),
           Case("with a row that has no answer (B = 4, T = 5, S = 3): it counts as 0", _rows(2, 4, 5, 3, 0.5, True)),
           Case("with logits around 1,000 (B = 2, T = 4, S = 5)",
                (_rows(3, 2, 4, 5, 0.5)[0] + 1000.0, _rows(3, 2, 4, 5, 0.5)[1]))),
    properties=(Property("equal logits for S = 6 symbols cost log 6 at every answer",
                         lambda f: np.isclose(f(np.zeros((2, 3, 6)), np.array([[1, -1, 5], [-1, 0, -1]])),
                                              np.log(6))),),
    mistakes=(
        Mistake("That is the mean over all answers together: long answers then outweigh short ones; take the mean in "
                "each row first.", wrong.loss_of_tokens),
        Mistake("You divide by T: the places that are not learnt must not count in a row's mean.",
                wrong.loss_over_length),
        Mistake("You learn everywhere: a target of -1 means no loss there (and as an index it means the last symbol).",
                wrong.loss_everywhere),
        Mistake("The targets are moved once more: targets[t] already is what should follow tokens[t].",
                wrong.loss_shifted),
        Mistake("That is the sum over the rows: divide by their number B, or a larger batch gives larger gradients.",
                wrong.loss_summed),
        Mistake("You left out rows without an answer: they count as 0, so that every row weighs 1 / B.",
                wrong.loss_without_empty_rows),
    ))


# ---- 9.2 one step of Newton and Schulz

def newton_schulz_step(x):
    """a x + (b x x^T + c (x x^T)^2) x: every singular value s becomes a s + b s^3 + c s^5.        [m, n] -> [m, n]"""
    a, b, c = COEFFICIENTS
    square = x @ x.T
    return a * x + (b * square + c * square @ square) @ x


def _matrix(seed, m, n):
    x = np.random.default_rng(seed).normal(size=(m, n))
    return (x / np.linalg.norm(x),)


def _values_after(f):
    x, = _matrix(2, 3, 5)
    a, b, c = COEFFICIENTS
    s = np.linalg.svd(x, compute_uv=False)
    return np.allclose(np.linalg.svd(f(x), compute_uv=False), np.sort(np.abs(a * s + b * s ** 3 + c * s ** 5))[::-1])


NEWTON_SCHULZ = Exercise(
    "9.2", "one step of Newton and Schulz", newton_schulz_step,
    "square = x @ x.T, then a * x + (b * square + c * square @ square) @ x.",
    takes={"x": "m n"}, returns={"x": "m n"},
    cases=(Case("for paper (a diagonal matrix: its entries .5 and 1 are its singular values)",
                (np.diag([0.5, 1.0]),), paper=True),
           Case("with a wide matrix (m = 3, n = 7)", _matrix(0, 3, 7)),
           Case("with a tall matrix (m = 6, n = 2)", _matrix(1, 6, 2))),
    properties=(Property("each singular value s becomes a s + b s^3 + c s^5", _values_after),),
    mistakes=(
        Mistake("You took powers of the entries: x x^T is a matrix product, x @ x.T.", wrong.ns_entries),
        Mistake("b and c have changed places: b = -4.775 belongs to x x^T, c = 2.0315 to its square.",
                wrong.ns_swapped),
        Mistake("The term a x is missing: without it small singular values do not grow.", wrong.ns_without_a),
        Mistake("The last factor x is missing in the fifth power: c (x x^T)^2 x.", wrong.ns_fourth_power),
        Mistake("That is the textbook's 1.5 x - 0.5 x x^T x: it gets to 1 exactly, but needs many more steps; use the "
                "three COEFFICIENTS.", wrong.ns_cubic),
        Mistake("You divided by the norm in the step: that happens once, before the first step.", wrong.ns_divided),
    ))


# ---- 9.3 each head on its own

def per_head_update(direction, heads):
    """Each head's rows made orthogonal by themselves, times .2 sqrt(max(rows, columns)).        [N, D] -> [N, D]"""
    blocks = direction.reshape(heads, -1, direction.shape[1])                        # [H, N / H, D]
    u, _, vt = np.linalg.svd(blocks, full_matrices=False)
    return (0.2 * max(blocks.shape[1:]) ** 0.5 * (u @ vt)).reshape(direction.shape)


def _direction(seed, N, D, heads):
    rng = np.random.default_rng(seed)
    loud = np.repeat(10.0 ** rng.uniform(-2, 2, heads), N // heads)[:, None]         # heads of unequal size
    return loud * rng.normal(size=(N, D)), heads


PER_HEAD = Exercise(
    "9.3", "each head on its own", per_head_update,
    "reshape to [heads, rows of a head, D], then np.linalg.svd of all at once, u @ vt, the scale, and back.",
    takes={"direction": "N D", "heads": None}, returns={"update": "N D"}, tolerance=1e-7,
    cases=(Case("for paper (N = D = 2, two heads of one row: 3, 0 and 0.03, 0)",
                (np.array([[3.0, 0.0], [0.03, 0.0]]), 2), paper=True),
           Case("with three heads of two rows (N = 6, D = 5)", _direction(0, 6, 5, 3)),
           Case("with two heads of four rows (N = 8, D = 3)", _direction(1, 8, 3, 2)),
           Case("with one head (N = 4, D = 7)", _direction(2, 4, 7, 1))),
    properties=(Property("a head a thousand times as loud changes nothing for the others",
                         lambda f: np.allclose(f(*_direction(3, 6, 4, 3))[2:],
                                               f(_direction(3, 6, 4, 3)[0] * np.array([1e3, 1e3, 1, 1, 1, 1])[:, None],
                                                 3)[2:])),),
    mistakes=(
        Mistake("You took the matrix as a whole: then the heads share one set of directions.", wrong.heads_whole),
        Mistake("You cut the columns: heads are groups of rows, the outputs of the projection.", wrong.heads_columns),
        Mistake("The rows are dealt out one by one: row 0 and row 1 belong to the same head, so reshape to [heads, "
                "rows, D], not to [rows, heads, D].", wrong.heads_interleaved),
        Mistake("You only divided each head by its norm: its singular values must all become 1.", wrong.heads_divided),
        Mistake("Every row was brought to length 1 by itself: rows of one head must also be at right angles.",
                wrong.heads_rows),
        Mistake("The scale is that of the whole matrix: it takes the rows of one head and the columns.",
                wrong.heads_scale),
    ))


# ---- 9.4 the rate

def rates(step, steps, peak, warmup, final):
    """`learning_rate` at each of the given updates.                                             [n] -> [n]"""
    return np.array([learning_rate(int(one), steps, peak, warmup, final) for one in step])


def _rates(step, steps, peak, warmup, final):
    return (np.array(step), steps, peak, warmup, final)


RATE = Exercise(
    "9.4", "the learning rate over time", rates,
    "For step < rise: peak (step + 1) / rise. Then progress from 0 to 1 over the rest, and the cosine between 1 and "
    "final.",
    takes={"step": "n", "steps": None, "peak": None, "warmup": None, "final": None}, returns={"rate": "n"},
    cases=(Case("for paper (10 updates, peak 1, two of warm-up, final .2; updates 0, 1 and 6, half-way down)",
                _rates([0, 1, 6], 10, 1.0, 0.2, 0.2), paper=True),
           Case("over 200 updates with a warm-up of .05",
                _rates([0, 6, 9, 10, 55, 150, 199], 200, 5e-3, 0.05, 0.02)),
           Case("over 50 updates with a rest of .5", _rates([0, 20, 40, 49], 50, 3.0, 0.1, 0.5)),
           Case("with no warm-up to speak of (warm-up 0: one update)", _rates([0, 1, 29], 30, 2.0, 0.0, 0.1))),
    properties=(Property("the peak is reached in the warm-up's last update, and never passed",
                         lambda f: np.isclose(np.max(f(*_rates(range(50), 50, 3.0, 0.1, 0.1))), 3.0)
                         and np.isclose(f(*_rates([4], 50, 3.0, 0.1, 0.1))[0], 3.0)),),
    mistakes=(
        Mistake("The first update has the rate 0 and is lost: step counts from 0, so the warm-up takes step + 1.",
                wrong.rate_from_zero),
        Mistake("The cosine began at update 0: it begins after the warm-up, at the peak.", wrong.rate_early_cosine),
        Mistake("The rate ends at 0: it ends at final times the peak.", wrong.rate_to_zero),
        Mistake("final was put on top: the cosine runs from 1 to final, so its height is 1 - final.",
                wrong.rate_on_top),
        Mistake("That is a straight line down: after the warm-up comes half a cosine.", wrong.rate_line),
        Mistake("There is no warm-up: during the first updates the rate rises in equal steps.", wrong.rate_at_once),
    ))


# ---- 9.5 clipping

def clip(a, b, limit):
    """Both gradients times min(1, limit / norm), the norm of all their numbers.       [m, n], [k] -> [m, n], [k]"""
    norm = np.sqrt(np.sum(a ** 2) + np.sum(b ** 2))
    factor = min(1.0, limit / norm)
    return factor * a, factor * b


def _gradients(seed, m, n, k, size):
    rng = np.random.default_rng(seed)
    return size * rng.normal(size=(m, n)), size * rng.normal(size=k), 1.0


CLIP = Exercise(
    "9.5", "clipping", clip,
    "One norm over both: sqrt(sum of all squares). One factor for both: min(1, limit / norm).",
    takes={"a": "m n", "b": "k", "limit": None}, returns={"a": "m n", "b": "k"},
    cases=(Case("for paper (a = 3 and b = 4, limit 1: the norm is 5)",
                (np.array([[3.0]]), np.array([4.0]), 1.0), paper=True),
           Case("with large gradients (m = 3, n = 4, k = 5)", _gradients(0, 3, 4, 5, 20.0)),
           Case("with small gradients (m = 2, n = 5, k = 3)", _gradients(1, 2, 5, 3, 0.01)),
           Case("with one large and one small (m = 4, n = 2, k = 6, limit 3)",
                (*_gradients(2, 4, 2, 6, 9.0)[:1], _gradients(3, 4, 2, 6, 0.1)[1], 3.0))),
    properties=(Property("a gradient within the limit passes unchanged",
                         lambda f: np.allclose(f(np.array([[0.3]]), np.array([0.4]), 1.0)[0], 0.3)),),
    mistakes=(
        Mistake("Each was clipped by its own norm: that turns the direction; one norm and one factor for all.",
                wrong.clip_each),
        Mistake("You cut off single entries: that turns the direction; multiply all by one factor.",
                wrong.clip_entries),
        Mistake("Small gradients were made larger: the factor is at most 1.", wrong.clip_always),
        Mistake("Norms do not add up: the norm of all is the root of the sum of squares.", wrong.clip_sum_of_norms),
        Mistake("The root is missing: sum of squares is the norm squared.", wrong.clip_no_root),
        Mistake("The limit is missing: the factor is limit / norm, not 1 / norm.", wrong.clip_no_limit),
    ))


EXERCISES = (
    LOSS, NEWTON_SCHULZ, PER_HEAD, RATE, CLIP,
    Exercise("9.6", "a patient", "decay",
             "Go through the instruments one by one: which of them does not read as in the healthy run?",
             mistakes=(Mistake("With a rate that is too high the half-lives are pushed apart and the first updates "
                               "jump; here nothing jumps.", "rate"),
                       Mistake("Without balancing loads drift apart, and the loss hardly notices; here loads are even.",
                               "balance"),
                       Mistake("Without the norm keys have all lengths; here every key has length 1.", "norm"),
                       Mistake("A healthy run does not stay at the loss of guessing, and it has long half-lives.",
                               "healthy"))))
