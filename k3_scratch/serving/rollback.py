"""Feed several tokens, then keep only the first few of them.

Rows of latents are given back by counting fewer. A KDA state cannot be given back: every token decayed and overwrote
it. Two ways out, with the same result:

    Copies    after each token the state is put aside                        H K V numbers per token and layer
    Replay    the old state stays, and so do the recurrence's inputs         H (2K + V + 1) + D numbers per token
              k, v, g, beta; the accepted ones are run onto it again

The inputs are all that the recurrence needs, so nothing else of the layer is computed twice, and no other layer.
"""

import torch

from k3_scratch.layers.kda import kda_chunk, kda_step
from k3_scratch.layers.precision import raised


class Rollback:
    """`with Replay(model, cache) as fed: logits = model(tokens, cache)`, then `fed.keep(n)`; or Copies in its place.

    Inside, the KDA layers of the model also hand over what they compute with, so nobody else may use it meanwhile. The
    cache holds one sequence and is fed in one call, without pads. After the block `keep` may be called once.
    """

    def __init__(self, model, cache):
        self.model, self.cache, self.start = model, cache, cache.length
        self.before = {i: (cache.layers[i].state, cache.layers[i].tail) for i in model.config.kda_layers}
        self.inputs, self.kept = {}, {}                                  # layer -> its x, and what `watch` puts aside

    def __enter__(self):
        for i in self.before:
            attention = self.model.layers[i].self_attn
            attention.recur = self.watch(i, attention.recur)             # hide the methods of this one layer
            attention.queries_keys_values = self._remember(i, attention.queries_keys_values)
        return self

    def __exit__(self, *_):
        for i in self.before:
            attention = self.model.layers[i].self_attn
            del attention.recur, attention.queries_keys_values           # the class's own again

    def keep(self, count):
        """Make the cache what it would be if only the first `count` of the fed tokens had been fed.

        Raises ValueError when fewer were fed.
        """
        fed = self.cache.length - self.start
        if not 0 <= count <= fed:
            raise ValueError(f"keep: count must be from 0 to the {fed} tokens fed, but {count} came")
        if count == fed:
            return
        for i, (state, tail) in self.before.items():
            layer = self.cache.layers[i]
            layer.state = state if count == 0 else self.state_after(i, count)
            layer.tail = self._tail_after(i, tail, count)
        for i in self.model.config.mla_layers:
            self.cache.layers[i].length = self.start + count
        self.cache.length = self.start + count
        if self.cache.length == 0:
            self.cache.started = None

    def nbytes(self):
        """Bytes that are held so that tokens can be taken back, beside the old states."""
        parts = [self.inputs, *self.kept.values()]
        return sum(x.nbytes for part in parts for x in (part.values() if isinstance(part, dict) else part))

    def watch(self, layer, recur):
        """`recur` of that layer, which also puts aside in `self.kept[layer]` what `state_after` needs."""
        raise NotImplementedError

    def state_after(self, layer, count):
        """The state after `count` of the fed tokens, at least one.                                  -> [B, H, K, V]"""
        raise NotImplementedError

    def _remember(self, layer, queries_keys_values):
        def remembering(x, *arguments):
            self.inputs[layer] = x
            return queries_keys_values(x, *arguments)
        return remembering

    def _tail_after(self, layer, tail, count):
        """The convolutions' last inputs, of which only the newest rows are projected again.  -> [B, taps - 1, 2HK + HV]

        The layer's input is kept for this, D numbers; the projected rows would be 2HK + HV.
        """
        attention, rows = self.model.layers[layer].self_attn, tail.shape[1]
        x = self.inputs[layer][:, max(0, count - rows):count]
        projected = torch.cat([attention.q_proj(x), attention.k_proj(x), attention.v_proj(x)], -1)
        seen = torch.cat([tail, projected], 1)
        return seen[:, seen.shape[1] - rows:]


class Replay(Rollback):
    """Rollback that keeps k, v, g and beta of every fed token and runs the accepted ones onto the old state."""

    def watch(self, layer, recur):
        """Keep what the last call fed."""
        def recording(q, k, v, g, beta, *rest):
            self.kept[layer] = k, v, g, beta
            return recur(q, k, v, g, beta, *rest)
        return recording

    def state_after(self, layer, count):
        """The state of a layer after `count` of the tokens fed.                               -> [B, H, K, V]"""
        k, v, g, beta = (x[:, :count] for x in self.kept[layer])
        return kda_chunk(k, k, v, g, beta, self.before[layer][0])[1]     # no query: what is read is thrown away


class Copies(Rollback):
    """Rollback that keeps the state after every fed token; the recurrence then runs token by token."""

    def watch(self, layer, recur):
        """Run token by token and keep every state."""
        def stepping(q, k, v, g, beta, state, documents=None):
            outputs, states = [], []
            for t in range(q.shape[1]):
                o, state = kda_step(state, *(x[:, t] for x in (q, k, raised(v), g, beta)))
                outputs.append(o)
                states.append(state)
            self.kept[layer] = states
            return torch.stack(outputs, 1), state
        return stepping

    def state_after(self, layer, count):
        """The state of a layer after `count` of the tokens fed.                               -> [B, H, K, V]"""
        return self.kept[layer][count - 1]
