"""The cache: snapshots, clones, interleaved chats, dropping, spare room, bytes; and decoding with it."""

import pytest
import torch
from torch_helpers import NANO, VARIANTS, feed, live_model, tokens_for, variant

from k3_scratch.accounting import cache_bytes
from k3_scratch.cache import CacheError
from k3_scratch.generate import generate

SOME = pytest.mark.parametrize("name", ["k3", "kimi_linear", "all_kda", "all_mla", "no_shared_slice", "one_tap"])


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def close(got, want, tolerance=1e-10):
    assert got.shape == want.shape
    assert (got - want).abs().max() <= tolerance


@SOME
def test_snapshot_and_restore_twice(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 15)
    cache = model.new_cache(2)
    model(tokens[:, :6], cache)
    want = model(tokens[:, 6:12], cache.clone())
    snapshot = cache.snapshot()
    for other in (tokens[:, 12:15], tokens[:, 3:4]):                     # several tokens, then one: two code paths
        model(other, cache)
        assert cache.length > 6
        cache.restore(snapshot)
        assert cache.length == 6
        assert torch.equal(model(tokens[:, 6:12], cache), want)          # equals never having fed them
        cache.restore(snapshot)
    assert torch.equal(model(tokens[:, 6:12], cache), want)


@SOME
def test_clones_are_independent(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 20)
    want, other = model(tokens), tokens.flip(1)
    mixed = torch.cat([tokens[:, :5], other[:, :9]], 1)
    want_mixed = model(mixed)
    cache = model.new_cache(2)
    model(tokens[:, :5], cache)
    copy = cache.clone()
    assert (copy.length, copy.batch_size, copy.config) == (5, 2, config)
    close(model(tokens[:, 5:11], cache), want[:, 5:11])                  # by turns, so that each would overwrite
    close(model(mixed[:, 5:12], copy), want_mixed[:, 5:12])
    close(model(tokens[:, 11:12], cache), want[:, 11:12])
    close(model(mixed[:, 12:13], copy), want_mixed[:, 12:13])
    close(model(tokens[:, 12:], cache), want[:, 12:])
    close(model(mixed[:, 13:], copy), want_mixed[:, 13:])
    assert (cache.length, copy.length) == (20, 14)


@SOME
def test_interleaved_chats_equal_solo_chats(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 17)
    solo = [model(tokens[b:b + 1], model.new_cache(1)) for b in range(2)]
    caches, outputs, at = [model.new_cache(1) for _ in range(2)], [[], []], [0, 0]
    for b, length in ((0, 3), (1, 1), (1, 6), (0, 1), (0, 1), (1, 1), (0, 12), (1, 9)):
        outputs[b].append(model(tokens[b:b + 1, at[b]:at[b] + length], caches[b]))
        at[b] += length
    for b in range(2):
        close(torch.cat(outputs[b], 1), solo[b])


def test_a_kda_state_cannot_drop_tokens():
    model, tokens = live_model(NANO), tokens_for(NANO, 1, 6)
    cache = model.new_cache(1)
    model(tokens, cache)
    want = model(tokens[:, :1], cache.clone())
    with pytest.raises(CacheError, match="drop: a KDA state cannot give back its last 2 tokens: each write decayed and "
                                         "overwrote what was there before.*snapshot"):
        cache.drop(2)
    cache.drop(0)
    assert cache.length == 6
    assert torch.equal(model(tokens[:, :1], cache), want)                # nothing was changed by the refusal


def test_dropping_where_all_layers_are_attention():
    config = variant("all_mla")
    model, tokens = live_model(config), tokens_for(config, 2, 9)
    want = model(tokens)
    cache = model.new_cache(2)
    model(tokens[:, :4], cache)
    model(tokens[:, :3], cache)                                          # a guess that was wrong
    cache.drop(3)
    assert cache.length == 4
    close(feed(model, tokens[:, 4:], [2], cache), want[:, 4:])
    for number in (-1, 10):
        with pytest.raises(CacheError, match=f"drop: tokens must be from 0 to the 9 cached, but {number} came"):
            cache.drop(number)
    cache.drop(9)
    close(model(tokens, cache), want)


