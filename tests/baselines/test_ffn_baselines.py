"""The feed-forward parts to compare with: NumPy's values, known limits, balancing, pads, threads, training."""

import copy
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import numpy as np
import pytest
import torch
from part_helpers import CONFIG, D, copied, drawn, losses_of_training, normal
from torch.utils.checkpoint import checkpoint

from k3_scratch.baselines.dense_ffn import DenseFFN
from k3_scratch.baselines.entry import Baseline, registry
from k3_scratch.baselines.ffns import FFNS, full_width
from k3_scratch.baselines.latent_moe_no_norm import LatentMoENoNorm
from k3_scratch.baselines.sigmoid_moe import SigmoidMoE
from k3_scratch.baselines.sign_rule import sign_rule
from k3_scratch.baselines.softmax_moe import SoftmaxMoE, load_balance_loss, softmax_route
from k3_scratch.config import ConfigError
from k3_scratch.layers.latent_moe import PART, LatentMoE
from k3_scratch.layers.quantile_balancing import quantile_bias
from k3_scratch.reference.ffn import gated_ffn
from k3_scratch.reference.latent_moe import latent_moe
from k3_scratch.reference.sign_rule import sign_rule as numpy_sign_rule
from k3_scratch.shapes import ShapeError

NAMES = ["swiglu", "dense", "latent_moe", "latent_moe_no_norm", "softmax_moe", "sigmoid_moe"]
MOES = NAMES[2:]
X = normal(np.random.default_rng(1), 2, 7, D)


def weights(module):
    return {name: x.detach().numpy() for name, x in module.state_dict().items()}


def numpy_moe(module, x, config, **others):
    """`latent_moe` of the reference with the module's weights; what the module lacks is None."""
    w = weights(module)
    shared = [w.get(f"shared_experts.{n}_proj.weight") for n in ("gate", "up", "down")]
    return latent_moe(x.numpy(), w["gate.weight"], w["gate.e_score_correction_bias"],
                      w.get("routed_expert_down_proj.weight"), w["experts.w1"], w["experts.w3"], w["experts.w2"],
                      w.get("routed_expert_norm.weight"), w.get("routed_expert_up_proj.weight"), *shared,
                      k=config.num_experts_per_token, scale=config.routed_scaling_factor, activation=config.activation)


# ---- the registry

def test_the_names_and_their_facts():
    assert list(FFNS) == NAMES
    for name, entry in FFNS.items():
        assert (entry.name, entry.part) == (name, "ffn")


@pytest.mark.parametrize("name", NAMES)
def test_a_part_takes_and_returns_the_same_shape(name):
    part = drawn(FFNS[name](CONFIG))
    mask = torch.ones(2, 7, dtype=torch.bool)
    assert part(X).shape == part(X, mask).shape == part(X, mask=mask).shape == X.shape
    assert part(X[:, :0]).shape == (2, 0, D)
    assert part(X[:1, :1]).shape == (1, 1, D)
    known = {*DenseFFN(CONFIG).state_dict(), *LatentMoE(CONFIG).state_dict()}
    assert set(part.state_dict()) <= known
    assert getattr(part, "aux_loss", None) is None or name == "softmax_moe"


def test_an_entry_refuses_what_it_cannot_be():
    facts = {"name": "a", "part": "ffn", "used_by": "b", "equation": "c", "source": "d", "make": list}
    assert Baseline(**facts)("xy") == ["x", "y"]
    for field, value in (("part", "head"), ("name", ""), ("used_by", ""), ("equation", ""), ("source", "")):
        with pytest.raises(ValueError, match=field):
            Baseline(**{**facts, field: value})
    with pytest.raises(ValueError, match="'a' came twice"):
        registry(Baseline(**facts), Baseline(**facts))


# ---- values

@pytest.mark.parametrize(("name", "own", "meant"), [("swiglu", "situ", "swiglu"), ("swiglu", "swiglu", "swiglu"),
                                                    ("dense", "situ", "situ"), ("dense", "swiglu", "swiglu")])
