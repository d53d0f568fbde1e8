"""Taking tokens back: the cache afterwards is one that was never fed them."""

import pytest
import torch
from torch_helpers import NANO, live_model, tokens_for, variant

from k3_scratch.serving.rollback import Copies, Replay

SOME = ["k3", "kimi_linear", "all_kda", "all_mla", "one_tap", "two_taps", "wide_values", "low_rank_gate"]
BOTH = pytest.mark.parametrize("rollback", [Replay, Copies])


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@BOTH
@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("start", [0, 2, 19])
def test_keeping_some_equals_feeding_some(rollback, name, start):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 1, start + 6, seed=start)
    more = tokens_for(config, 1, 5, seed=40)
    begun = model.new_cache(1)
    if start:
        model(tokens[:, :start], begun)
    for count in range(7):
        cache, want = begun.clone(), begun.clone()
        with rollback(model, cache) as fed:
            logits = model(tokens[:, start:], cache)
        assert cache.length == start + 6
        fed.keep(count)
        if count:
            assert (logits[:, :count] - model(tokens[:, start:start + count], want)).abs().max() <= 1e-10
        assert cache.length == want.length
        assert cache.nbytes() == want.nbytes()
        for i in config.kda_layers:
            assert (cache.layers[i].state - want.layers[i].state).abs().max() <= 1e-10
            if config.conv_size > 1:
                assert (cache.layers[i].tail - want.layers[i].tail).abs().max() <= 1e-10
        assert (model(more, cache) - model(more, want)).abs().max() <= 1e-9
        assert (cache.started is None) == (want.started is None)


@BOTH
def test_the_logits_inside_are_the_models(rollback):
    model, tokens = live_model(NANO), tokens_for(NANO, 1, 9)
    cache, want = model.new_cache(1), model.new_cache(1)
    model(tokens[:, :4], cache), model(tokens[:, :4], want)
    with rollback(model, cache):
        got = model(tokens[:, 4:], cache)
    assert (got - model(tokens[:, 4:], want)).abs().max() <= 1e-10


@BOTH
def test_the_model_is_itself_again(rollback):
    """Also after an error inside."""
    model, cache = live_model(NANO), None
    attention = model.layers[0].self_attn
    cache = model.new_cache(1)
    with rollback(model, cache):
        assert "recur" in vars(attention)
        model(tokens_for(NANO, 1, 2), cache)
    with pytest.raises(ValueError, match="tokens must be"), rollback(model, cache):
        model(torch.tensor([[999]]), cache)
    for layer in model.layers:
        assert not {"recur", "queries_keys_values"} & set(vars(layer.self_attn))
    model(tokens_for(NANO, 1, 2), cache)


@BOTH
def test_old_states_are_not_changed(rollback):
    model, cache = live_model(NANO), None
    cache = model.new_cache(1)
    model(tokens_for(NANO, 1, 5), cache)
    old = [(layer.state, layer.state.clone()) for layer in (cache.layers[i] for i in NANO.kda_layers)]
    with rollback(model, cache) as fed:
        model(tokens_for(NANO, 1, 4, seed=2), cache)
    fed.keep(3)
    assert all(torch.equal(now, before) for now, before in old)


def test_replay_holds_less_than_copies():
    """By formula: per token and KDA layer H (2K + V + 1) + D numbers against H K V + D."""
    config = NANO.replace(kda_key_dim=32, kda_value_dim=24)
    model, tokens = live_model(config), tokens_for(config, 1, 5)
    held = []
    for rollback in (Replay, Copies):
        cache = model.new_cache(1)
        with rollback(model, cache) as fed:
            model(tokens, cache)
        held.append(fed.nbytes())
    H, K, V, D = config.num_heads, 32, 24, config.hidden_size
    assert held == [5 * 3 * 8 * (H * (2 * K + V + 1) + D), 5 * 3 * 8 * (H * K * V + D)]


@pytest.mark.parametrize("count", [-1, 4])
def test_keeping_what_was_not_fed(count):
    model = live_model(NANO)
    cache = model.new_cache(1)
    with Replay(model, cache) as fed:
        model(tokens_for(NANO, 1, 3), cache)
    with pytest.raises(ValueError, match=f"keep: count must be from 0 to the 3 tokens fed, but {count} came"):
        fed.keep(count)
