"""The lab's trainer, its models, the task of lifetimes and the balancing rules."""

import dataclasses

import numpy as np
import pytest
import torch

from k3_scratch.lab.balancing import imbalance, loads, next_bias, sampling_error
from k3_scratch.lab.lifetimes_task import CLASSES, Lifetimes
from k3_scratch.lab.models import build_model
from k3_scratch.lab.recipe import Recipe, recipe_of
from k3_scratch.lab.trainer import evaluate, held_out, is_flat, make_optimizers, train, update
from k3_scratch.layers.router import route
from k3_scratch.reference.quantile_balancing import quantile_bias, quantile_bias_histogram
from k3_scratch.reference.sign_rule import sign_rule
from k3_scratch.tasks.batch import IGNORED
from k3_scratch.tasks.rewrite import Rewrite

TINY = {"hidden_size": 12, "kda_key_dim": 4, "kda_value_dim": 6, "intermediate_size": 16}
TASK = Rewrite(2, 3, 3, 2)


# ---- models and recipes

def test_arguments_go_where_they_belong():
    model = build_model({**TINY, "layers": "kda,attention_nope", "residual": "hyper", "streams": 2, "convolution": True,
                         "steps": 9, "learning_rate": 1.0}, 10, seed=3)
    assert model.mixers == ("kda", "attention_nope") and model.residual_name == "hyper" and model.residual.n == 2
    assert model.layers[1].self_attn.qkv_conv1d is not None and model.config.hidden_size == 12
    assert recipe_of({"hidden_size": 12, "batch_size": 5}, steps=7) == Recipe(steps=7, batch_size=5)


def test_an_option_that_no_part_here_has_is_left_out_and_a_foreign_one_refused():
    assert build_model({**TINY, "layers": "kda", "convolution": True, "streams": 3}, 10).mixers == ("kda",)
    with pytest.raises(ValueError, match="but 'convolutions' came"):
        build_model({**TINY, "convolutions": True}, 10)


def test_decays_start_between_a_thousandth_and_three_tenths():
    model = build_model({"layers": "kda,kda"}, 10)
    g = -5 * torch.sigmoid(torch.cat([layer.self_attn.dt_bias for layer in model.layers]))
    assert -0.32 < g.min() < -0.1 and -0.003 < g.max() < -0.0009


