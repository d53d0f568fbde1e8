"""A prefix store for a model with two kinds of memory.

A latent cache alone can be cut anywhere: token 1,000 needs the rows of tokens 0 to 999, and they lie there in order. A
KDA state cannot be cut: it is one matrix, overwritten at every token. So the latents are kept for every block, the
states only at some block edges (policies.py), and a hit is the longest prefix for which both are there:

    tokens     |  block  |  block  |  block  |  block  | rest
    latents    ===========================================        every block
    states               ●                   ●                    at a few edges
    hit                                      ^                    everything after it is computed again
"""

from dataclasses import dataclass

from k3_scratch.cache import CacheError
from k3_scratch.serving.hashes import block_hashes
from k3_scratch.serving.index import PrefixIndex


@dataclass
class Statistics:
    """What a store was asked for and what it saved, counted since it was made."""

    requests: int = 0               # prompts asked for
    hits: int = 0                   # of them with a kept prefix
    tokens: int = 0                 # prompt tokens
    saved: int = 0                  # of them not computed again

    @property
    def saved_share(self):
        """saved / tokens; 0 before the first request."""
        return self.saved / self.tokens if self.tokens else 0.0


class PrefixStore:
    """Prefixes of conversations with one model, whose weights must not change while they are kept (else `clear`).

    block     tokens in a block: what a hit may fall short by even where every edge has a state
    budget    bytes for states and latents together; None: no limit
    """

    def __init__(self, model, *, block=16, budget=None):
        if block < 1:
            raise ValueError(f"PrefixStore: block must be at least 1 token, but {block} came")
        self.new_cache, self.block = model.new_cache, block
        self.index, self.statistics = PrefixIndex(budget), Statistics()

    @property
    def nbytes(self):
        """Bytes of all kept states and latents."""
        return self.index.nbytes

    def fetch(self, tokens, extra=None):
        """A cache that holds the longest kept prefix of `tokens`, and its length: (cache, reused), perhaps 0.

        The cache is a copy: feeding it changes nothing in the store. The last token is never part of the prefix, since
        the model must be fed at least one to say what follows. extra: as in `block_hashes`.
        """
        found = self.index.longest(block_hashes(tokens[:-1], self.block, extra))
        cache, reused = self.new_cache(1), 0
        if found is not None:
            reused = len(found.names) * self.block
            cache.fill(found.state, self.index.latents(found), reused)
        self.statistics.requests += 1
        self.statistics.hits += found is not None
        self.statistics.tokens += len(tokens)
        self.statistics.saved += reused
        return cache, reused

    def put(self, tokens, cache, states=None, extra=None):
        """Keep the prefix `tokens`, which ends at a block edge; True if it is kept now, False if it is too large.

        cache     has been fed `tokens`, and perhaps more
        states    `cache.states()` as it was after exactly `tokens`; None: the cache is there now
        Raises CacheError when the tokens end between two edges, or the states are not there any more.
        """
        if not len(tokens) or len(tokens) % self.block:
            raise CacheError(f"put: tokens must be a multiple of block = {self.block}, but {len(tokens)} came")
        if cache.batch_size != 1 or cache.length < len(tokens) or (states is None and cache.length > len(tokens)):
            raise CacheError(f"put: the cache must hold one sequence of exactly the {len(tokens)} tokens (or more, "
                             f"with the states of that moment), but it holds {cache.batch_size} of {cache.length}")
        states = cache.states() if states is None else states
        state_bytes = sum(part.nbytes for layer in states for part in layer)
        block_bytes = sum(rows.nbytes for rows in cache.latents(0, self.block))
        return self.index.add(
            block_hashes(tokens, self.block, extra), states, state_bytes, block_bytes,
            lambda number: cache.latents(number * self.block, (number + 1) * self.block))

    def clear(self):
        """Forget every prefix; the statistics stay."""
        self.index.clear()
