"""The operators: equal to NumPy, chunks equal to the loop, and the known limits of one in another."""

import math

import numpy as np
import pytest
import torch
from baseline_helpers import OPERATORS, arguments_of
from torch_helpers import kda_arguments, normal, relative_error, unit, values_and_gradients

from k3_scratch.baselines.rope import rope
from k3_scratch.baselines.softmax_attention import softmax_attention
from k3_scratch.layers.kda import kda_recurrent
from k3_scratch.reference.delta_rule import delta_recurrent as delta_numpy
from k3_scratch.reference.delta_rule import delta_step as delta_step_numpy
from k3_scratch.reference.gated_delta_rule import gated_delta_recurrent as gated_numpy
from k3_scratch.reference.linear_attention import linear_attention_recurrent as linear_numpy

ALL = pytest.mark.parametrize("name", OPERATORS)
REGIMES = pytest.mark.parametrize("regime", ["mild", "k3", "unbounded", "none", "repeated", "thousand"])
NUMPY = {"linear_attention": linear_numpy, "delta": delta_numpy, "gated_delta": gated_numpy}


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("scale", [None, 0.7])
def test_the_loop_is_the_numpy_reference(name, scale):
    given = arguments_of(name, "k3", 9)
    o, state = OPERATORS[name][0](*given.values(), scale=scale)
    want_o, want_state = NUMPY[name](*(x.numpy() for x in given.values()), scale=scale)
    assert relative_error(o, torch.from_numpy(want_o)) <= 1e-13
    assert relative_error(state, torch.from_numpy(want_state)) <= 1e-13


def test_scalar_decay_is_its_sum():
    """o_t = sum_(s <= t) e^(g_(s+1) + ... + g_t) (q_t . k_s) v_s / sqrt(K), and the state that was there before."""
    q, k, v, g, state = arguments_of("scalar_decay", "k3", 7).values()
    want = torch.zeros_like(v)
    for t in range(7):
        for s in range(t + 1):
            fade = g[:, s + 1:t + 1].sum(1).exp()
            want[:, t] += (fade * (q[:, t] * k[:, s]).sum(-1)).unsqueeze(-1) * v[:, s]
        want[:, t] += g[:, :t + 1].sum(1).exp().unsqueeze(-1) * torch.einsum("bhk,bhkv->bhv", q[:, t], state)
    o, _ = OPERATORS["scalar_decay"][0](q, k, v, g, state)
    assert relative_error(o, want / math.sqrt(5)) <= 1e-13


def test_delta_step_is_the_numpy_reference():
    from k3_scratch.baselines.delta_net import delta_step
    given = kda_arguments("mild", 2)
    parts = [given["state"], given["k"][:, 1], given["v"][:, 1], given["beta"][:, 1]]
    assert relative_error(delta_step(*parts), torch.from_numpy(delta_step_numpy(*(x.numpy() for x in parts)))) <= 1e-14


@ALL
@REGIMES
def test_chunks_equal_the_loop(name, regime):
    """Values and gradients to 1e-9 in float64; in float32 values to 1e-5 and gradients to 1e-4 of their largest."""
    recurrent, chunked, _ = OPERATORS[name]
    for T, chunks in ((1, (None,)), (7, (1, 3)), (65, (16, None))):
        given = arguments_of(name, regime, T)
        want = values_and_gradients(recurrent, given)
        for chunk in chunks:
            got = values_and_gradients(chunked, given, chunk=chunk)
            single = values_and_gradients(chunked, given, torch.float32, chunk=chunk)
            largest = max(x.abs().max().item() for key, x in want.items() if key.startswith("d"))
            for key, x in want.items():
                assert relative_error(got[key], x) <= 1e-9, (T, chunk, key)
                # a gradient of g that is nearly zero, where nearly all is forgotten, is held against the largest one
                size = x.abs().max().item()
                bound = 1e-5 if key in ("o", "state") else 1e-4
                negligible = key == "dg" and size < 1e-6 * largest
                assert relative_error(single[key], x) * size <= bound * (largest / 100 if negligible else size), key