def test_the_rate_rises_falls_and_stays():
    recipe = Recipe(steps=100, learning_rate=1.0, warmup=10)
    rates = [recipe.rate(step) for step in range(130)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == 1.0 and max(rates) == 1.0
    assert rates[10:101] == sorted(rates[10:101], reverse=True) and rates[100:] == pytest.approx([0.1] * 30)


@pytest.mark.parametrize("kind", ["adamw", "muon", "head_muon"])
def test_every_optimizer_has_every_parameter_once_and_moves_it(kind):
    model = build_model({**TINY, "layers": "kda,mla", "ffn": "latent_moe", "first_k_dense": 1}, TASK.vocab_size)
    recipe = Recipe(optimizer=kind, batch_size=8, learning_rate=0.1, warmup=1)
    optimizers = make_optimizers(model, recipe)
    given = [id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    assert sorted(given) == sorted(id(p) for p in model.parameters())
    assert len(optimizers) == (1 if kind == "adamw" else 2)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    update(model, TASK, recipe, optimizers, 0, 0)
    assert all(not torch.equal(before[name], p) for name, p in model.named_parameters() if p.grad is not None)
    if kind == "muon":
        assert optimizers[0].rows == [p.shape[-2] for p in optimizers[0].param_groups[0]["params"]]
    if kind == "head_muon":
        assert 4 in optimizers[0].rows                                   # rows of one KDA head


def test_depth_queries_have_a_rate_of_their_own():
    """AdamW's first step is the rate times the sign of the gradient: a factor on the rate is a factor on the step."""
    moved = {}
    for factor in (0.0, 1.0, 7.0):
        model = build_model({**TINY, "residual": "full_attention"}, TASK.vocab_size, seed=2)
        recipe = Recipe(batch_size=8, learning_rate=1e-3, depth_rate=factor, warmup=1)
        optimizers = make_optimizers(model, recipe)
        given = [id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
        assert sorted(given) == sorted(id(p) for p in model.parameters())
        update(model, TASK, recipe, optimizers, 0, 0)
        moved[factor] = model.output_attn_res.query.detach().abs(), model.norm.weight.detach().clone()
    assert not moved[0.0][0].any() and torch.allclose(moved[7.0][0], 7 * moved[1.0][0])
    assert moved[1.0][0].max() == pytest.approx(1e-3, rel=0.01)
    assert all(torch.equal(each[1], moved[1.0][1]) for each in moved.values())   # nothing else is faster


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match="adamw, muon or head_muon"):
        make_optimizers(build_model(TINY, 10), Recipe(optimizer="sgd"))


# ---- training

def test_training_adds_the_auxiliary_loss_and_balances():
    """The loss of an update with a softmax MoE holds its auxiliary loss; `balance` sets the bias or leaves it."""
    for weight in (0.0, 5.0):
        model = build_model({**TINY, "ffn": "softmax_moe"}, TASK.vocab_size)
        for moe in model.moe_layers().values():
            moe.aux_weight = weight
        loss = update(model, TASK, Recipe(batch_size=8), make_optimizers(model, Recipe()), 0, 0)
        assert (loss > 9) == (weight == 5.0)                             # two layers, each at least 1 times 5
    for balance in (True, False):
        model = build_model({**TINY, "ffn": "latent_moe"}, TASK.vocab_size)
        update(model, TASK, Recipe(batch_size=8, balance=balance), make_optimizers(model, Recipe()), 0, 0)
        assert all(bool(moe.gate.e_score_correction_bias.any()) == balance for moe in model.moe_layers().values())


def test_training_learns_and_is_the_same_twice():
    recipe = Recipe(steps=40, batch_size=16, learning_rate=1e-2, warmup=5, evaluate_every=10, rows=70)
    curves = [train(build_model({**TINY, "layers": "kda"}, TASK.vocab_size, seed), TASK, recipe, seed)
              for seed in (0, 0, 1)]
    assert curves[0] == curves[1] != curves[2]
    assert curves[0]["loss"][-1] < curves[0]["loss"][0] - 0.1 and curves[0]["step"] == [10, 20, 30, 40]
    assert curves[0]["stopped"] == "steps"


def test_training_stops_when_solved_or_flat():
    quick = Recipe(steps=6, batch_size=4, evaluate_every=1, rows=8, solved=0.0)
    model = build_model({**TINY, "layers": "kda"}, TASK.vocab_size)
    solved = train(model, TASK, quick, 0)
    assert (solved["stopped"], solved["step"], solved["flat"]) == ("solved", [1, 2], True)
    steps = []
    flat = train(model, TASK, dataclasses.replace(quick, solved=2.0, flat=2.0, extra=50), 0,
                 lambda step, _: steps.append(step))
    assert (flat["stopped"], flat["step"], steps) == ("flat", [1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5])
    climbing = train(model, TASK, dataclasses.replace(quick, solved=2.0, flat=-2.0, extra=2), 0)
    assert (climbing["stopped"], climbing["flat"], climbing["step"][-1]) == ("steps", False, 8)
    assert not is_flat([1.0] * 5, 0.01)


def test_accuracy_counts_scored_targets_alone():
    model = build_model({**TINY, "layers": "kda"}, Lifetimes().vocab_size)
    shares = {score: evaluate(model, held_out(Lifetimes(rounds=6, score=score), "test", 70)) for score in CLASSES}
    assert len({loss for _, loss in shares.values()}) == 1               # all are learnt, whatever is scored
    batches = held_out(Lifetimes(rounds=6), "test", 70)
    assert [len(batch.tokens) for batch in batches] == [64, 6]


# ---- lifetimes

@pytest.mark.parametrize("task", [Lifetimes(), Lifetimes(3, 5, 4, 20, 2, 5, 1.0), Lifetimes(1, 2, 3, 9, 1, 2, 0.3)])
def test_answers_follow_from_what_was_written(task):
    """Read each row as text with a memory of our own: value, age, expired."""
    batch = task.batch(np.random.default_rng(4), 40)
    P, S, kinds = task.lasting, task.passing, set()
    value0 = 2 * (P + S)
    assert batch.tokens.shape == (40, task.length) and batch.tokens.max() < task.vocab_size
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        facts, born = {}, {}
        for t, (token, target) in enumerate(zip(tokens, targets, strict=True)):
            now = (t - 2 * P) // 4
            if token < P + S:
                facts[token], born[token] = tokens[t + 1], now
            asked = token - P - S if P + S <= token < value0 else None
            if asked is None:
                assert target == IGNORED
            elif asked < P:
                assert target == facts[asked]
            else:
                age = now - born[asked]
                assert age <= task.young or age >= task.old
                assert target == (facts[asked] if age <= task.young else value0 + task.values)
                kinds.add(age <= task.young)
    assert kinds == {True, False}


def test_classes_share_out_the_answers():
    scored = [Lifetimes(score=score).batch(np.random.default_rng(2), 20).scored for score in CLASSES]
    assert (scored[0] == scored[1] + 0 + scored[2] + scored[3]).all() and all(part.any() for part in scored)
    assert not (scored[1] & scored[2]).any() and not (scored[2] & scored[3]).any()


@pytest.mark.parametrize("wrong", [{"old": 1}, {"busy": 0.0}, {"score": "gone"}, {"rounds": 0}])
def test_impossible_lifetimes_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Lifetimes(**wrong)


# ---- balancing

def test_rules_are_those_of_the_reference():
    rng = np.random.default_rng(0)
    scores, bias = rng.random((50, 6)), rng.normal(0, 0.1, 6)
    counts = loads(scores, bias, 2)
    assert np.array_equal(next_bias("quantile", scores, bias, counts, 2), quantile_bias(scores, bias, 2))
    assert np.array_equal(next_bias("histogram 70", scores, bias, counts, 2),
                          quantile_bias_histogram(scores, bias, 2, 70))
    assert np.array_equal(next_bias("sign 0.25", scores, bias, counts, 2), sign_rule(bias, counts, 0.25))
    assert np.array_equal(next_bias("none", scores, bias, counts, 2), bias)
    for wrong in ("sign", "quantiles", "histogram"):
        with pytest.raises(ValueError, match="rule must be"):
            next_bias(wrong, scores, bias, counts, 2)


def test_loads_are_those_of_the_router():
    rng = np.random.default_rng(1)
    x, w, bias = (torch.from_numpy(rng.normal(size=size)) for size in ((40, 5), (7, 5), (7,)))
    experts, _, scores = route(x, w, bias, 3)
    assert np.array_equal(loads(scores.numpy(), bias.numpy(), 3), np.bincount(experts.flatten(), minlength=7))


def test_imbalance_and_chance():
    assert imbalance(np.array([[1, 1, 4], [2, 2, 2]])).tolist() == [1.0, 0.0]
    one, four = (sampling_error(tokens, 2, 16) for tokens in (1000, 4000))
    assert one == pytest.approx(2 * four, rel=0.05)                      # falls as one over the root
