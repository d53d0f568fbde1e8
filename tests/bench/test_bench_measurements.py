"""Every measurement on the smallest plan: its rows, its arrays, and that a wrong contender stops it."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import k3_scratch.layers.kda_attention as kda_layer
from k3_scratch.bench import against_peers, chunk_error, dispatch, time_against_length
from k3_scratch.bench.breakdown import mixes
from k3_scratch.bench.dispatch import FORMS, moe_inputs
from k3_scratch.bench.inputs import Shape, kda_inputs
from k3_scratch.bench.training_step import TrainingStep, token_loop
from k3_scratch.bench.truth import Disagreement, check_gradients, check_output, relative_error, true_output
from k3_scratch.layers.experts import expert_mixture
from k3_scratch.layers.kda import kda_recurrent
from k3_scratch.model import K3


def names(measured):
    return [row.name for row in measured.rows]


def test_every_row_is_a_finite_number_with_quartiles_in_order(measured):
    for result in measured.values():
        assert result.rows
        for row in result.rows:
            assert math.isfinite(row.value) and row.value > 0 or "slope" in row.name
            assert row.low is None or row.low <= row.high
    rows = [row.name for result in measured.values() for row in result.rows]
    assert len(set(rows)) == len(rows)


def test_rows_against_peers(measured):
    assert names(measured["forward"]) == [
        "forward over transformers, 1,20,2,8,8", "forward over transformers, 2,8,1,4,6",
        "forward over transformers, median of 2",
        "forward over fla, 2,8,1,4,6",                  # the other shape is wider than fla_widest
        "forward, time over gated delta rule, 1,20,2,8,8", "forward, time over gated delta rule, 2,8,1,4,6",
        "forward, time over gated delta rule, median of 2"]
    assert names(measured["training"]) == ["fwd+bwd over transformers, 1,20,2,8,8",
                                           "fwd+bwd, time over gated delta rule, 1,20,2,8,8"]
    goals = [(row.goal.floor, row.goal.target) for row in measured["forward"].rows]
    assert goals == [(10, None), (10, None), (10, 15), (8, 11), (1.3, 1.0), (1.3, 1.0), (1.3, 1.0)]
    assert "errors: ours" in measured["forward"].rows[0].note


def test_the_directions_of_the_ratios(measured):
    """A peer's row is its time over ours; the gated delta rule's is ours over its."""
    entry = measured["forward"].arrays["forward"][1]
    times = entry["milliseconds"]
    by_name = {row.name: row.value for row in measured["forward"].rows}
    assert by_name["forward over fla, 2,8,1,4,6"] == pytest.approx(times["fla"] / times["k3_scratch"])
    assert by_name["forward, time over gated delta rule, 2,8,1,4,6"] == pytest.approx(
        times["k3_scratch"] / times["gated delta rule"])
    assert max(entry["errors"].values()) < 1e-5


def test_the_other_rows(measured):
    assert names(measured["limit"]) == ["forward over the GEMM limit, 1,20,2,8,8",
                                        "fwd+bwd over the GEMM limit, 1,20,2,8,8"]
    assert len(measured["limit"].gemm) == len(measured["training_step"].gemm) == 2
    assert names(measured["time"]) == ["forward, slope in T, 8 to 32", "fwd+bwd, slope in T, 8 to 32"]
    assert [row.goal.floor for row in measured["accuracy"].rows] == [1e-5, 1e-4]
    assert all(row.met_floor and "all finite" in row.note for row in measured["accuracy"].rows)
    assert names(measured["kda_decode"]) == ["KDA decode step at context 33 over 8"]
    assert measured["training_step"].arrays["training_step"]["flops"] > 1e6


def test_arrays(measured, tiny):
    time = measured["time"].arrays["time"]
    assert set(time["forward"]) == {"k3_scratch", "token loop", "transformers", "fla", "gated delta rule",
                                    "softmax attention"}
    assert len(time["fwd+bwd"]["k3_scratch"]["milliseconds"]) == 3
    decode = measured["mla_decode"].arrays["decode"]
    assert decode["bytes"] == {"KDA": [2 * 4 * 4 * 4] * 2, "MLA, absorbed": [8 * 8 * 4, 32 * 8 * 4],
                               "MLA, expanded cache": [8 * 2 * 8 * 4, 32 * 2 * 8 * 4]}
    assert decode["microseconds"]["MLA, expanded anew"][1] is None
    assert set(measured["dispatch"].arrays["moe"]["milliseconds"]) == set(FORMS)
    assert list(measured["breakdown"].arrays["step"]["milliseconds"]) == [
        "data", "KDA", "MLA", "MoE", "dense", "depth mixes", "norms, head, loss", "optimiser", "balancing"]
    assert list(measured["accuracy"].arrays["accuracy"]["gradients"]["all -5"]) == ["q", "k", "v", "g", "beta"]


def test_where_the_splits_overflow(measured):
    error = measured["chunk_error"].arrays["error"]
    assert error["chunks"] == [4, 16, 32, 64]
    finite = {name: [e is not None and e < 1e-5 for e in line] for name, line in error["errors"].items()}
    assert finite == {"split at the start": [True, True, False, False], "centred": [True, True, True, False],
                      "dyadic": [True, True, True, True]}


@pytest.mark.parametrize("tile", chunk_error.TILES.values())
@pytest.mark.parametrize("C", [1, 3, 8, 12])
def test_the_small_chunk_form_is_kda(tile, C):
    inputs = kda_inputs(Shape(2, 20, 2, 5, 3))
    assert relative_error(chunk_error.chunk_form(*inputs, tile, C), true_output(inputs)) < 1e-6


@pytest.mark.parametrize("who", ["kda", "fla", "gated_delta"])
def test_a_peer_that_computes_something_else_raises(tiny, own_peers, who):
    right = getattr(own_peers, who)
    wrong = dataclasses.replace(own_peers, **{who: lambda q, k, v, g, beta: right(q, k, v, g, 0.99 * beta)})
    with pytest.raises(Disagreement, match="computes something else on .*error against the float64 token loop"):
        against_peers.measure_forward(tiny, wrong)
    if who != "fla":
        with pytest.raises(Disagreement):
            against_peers.measure_training(tiny, wrong)


def test_a_peer_with_wrong_gradients_raises(tiny, own_peers):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, d):
            return 2 * d
    wrong = dataclasses.replace(own_peers, kda=lambda q, *rest: own_peers.kda(Twice.apply(q), *rest))
    with pytest.raises(Disagreement, match="the gradients of 1,20,2,8,8"):
        against_peers.measure_training(tiny, wrong)


def test_errors_that_are_not_numbers():
    want = torch.ones(3, dtype=torch.float64)
    assert relative_error(torch.tensor([1.0, math.nan, 1.0]), want) == math.inf
    assert relative_error(torch.ones(2), want) == math.inf
    assert relative_error(torch.tensor([0.5, 0.0]), torch.zeros(2)) == 0.5
    assert relative_error(torch.tensor([1.0, 1.0, 1.5]), want) == 0.5
    with pytest.raises(Disagreement, match="nobody computes something else on here: .* inf"):
        check_output("nobody", "here", torch.full((3,), math.nan), want)
    with pytest.raises(ValueError, match="zip"):
        check_gradients("nobody", "here", [want], [want, want])


def test_the_token_loop_is_swapped_in_and_back():
    chunked = kda_layer.kda_chunk
    with pytest.raises(KeyError), token_loop():
        assert kda_layer.kda_chunk is kda_recurrent
        raise KeyError
    assert kda_layer.kda_chunk is chunked is not kda_recurrent


def test_a_step_trains(tiny):
    step = TrainingStep(tiny)
    before = [p.clone() for p in step.model.parameters()]
    losses = [step() for _ in range(3)]
    assert np.isfinite(losses).all() and step.step == 3
    moved = [not torch.equal(p, old) for p, old in zip(step.model.parameters(), before, strict=True)]
    assert sum(moved) > len(moved) / 2 and all(p.grad is None for p in step.model.parameters())
    with token_loop():
        again = TrainingStep(tiny)
        assert [again() for _ in range(3)] == pytest.approx(losses, rel=1e-3)


def test_the_depth_mixes_are_those_of_the_model(tiny, monkeypatch):
    """With sublayers that return their input, the model is nothing but its mixes."""
    model = K3(tiny.model)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(parameter.numel()))
    tokens = torch.arange(6).unsqueeze(0)
    for layer in model.layers:
        monkeypatch.setattr(layer, "attend", lambda x, *_: x)
        monkeypatch.setattr(layer, "feed_forward", lambda x, mask: x)
    with torch.no_grad():
        assert torch.allclose(model.norm(mixes(model, model.embed_tokens(tokens))), model.hidden(tokens), atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_every_dispatch_is_the_layer(tiny, form):
    (z, weights, w1, w3, w2), experts = moe_inputs(tiny, 6)
    want = expert_mixture(z, experts, weights, w1, w3, w2, dispatch.act)
    assert torch.allclose(FORMS[form](z, weights, w1, w3, w2, experts), want, atol=1e-5)


def test_softmax_attention_has_no_gates():
    q, k, v, g, beta = kda_inputs(Shape(1, 6, 2, 4, 4))
    o = time_against_length.attention(q, k, v, g, beta)
    assert o.shape == v.shape and torch.allclose(o[:, 0], v[:, 0])
