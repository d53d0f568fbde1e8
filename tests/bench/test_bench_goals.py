"""Rows against their goals, the numbers of the goals, and the formula of the limit."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from k3_scratch.bench.gemm import counted_flops, kda_flops
from k3_scratch.bench.goals import GOALS, NO_GOAL, Goal, Row
from k3_scratch.bench.harness import Ratio
from k3_scratch.bench.inputs import GATE_CASES, Shape, kda_inputs, scalar_gates, spread_gates
from k3_scratch.bench.plan import FULL, QUICK
from k3_scratch.bench.report import missed_targets


@pytest.mark.parametrize(("value", "direction", "floor", "target"), [
    (9.0, ">=", False, False), (10.0, ">=", True, False), (9.996, ">=", True, False), (15.0, ">=", True, True),
    (9.94, ">=", False, False), (math.inf, ">=", False, False), (math.nan, ">=", False, False),
    (16.0, "<=", False, False), (15.0, "<=", False, True), (9.9, "<=", True, True), (math.inf, "<=", False, False),
])
def test_met_or_not(value, direction, floor, target):
    row = Row("name", value, Goal(10, 15, direction))
    assert (row.met_floor, row.met_target) == (floor, target)


def test_rows_without_goals_and_small_numbers():
    row = Row("name", 3.0)
    assert row.goal == NO_GOAL and row.met_floor is None and row.met_target is None
    assert Row("name", 2.004e-6, GOALS["accuracy, forward"]).met_target
    assert not Row("name", 2.1e-6, GOALS["accuracy, forward"]).met_target
    assert Row("name", 1.004, GOALS["slope in T"]).met_target and not Row("name", 1.01, GOALS["slope in T"]).met_target


def test_row_as_plain_values():
    row = Row.of("name", Ratio(4.0, np.array([3.0, 4.0, 5.0])), Goal(5, None), note="why")
    assert row.to_dict() == {"name": "name", "floor": 5, "target": None, "direction": ">=", "value": 4.0, "low": 3.5,
                             "high": 4.5, "unit": "x", "met_floor": False, "met_target": None, "met": False,
                             "note": "why"}
    assert Row("name", 3.0, Goal(None, 2.0)).to_dict()["met"] is True and Row("name", 3.0).to_dict()["met"] is None
    assert Row("name", math.inf).to_dict()["value"] is None


def test_the_goals():
    """The numbers that the benchmark was asked for, once more by hand."""
    assert {name: (goal.floor, goal.target, goal.direction) for name, goal in GOALS.items()} == {
        "forward over transformers": (10, None, ">="), "forward over transformers, median": (10, 15, ">="),
        "forward over fla": (8, 11, ">="), "forward over the token loop": (4, 5, ">="),
        "training over transformers": (8, 15, ">="), "over the gated delta rule": (1.3, 1.0, "<="),
        "over the GEMM limit": (6, 3.5, "<="), "slope in T": (1.1, 1.0, "<="),
        "accuracy, forward": (1e-5, 2e-6, "<="), "accuracy, gradients": (1e-4, 1e-5, "<="),
        "decode at long context": (1.15, 1.0, "<="), "training step over the token loop": (2, 2.5, ">="),
        "training step over its floor": (None, 2.5, "<="), "decode with cache": (3, None, ">=")}


def test_the_full_plan_measures_what_the_goals_speak_of():
    assert [str(shape) for shape in FULL.forward] == [
        "1,256,4,64,64", "8,128,4,32,32", "1,1024,4,64,64", "1,4096,4,64,64", "1,16384,2,64,64", "1,2048,8,128,128"]
    assert sum(FULL.fla_widest >= shape.K for shape in FULL.forward) == 5
    assert len(FULL.training) == 3 and all(shape.T <= 1024 for shape in FULL.training)
    assert (str(FULL.token_loop), str(FULL.limit)) == ("1,1024,2,64,64", "1,1024,4,64,64")
    assert (FULL.lengths[0], FULL.lengths[-1], FULL.kda_contexts) == (256, 4096, (1024, 131072))
    assert FULL.rounds >= 5 and QUICK.rounds == 3
    assert all(shape.T % 64 == 0 for shape in FULL.forward)
    changed = {f.name for f in dataclasses.fields(FULL) if getattr(FULL, f.name) != getattr(QUICK, f.name)}
    assert "limit" not in changed and "forward" in changed


def test_flops_by_hand():
    """Every product of a chunk of 32 tokens, one after the other, 2 FLOPs a multiply-add."""
    C, K, V = 32, 5, 7
    products = [
        2 * C * C * K, 2 * C * C * K,                   # the two tiles
        C * C * (K + V),                                # triangular solve: half of a product
        2 * C * C * V,                                  # tile times what was written
        2 * C * K * V, 2 * C * K * V, 2 * C * K * V,    # W S, q S, k^T V~
    ]
    assert kda_flops(Shape(3, 64, 2, K, V)) == 3 * 2 * (64 // C) * sum(products)
    assert kda_flops(Shape(3, 64, 2, K, V), training=True) == 3 * kda_flops(Shape(3, 64, 2, K, V))


def test_counted_flops():
    a, b = torch.randn(3, 5), torch.randn(5, 7)
    assert counted_flops(lambda: a @ b) == 2 * 3 * 5 * 7
    q, k, v = torch.randn(2, 3, 8, 4), torch.randn(2, 3, 8, 4), torch.randn(2, 3, 8, 4)

    def attention(*x):
        return torch.nn.functional.scaled_dot_product_attention(*x, is_causal=True)
    products = 2 * 2 * 3 * 8 * 8 * 4                    # one product of scores or values
    assert counted_flops(lambda: attention(q, k, v)) == 2 * products
    leaves = [x.requires_grad_() for x in (q, k, v)]
    assert counted_flops(lambda: attention(*leaves).sum().backward()) == 7 * products


def test_counted_flops_of_the_grouped_product():
    x, w = torch.randn(6, 8, requires_grad=True), torch.randn(2, 8, 4, requires_grad=True)
    ends = torch.tensor([2, 6], dtype=torch.int32)
    assert counted_flops(lambda: torch._grouped_mm(x, w, offs=ends)) == 2 * 6 * 8 * 4
    both = counted_flops(lambda: torch._grouped_mm(x, w, offs=ends).backward(torch.randn(6, 4)))
    assert both == 3 * 2 * 6 * 8 * 4


def test_seven_gate_cases():
    assert GATE_CASES == ("mild", "K3-like", "mixed 0/-5", "all -5", "unbounded to -60", "g = 0", "same key")
    shape = Shape(2, 300, 2, 8, 6)
    gates = {case: kda_inputs(shape, case)[3] for case in GATE_CASES}
    assert all((g <= 0).all() and g.shape == (2, 300, 2, 8) for g in gates.values())
    assert gates["mild"].min() > -0.1 and -5 < gates["K3-like"].min() < -4
    assert set(gates["mixed 0/-5"].unique().tolist()) == {-5, 0}
    assert (gates["all -5"] == -5).all() and (gates["g = 0"] == 0).all()
    assert -60 < gates["unbounded to -60"].min() < -40
    k = kda_inputs(shape, "same key")[1]
    assert torch.equal(k, k[:, :1].expand_as(k))
    with pytest.raises(KeyError):
        kda_inputs(shape, "wild")


def test_inputs():
    q, k, v, g, beta = kda_inputs(Shape(2, 9, 3, 5, 4))
    assert v.shape == (2, 9, 3, 4) and beta.shape == (2, 9, 3) and {x.dtype for x in (q, k, v, g, beta)} == {
        torch.float32}
    assert torch.allclose(q.norm(dim=-1), torch.ones(2, 9, 3)) and torch.allclose(k.norm(dim=-1), torch.ones(2, 9, 3))
    assert beta.min() > 0 and beta.max() < 1
    assert all(torch.equal(a, b) for a, b in zip((q, k, v, g, beta), kda_inputs(Shape(2, 9, 3, 5, 4)), strict=True))
    one = scalar_gates((q, k, v, g, beta))
    assert one[3].shape == (2, 9, 3) and spread_gates(one)[3].shape == g.shape
    assert torch.equal(spread_gates(one)[3][..., 4], g[..., 0])


def test_a_missed_target_says_why():
    goal = Goal(2, 3, why="walls")
    assert Row("name", 2.5, goal, note="sized").remark == "sized; why not the target: walls"
    assert Row("name", 3.5, goal, note="sized").remark == "sized"
    assert missed_targets([Row("one", 2.5, goal), Row("two", 3.5, goal), Row("three", 2.5)]) == ["one: walls"]
