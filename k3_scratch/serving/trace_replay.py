"""Policies compared on a trace of requests, without a model: a hit depends on tokens and bytes alone.

What is counted here is what `stream` would do: the tests hold the two against each other.
"""

import numpy as np

from k3_scratch.serving.hashes import block_hashes
from k3_scratch.serving.index import PrefixIndex


def replay(trace, policy, *, block, state_bytes, token_bytes, budget=None):
    """Serve `trace` in order. Returns arrays of one entry per request: {"asked", "saved" [tokens], "nbytes" [kept]}.

    trace          requests with `prompt`, `turns` and `answer`, see tasks/chat_trace.py
    policy         from policies.py
    state_bytes    of the KDA states and convolution tails at one edge
    token_bytes    of one token's latents in all MLA layers
    budget         bytes for both; None: no limit
    """
    index, asked, saved, kept = PrefixIndex(budget), [], [], []
    for request in trace:
        text = [*request.prompt, *request.answer]
        fed = len(text) - 1                                              # nobody asks what follows the last token
        names = block_hashes(text[:fed], block)
        found = index.longest(names[:(len(request.prompt) - 1) // block])
        reused = 0 if found is None else len(found.names) * block
        last = fed // block * block
        for edge in range(reused + block, last + 1, block):
            keep = policy(edge, request.turns, False, block)
            if edge == last:
                keep = keep or policy(edge, (*request.turns, len(text)), True, block)
            if keep:
                index.add(names[:edge // block], None, state_bytes, block * token_bytes)
        asked.append(len(request.prompt))
        saved.append(reused)
        kept.append(index.nbytes)
    return {"asked": np.array(asked), "saved": np.array(saved), "nbytes": np.array(kept)}


def compare(trace, policies, budgets, *, block, state_bytes, token_bytes):
    """Share of prompt tokens saved and most bytes kept, for each policy and each budget.

    policies    {name: policy};  budgets: bytes, None for no limit
    Returns {"saved_share" [policies, budgets], "peak_bytes" [policies, budgets]}.
    """
    shares, peaks = np.zeros((2, len(policies), len(budgets)))
    for row, policy in enumerate(policies.values()):
        for column, budget in enumerate(budgets):
            result = replay(trace, policy, block=block, state_bytes=state_bytes, token_bytes=token_bytes, budget=budget)
            shares[row, column] = result["saved"].sum() / result["asked"].sum()
            peaks[row, column] = result["nbytes"].max()
    return {"saved_share": shares, "peak_bytes": peaks}
