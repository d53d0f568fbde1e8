"""A day at a chat service, made up: what each request sends, and what was answered.

    request 0    system A | question | answer
    request 1    system A | question                          another conversation, the same beginning
    request 2    system A | question | answer | question      the first one goes on
    request 3    system A | question | answer | another       its user goes back a turn and asks something else

Every request sends its whole conversation again, as chat interfaces do. Tokens are random numbers: only what is equal
to what matters here.
"""

from dataclasses import dataclass

import numpy as np

from k3_scratch.tasks.arguments import need, need_whole


@dataclass(frozen=True)
class Request:
    """One call: the conversation so far as `prompt`, the ends of its turns, and the answer it gets."""

    conversation: int
    prompt: tuple[int, ...]         # everything sent, the new question at the end
    turns: tuple[int, ...]          # ends of the system prompt and of each question and answer; last: len(prompt)
    answer: tuple[int, ...]


def chat_trace(seed=0, *, conversations=12, turns=6, systems=2, system=200, question=30, answer=40, branch=0.15,
               vocab_size=256):
    """The requests of all conversations in the order of their arrival, conversations mixed at random.

    conversations, turns        each conversation has `turns` requests
    systems, system             different system prompts, and tokens in each; every conversation begins with one of them
    question, answer            mean tokens of one; drawn evenly from half of that to one and a half times
    branch                      share of the requests that take back an earlier question and ask another in its place
    Raises ValueError naming the argument.

    >>> requests = chat_trace(conversations=2, turns=2, systems=1, system=6, question=2, answer=2)
    >>> [(request.conversation, request.turns) for request in requests]
    [(0, (6, 9)), (1, (6, 8)), (1, (6, 8, 11, 12)), (0, (6, 9, 11, 14))]
    """
    for name, value in (("conversations", conversations), ("turns", turns), ("systems", systems), ("system", system),
                        ("question", question), ("answer", answer), ("vocab_size", vocab_size)):
        need_whole(name, value, 1)
    need(0 <= branch <= 1, "branch", "a share from 0 to 1", branch)
    rng = np.random.default_rng(seed)

    def text(size):
        return tuple(rng.integers(vocab_size, size=size).tolist())

    def about(mean):
        return int(rng.integers(max(1, mean // 2), mean + (mean + 1) // 2 + 1))

    beginnings = [text(system) for _ in range(systems)]
    parts = [[beginnings[int(rng.integers(systems))]] for _ in range(conversations)]
    requests = []
    for number in rng.permutation(np.repeat(np.arange(conversations), turns)).tolist():
        spoken = parts[number]                                           # system, question, answer, question, answer
        if len(spoken) > 1 and rng.random() < branch:
            del spoken[1 + 2 * int(rng.integers(len(spoken) // 2)):]     # back to before one of the questions
        spoken += [text(about(question)), text(about(answer))]
        ends = np.cumsum([len(part) for part in spoken]).tolist()
        prompt = tuple(token for part in spoken[:-1] for token in part)
        requests.append(Request(number, prompt, tuple(ends[:-1]), spoken[-1]))
    return requests