def test_dense_parts_are_the_reference(name, own, meant):
    part = drawn(FFNS[name](CONFIG.replace(activation=own)))
    w = weights(part)
    want = gated_ffn(X.numpy(), *(w[f"{n}_proj.weight"] for n in ("gate", "up", "down")), activation=meant)
    np.testing.assert_allclose(part(X).detach(), want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("changes", [{}, {"activation": "swiglu", "num_shared_experts": 0},
                                     {"num_experts_per_token": 5}, {"routed_scaling_factor": 2.5}], ids=str)
@pytest.mark.parametrize("name", ["latent_moe", "latent_moe_no_norm", "sigmoid_moe"])
def test_sigmoid_mixtures_are_the_reference(name, changes, seed):
    config = CONFIG.replace(**changes)
    part = drawn(FFNS[name](config), seed)
    names = set(part.state_dict())
    assert ("routed_expert_norm.weight" in names) == (name == "latent_moe")
    assert ("routed_expert_up_proj.weight" in names) == (name != "sigmoid_moe")
    np.testing.assert_allclose(part(X).detach(), numpy_moe(part, X, config), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"num_experts_per_token": 5, "routed_scaling_factor": 3.0}], ids=str)
def test_softmax_mixture_token_by_token(changes):
    config = CONFIG.replace(activation="swiglu", **changes)
    part = drawn(FFNS["softmax_moe"](config), 3)
    w, y = weights(part), part(X).detach().numpy()
    for place in np.ndindex(2, 7):
        x = X[place].numpy()
        logits = w["gate.weight"] @ x
        p = np.exp(logits) / np.exp(logits).sum()
        want = gated_ffn(x, *(w[f"shared_experts.{n}_proj.weight"] for n in ("gate", "up", "down")),
                         activation="swiglu")
        for e in np.argsort(-p)[:config.num_experts_per_token]:
            want = want + config.routed_scaling_factor * p[e] * gated_ffn(
                x, w["experts.w1"][e], w["experts.w3"][e], w["experts.w2"][e], activation="swiglu")
        np.testing.assert_allclose(y[place], want, rtol=1e-11, atol=1e-12)


def test_softmax_weights_are_probabilities():
    experts, chosen, scores = softmax_route(X, normal(np.random.default_rng(2), 6, D), 2, scale=3.0)
    assert torch.allclose(scores.sum(-1), torch.ones(2, 7, dtype=torch.float64))
    assert torch.equal(chosen, 3.0 * scores.gather(-1, experts))
    assert (chosen[..., 0] >= chosen[..., 1]).all()
    assert (chosen.sum(-1) < 3.0).all()                                          # not renormalised
    assert softmax_route(X.bfloat16(), torch.ones(6, D, dtype=torch.bfloat16), 2)[2].dtype == torch.float32


@pytest.mark.parametrize("name", ["softmax_moe", "sigmoid_moe"])
def test_one_expert_is_dense(name):
    """k = 1 of E = 1: the weight is 1, whatever the router says."""
    config = CONFIG.replace(num_experts=1, num_experts_per_token=1, num_shared_experts=0, moe_intermediate_size=40)
    moe = drawn(FFNS[name](config), 4)
    w = moe.experts
    dense = copied(DenseFFN(config).double(), {"gate_proj.weight": w.w1[0], "up_proj.weight": w.w3[0],
                                               "down_proj.weight": w.w2[0]})
    assert (moe(X) - dense(X)).abs().max() <= 1e-13
    assert dense(X).abs().max() > 0.1


def test_parts_take_the_latent_of_their_config():
    """The class itself changes one thing of K3's part; the registry's name also goes back to full width."""
    sigmoid = drawn(SigmoidMoE(CONFIG), 5)
    own = copied(LatentMoE(CONFIG).double(), sigmoid.state_dict())
    assert torch.equal(sigmoid(X), own(X))
    assert SoftmaxMoE(CONFIG).has_latent
    assert not FFNS["softmax_moe"](CONFIG).has_latent
    assert full_width(CONFIG).expert_size == D
    with pytest.raises(ConfigError, match="moe_latent_size"):
        LatentMoENoNorm(full_width(CONFIG))


# ---- the auxiliary loss

