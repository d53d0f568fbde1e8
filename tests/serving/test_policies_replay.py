"""Policies on a trace: the arithmetic equals the real store, and what each policy is good for."""

import numpy as np
import pytest
import torch
from serving_helpers import conversation
from torch_helpers import NANO, live_model, variant

from k3_scratch.serving.answering import stream
from k3_scratch.serving.policies import at_the_end, at_turns, either, every
from k3_scratch.serving.prefix_store import PrefixStore
from k3_scratch.serving.trace_replay import compare, replay
from k3_scratch.tasks.chat_trace import Request, chat_trace

POLICIES = {"turns": at_turns, "every": every(6), "end": at_the_end, "both": either(at_turns, every(9))}


class Scripted:
    """A model whose answers are those of the trace, whatever its own logits are; it remembers like the real one."""

    def __init__(self, model):
        self.model, self.answer, self.written = model, (), 0
        self.new_cache, self.config, self.training = model.new_cache, model.config, False
        self.train = self.eval = lambda *mode: None

    def hidden(self, tokens, cache):
        return self.model.hidden(tokens, cache)

    def lm_head(self, hidden):
        return hidden                                                    # `choose` below does not look at it


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("budget", [None, 60_000])
def test_the_arithmetic_equals_the_real_store(policy, budget, monkeypatch):
    model, block, policy = live_model(variant("k3")), 3, POLICIES[policy]
    trace = chat_trace(4, conversations=4, turns=3, systems=2, system=7, question=4, answer=5, branch=0.3,
                       vocab_size=NANO.vocab_size)
    asked = model.new_cache(1)
    with torch.no_grad():
        model(torch.tensor([[1, 2, 3]]), asked)
    state_bytes = sum(x.nbytes for layer in asked.states() for x in layer)
    token_bytes = sum(rows.nbytes for rows in asked.latents(0, 1))
    want = replay(trace, policy, block=block, state_bytes=state_bytes, token_bytes=token_bytes, budget=budget)

    store, saved, kept = PrefixStore(model, block=block, budget=budget), [], []
    for request in trace:
        script = iter(request.answer)
        monkeypatch.setattr("k3_scratch.serving.answering.choose", lambda *_, script=script: torch.tensor(next(script)))
        before = store.statistics.saved
        answer = list(stream(Scripted(model), request.prompt, len(request.answer), store=store, policy=policy,
                             turns=request.turns[:-1]))
        assert tuple(answer) == request.answer
        saved.append(store.statistics.saved - before)
        kept.append(store.nbytes)
    assert saved == want["saved"].tolist() and kept == want["nbytes"].tolist()
    assert sum(saved) > 0 and [len(request.prompt) for request in trace] == want["asked"].tolist()
    assert (store.index.evicted > 0) == (budget is not None)


def requests(*texts):
    """One request for each (prompt, turns, answer)."""
    return [Request(0, tuple(prompt), tuple(turns), tuple(answer)) for prompt, turns, answer in texts]


def saved(trace, policy, block=4):
    return replay(trace, policy, block=block, state_bytes=50, token_bytes=2)["saved"].tolist()


def test_going_on_needs_only_the_end_but_another_beginning_needs_the_turns():
    rng = np.random.default_rng(0)
    system, question, answer, more, other = (conversation(rng, 9, n)[0] for n in (10, 5, 8, 3, 6))
    first = (system + question, (10, 15), answer)
    goes_on = (system + question + answer + more, (10, 15, 23, 26), answer)
    somebody_else = (system + other, (10, 16), answer)
    assert saved(requests(first, goes_on), at_the_end) == [0, 20]        # 22 were fed, the last edge is 20
    assert saved(requests(first, goes_on), at_turns) == [0, 20]
    assert saved(requests(first, somebody_else), at_the_end) == [0, 0]   # the shared beginning has no state
    assert saved(requests(first, somebody_else), at_turns) == [0, 8]     # the last edge before 10
    assert saved(requests(first, first), at_turns) == [0, 12]            # the same question again: all but its end
    assert saved(requests(first, goes_on), every(8)) == [0, 16]
    assert saved(requests(first, somebody_else), every(8)) == [0, 8]
    assert saved(requests(first, goes_on), every(1000)) == [0, 0]


def test_a_miss_costs_up_to_a_block():
    """The same conversation with blocks of 1 to 32: what is lost at the cut is the rest of a block."""
    rng = np.random.default_rng(1)
    text = conversation(rng, 50, 64)[0]
    for block in (1, 2, 8, 32):
        for cut in (31, 32, 33, 40):
            trace = requests((text, (64,), [1]), (text[:cut] + [99, 99], (cut + 2,), [1]))
            assert saved(trace, every(block), block)[1] == cut // block * block


def test_compare_gives_a_table():
    trace = chat_trace(2, conversations=5, turns=4, system=40, question=9, answer=11)
    budgets = [0, 3_000, 30_000, None]
    result = compare(trace, POLICIES, budgets, block=4, state_bytes=400, token_bytes=3)
    assert result["saved_share"].shape == result["peak_bytes"].shape == (4, 4)
    assert (result["saved_share"][:, 0] == 0).all() and (result["peak_bytes"][:, 0] == 0).all()
    assert (np.diff(result["saved_share"]) >= 0).all()                   # on this trace more room never saves less
    for column, budget in enumerate(budgets[:-1]):
        assert (result["peak_bytes"][:, column] <= budget).all()
    one = replay(trace, at_turns, block=4, state_bytes=400, token_bytes=3, budget=3_000)
    assert result["saved_share"][0, 1] == one["saved"].sum() / one["asked"].sum() > 0


def test_four_fifths_of_the_prefill_are_saved_on_the_trace():
    """The goal, at a stated memory: the miniature in float32, 19,200 bytes a state and 160 a token; two MB."""
    trace = chat_trace(0)
    shares = compare(trace, {"turns": at_turns, "end": at_the_end}, [2_000_000], block=16, state_bytes=19_200,
                     token_bytes=160)["saved_share"][:, 0]
    assert shares[0] >= 0.80 and shares[0] > shares[1]


def test_every_must_be_of_something():
    with pytest.raises(ValueError, match="every: tokens must be at least 1, but 0 came"):
        every(0)