def test_dropping_all_makes_room_for_padding_again():
    config = variant("all_mla")
    model, tokens = live_model(config), tokens_for(config, 1, 6)
    cache = model.new_cache(1)
    model(tokens, cache)
    cache.drop(6)
    mask = torch.arange(6).unsqueeze(0) >= 2
    close(model(tokens, cache, mask=mask)[:, 2:], model(tokens[:, 2:]))


def poison(cache):
    """NaN in every slot that holds nothing, and `real` the wrong way round there."""
    for layer in cache.layers:
        if hasattr(layer, "rows"):
            layer.rows[:, layer.length:] = float("nan")
            layer.real[:, layer.length:] = False


@SOME
def test_spare_slots_are_never_read(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 12)
    want = model(tokens)
    cache = model.new_cache(2)
    outputs = []
    for t in range(12):
        outputs.append(model(tokens[:, t:t + 1], cache))
        poison(cache)
    close(torch.cat(outputs, 1), want)
    cache.reset()
    poison(cache)
    close(model(tokens[:, :5], cache), want[:, :5])
    close(model(tokens[:, 5:], cache), want[:, 5:])


@SOME
def test_a_reset_cache_is_a_new_one(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 9)
    cache = model.new_cache(2)
    mask = torch.arange(9).expand(2, -1) >= torch.tensor([[0], [4]])
    model(tokens, cache, mask=mask)                                      # leaves pads marked in the slots
    cache.reset()
    assert (cache.length, cache.started) == (0, None)
    assert torch.equal(model(tokens, cache), model(tokens, model.new_cache(2)))
    cache.reset()
    close(model(tokens, cache, mask=mask)[1:, 4:], model(tokens[1:, 4:]))    # left padding is allowed again


def test_restoring_the_cache_of_something_else():
    model = live_model(NANO)
    cache = model.new_cache(2)
    with pytest.raises(CacheError, match=r"restore: the snapshot belongs to another model or batch \(batch 3"):
        cache.restore(model.new_cache(3).snapshot())
    with pytest.raises(CacheError, match="restore: the snapshot belongs to another model"):
        cache.restore(live_model(variant("kimi_linear")).new_cache(2))


def test_a_snapshot_remembers_which_rows_have_started():
    model, tokens = live_model(NANO), tokens_for(NANO, 2, 6)
    cache = model.new_cache(2)
    mask = torch.arange(6).expand(2, -1) >= torch.tensor([[0], [4]])
    model(tokens[:, :2], cache, mask=mask[:, :2])
    snapshot = cache.snapshot()
    model(tokens[:, 2:5], cache)                                         # row 1 has started now
    cache.restore(snapshot)
    close(model(tokens[:, 2:], cache, mask=mask[:, 2:])[1:, 2:], model(tokens[1:, 4:]))


@SOME
def test_a_cache_from_states_and_latents_is_a_copy(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 14)
    cache = model.new_cache(2)
    model(tokens[:, :9], cache)
    states, pieces = cache.states(), [cache.latents(0, 4), cache.latents(4, 4), cache.latents(4, 9)]
    assert [len(states), len(pieces[0])] == [len(config.kda_layers), len(config.mla_layers)]
    assert all(rows.shape[:2] == (2, 4) for rows in pieces[0])
    other = model.new_cache(2)
    model(tokens[:, 9:], other)                                          # what it held before is forgotten
    other.fill(states, pieces, 9)
    assert (other.length, other.nbytes(), other.started.tolist()) == (9, cache.nbytes(), [True, True])
    before = [x.clone() for part in (*states, *pieces) for x in part]
    want = model(tokens[:, 9:], cache)
    assert torch.equal(model(tokens[:, 9:], other), want)
    other.fill(states, pieces, 9)
    assert torch.equal(model(tokens[:, 9:], other), want)
    assert all(torch.equal(x, y) for x, y in zip(before, (x for part in (*states, *pieces) for x in part), strict=True))


