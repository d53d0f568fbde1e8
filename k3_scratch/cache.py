"""What a model remembers between calls: a fixed state per KDA layer, a growing row of latents per MLA layer."""

import torch

from k3_scratch.layers.calls import LayerCaches
from k3_scratch.layers.kda_attention import KDACache
from k3_scratch.layers.mla_attention import MLACache


class CacheError(RuntimeError):
    """The cache cannot do what was asked; the message says why."""


class K3Cache(LayerCaches):
    """The memory of `batch_size` sequences. Made by `model.new_cache(batch_size)`, filled by `model(tokens, cache)`."""

    def __init__(self, config, batch_size, dtype, device):
        super().__init__([(MLACache if config.is_mla(i) else KDACache)(config, batch_size, dtype, device)
                          for i in range(config.num_layers)], batch_size)
        self.config, self.device = config, device

    def snapshot(self):
        """What `restore` brings back, as often as wanted."""
        return self.clone()

    def restore(self, snapshot):
        """Return to `snapshot`, which stays good for the next time."""
        if snapshot.config != self.config or snapshot.batch_size != self.batch_size:
            raise CacheError(f"restore: the snapshot belongs to another model or batch (batch {snapshot.batch_size}, "
                             f"this cache has {self.batch_size})")
        self.__dict__.update(snapshot.clone().__dict__)

    def states(self):
        """Copies of what the KDA layers hold now: (state, tail) for each, in the order of the layers."""
        layers = (self.layers[i] for i in self.config.kda_layers)
        return [(layer.state.clone(), layer.tail.clone()) for layer in layers]

    def latents(self, start, stop):
        """Copies of the rows of tokens start to stop - 1: [B, stop - start, R + r] for each MLA layer."""
        if not 0 <= start <= stop <= self.length:
            raise CacheError(f"latents: start and stop must be in order from 0 to the {self.length} cached tokens, "
                             f"but {start} and {stop} came")
        layers = [self.layers[i] for i in self.config.mla_layers]
        if not all(layer.real[:, start:stop].all() for layer in layers):
            raise CacheError(f"latents: there are pads among tokens {start} to {stop - 1}")
        return [layer.rows[:, start:stop].clone() for layer in layers]

    def fill(self, states, pieces, length):
        """Become the cache of `length` tokens, from `states()` after them and from the `latents` of all of them.

        pieces    `latents` of one span of tokens after the other, none left out. Everything given is copied.
        """
        if length < 1:
            raise CacheError(f"fill: length must be at least 1, but {length} came")
        self.reset()
        for i, (state, tail) in zip(self.config.kda_layers, states, strict=True):
            self.layers[i].state, self.layers[i].tail = state.clone(), tail.clone()
        for number, i in enumerate(self.config.mla_layers):
            rows = torch.cat([piece[number] for piece in pieces], 1)     # [B, length, R + r]
            if rows.shape[1] != length:
                raise CacheError(f"fill: pieces must hold {length} tokens, but they hold {rows.shape[1]}")
            self.layers[i].append(rows, None)
        self.length = length
        self.started = torch.ones(self.batch_size, dtype=torch.bool, device=self.device)

    def drop(self, tokens):
        """Forget the last `tokens` tokens. Possible only for a model without KDA layers."""
        if tokens < 0 or tokens > self.length:
            raise CacheError(f"drop: tokens must be from 0 to the {self.length} cached, but {tokens} came")
        if tokens and self.config.kda_layers:
            raise CacheError(f"drop: a KDA state cannot give back its last {tokens} tokens: each write decayed and "
                             "overwrote what was there before. Take a snapshot() earlier and restore() it.")
        self.length -= tokens
        for layer in self.layers if tokens else ():
            layer.length -= tokens
        if tokens:                                                       # perhaps only pads are left, or nothing
            self.started = self.layers[0].real[:, :self.length].any(1) if self.length else None
