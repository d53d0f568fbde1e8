"""The store: answers as without it, for every cut; nothing in it ever changes; eviction never gives a wrong answer."""

import numpy as np
import pytest
import torch
from serving_helpers import conversation, fingerprint, tensors
from torch_helpers import NANO, live_model, tokens_for, variant

from k3_scratch.cache import CacheError
from k3_scratch.generate import generate
from k3_scratch.serving.answering import stream
from k3_scratch.serving.policies import at_the_end, at_turns, either, every
from k3_scratch.serving.prefix_store import PrefixStore

SOME = pytest.mark.parametrize("name", ["k3", "kimi_linear", "all_kda", "all_mla", "one_tap", "partial_last_block"])


@pytest.fixture(scope="module")
def model():
    return live_model(NANO)


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def fill(model, store, tokens, policy, answer=1, turns=()):
    """Let the store see a prompt; returns the answer."""
    return list(stream(model, tokens, answer, store=store, policy=policy, turns=turns))


@SOME
@pytest.mark.parametrize("block", [1, 5])
def test_every_cut_gives_the_logits_of_a_cold_start(name, block):
    """The kept text is followed up to `cut`, then something else comes: 0 to 17 tokens, so all places in a block."""
    config = variant(name)
    model = live_model(config)
    first, other = (tokens_for(config, 17, seed=seed).tolist() for seed in (3, 4))
    other = [token + 1 if token == same and token + 1 < config.vocab_size else token if token != same else token - 1
             for token, same in zip(other, first, strict=True)]           # differs at every position
    store = PrefixStore(model, block=block)
    fill(model, store, first, every(block))
    bits = fingerprint(store)
    assert len(bits) > 0
    for cut in range(18):
        prompt = first[:cut] + other[cut:] + other[:3]
        cache, reused = store.fetch(prompt)
        assert reused == cut // block * block == cache.length
        logits = model(torch.tensor([prompt[reused:]]), cache)
        want = model(torch.tensor([prompt]))[:, reused:]
        assert (logits - want).abs().max() <= 1e-9
        more = tokens_for(config, 1, 6, seed=cut)                        # and the cache goes on being a good one
        got = torch.cat([model(more[:, :1], cache), model(more[:, 1:], cache)], 1)
        assert (got - model(torch.cat([torch.tensor([prompt]), more], 1))[:, -6:]).abs().max() <= 1e-9
        assert fingerprint(store) == bits                                # copied, never changed


@pytest.mark.parametrize(("length", "wanted"), [(4, 0), (5, 0), (6, 5), (10, 5), (11, 10), (15, 10), (16, 15)])
def test_the_last_token_is_always_computed(model, length, wanted):
    """A prompt that is kept as a whole still has to be fed its last token: the store holds no logits."""
    tokens = tokens_for(NANO, 20, seed=8).tolist()
    store = PrefixStore(model, block=5)
    fill(model, store, tokens, every(5))
    prompt = tokens[:length]
    cache, reused = store.fetch(prompt)
    assert reused == wanted
    got = model(torch.tensor([prompt[reused:]]), cache)[0, -1]
    assert (got - model(torch.tensor([prompt]))[0, -1]).abs().max() <= 1e-9


@pytest.mark.parametrize("policy", [at_turns, at_the_end, every(4), either(at_turns, at_the_end)])
@pytest.mark.parametrize("block", [1, 4, 64])
def test_a_conversation_of_many_turns_is_answered_as_without_a_store(model, policy, block):
    rng = np.random.default_rng(block)
    history, turns = conversation(rng, NANO.vocab_size, 9)
    store, reused = PrefixStore(model, block=block), []
    for _ in range(4):
        history = history + conversation(rng, NANO.vocab_size, int(rng.integers(1, 9)))[0]
        saved = store.statistics.saved
        answer = list(stream(model, history, 7, store=store, policy=policy, turns=turns))
        reused.append(store.statistics.saved - saved)
        assert answer == generate(model, history, 7)
        turns = [*turns, len(history), len(history) + 7]
        history = history + answer
    assert store.statistics.requests == 4 and store.statistics.tokens > store.statistics.saved
    if block == 64:
        assert store.nbytes == 0 and reused == [0] * 4                   # no edge was ever passed
    elif policy is not at_turns or block == 1:
        assert all(reused[1:])
    if policy is at_the_end and block == 1:                              # every request goes on from the one before
        assert store.statistics.hits == 3


