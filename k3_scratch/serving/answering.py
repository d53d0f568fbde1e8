"""One answer as a stream of tokens; what was computed before comes from the store, what is computed now goes there.

    prompt     | reused from the store | fed in pieces, cut where a state is to be kept |
    answer                                                       one token after the other, the same edges |
"""

import torch

from k3_scratch.generate import check_request, choose, evaluating, text_only
from k3_scratch.serving.picture_spans import picture_bytes, picture_spans
from k3_scratch.serving.policies import at_turns


@torch.inference_mode()
def stream(model, prompt, max_new_tokens=64, *, store=None, policy=at_turns, turns=(), images=None, temperature=0.0,
           top_k=None, top_p=None, stop_tokens=(), seed=0):
    """Yield the tokens of one continuation as they are computed; those of `generate`, with or without the store.

    prompt    the whole conversation so far, token numbers; what the store knows of it is not computed again
    store     a PrefixStore of this model, or None
    policy    from policies.py: where states are kept
    turns     ends of the turns inside the prompt, in tokens; its own end and that of the answer are added here
    images    [P, Y, X, C] uint8, the pictures whose markers stand in the prompt, or None
    The other arguments are those of `generate`. The last token is not fed, so the store never holds it.
    """
    prompt = list(map(int, prompt))
    check_request("stream", [prompt], max_new_tokens, temperature, top_k, top_p, seed)
    spans = picture_spans(model.config, prompt, images)
    extra = picture_bytes(spans, images)
    cache, _ = (model.new_cache(1), 0) if store is None else store.fetch(prompt, extra)
    text = list(prompt)
    keeper = _Keeper(store, policy, text, (*turns, len(prompt)), spans, extra)
    generator = torch.Generator(device="cpu").manual_seed(seed)
    for stop in keeper.stops(cache.length, len(prompt)):
        here = [number for number, (start, _) in enumerate(spans) if cache.length <= start < stop]
        logits = _feed(model, text[cache.length:stop], cache, images[here] if here else None)
        keeper.passed(cache)
    for _ in range(max_new_tokens):
        token = choose(logits, temperature, top_k, top_p, generator).item()
        text.append(token)
        yield token
        if token in stop_tokens or len(text) - len(prompt) == max_new_tokens:
            break
        logits = _feed(model, [token], cache)
        keeper.passed(cache)
    keeper.finished(cache)


def _feed(model, tokens, cache, images=None):
    """The logits after the last of some tokens.                                                   -> [1, vocab]"""
    pictures = {} if images is None else {"images": images}
    with evaluating(model):
        hidden = model.hidden(torch.tensor([tokens], device=cache.device), cache, **pictures)
        return text_only(model, model.lm_head(hidden[:, -1]))


class _Keeper:
    """Gives the store what the policy wants of one growing text, while the states are there."""

    def __init__(self, store, policy, text, turns, spans, extra):
        self.store, self.policy, self.text, self.turns = store, policy, text, turns
        self.spans, self.extra = spans, extra
        self.latest = None                                               # last edge passed, and the states there

    def stops(self, start, end):
        """Where to stop between start and end so that no wanted state is run over, ending with `end`."""
        if self.store is None:
            return [end]
        block = self.store.block
        edges = [edge for edge in range(start // block * block + block, end + 1, block)
                 if not any(first < edge < last for first, last in self.spans)]      # a picture is fed whole
        wanted = {edge for edge in edges if self.policy(edge, self.turns, False, block)}
        return sorted({*wanted, *edges[-1:], end})                       # the last edge may be the last of the text

    def passed(self, cache):
        """The cache has been fed up to here: is this an edge, and one to keep?"""
        edge = cache.length
        if self.store is None or edge % self.store.block:
            return
        self.latest = edge, cache.states()
        if self.policy(edge, self.turns, False, self.store.block):
            self.keep(cache)

    def finished(self, cache):
        """The text ends here; its last token was not fed."""
        self.turns = (*self.turns, len(self.text))
        if self.latest is not None and self.policy(self.latest[0], self.turns, True, self.store.block):
            self.keep(cache)

    def keep(self, cache):
        edge, states = self.latest
        self.store.put(self.text[:edge], cache, states, self.extra)
