"""KDA as a recurrence: the definition itself, so it is checked against the equation, by hand, and at its limits."""

import numpy as np
import pytest

from k3_scratch.reference import kda
from k3_scratch.reference.delta_rule import delta_recurrent
from k3_scratch.reference.gated_delta_rule import gated_delta_recurrent
from k3_scratch.reference.kda import kda_recurrent, kda_step
from k3_scratch.reference.linear_attention import linear_attention_recurrent
from k3_scratch.shapes import ShapeError


def tokens(*values):
    """Numbers as [T, 1, 1]."""
    return np.array(values, dtype=float)[:, None, None]


def test_two_tokens_on_paper():
    half = np.log(0.5)
    o, S = kda_recurrent(tokens(1, 1), tokens(1, 1), tokens(1, 1), tokens(half, half), [[0.5], [0.5]], scale=1.0)
    np.testing.assert_allclose(o.ravel(), [0.5, 0.625], rtol=1e-14)
    np.testing.assert_allclose(S.ravel(), [0.625], rtol=1e-14)


def test_the_one_line_equation(kda_inputs, regime):
    a = kda_inputs(regime, 7)
    o, S = kda_recurrent(**a)
    for b, h in np.ndindex(2, 3):
        M = a["state"][b, h]
        for t in range(7):
            k, beta, alpha = a["k"][b, t, h], a["beta"][b, t, h], np.diag(np.exp(a["g"][b, t, h]))
            M = (np.eye(5) - beta * np.outer(k, k)) @ alpha @ M + beta * np.outer(k, a["v"][b, t, h])
            np.testing.assert_allclose(o[b, t, h], M.T @ a["q"][b, t, h] * 5 ** -0.5, atol=1e-12)
        np.testing.assert_allclose(S[b, h], M, atol=1e-12)


def test_scale_sits_once_on_q(kda_inputs):
    q = k = np.array([[[1.0, 0, 0, 0]]])                                         # K = 4, V = 9
    v = np.arange(9.0)[None, None]
    o, S = kda_recurrent(q, k, v, np.zeros((1, 1, 4)), np.ones((1, 1)))
    np.testing.assert_allclose(o, 0.5 * v)
    np.testing.assert_allclose(S[0, 0], v[0, 0])
    a = kda_inputs("k3", 7)
    (o1, S1), (o3, S3) = (kda_recurrent(**a, scale=s) for s in (1.0, 3.0))
    np.testing.assert_allclose(o3, 3 * o1)
    np.testing.assert_array_equal(S1, S3)


def test_a_key_is_overwritten():
    zero = tokens(0, 0)
    o, _ = kda_recurrent(tokens(1, 1), tokens(1, 1), tokens(1, 5), zero, [[1.0], [1.0]], scale=1.0)
    np.testing.assert_allclose(o.ravel(), [1, 5])
    o, _ = kda_recurrent(tokens(1, 1), tokens(1, 1), tokens(1, 5), zero, [[1.0], [2.0]], scale=1.0)
    np.testing.assert_allclose(o.ravel(), [1, 9])


def test_equal_gates_are_the_gated_delta_rule(kda_inputs, regime):
    a = kda_inputs(regime, 17)
    one_gate = a["g"][..., :1]                                                   # [B, T, H, 1]
    got = kda_recurrent(**{**a, "g": np.repeat(one_gate, 5, axis=-1)})
    want = gated_delta_recurrent(**{**a, "g": one_gate[..., 0]})
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)


def test_without_decay_it_is_the_delta_rule(kda_inputs):
    a = kda_inputs("none", 17)
    want = delta_recurrent(a["q"], a["k"], a["v"], a["beta"], a["state"])
    for x, y in zip(kda_recurrent(**a), want, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-12)


def test_without_decay_and_without_overlap_it_is_linear_attention():
    rng = np.random.default_rng(2)
    q, k, v = rng.normal(size=(5, 1, 5)), np.eye(5)[:, None], rng.normal(size=(5, 1, 4))
    got = kda_recurrent(q, k, v, np.zeros((5, 1, 5)), np.ones((5, 1)))
    for x, y in zip(got, linear_attention_recurrent(q, k, v), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-13)


def test_beta_zero_only_forgets(kda_inputs):
    a = kda_inputs("mild", 7)
    _, S = kda_recurrent(**{**a, "beta": np.zeros((2, 7, 3))})
    np.testing.assert_allclose(S, np.exp(a["g"].sum(axis=1))[..., None] * a["state"], atol=1e-13)