@pytest.mark.parametrize("drawn", [False, True])
def test_two_interleaved_conversations_equal_two_solo_ones(model, drawn):
    """Token by token in turns, both with the same beginning, out of one store."""
    rng = np.random.default_rng(12)
    start, _ = conversation(rng, NANO.vocab_size, 11)
    questions = [[conversation(rng, NANO.vocab_size, n)[0] for n in sizes] for sizes in ((3, 8, 2), (6, 1, 5))]
    settings = {"temperature": 1.5, "top_k": 9} if drawn else {}
    store, histories = PrefixStore(model, block=4), [start, start]
    for turn in range(3):
        histories = [history + questions[who][turn] for who, history in enumerate(histories)]
        streams = [stream(model, history, 8, store=store, policy=every(4), seed=who, **settings)
                   for who, history in enumerate(histories)]
        answers = [list(answer) for answer in zip(*zip(*streams, strict=True), strict=True)]
        for who, (history, answer) in enumerate(zip(histories, answers, strict=True)):
            assert answer == generate(model, history, 8, seed=who, **settings)
        histories = [history + answer for history, answer in zip(histories, answers, strict=True)]
    assert histories[0] != histories[1]
    assert store.statistics.hits >= 4 and store.statistics.saved_share > 0.4


@pytest.mark.parametrize("name", ["k3", "all_mla"])
def test_eviction_under_pressure_never_gives_a_wrong_answer(name):
    config = variant(name)
    model = live_model(config)
    rng, texts = np.random.default_rng(5), [tokens_for(config, 14, seed=seed).tolist() for seed in range(3)]
    probe = PrefixStore(model, block=3)
    fill(model, probe, texts[0][:7], at_the_end)
    budgets = [0, probe.nbytes - 1, probe.nbytes, 3 * probe.nbytes, None]
    evicted, cold = [], {}
    for budget in budgets:
        store = PrefixStore(model, block=3, budget=budget)
        for _ in range(10):
            a, b = rng.choice(3, size=2, replace=False).tolist()
            cut = int(rng.choice([3, 4, 8, 9, 13]))
            prompt = texts[a][:cut] + texts[b][cut:]
            if (a, b, cut) not in cold:
                cold[a, b, cut] = generate(model, prompt, 2)
            assert list(stream(model, prompt, 2, store=store, policy=every(3))) == cold[a, b, cut]
            assert store.nbytes == sum(x.nbytes for x in tensors(store).values())
            assert budget is None or store.nbytes <= budget
        evicted.append(store.index.evicted)
    assert evicted[0] == evicted[-1] == 0 and evicted[2] > 0 and evicted[3] > 0


def test_the_same_block_after_another_prefix_is_no_hit(model):
    a, b, block = (tokens_for(NANO, 5, seed=seed).tolist() for seed in (1, 2, 3))
    store = PrefixStore(model, block=5)
    fill(model, store, a + block + [1], every(5))
    assert store.fetch(a + block + [1])[1] == 10
    assert store.fetch(b + block + [1])[1] == 0
    assert store.fetch(block + [1, 2])[1] == 0
    assert store.fetch(a + b + block)[1] == 5


def test_another_picture_is_no_hit(model):
    tokens = tokens_for(NANO, 12, seed=2).tolist()
    store, cache = PrefixStore(model, block=4), model.new_cache(1)
    for start in (0, 4):
        model(torch.tensor([tokens[start:start + 4]]), cache)
        store.put(tokens[:start + 4], cache, extra={5: b"cat"})
    assert store.fetch(tokens, {5: b"cat"})[1] == 8
    assert store.fetch(tokens, {5: b"dog"})[1] == 4 and store.fetch(tokens)[1] == 4


def test_latents_alone_are_no_hit(model):
    """Every block up to 16 has latents, but a state is there only at 16: 15 shared tokens save nothing."""
    tokens = tokens_for(NANO, 20, seed=6).tolist()
    store = PrefixStore(model, block=4)
    fill(model, store, tokens, every(16))
    assert len(store.index.blocks) == 4 and len(store.index.checkpoints) == 1
    assert store.fetch(tokens[:15] + [0, 0, 0])[1] == 0
    assert store.fetch(tokens[:16] + [0, 0, 0])[1] == 16


