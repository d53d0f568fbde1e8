"""Speculative decoding: a cheap draft guesses the next tokens, the model checks all guesses in one call.

    draft           c  a  t  s
    model, fed      b  c  a  t  s      in one call; its own choices after each:
    its choices     c  a  r  .  .      c and a are confirmed, t is not: r stands in its place
    result          c  a  r            three tokens for one call, exactly those it would have written alone

Leviathan et al. 2023, arXiv 2211.17192, for greedy decoding. What the model was fed beyond the accepted guesses is
taken back (rollback.py), which for a KDA state is the hard part.
"""

from dataclasses import dataclass

import torch

from k3_scratch.generate import check_request, evaluating
from k3_scratch.serving.rollback import Replay


@dataclass(frozen=True)
class Speculated:
    """Result of `speculate`."""

    tokens: list                    # the continuation, without the prompt
    proposed: int                   # guesses of the draft that the model checked
    accepted: int                   # of them confirmed
    calls: int                      # calls of the model, the prompt's included
    rollback_bytes: int             # most bytes held at one time for taking tokens back

    @property
    def acceptance(self):
        """accepted / proposed; 0 when nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else 0.0


@torch.inference_mode()
def speculate(model, draft, prompt, max_new_tokens=64, *, guesses=4, stop_tokens=(), rollback=Replay):
    """The greedy continuation of one prompt, token for token that of `generate`, in fewer calls of the model.

    draft      draft(tokens, count) -> at most count token numbers that might follow `tokens`; see ModelDraft
    prompt     token numbers, at least one
    guesses    most tokens guessed at a time, at least 1
    rollback   Replay or Copies
    Returns Speculated. Raises ValueError naming the argument.
    """
    prompt = list(map(int, prompt))
    check_request("speculate", [prompt], max_new_tokens, 0.0, None, None, 0)
    if guesses < 1:
        raise ValueError(f"speculate: guesses must be at least 1, but {guesses} came")
    cache, proposed, accepted, calls, held = model.new_cache(1), 0, 0, 1, 0
    with evaluating(model):
        text = [*prompt, _choices(model, prompt, cache)[-1]]
        while (room := max_new_tokens - len(text) + len(prompt)) > 0 and text[-1] not in stop_tokens:
            guessed = list(draft(text, min(guesses, room - 1))) if room > 1 else []
            with rollback(model, cache) as fed:
                chosen = _choices(model, [text[-1], *guessed], cache)
            right = next((i for i, guess in enumerate(guessed) if guess != chosen[i]), len(guessed))
            fed.keep(1 + right)                                          # the last chosen token is fed next time
            new = chosen[:right + 1]
            stop = next((i + 1 for i, token in enumerate(new) if token in stop_tokens), len(new))
            text += new[:stop]
            proposed, accepted, calls = proposed + len(guessed), accepted + right, calls + 1
            held = max(held, fed.nbytes())
    return Speculated(text[len(prompt):], proposed, accepted, calls, held)


class ModelDraft:
    """A small model as a draft: draft(tokens, count) is its own greedy continuation.

    It remembers the tokens it has been fed. Those that `tokens` still begins with stay; guesses are made on a copy of
    its memory, so there is nothing to take back.
    """

    def __init__(self, model):
        self.model, self.fed, self.cache = model, [], model.new_cache(1)

    @torch.inference_mode()
    def __call__(self, tokens, count):
        tokens = list(tokens)
        if self.fed != tokens[:len(self.fed)] or len(self.fed) >= len(tokens):
            self.fed, self.cache = [], self.model.new_cache(1)
        guesses = []
        with evaluating(self.model):
            new, cache = tokens[len(self.fed):], self.cache
            for number in range(count):
                guesses.append(_choices(self.model, new, cache)[-1])
                if number == 0:
                    self.fed, cache = tokens, cache.clone()
                new = guesses[-1:]
        return guesses


def _choices(model, tokens, cache):
    """The most likely token after each of `tokens`.                                                N -> N numbers"""
    return model(torch.tensor([tokens], device=cache.device), cache)[0].argmax(-1).tolist()
