"""KDA: the chunk form against the token loop, gradients, documents, segments, and mistakes that must be noticed."""

from functools import cache

import numpy as np
import pytest
import torch
from torch_helpers import NAMES, REGIMES, kda_arguments, normal, relative_error, values_and_gradients

from k3_scratch.layers.kda import kda_chunk, kda_recurrent
from k3_scratch.layers.kda_scan import kda_scan
from k3_scratch.layers.kda_solve import kda_solve
from k3_scratch.layers.kda_tiles import fits_centred
from k3_scratch.reference.delta_rule_backward import delta_recurrent_backward
from k3_scratch.reference.kda_backward import kda_recurrent_backward

LENGTHS = (0, 1, 2, 15, 16, 17, 63, 64, 65, 200)
CHUNKS = (1, 3, 16, 20, 31, 32, 64, None)
BOTH = pytest.mark.parametrize("form", [kda_recurrent, kda_chunk])


@cache
def truth(regime, T):
    """The token loop in float64: equal to the NumPy reference, see test_layers_twins.py."""
    return values_and_gradients(kda_recurrent, kda_arguments(regime, T))


def check(got, want, dtype, which):
    """Values to 1e-5 and gradients to 1e-4 of their largest number in float32, all to 1e-10 in float64.

    A gradient that is nearly zero (that of g, where nearly all is forgotten) is held against the largest gradient: the
    rounding of terms that cancel cannot be smaller than they are.
    """
    largest = max(want["d" + name].abs().max().item() if want["d" + name].numel() else 0.0 for name in NAMES)
    for name, value in got.items():
        assert value.dtype == dtype
        truth_part = want[name]
        error = relative_error(value, truth_part)
        bound = 1e-10 if dtype == torch.float64 else 1e-5 if name in ("o", "state") else 1e-4
        size = truth_part.abs().max().item() if truth_part.numel() else 0.0
        negligible = name == "dg" and size < 1e-6 * largest and error * size <= bound / 100 * largest
        assert error <= bound or negligible, (which, name, error, size, largest)


@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize("regime", REGIMES)
def test_float32_chunks_equal_the_token_loop(regime, T):
    want, arguments = truth(regime, T), kda_arguments(regime, T)
    chunks = CHUNKS if T < 200 else (3, 32, 64, None)
    check(values_and_gradients(kda_recurrent, arguments, torch.float32), want, torch.float32, "token loop")
    for chunk in chunks:
        check(values_and_gradients(kda_chunk, arguments, torch.float32, chunk=chunk), want, torch.float32, chunk)


@pytest.mark.parametrize("T", [1, 7, 65])
@pytest.mark.parametrize("regime", REGIMES)
def test_float64_chunks_equal_the_token_loop(regime, T):
    want, arguments = truth(regime, T), kda_arguments(regime, T)
    for chunk in (1, 3, 16, 64, None):
        check(values_and_gradients(kda_chunk, arguments, chunk=chunk), want, torch.float64, chunk)


@pytest.mark.parametrize("sizes", [{"B": 1, "H": 1, "K": 1, "V": 1}, {"B": 3, "H": 2, "K": 1, "V": 6},
                                   {"B": 1, "H": 4, "K": 9, "V": 1},
                                   {"B": 9, "H": 4, "K": 3, "V": 2}, {"B": 2, "H": 1, "K": 48, "V": 40}], ids=str)
def test_other_sizes(sizes):
    for regime in ("k3", "unbounded", "repeated"):
        arguments = kda_arguments(regime, 37, **sizes)
        want = values_and_gradients(kda_recurrent, arguments)
        for chunk in (None, 5, 40):
            got = values_and_gradients(kda_chunk, arguments, torch.float32, chunk=chunk)
            check(got, want, torch.float32, (regime, chunk))


def test_every_split_of_a_chunk_that_the_floor_allows():
    """All gates at -5: the largest exponents that the plain matrix products of a chunk ever meet."""
    want, arguments = truth("floor", 65), kda_arguments("floor", 65)
    for chunk in range(1, 65):
        check(values_and_gradients(kda_chunk, arguments, torch.float32, chunk=chunk), want, torch.float32, chunk)