@ALL
@pytest.mark.parametrize("form", [0, 1])
def test_documents_clear_the_state(name, form):
    """Packed documents give the same as each alone; only the first goes on from the state; numbers may come back."""
    given = arguments_of(name, "mild", 41)
    lengths, numbers = [1, 17, 3, 20], [7, 2, 7, 0]
    documents = torch.tensor(np.repeat(numbers, lengths)).expand(2, -1)
    o, state = OPERATORS[name][form](*given.values(), documents=documents)
    start = 0
    for length in lengths:
        part = [x[:, start:start + length] for key, x in given.items() if key != "state"]
        alone, last = OPERATORS[name][0](*part, given["state"] if start == 0 else None)
        assert relative_error(o[:, start:start + length], alone) <= 1e-12
        start += length
    assert relative_error(state, last) <= 1e-12


@ALL
def test_gradients_across_documents(name):
    """Of chunks and of the loop alike, and none flows from one document into another."""
    documents, given = torch.tensor([[0] * 6 + [1] * 18, [0] * 20 + [1] * 4]), arguments_of(name, "mild", 24)
    want, got = (values_and_gradients(form, given, documents=documents) for form in OPERATORS[name][:2])
    for key, x in want.items():
        assert relative_error(got[key], x) <= 1e-10, key
    v = given["v"].detach().clone().requires_grad_()
    o, _ = OPERATORS[name][1](*{**given, "v": v}.values(), documents=documents)
    o[0, 6:].sum().backward()
    assert (v.grad[0, :6] == 0).all() and v.grad[0, 6:].abs().min() > 0


@ALL
def test_empty_and_low_precision(name):
    for form in OPERATORS[name][:2]:
        given = arguments_of(name, "mild", 0)
        o, state = form(*given.values())
        assert o.shape == (2, 0, 3, 4) and torch.equal(state, given["state"])
        given = {key: x.bfloat16() for key, x in arguments_of(name, "mild", 33).items()}
        o, state = form(*given.values())
        assert o.dtype == torch.bfloat16 and state.dtype == torch.float32
        want, _ = OPERATORS[name][0](*(x.double() for x in given.values()))
        assert relative_error(o, want) <= 2 ** -8                        # one rounding, of the result


# ---- the limits

@REGIMES
def test_kda_with_equal_gates_is_the_gated_delta_rule(regime):
    given = arguments_of("gated_delta", regime, 19)
    channels = {**given, "g": given["g"].unsqueeze(-1).expand_as(given["k"])}
    _equal(kda_recurrent, channels, OPERATORS["gated_delta"][0], given)


def test_without_decay_it_is_the_delta_rule():
    given = arguments_of("delta", "k3", 19)
    q, k, v, beta, state = given.values()
    none = {"q": q, "k": k, "v": v, "g": torch.zeros_like(k), "beta": beta, "state": state}
    _equal(kda_recurrent, none, OPERATORS["delta"][0], given)
    _equal(OPERATORS["gated_delta"][0], {**none, "g": torch.zeros_like(beta)}, OPERATORS["delta"][0], given)


@pytest.mark.parametrize("form", [0, 1])
def test_without_erasing_it_is_scalar_decay(form):
    """Keys that are orthogonal to each other hold nothing of each other: there is nothing to erase."""
    given = kda_arguments("mild", 5)
    rng = np.random.default_rng(8)
    k = torch.from_numpy(np.linalg.qr(rng.normal(size=(2, 3, 5, 5)))[0]).permute(0, 2, 1, 3)     # rows orthonormal
    g, v = given["g"][..., 0], given["beta"].unsqueeze(-1) * given["v"]
    kda = kda_recurrent(given["q"], k, given["v"], g.unsqueeze(-1).expand_as(k), given["beta"])
    decayed = OPERATORS["scalar_decay"][form](given["q"], k, v, g)
    for got, want in zip(decayed, kda, strict=True):
        assert relative_error(got, want) <= 1e-13
    added = OPERATORS["linear_attention"][form](given["q"], k, v)
    delta = OPERATORS["delta"][form](given["q"], k, given["v"], given["beta"])
    for got, want in zip(added, delta, strict=True):
        assert relative_error(got, want) <= 1e-13
    other = unit(normal(rng, 2, 5, 3, 5))                                # with other keys they do part
    assert relative_error(OPERATORS["scalar_decay"][form](given["q"], other, v, g)[0],
                          OPERATORS["gated_delta"][form](given["q"], other, given["v"], g, given["beta"])[0]) > 0.05