def test_states_and_latents_that_cannot_be():
    model, tokens = live_model(NANO), tokens_for(NANO, 2, 6)
    cache = model.new_cache(2)
    model(tokens, cache, mask=torch.arange(6).expand(2, -1) >= torch.tensor([[0], [2]]))
    with pytest.raises(CacheError, match="latents: there are pads among tokens 1 to 3"):
        cache.latents(1, 4)
    assert cache.latents(2, 6)[0].shape[1] == 4
    for start, stop in ((-1, 2), (3, 2), (0, 7)):
        with pytest.raises(CacheError, match=f"from 0 to the 6 cached tokens, but {start} and {stop} came"):
            cache.latents(start, stop)
    for length, message in ((0, "length must be at least 1, but 0 came"),
                            (5, "pieces must hold 5 tokens, but they hold 4")):
        with pytest.raises(CacheError, match="fill: " + message):
            cache.fill(cache.states(), [cache.latents(2, 6)], length)


def test_the_room_grows():
    """Across several doublings, one token at a time and in one go."""
    config = NANO.replace(mla_layers=(0,), num_layers=1)
    model, tokens = live_model(config), tokens_for(config, 1, 150)
    want = model(tokens)
    cache, rooms, outputs = model.new_cache(1), set(), []
    for t in range(150):
        outputs.append(model(tokens[:, t:t + 1], cache))
        rooms.add(cache.layers[0].rows.shape[1])
    close(torch.cat(outputs, 1), want)
    assert len(rooms) <= 4                                               # not a copy for every token
    cache = model.new_cache(1)
    close(feed(model, tokens, [140], cache), want)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes(name, dtype):
    config = variant(name)
    model, size = live_model(config, dtype=dtype), torch.empty(0, dtype=dtype).element_size()
    cache = model.new_cache(3)
    for length in (0, 5, 1, 80):
        model(tokens_for(config, 3, length), cache)
        want = cache_bytes(config, cache.length, bytes_per_value=size)
        assert cache.nbytes() == 3 * want.total
        assert sum(cache.layers[i].nbytes() for i in config.mla_layers) == 3 * want.mla
    assert cache.length == 86


def test_the_cache_shares_no_memory_with_the_activations():
    """A tail that is a view would keep the whole prompt's projections alive, or change under a later call."""
    model, tokens = live_model(NANO), tokens_for(NANO, 1, 40)
    cache = model.new_cache(1)
    model(tokens, cache)
    for i in NANO.kda_layers:
        layer = cache.layers[i]
        for x in (layer.state, layer.tail):
            assert x.untyped_storage().nbytes() == x.nbytes
            assert not x.requires_grad


# --- decoding ---

def by_hand(model, prompt, steps):
    tokens = list(prompt)
    for _ in range(steps):
        tokens.append(model(torch.tensor([tokens]))[0, -1].argmax().item())
    return tokens[len(prompt):]


@pytest.mark.parametrize("name", ["k3", "kimi_linear"])
def test_generation_equals_the_model_without_a_cache(name):
    config = variant(name)
    model = live_model(config)
    prompts = [[3, 1, 4, 1, 5, 9, 2], [6], [5, 3, 5]]
    want = [by_hand(model, prompt, 6) for prompt in prompts]
    assert generate(model, prompts, 6) == want
    assert [generate(model, prompt, 6) for prompt in prompts] == want
    stop = want[0][2]
    first = want[0].index(stop)
    assert generate(model, prompts[0], 6, stop_tokens=(stop,)) == want[0][:first + 1]


def test_generation_leaves_the_mode_and_the_generator_alone():
    model = live_model(NANO).train()
    before = torch.random.get_rng_state()
    first = generate(model, [1, 2], 8, temperature=1.0, seed=4)
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    assert generate(model, [1, 2], 8, temperature=1.0, seed=4) == first
    assert any(generate(model, [1, 2], 8, temperature=1.0, seed=s) != first for s in (5, 6))
    assert all(moe.expert_counts is None for moe in model.moe_layers().values())
