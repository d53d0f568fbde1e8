"""The made-up day of a chat service: conversations that grow, share beginnings and branch."""

import numpy as np
import pytest

from k3_scratch.tasks.chat_trace import chat_trace

SIZES = {"conversations": 9, "turns": 5, "systems": 3, "system": 20, "question": 7, "answer": 11, "vocab_size": 40}


def test_the_seed_decides_alone():
    assert chat_trace(3, **SIZES) == chat_trace(3, **SIZES) != chat_trace(4, **SIZES)


@pytest.mark.parametrize("branch", [0.0, 0.4, 1.0])
def test_requests_continue_what_was_said(branch):
    trace = chat_trace(1, branch=branch, **SIZES)
    assert len(trace) == 45
    said, branched = {}, 0
    for request in trace:
        assert request.turns[-1] == len(request.prompt) and list(request.turns) == sorted(set(request.turns))
        assert len(request.turns) % 2 == 0                               # system, then question, answer, ..., question
        assert 3 <= request.turns[-1] - request.turns[-2] <= 11 and 5 <= len(request.answer) <= 17
        assert all(0 <= token < 40 for token in request.prompt + request.answer)
        before = said.get(request.conversation)
        old = request.prompt[:request.turns[-2]]                         # all but the new question
        if before is None:
            assert len(request.turns) == 2 and len(old) == 20
        else:
            assert before[:len(old)] == old
            branched += before != old
        said[request.conversation] = request.prompt + request.answer
    assert set(said) == set(range(9))
    assert (branched == 0) if branch == 0 else (branched > 5)
    assert branched == 36 or branch < 1                                  # every request but the first of each
    beginnings = {text[:20] for text in said.values()}
    assert 2 <= len(beginnings) <= 3


def test_conversations_are_mixed():
    order = [request.conversation for request in chat_trace(0, **SIZES)]
    assert (np.diff(order) != 0).mean() > 0.6


@pytest.mark.parametrize(("settings", "message"), [
    ({"conversations": 0}, "conversations"), ({"turns": 1.5}, "turns"), ({"branch": 1.1}, "branch must be a share"),
    ({"answer": 0}, "answer"), ({"vocab_size": 0}, "vocab_size")])
def test_wrong_arguments_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        chat_trace(**settings)