@pytest.mark.parametrize("form", [0, 1])
def test_decay_0_is_linear_attention(form):
    given = arguments_of("linear_attention", "none", 37)
    q, k, v, state = given.values()
    decayed = OPERATORS["scalar_decay"][form](q, k, v, torch.zeros(2, 37, 3), state)
    for got, want in zip(decayed, OPERATORS["linear_attention"][0](*given.values()), strict=True):
        assert relative_error(got, want) <= 1e-13


def _equal(function, given, other, others):
    """Values, and gradients of what both take alike."""
    got, want = values_and_gradients(function, given), values_and_gradients(other, others)
    for key in want:
        if got.get(key) is not None and got[key].shape == want[key].shape:
            assert relative_error(got[key], want[key]) <= 1e-11, key
    if "dg" in want:
        summed = got["dg"].sum(-1) if got["dg"].dim() > want["dg"].dim() else got["dg"]
        assert relative_error(summed, want["dg"]) <= 1e-9


# ---- softmax attention and positions

def attention_arguments(T, S, seed=0):
    rng = np.random.default_rng(seed)
    return normal(rng, 2, T, 3, 6), normal(rng, 2, S, 3, 6), normal(rng, 2, S, 3, 5)


@pytest.mark.parametrize("window", [None, 1, 2, 5, 11, 40])
@pytest.mark.parametrize(("T", "S"), [(1, 1), (11, 11), (1, 11), (4, 11)])
def test_attention_is_its_definition(T, S, window):
    q, k, v = attention_arguments(T, S)
    mask = torch.from_numpy(np.random.default_rng(1).uniform(size=(2, T, S)) < 0.6)
    for given in (None, mask):
        want = torch.zeros(2, T, 3, 5, dtype=torch.float64)
        for t in range(T):
            here = S - T + t
            for b in range(2):
                seen = [s for s in range(here + 1) if (window is None or here - s < window)
                        and (given is None or given[b, t, s] or s == here)]
                for h in range(3):
                    share = torch.softmax(k[b, seen, h] @ q[b, t, h] / math.sqrt(6), 0)
                    want[b, t, h] = share @ v[b, seen, h]
        assert relative_error(softmax_attention(q, k, v, mask=given, window=window), want) <= 1e-12


def test_a_window_as_long_as_the_text_is_full_attention():
    q, k, v = attention_arguments(9, 9)
    full = softmax_attention(q, k, v)
    for window in (9, 10, 1000):
        assert torch.equal(softmax_attention(q, k, v, window=window), full)
    assert relative_error(softmax_attention(q, k, v, window=8), full) > 1e-3
    assert torch.equal(softmax_attention(q, k, v, window=1), v)


def test_impossible_attention_is_refused():
    q, k, v = attention_arguments(4, 3)
    with pytest.raises(ValueError, match="T = 4 tokens, more than the S = 3"):
        softmax_attention(q, k, v)
    with pytest.raises(ValueError, match="window must be at least 1, but 0 came"):
        softmax_attention(k, k, v, window=0)
    with pytest.raises(ValueError, match="even number of channels K, but 5"):
        rope(v, torch.arange(3))


def test_only_distances_count_for_rope():
    x, y, _ = attention_arguments(8, 8)

    def scores(start, theta=10_000.0):
        positions = torch.arange(start, start + 8)
        return torch.einsum("bthk,bshk->bhts", rope(x, positions, theta), rope(y, positions, theta))

    assert relative_error(scores(1000), scores(0)) <= 1e-10
    assert relative_error(scores(0, theta=10.0), scores(0)) > 1e-2       # the base matters
    still = rope(x, torch.zeros(8, dtype=torch.int64))
    assert torch.equal(still, x)
    turned = rope(x, torch.arange(8))
    assert relative_error(turned.norm(dim=-1), x.norm(dim=-1)) <= 1e-14
    quarter = rope(torch.tensor([[[[1.0, 0.0]]]], dtype=torch.float64), torch.tensor([math.pi / 2]))
    assert relative_error(quarter, torch.tensor([[[[0.0, 1.0]]]], dtype=torch.float64)) <= 1e-7  # positions float32
