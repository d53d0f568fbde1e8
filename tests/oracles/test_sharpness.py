"""The oracles are sharp: each deliberate mistake in our forward pass moves our logits far away from mlx-lm's.

What logits do not show is caught by a test of the property itself; that this test would fail is shown here too.
"""

import functools
import importlib.util
import itertools
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("the oracle here is mlx-lm, and mlx has no build for Windows", allow_module_level=True)

import torch
from mistakes import MISTAKES, UNSEEN
from mlx_oracle import LIMIT, NAME, VERSION, in_mlx_lm, mlx_logits
from oracle_helpers import BASE, live_k3, prompt

from k3_scratch.layers.quantile_balancing import quantile_bias

TESTS = Path(__file__).parents[1]
FAR = 20 * LIMIT
REGIMES = {"fast": 0.0, "slow": -4.5}
# mistake: (file, test, arguments) that fails when it is made; None: a property at the end of this file
CAUGHT_BY = {
    "no_renormalisation": ("test_cases.py", "test_case_12_routed_scale", {"monkeypatch": None}),
    "no_routed_scale": ("test_cases.py", "test_case_12_routed_scale", {"monkeypatch": None}),
    "balance_with_the_wrong_sign": ("layers/test_layers_modules.py", "test_observation_of_the_experts", {}),
    "bias_used_on_the_batch_that_made_it": None,
    "keys_and_values_cached": ("test_cache.py", "test_bytes", {"name": "k3", "dtype": torch.float32}),
    "heads_56": ("test_accounting.py", "test_k3_parameters_are_the_published_ones_exactly", {}),
    "dense_layer_counted_as_moe": ("test_accounting.py", "test_k3_parameters_are_the_published_ones_exactly", {}),
}


@pytest.fixture(scope="module")
def oracle():
    """{regime: (our model, a prompt, mlx-lm's logits)}, evaluated once for all mistakes."""
    found = {}
    for regime, dt_bias in REGIMES.items():
        model, ids = live_k3(BASE, seed=6, dt_bias=dt_bias), prompt(BASE, 65)
        found[regime] = model, ids, torch.from_numpy(mlx_logits(in_mlx_lm(model), [ids])).double()
    return found


@pytest.fixture(scope="module")
def wrong(oracle):
    """wrong(name) -> {regime: our logits under the mistake}, each computed once."""
    @functools.cache
    def logits(name):
        with MISTAKES[name].planted():
            return {regime: model(ids) for regime, (model, ids, _) in oracle.items()}
    return logits


def distance(oracle, logits):
    """The largest difference to the oracle's logits, in whichever regime it is larger."""
    return max((logits[regime] - theirs).abs().max().item() for regime, (_, _, theirs) in oracle.items())


@pytest.mark.parametrize("name", MISTAKES)
def test_the_oracle_notices(name, oracle, wrong):
    assert distance(oracle, wrong(name)) > FAR
    right = {regime: model(ids) for regime, (model, ids, _) in oracle.items()}
    assert distance(oracle, right) <= LIMIT                              # the mistake is gone without a trace


def test_the_smallest_mistake(oracle, wrong, record):
    """For the table: what even the least visible mistake does to a logit."""
    smallest = min(distance(oracle, wrong(name)) for name in MISTAKES)
    record(NAME, VERSION, f"{len(MISTAKES)} deliberate mistakes in our forward pass, all noticed",
           "largest difference of a logit under the least visible one", smallest, None)
    assert smallest > FAR


def test_no_two_mistakes_are_the_same(wrong):
    """They give different logits, so none of them is another one under a second name."""
    for a, b in itertools.combinations(MISTAKES, 2):
        assert max((wrong(a)[regime] - wrong(b)[regime]).abs().max().item() for regime in REGIMES) > FAR, (a, b)


def test_the_table_of_mistakes():
    assert len(MISTAKES) >= 30
    assert set(CAUGHT_BY) == set(UNSEEN)
    package = TESTS.parent / "k3_scratch"
    for table in (MISTAKES, UNSEEN):
        assert all(name == mistake.name and (package / mistake.where).is_file() for name, mistake in table.items())
    texts = [mistake.description for table in (MISTAKES, UNSEEN) for mistake in table.values()]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("name", ["keys_and_values_cached", "no_renormalisation", "no_routed_scale"])
def test_what_logits_do_not_show(name):
    """The reason for tests of their own: where the experts' sum is large, their norm hides the factor from us all."""
    model, ids = live_k3(BASE.replace(initializer_range=0.3), seed=6), prompt(BASE, 65)
    right = model(ids)
    with UNSEEN[name].planted():
        wrong = model(ids, model.new_cache(1))
    assert (wrong - right).abs().max() < FAR
    assert torch.equal(wrong.argmax(-1), right.argmax(-1))


# ---- what logits do not show

def load(file):
    """A test file as a fresh module, which binds what is planted at this moment."""
    spec = importlib.util.spec_from_file_location("under_a_mistake_" + Path(file).stem, TESTS / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", [name for name, caught in CAUGHT_BY.items() if caught])
def test_another_test_fails_under_the_mistake(name, monkeypatch):
    file, test, arguments = CAUGHT_BY[name]
    if "monkeypatch" in arguments:
        arguments = {**arguments, "monkeypatch": monkeypatch}
    with torch.no_grad():
        getattr(load(file), test)(**arguments)                           # it passes ...
        monkeypatch.undo()
        with UNSEEN[name].planted():
            function = getattr(load(file), test)
            with pytest.raises(AssertionError):                          # ... and fails under the mistake
                function(**arguments)


def routes_by_the_bias_it_began_with():
    """A training batch changes no bias, and its experts are those that the bias of before chooses."""
    generator = torch.Generator().manual_seed(2)
    moe = live_k3(BASE).layers[1].block_sparse_moe.train()
    x, bias = torch.randn(2, 9, BASE.hidden_size, generator=generator).double(), moe.gate.e_score_correction_bias
    before, (chosen, _, scores) = bias.clone(), moe.gate(x)
    moe(x)
    assert torch.equal(bias, before)
    assert torch.equal(moe.expert_counts, torch.bincount(chosen.flatten(), minlength=BASE.num_experts))
    moe.balance()
    assert torch.equal(bias, quantile_bias(scores.flatten(0, 1), before, moe.gate.k))
    assert not torch.equal(bias, before)


def test_a_batch_is_routed_by_the_bias_it_began_with():
    routes_by_the_bias_it_began_with()
    with UNSEEN["bias_used_on_the_batch_that_made_it"].planted(), pytest.raises(AssertionError):
        routes_by_the_bias_it_began_with()