def test_all_layers_are_in_a_checkpoint(model):
    store = PrefixStore(model, block=4)
    fill(model, store, tokens_for(NANO, 9, seed=6).tolist(), every(4))
    found = tensors(store)
    for name in store.index.checkpoints:
        assert [key for key in found if key[:2] == ("state", name)] == [("state", name, i) for i in range(3)]
        assert [key for key in found if key[:2] == ("tail", name)] == [("tail", name, i) for i in range(3)]
    for name in store.index.blocks:
        assert [key for key in found if key[:2] == ("latents", name)] == [("latents", name, 0)]
        assert found["latents", name, 0].shape == (1, 4, NANO.kv_lora_rank + NANO.qk_rope_head_dim)


def test_kept_tensors_share_no_memory_with_any_cache(model):
    tokens = tokens_for(NANO, 13, seed=9).tolist()
    store = PrefixStore(model, block=4)
    cache = model.new_cache(1)
    model(torch.tensor([tokens[:8]]), cache)
    assert store.put(tokens[:8], cache)
    bits, kept = fingerprint(store), {x.untyped_storage().data_ptr() for x in tensors(store).values()}
    assert all(x.untyped_storage().nbytes() == x.nbytes for x in tensors(store).values())
    fetched, _ = store.fetch(tokens)
    for live in (cache, fetched):
        for layer in live.layers:
            for x in vars(layer).values():
                if torch.is_tensor(x):
                    assert x.untyped_storage().data_ptr() not in kept
                    x.fill_(1)                                           # whoever writes there spoils only itself
    assert fingerprint(store) == bits


def test_putting_what_the_cache_does_not_hold(model):
    tokens = tokens_for(NANO, 12, seed=9).tolist()
    store, cache = PrefixStore(model, block=4), model.new_cache(1)
    model(torch.tensor([tokens[:8]]), cache)
    with pytest.raises(CacheError, match="put: tokens must be a multiple of block = 4, but 7 came"):
        store.put(tokens[:7], cache)
    with pytest.raises(CacheError, match="put: tokens must be a multiple of block = 4, but 0 came"):
        store.put([], cache)
    for wrong in (tokens, tokens[:4]):                                   # not fed yet; its state is gone
        with pytest.raises(CacheError, match="put: the cache must hold one sequence of exactly the"):
            store.put(wrong, cache)
    with pytest.raises(ValueError, match="PrefixStore: block must be at least 1 token, but 0 came"):
        PrefixStore(model, block=0)
    assert store.nbytes == 0


def test_an_answer_that_is_broken_off_leaves_a_good_store(model):
    tokens = tokens_for(NANO, 9, seed=1).tolist()
    store = PrefixStore(model, block=4)
    answer = stream(model, tokens, 20, store=store, policy=every(4))
    begun = [next(answer) for _ in range(6)]
    answer.close()
    prompt = tokens + begun + [3]
    assert list(stream(model, prompt, 5, store=store)) == generate(model, prompt, 5)
    assert store.statistics.saved == 12                                  # 9 asked, 5 written and fed: edges 4, 8, 12
    store.clear()
    assert store.fetch(prompt)[1] == store.nbytes == 0


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "seed": 3}, {"temperature": 2.0, "top_p": 0.7}])
def test_a_stream_is_what_generate_writes(model, settings):
    prompt = tokens_for(NANO, 5, seed=11).tolist()
    want = generate(model, prompt, 12, **settings)
    assert list(stream(model, prompt, 12, **settings)) == want
    stop = want[6]
    assert list(stream(model, prompt, 12, stop_tokens=(stop,), **settings)) == want[:want.index(stop) + 1]
    assert list(stream(model, prompt, 1, **settings)) == want[:1]


def test_a_stream_leaves_the_mode_alone_and_names_wrong_arguments(model):
    model.train()
    try:
        answer = stream(model, [1, 2], 3)
        next(answer)
        assert model.training                                            # also between two tokens
        answer.close()
    finally:
        model.eval()
    for settings, message in (({"prompt": []}, "stream: prompt_ids must be"),
                              ({"max_new_tokens": 0}, "stream: max_new_tokens must be at least 1, but 0 came"),
                              ({"top_k": 0}, "stream: top_k must be None or at least 1, but 0 came")):
        with pytest.raises(ValueError, match=message):
            next(stream(model, **{"prompt": [1], **settings}))