@pytest.mark.parametrize("cut", [0, 1, 4, 7])
def test_cut_anywhere(kda_inputs, regime, cut):
    a = kda_inputs(regime, 7)
    state = a.pop("state")
    o, S = kda_recurrent(**a, state=state)
    first, middle = kda_recurrent(**{n: x[:, :cut] for n, x in a.items()}, state=state)
    second, end = kda_recurrent(**{n: x[:, cut:] for n, x in a.items()}, state=middle)
    np.testing.assert_array_equal(np.concatenate([first, second], axis=1), o)
    np.testing.assert_array_equal(end, S)


def test_no_token_returns_the_same_state_as_a_copy(kda_inputs):
    a = kda_inputs("k3", 0)
    o, S = kda_recurrent(**a)
    assert o.shape == (2, 0, 3, 4)
    np.testing.assert_array_equal(S, a["state"])
    assert not np.shares_memory(S, a["state"])
    assert not kda_recurrent(**{**a, "state": None})[1].any()


def test_inputs_are_never_modified(kda_inputs, regime):
    a = kda_inputs(regime, 7)
    before = {name: array.copy() for name, array in a.items()}
    _, S = kda_recurrent(**a)
    S += 1
    kda.kda_chunk(**a)
    for name in a:
        np.testing.assert_array_equal(a[name], before[name])


def test_batch_axes_are_optional(kda_inputs):
    a = kda_inputs("k3", 7)
    o, S = kda_recurrent(**a)
    for function in (kda_recurrent, kda.kda_chunk):
        o1, S1 = function(**{name: x[1] for name, x in a.items()})               # none
        o2, S2 = function(**{name: x[:, None] for name, x in a.items()})         # two
        np.testing.assert_allclose(o1, o[1], atol=1e-12)
        np.testing.assert_allclose(o2, o[:, None], atol=1e-12)
        np.testing.assert_allclose(S1, S[1], atol=1e-12)
        np.testing.assert_allclose(S2, S[:, None], atol=1e-12)


def test_documents_start_empty_and_the_first_goes_on(kda_inputs):
    a = kda_inputs("mild", 7)
    state = a.pop("state")
    documents = np.array([[4, 4, 4, 1, 1, 9, 9], [0, 0, 0, 0, 0, 0, 3]])
    o, S = kda_recurrent(**a, state=state, documents=documents)
    for b, bounds in ((0, [0, 3, 5, 7]), (1, [0, 6, 7])):
        for start, end in zip(bounds[:-1], bounds[1:], strict=True):
            part = {name: x[b, start:end] for name, x in a.items()}
            want, last = kda_recurrent(**part, state=state[b] if start == 0 else None)
            np.testing.assert_allclose(o[b, start:end], want, atol=1e-13)
        np.testing.assert_allclose(S[b], last, atol=1e-13)


def test_step_reads_after_the_write(kda_inputs):
    a = kda_inputs("k3", 1)
    now = {name: a[name][:, 0] for name in ("q", "k", "v", "g", "beta")}
    o, S = kda_step(a["state"], **now)
    np.testing.assert_allclose(o, np.einsum("bhk,bhkv->bhv", now["q"], S) / np.sqrt(5), atol=1e-14)
    np.testing.assert_allclose(kda_recurrent(**a)[0][:, 0], o)


@pytest.mark.parametrize(("name", "shape"), [
    ("g", (2, 7)), ("g", (2, 7, 5, 3)), ("g", (2, 7, 3)), ("g", (2, 7, 3, 1)), ("beta", (2, 7, 3, 5)),
    ("beta", (2, 7)), ("k", (2, 7, 3, 4)), ("v", (2, 6, 3, 4)), ("state", (2, 3, 4, 5)), ("state", (3, 5, 4)),
    ("documents", (2, 6))])
def test_a_wrong_shape_names_the_argument(kda_inputs, name, shape):
    a = {**kda_inputs("k3", 7), name: np.zeros(shape)}
    came = ", ".join(map(str, shape))
    message = rf"kda_recurrent: {name} must have shape \[\.\.\., .*\] with .*, but \[{came}\] came"
    with pytest.raises(ShapeError, match=message):
        kda_recurrent(**a)
    if name != "documents":
        with pytest.raises(ShapeError, match=message.replace("kda_recurrent", "kda_chunk")):
            kda.kda_chunk(**a)


def test_the_step_refuses_wrong_shapes(kda_inputs):
    a = kda_inputs("k3", 1)
    now = {name: a[name][:, 0] for name in ("q", "k", "v", "g", "beta")}
    with pytest.raises(ShapeError, match="kda_step: beta"):
        kda_step(a["state"], **{**now, "beta": now["g"]})
    with pytest.raises(ShapeError, match="kda_step: g"):
        kda_step(a["state"], **{**now, "g": now["beta"]})