@pytest.mark.parametrize(("E", "k"), [(6, 1), (6, 2), (4, 4), (5, 3)])
def test_auxiliary_loss_is_one_at_balance_and_at_most_E_over_k(E, k):
    m = 5 * E
    even = torch.full((m, E), 1.0 / E, dtype=torch.float64)
    assert load_balance_loss(even, torch.full((E,), m * k // E), k).item() == pytest.approx(1.0, abs=1e-14)
    sure, counts = torch.zeros(m, E, dtype=torch.float64), torch.zeros(E, dtype=torch.int64)
    sure[:, :k], counts[:k] = 1.0 / k, m                                         # all tokens, the same k experts
    assert load_balance_loss(sure, counts, k).item() == pytest.approx(E / k, abs=1e-14)
    assert load_balance_loss(even[:0], torch.zeros(E), k).item() == 0.0


def loads(moe, x):
    moe.train()
    moe(x)
    return moe.expert_counts / moe.expert_counts.double().mean()


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_auxiliary_loss_pushes_the_loads_together(seed):
    x = normal(np.random.default_rng(seed), 3, 80, D) + 1.0                      # a common direction: some experts win
    moe = drawn(FFNS["softmax_moe"](CONFIG), seed)
    before = loads(moe, x).max().item()

    def aux_loss():
        moe(x)
        return moe.aux_loss

    losses = losses_of_training([moe.gate.weight], aux_loss, steps=60)
    assert before > 1.8
    assert loads(moe, x).max().item() < 1.15
    assert losses[-1] < losses[0]
    moe.aux_loss.backward()
    assert moe.gate.weight.grad.abs().max() > 0
    assert moe.experts.w1.grad is None                                           # the router alone learns from it


def test_balancing_by_loss_sets_nothing():
    moe = drawn(FFNS["softmax_moe"](CONFIG)).train()
    moe(X)
    before = copy.deepcopy(moe.state_dict())
    moe.balance()
    assert all(torch.equal(x, before[name]) for name, x in moe.state_dict().items())
    assert moe.aux_weight == 0.01


# ---- pads, threads, modes

@pytest.mark.parametrize("name", MOES)
def test_pads_are_not_counted(name):
    moe, mask = drawn(FFNS[name](CONFIG)).train(), torch.ones(2, 7, dtype=torch.bool)
    mask[0, :3] = mask[1, :6] = False
    other = X.clone()
    other[~mask] = 9.0
    seen = []
    for x in (X, other):
        y = moe(x, mask)
        seen.append((y[mask], moe.expert_counts, moe.observed_scores, getattr(moe, "aux_loss", None)))
    for first, second in zip(*seen, strict=True):
        assert (first is None and second is None) or (first - second).abs().max() <= 1e-12
    assert torch.equal(seen[0][1], seen[1][1])
    assert seen[0][1].sum() == 5 * CONFIG.num_experts_per_token
    moe.forget_observed()
    alone = moe(X[mask].unsqueeze(0))                                            # the five real tokens by themselves
    assert (alone[0] - seen[0][0]).abs().max() <= 1e-12
    assert torch.equal(moe.expert_counts, seen[0][1])
    if name == "softmax_moe":
        assert (moe.aux_loss - seen[0][3]).abs() <= 1e-13


def test_nothing_but_pads():
    moe = drawn(FFNS["softmax_moe"](CONFIG)).train()
    moe(X, torch.zeros(2, 7, dtype=torch.bool))
    assert moe.expert_counts.sum() == 0
    assert moe.aux_loss == 0
    moe.aux_loss.backward()
    assert (moe.gate.weight.grad == 0).all()


@pytest.mark.parametrize("name", MOES)
def test_two_threads_of_one_batch(name):
    """Each thread reads the loss of its own rows; the counts are those of the whole batch."""
    moe = drawn(FFNS[name](CONFIG)).train()
    x = normal(np.random.default_rng(3), 4, 9, D)

    def part(number, rows):
        PART.set(number)
        moe(rows)
        return getattr(moe, "aux_loss", None)

    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(part, range(2), (x[:1], x[1:])))
    both = moe.expert_counts
    alone = [drawn(FFNS[name](CONFIG)).train() for _ in range(3)]
    for single, rows, loss in zip(alone, (x[:1], x[1:], x), (*got, None), strict=True):
        single(rows)
        if name == "softmax_moe" and loss is not None:
            assert torch.equal(single.aux_loss, loss)
    assert torch.equal(both, alone[0].expert_counts + alone[1].expert_counts)
    assert torch.equal(both, alone[2].expert_counts)
    assert both.sum() == 36 * CONFIG.num_experts_per_token
    moe.forget_observed()
    assert moe.expert_counts is None
    assert copy_context().run(part, 0, x) is not None or name != "softmax_moe"


def test_auxiliary_loss_only_while_training():
    moe = drawn(FFNS["softmax_moe"](CONFIG)).train()
    assert moe.aux_loss is None
    moe(X)
    assert moe.aux_loss.requires_grad
    twin = copy.deepcopy(moe)                                                    # a copy in the middle of training
    assert twin.aux_loss is None
    assert torch.equal(twin(X), moe(X))
    moe.eval()
    assert moe.aux_loss is None
    moe.train().forget_observed()
    assert moe.aux_loss is None


def test_auxiliary_loss_of_a_part_that_is_recomputed():
    """Less memory, the same gradients: the second forward pass neither counts nor adds anything."""
    gradients = []
    for recompute in (False, True):
        moe = drawn(FFNS["softmax_moe"](CONFIG)).train()
        y = checkpoint(moe, X, use_reentrant=False) if recompute else moe(X)
        (y.square().mean() + moe.aux_loss).backward()
        gradients.append([x.grad for x in moe.parameters()])
        assert moe.expert_counts.sum() == 14 * CONFIG.num_experts_per_token
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


# ---- the sign rule

@pytest.mark.parametrize("seed", range(4))
def test_sign_rule_is_the_reference(seed):
    rng = np.random.default_rng(seed)
    bias, counts = rng.normal(size=7), rng.integers(0, 5, size=7)
    counts[0] = 14 - counts[1:].sum() if counts[1:].sum() <= 14 else counts[0]   # some loads are the mean itself
    got = sign_rule(torch.from_numpy(bias), torch.from_numpy(counts), 0.25)
    assert np.array_equal(got.numpy(), numpy_sign_rule(bias, counts, 0.25))


def test_sign_rule_moves_the_right_way():
    bias = torch.zeros(4)
    got = sign_rule(bias, torch.tensor([0, 9, 3, 0]), 0.5)
    assert got.tolist() == [0.5, -0.5, 0.0, 0.5]                                 # an expert at the mean stays
    assert bias.tolist() == [0, 0, 0, 0]
    assert got.dtype == torch.float32
    even = torch.full((7,), 16_777_217)                                          # one more than float32 can count
    assert (sign_rule(torch.zeros(7), even, 1.0) == 0).all()
    with pytest.raises(ShapeError, match="counts"):
        sign_rule(bias, torch.zeros(5), 0.5)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_sign_rule_balances(seed):
    x = normal(np.random.default_rng(seed), 3, 80, D) + 1.0
    moe = drawn(SigmoidMoE(full_width(CONFIG), rate=0.02), seed)
    moe.gate.e_score_correction_bias.zero_()
    first = loads(moe, x)
    moe.balance()
    assert torch.equal(moe.gate.e_score_correction_bias, 0.02 * torch.sign(1 - first))
    for _ in range(60):
        loads(moe, x)
        moe.balance()
    assert first.max() > 1.8
    assert loads(moe, x).max() < 1.2
    assert FFNS["sigmoid_moe"](CONFIG).rate == 0.001


@pytest.mark.parametrize("name", ["latent_moe", "latent_moe_no_norm"])
def test_latent_variants_balance_by_quantiles(name):
    moe = drawn(FFNS[name](CONFIG)).train()
    moe(X)
    bias = moe.gate.e_score_correction_bias
    want = quantile_bias(moe.observed_scores, bias, 2)
    moe.balance()
    assert torch.equal(bias, want)


@pytest.mark.parametrize("name", MOES)
def test_balancing_before_the_first_batch_does_nothing(name):
    moe = drawn(FFNS[name](CONFIG)).train()
    before = copy.deepcopy(moe.state_dict())
    moe.balance()
    assert all(torch.equal(x, before[name]) for name, x in moe.state_dict().items())
    assert moe.expert_counts is None


# ---- errors and training

def test_wrong_arguments_are_refused():
    w = torch.zeros(6, D)
    for arguments, named in (((X, w, 0), "k"), ((X, w, 7), "k"), ((X, w[:, 1:], 2), "w_router")):
        with pytest.raises(ValueError, match=named):
            softmax_route(*arguments)
    six = torch.ones(6)
    for scores, counts, named in ((torch.ones(5, 6), six[1:], "counts"), (six, six, "scores")):
        with pytest.raises(ShapeError, match=named):
            load_balance_loss(scores, counts, 2)


@pytest.mark.parametrize("name", NAMES)
def test_fifty_steps_of_training(name):
    """Learn a fixed nonlinear map of single tokens; float32, as models are trained."""
    rng = np.random.default_rng(6)
    x = normal(rng, 4, 8, D).float()
    y = torch.tanh(x @ normal(rng, D, D).float() / 3)
    part = drawn(FFNS[name](CONFIG), 6, std=0.15, dtype=torch.float32).train()

    def loss():
        error = (part(x) - y).square().mean()
        aux = getattr(part, "aux_loss", None)
        return error if aux is None else error + part.aux_weight * aux

    losses = losses_of_training(part.parameters(), loss, after=getattr(part, "balance", lambda: None))
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.6 * losses[0]
    assert all(torch.isfinite(x).all() for x in part.state_dict().values())
