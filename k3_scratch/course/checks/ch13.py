"""Checks of chapter 13, the bug hunt: probes, tried on healthy and on faulty things."""

import numpy as np

from k3_scratch.course.checks import ch13_wrong as wrong
from k3_scratch.course.exercise import Case, Exercise, Mistake, Property
from k3_scratch.course.faults import FAULTS
from k3_scratch.course.faults.fault import planted
from k3_scratch.course.faults.package import load

# ---- the four models at the beginning

LINEUP = {"A": "no_unit_keys", "B": "taps_reversed", "C": None, "D": "sigmoid_of_the_capped_gate"}


def lineup(told=False):
    """{letter: kit} of four models of which one is healthy; told: {letter: what it is}."""
    if told:
        return {letter: FAULTS[name].what if name else "a K3" for letter, name in LINEUP.items()}
    return {letter: load(planted([FAULTS[name]] if name else [])) for letter, name in LINEUP.items()}


def _normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


# ---- 13.2 does a layer see the future?

def is_causal(layer, x):
    """True when no output of the layer depends on a later input.   layer: [T, D] -> [T, D], x [T, D] -> bool"""
    before = layer(x)
    for t in range(1, len(x)):
        other = x.copy()
        other[t] = 1 - 3 * x[t]
        if not np.allclose(layer(other)[:t], before[:t], rtol=1e-9, atol=1e-9):
            return False
    return True


def _sees(name, layer, seed, T, D):
    return Case(name, (layer, _normal(seed, T, D)))