@BOTH
def test_without_a_state_it_starts_at_zero(form):
    arguments = kda_arguments("k3", 21)
    zero = {**arguments, "state": torch.zeros_like(arguments["state"])}
    none = {name: x for name, x in arguments.items() if name != "state"}
    want, got = values_and_gradients(form, zero), values_and_gradients(form, none)
    for name in got:
        assert relative_error(got[name], want[name]) <= 1e-14


@BOTH
def test_inputs_are_never_modified(form):
    arguments = kda_arguments("k3", 21)
    before = {name: x.clone() for name, x in arguments.items()}
    o, state = form(*arguments.values())
    o.zero_(), state.zero_()
    assert all(torch.equal(arguments[name], before[name]) for name in before)


@BOTH
@pytest.mark.parametrize("regime", ["mild", "k3", "repeated"])
def test_gradcheck(form, regime):
    arguments = kda_arguments(regime, 4, B=2, H=1, K=3, V=2)
    leaves = [x.requires_grad_() for x in arguments.values()]
    keywords = {"chunk": 3} if form is kda_chunk else {}
    assert torch.autograd.gradcheck(lambda *x: form(*x, **keywords), leaves)


def test_gradcheck_over_documents():
    documents = torch.tensor([[0, 0, 1, 1, 1], [3, 2, 2, 2, 3]])
    leaves = [x.requires_grad_() for x in kda_arguments("k3", 5, B=2, H=1, K=3, V=2).values()]
    assert torch.autograd.gradcheck(lambda *x: kda_chunk(*x, chunk=2, documents=documents), leaves)


@BOTH
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("scale", [None, 1.3])
def test_the_backward_pass_by_hand(form, regime, scale):
    arguments = kda_arguments(regime, 17)
    rng = np.random.default_rng(5)
    do, dstate = rng.normal(size=arguments["v"].shape), rng.normal(size=arguments["state"].shape)
    want = kda_recurrent_backward(*(x.numpy() for x in arguments.values()), do, dstate, scale=scale)
    got = values_and_gradients(form, arguments, seed=5, scale=scale)
    for name, gradient in zip(("q", "k", "v", "g", "beta", "state"), want, strict=True):
        np.testing.assert_allclose(got["d" + name].numpy(), gradient, rtol=1e-10,
                                   atol=1e-10 * max(1, np.abs(gradient).max()))


@BOTH
@pytest.mark.parametrize("regime", ["none", "repeated"])
def test_the_backward_pass_of_the_delta_rule_by_hand(form, regime):
    arguments = kda_arguments(regime, 19)
    arguments["g"] = torch.zeros_like(arguments["g"])
    rng = np.random.default_rng(5)
    do, dstate = rng.normal(size=arguments["v"].shape), rng.normal(size=arguments["state"].shape)
    q, k, v, _, beta, state = (x.numpy() for x in arguments.values())
    want = delta_recurrent_backward(q, k, v, beta, state, do, dstate)
    got = values_and_gradients(form, arguments, seed=5)
    for name, gradient in zip(("q", "k", "v", "beta", "state"), want, strict=True):
        np.testing.assert_allclose(got["d" + name].numpy(), gradient, rtol=1e-10, atol=1e-10)


# --- the parts of the chunk form ---

def scan_arguments(rng, N=4, M=6, C=5, K=3, V=2):
    solved = torch.cat([normal(rng, N, M, C, K) / 3, normal(rng, N, M, C, V)], -1)
    return (solved, normal(rng, N, M, C, K) / 3, torch.from_numpy(rng.uniform(size=(N, M, K))),
            normal(rng, M, K, V))


def test_scan_is_a_plain_loop():
    solved, K_end, through, state = scan_arguments(np.random.default_rng(0))
    states, written, last = kda_scan(solved, K_end, through, state)
    W, U = solved.split([3, 2], -1)
    for n in range(4):
        assert relative_error(states[n], state) <= 1e-14
        new = U[n] - W[n] @ state
        assert relative_error(written[n], new) <= 1e-14
        state = through[n].unsqueeze(-1) * state + K_end[n].mT @ new
    assert relative_error(last, state) <= 1e-14


