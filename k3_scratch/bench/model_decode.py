"""The whole miniature writes one token: with its cache, and by computing the prefix again."""

import torch

from k3_scratch.bench.goals import GOALS, Row
from k3_scratch.bench.harness import Contender, interleave
from k3_scratch.bench.measured import Measured
from k3_scratch.bench.truth import check_output
from k3_scratch.model import K3

ROOM = 64                       # tokens that a visit may write before it starts again from the prompt


@torch.inference_mode()
def measure(plan, peers=None):
    """Time without a cache over time with it, at `plan.prompt` tokens of context (up to 64 more while it is timed)."""
    model = K3(plan.model, seed=0).eval()
    tokens = torch.randint(plan.model.vocab_size, (1, plan.prompt + 1), generator=torch.Generator().manual_seed(0))
    prompt, last = tokens[:, :-1], tokens[:, -1:]
    start = model.new_cache(1)
    model(prompt, start)
    check_output("decoding with the cache", f"{plan.prompt} tokens", model(last, start.clone())[:, -1],
                 model(tokens)[:, -1])
    cache = start.clone()

    def step():
        if cache.length >= plan.prompt + ROOM:
            cache.restore(start)
        return model(last, cache)

    timed = interleave({"cache": Contender(step, lambda: cache.restore(start)), "prefix": lambda: model(tokens)},
                       plan.rounds, least_seconds=plan.least_seconds)
    row = Row.of(f"decode with the cache over computing {plan.prompt} tokens again", timed.ratio("prefix", "cache"),
                 GOALS["decode with cache"],
                 note=f"{1e3 * timed.median('cache'):.2f} ms a token, {start.nbytes():,} bytes of cache")
    return Measured([row], {"model_decode": {"context": plan.prompt, "milliseconds": {
        name: 1e3 * timed.median(name) for name in timed.seconds}}})