CAUSAL = Exercise(
    "13.2", "a probe for causality", is_causal,
    "For every t from 1 on: change x[t] strongly, and compare the outputs before t with those of the unchanged x.",
    takes={"layer": None, "x": "T D"}, returns={"causal": ""},
    cases=(Case("for paper (x = 1, 2, 4 and a layer that gives the mean of all three everywhere: it sees the future)",
                (wrong.mean_of_all, np.array([[1.0], [2.0], [4.0]])), paper=True),
           _sees("of a healthy layer, a running sum", wrong.running_sum, 0, 5, 3),
           _sees("of a healthy layer that forgets", wrong.fading, 1, 7, 2),
           _sees("of a layer that looks one token ahead", wrong.ahead(1), 2, 6, 4),
           _sees("of a layer that looks three tokens ahead", wrong.ahead(3), 3, 8, 3),
           _sees("of a layer whose last input leaks into its first output",
                 wrong.one_way(lambda T: T - 1, lambda T: 0), 4, 6, 2),
           _sees("of a layer whose last input leaks into the output before it",
                 wrong.one_way(lambda T: T - 1, lambda T: T - 2), 5, 9, 2),
           _sees("of a layer whose middle input leaks into its first output",
                 wrong.one_way(lambda T: T // 2, lambda T: 0), 6, 8, 5),
           _sees("of a layer that divides by the largest input of the whole text", wrong.largest_of_all, 7, 5, 4)),
    mistakes=(
        Mistake("Your probe says True to everything: shapes and finite numbers say nothing about the future.",
                lambda layer, x: layer(x).shape == x.shape),
        Mistake("That is the wrong direction: of course the outputs after a changed token change. Look before it.",
                wrong.causal_but(change=(0,), compare="after")),
        Mistake("The output at the changed token itself may change; compare only those strictly before it.",
                wrong.causal_but(compare="all")),
        Mistake("Only the first output is compared: a leak of one or three tokens into the middle gets through.",
                wrong.causal_but(first_only=True)),
        Mistake("Only the last token is changed: a leak from the middle gets through. Try every token.",
                wrong.causal_but()),
        Mistake("Only the second token is changed, so only the first output is asked: leaks from further get through.",
                wrong.causal_but(change=(1,))),
    ))


# ---- 13.3 are two forms the same?

same_memory = wrong.same_but()


def _forms(name, whole, seed, T, K, V, size=1.0):
    k = _normal(seed, T, K)
    return Case(name, (wrong.step, whole, k / np.linalg.norm(k, axis=1, keepdims=True), size * _normal([seed, 1], T, V),
                       1 / (1 + np.exp(-_normal([seed, 2], T)))))


SAME = Exercise(
    "13.3", "a probe for two forms", same_memory,
    "Run the step form over all tokens from a state of zeros, then compare every output and the last state.",
    takes={"step": None, "whole": None, "k": "T K", "v": "T V", "beta": "T"}, returns={"same": ""},
    cases=(Case("for paper (T = 2, k = 1, v = 1 and 3, beta = 1; the whole form reads before it writes)",
                (wrong.step, lambda k, v, beta: wrong.loop(k, v, beta, read_first=True), np.ones((2, 1)),
                 np.array([[1.0], [3.0]]), np.ones(2)), paper=True),
           _forms("of two healthy forms", wrong.loop, 0, 6, 3, 4),
           _forms("of a whole form that returns the state transposed in its values",
                  wrong.twisted(lambda o, S: (o, S[:, ::-1])), 1, 5, 4, 3),
           _forms("of a whole form that forgets to erase after the fourth token",
                  lambda k, v, beta: wrong.loop(k, v, beta, erase_until=4), 2, 9, 2, 5),
           _forms("of a whole form that is off by a ten-thousandth",
                  wrong.twisted(lambda o, S: (o * 1.0001, S)), 3, 7, 5, 2),
           _forms("of a whole form whose outputs have their value channels in reverse order",
                  wrong.twisted(lambda o, S: (o[:, ::-1], S)), 4, 4, 3, 2),
           _forms("of a whole form whose first output alone is off", wrong.twisted(wrong.first_row_off), 5, 8, 4, 6)),
    mistakes=(
        Mistake("The last output alone is compared: the first may be wrong, and so may the state.",
                wrong.same_but(outputs=slice(-1, None), state=False)),
        Mistake("The outputs of all tokens are compared, the state after them is not: the next piece begins from it.",
                wrong.same_but(state=False)),
        Mistake("The states are compared, the outputs are not: reading in the wrong place leaves every state right.",
                wrong.same_but(outputs=slice(0, 0))),
        Mistake("In double precision two forms agree to nine digits or more: a tolerance of a hundredth hides a slip.",
                wrong.same_but(tolerance=1e-2)),
        Mistake("Sums are compared: numbers in the wrong places have the same sum.",
                wrong.same_but(of=lambda x: np.sum(x))),
        Mistake("Your probe says True to everything: equal shapes are not equal numbers.",
                lambda step, whole, k, v, beta: whole(k, v, beta)[0].shape == v.shape),
        Mistake("Only the first token is compared: a slip that needs a full memory begins later.",
                wrong.same_but(outputs=slice(0, 1), state=False)),
    ))


# ---- 13.4 what does not matter?

dead_numbers = wrong.dead_but()

DEAD = Exercise(
    "13.4", "a probe for dead parameters", dead_numbers,
    "From a few random points, move one number at a time by a good step; dead is what never changes the loss at all.",
    takes={"loss": None, "p": "P"}, returns={"dead": "P"},
    cases=(Case("for paper (loss = p0 squared, p = (0, 1): the second number is dead)",
                (lambda p: p[0] ** 2, np.array([0.0, 1.0])), paper=True),
           Case("of a weighted sum that leaves out one of four", (lambda p: 2 * p[0] - p[1] + 3 * p[3], _normal(0, 4))),
           Case("of a product of two numbers that both start at zero", (lambda p: p[0] * p[1], np.zeros(3))),
           Case("of a number with a very small effect", (lambda p: p[1] + 1e-7 * p[2], _normal(1, 5))),
           Case("of a difference of two numbers", (lambda p: (p[0] - p[2]) ** 2, _normal(2, 6))),
           Case("of a loss that depends on nothing", (lambda p: 3.0, _normal(3, 2)))),
    properties=(Property("a number that matters only through its square matters",
                         lambda f: not np.any(f(lambda p: np.sum(p ** 2), np.zeros(3)))),),
    mistakes=(
        Mistake("At the start values a product of two zeros hides both: move away from there before you ask.",
                wrong.dead_but(at=lambda p: p)),
        Mistake("A central difference at the start is blind twice: a square has slope 0 at 0, a product of zeros too.",
                wrong.dead_but(at=lambda p: p, both="central")),
        Mistake("Below a threshold is not dead: a small effect is an effect. Dead numbers change nothing at all.",
                wrong.dead_but(threshold=1e-3)),
        Mistake("All numbers are moved at once: then one that matters answers for all of them.",
                wrong.dead_but(alone=False)),
        Mistake("True and False are the wrong way round: True is for the dead.", wrong.dead_but(inverted=True)),
        Mistake("A number that is zero is not dead: ask what changes when it moves.", lambda loss, p: p == 0),
    ))


# ---- 13.5 is a gradient right?

gradient_is_right = wrong.gradient_but()


def _square(x):
    return float(np.sum(x ** 2))


def _cubic(x):
    return float(np.sum(np.arange(1, len(x) + 1) * x ** 3))


def _cubic_gradient(x):
    return 3 * np.arange(1, len(x) + 1) * x ** 2


def _changed(change):
    """The right gradient of _cubic, changed."""
    return lambda x: change(_cubic_gradient(x).copy())


def _put(g, place, factor):
    g[place] *= factor
    return g


GRADIENT = Exercise(
    "13.5", "a probe for gradients", gradient_is_right,
    "For each entry (f(x + h) - f(x - h)) / (2 h) with h near 1e-5, compared entry by entry, relative to its size.",
    takes={"f": None, "gradient": None, "x": "N"}, returns={"right": ""},
    cases=(Case("for paper (f = x squared at x = 3, and someone forgot the factor 2)",
                (_square, lambda x: x, np.array([3.0])), paper=True),
           Case("of a right gradient of a sum of squares", (_square, lambda x: 2 * x, _normal(0, 4))),
           Case("of a right gradient of a straight line", (lambda x: float(x @ np.arange(1.0, 4.0)),
                                                           lambda x: np.arange(1.0, 4.0), _normal(1, 3))),
           Case("of a right gradient of a function with large values",
                (lambda x: 1e6 + 1e3 * _cubic(x), lambda x: 1e3 * _cubic_gradient(x), 1 + np.abs(_normal(2, 5)))),
           Case("of a gradient whose last entry has the wrong sign",
                (_cubic, _changed(lambda g: _put(g, -1, -1.0)), _normal(3, 6))),
           Case("of a gradient that is twice too large", (_cubic, _changed(lambda g: 2 * g), _normal(4, 7))),
           Case("of a gradient with its entries in reverse order",
                (_cubic, _changed(lambda g: g[::-1]), _normal(5, 5))),
           Case("of a gradient whose third entry is off by one in a hundred",
                (_cubic, _changed(lambda g: _put(g, 2, 1.01)), _normal(6, 8)))),
    mistakes=(
        Mistake("Only the first entry is compared: a slip sits where one does not look.",
                wrong.gradient_but(entries=slice(0, 1))),
        Mistake("Directions are compared: a factor of two gets through.", wrong.gradient_but(of=wrong.direction)),
        Mistake("Lengths are compared: a wrong sign or a wrong order has the same length.",
                wrong.gradient_but(of=np.linalg.norm)),
        Mistake("A difference to one side with a large step is no slope: it calls healthy gradients faulty.",
                wrong.gradient_but(step=0.1, central=False)),
        Mistake("A step of 1e-14 is lost in rounding: it calls healthy gradients faulty.",
                wrong.gradient_but(step=1e-14)),
        Mistake("A tolerance of five in a hundred lets a slip of one in a hundred through.",
                wrong.gradient_but(relative=0.05)),
        Mistake("An absolute tolerance alone calls large healthy gradients faulty: rounding grows with the numbers.",
                wrong.gradient_but(relative=0.0)),
    ))


EXERCISES = (
    Exercise("13.1", "which test can see it", "4",
             "Ask of each test: does the changed line run in it at all, and does what it compares depend on that line?",
             mistakes=(
                 Mistake("The state is written as before, only the read came too early: test 5 compares states.", "45"),
                 Mistake("Shapes do not change, and training uses the chunk form alone: 1 and 2 see nothing.", "124"),
                 Mistake("Two chunk lengths are two runs of the same healthy form: the changed line runs in neither.",
                         "34"),
                 Mistake("One test does see it: it runs the one-token form and compares what it reads.", "0"),
                 Mistake("The state is right: it is the outputs that lack the newest value.", "5"),
                 Mistake("The chunk form is healthy and does not call the one-token form: take a test of both.",
                         "3"))),
    CAUSAL, SAME, DEAD, GRADIENT)