def test_gradcheck_of_the_scan():
    leaves = [x.requires_grad_() for x in scan_arguments(np.random.default_rng(1), N=3, M=2, C=4, K=5)]
    assert torch.autograd.gradcheck(kda_scan, leaves)
    for used in range(3):                                                        # a loss that reads one result only
        assert torch.autograd.gradcheck(lambda *x, used=used: kda_scan(*x)[used], leaves)


def test_solve():
    """Below the diagonal is all that is read, inputs stay as they are, and the gradient is right."""
    rng = np.random.default_rng(2)
    L, k_in, beta, v = (torch.from_numpy(rng.normal(size=(2, 3, 4, 5, n))) for n in (5, 3, 1, 2))
    before = [x.clone() for x in (L, k_in, beta, v)]
    solved = kda_solve(L, k_in, beta, v)
    assert relative_error(solved + L.tril(-1) @ solved, torch.cat([k_in, beta * v], -1)) <= 1e-12
    assert all(torch.equal(x, y) for x, y in zip(before, (L, k_in, beta, v), strict=True))
    leaves = [x.requires_grad_() for x in (L, k_in, beta, v.transpose(0, 1).contiguous().transpose(0, 1))]
    assert torch.autograd.gradcheck(kda_solve, leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("regime", REGIMES)
def test_tiles_for_any_gate_serve_every_gate(monkeypatch, regime, dtype):
    """What is chosen for gates without a bound, used for all of them."""
    monkeypatch.setattr("k3_scratch.layers.kda_chunk.fits_centred", lambda g, C: False)
    want, arguments = truth(regime, 65), kda_arguments(regime, 65)
    for chunk in (1, 2, 13, 32, 64):
        check(values_and_gradients(kda_chunk, arguments, dtype, chunk=chunk), want, dtype, (regime, chunk))


def test_which_gates_fit_a_plain_product():
    floor = torch.full((2, 3, 32, 4), -5.0)
    assert fits_centred(floor, 32)
    assert not fits_centred(floor, 64)
    assert not fits_centred(floor * 4, 32)
    assert not fits_centred(torch.full((1, 1, 16, 1), -torch.inf), 16)
    assert fits_centred(torch.zeros(0, 16, 4), 16)


# --- documents and segments ---

DOCUMENTS = torch.tensor([[4] * 5 + [1] * 1 + [7] * 10 + [2] * 16 + [4] * 3, [0] * 17 + [1] * 15 + [0] * 2 + [5]])


def runs(row):
    """(start, end) of the stretches of equal numbers."""
    cuts = [0, *(t for t in range(1, len(row)) if row[t] != row[t - 1]), len(row)]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


@pytest.mark.parametrize("regime", ["mild", "k3", "unbounded", "none", "repeated", "floor"])
def test_packed_documents_equal_solo_runs(regime):
    arguments = kda_arguments(regime, 35)
    for form, chunk in [(kda_recurrent, None), *((kda_chunk, c) for c in (1, 3, 16, 20, 64, None))]:
        keywords = {} if form is kda_recurrent else {"chunk": chunk}
        o, last = form(*arguments.values(), documents=DOCUMENTS, **keywords)
        for b in range(2):
            for number, (start, end) in enumerate(runs(DOCUMENTS[b].tolist())):
                solo = [arguments[name][b:b + 1, start:end] for name in NAMES[:5]]
                want, state = kda_recurrent(*solo, arguments["state"][b:b + 1] if number == 0 else None)
                assert relative_error(o[b:b + 1, start:end], want) <= 1e-12, (chunk, b, number)
            assert relative_error(last[b:b + 1], state) <= 1e-12


@BOTH
def test_no_gradient_crosses_documents(form):
    arguments = {name: x.requires_grad_() for name, x in kda_arguments("mild", 35).items()}
    o, _ = form(*arguments.values(), documents=DOCUMENTS)
    start, end = runs(DOCUMENTS[0].tolist())[3]                                  # a document in the middle
    gradients = torch.autograd.grad(o[0, start:end].square().sum(), list(arguments.values()))
    for name, gradient in zip(NAMES, gradients, strict=True):
        if name == "state":
            assert (gradient == 0).all()
            continue
        assert (gradient[1] == 0).all()
        assert (gradient[0, :start] == 0).all()
        assert (gradient[0, end:] == 0).all()
        if name != "g":
            assert (gradient[0, start:end] != 0).any()


@pytest.mark.parametrize("regime", REGIMES)
def test_segments_compose(regime):
    arguments = kda_arguments(regime, 23)
    tokens, state = [arguments[name] for name in NAMES[:5]], arguments["state"]
    want, last = kda_recurrent(*tokens, state)
    for form in (kda_recurrent, kda_chunk):
        for cut in range(24):
            first, middle = form(*(x[:, :cut] for x in tokens), state)
            second, end = form(*(x[:, cut:] for x in tokens), middle)
            assert relative_error(torch.cat([first, second], 1), want) <= 1e-12
            assert relative_error(end, last) <= 1e-12


@BOTH
@pytest.mark.parametrize("regime", ["mild", "k3", "repeated"])
def test_a_segment_is_one_matrix_and_one_state(form, regime):
    """S_out = S_tilde + M S_in: what lets segments be computed apart and joined later."""
    arguments = kda_arguments(regime, 9, V=6)
    tokens, B, H, K, V = [arguments[name] for name in NAMES[:5]], 2, 3, 5, 6
    _, from_zero = form(*tokens)
    eye = torch.eye(K).double().expand(B, H, K, K)
    M = form(tokens[0], tokens[1], torch.zeros(B, 9, H, K).double(), tokens[3], tokens[4], eye)[1]
    _, want = form(*tokens, arguments["state"])
    assert want.shape == (B, H, K, V)
    assert relative_error(from_zero + M @ arguments["state"], want) <= 1e-12


# --- mistakes ---

def mistaken(kind, q, k, v, g, beta, state):
    """The token loop with one line wrong, as found in public code."""
    K, outputs, S = q.shape[-1], [], state
    if kind == "one scalar decay":
        g = g.mean(-1, keepdim=True).expand_as(g)
    if kind == "scale on k as well":
        k = k * K ** -0.5
    for t in range(q.shape[1]):
        q_t, k_t, v_t, alpha, b = q[:, t] * K ** -0.5, k[:, t], v[:, t], g[:, t].exp(), beta[:, t, :, None]
        before = S
        if kind == "read before write":
            outputs.append(torch.einsum("bhk,bhkv->bhv", q_t, S))
        if kind == "decay on the value axis":
            S = alpha.unsqueeze(-2) * S
        elif kind != "decay after the write":
            S = alpha.unsqueeze(-1) * S
        recalled = torch.einsum("bhk,bhkv->bhv", k_t, before if kind == "error from the undecayed state" else S)
        if kind == "no erase term":
            recalled = 0
        S = S + k_t.unsqueeze(-1) * (b * (v_t - recalled)).unsqueeze(-2)
        if kind == "decay after the write":
            S = alpha.unsqueeze(-1) * S
        if kind != "read before write":
            outputs.append(torch.einsum("bhk,bhkv->bhv", q_t, S))
    return torch.stack(outputs, 1)


MISTAKES = ("error from the undecayed state", "no erase term", "decay on the value axis", "read before write",
            "decay after the write", "one scalar decay", "scale on k as well")


@pytest.mark.parametrize("kind", ["none", *MISTAKES])
def test_our_regimes_notice_the_classic_mistakes(kind):
    """Relative error of the outputs, 64 tokens, K = V = 8, no state: a mistake may hide in one regime, not in all."""
    errors = {}
    for regime in ("strong", "gentle", "repeated"):
        arguments = kda_arguments(regime, 64, K=8, V=8)
        arguments["state"] = torch.zeros_like(arguments["state"])
        want, _ = kda_recurrent(*arguments.values())
        got = mistaken(kind, *arguments.values())
        errors[regime] = ((got - want).norm() / want.norm()).item()
    if kind == "none":                                                           # the loop itself is right
        assert max(errors.values()) < 1e-13
    else:
        assert max(errors["strong"], errors["gentle"]) > 0.15, errors
    if kind == "error from the undecayed state":                                 # why one regime is not enough
        assert errors["gentle"] < 0.06 < 0.15 < errors["strong"]
    if kind == "no erase term":
        assert errors["strong"] < 0.1 < 0.5 < errors["gentle"]
