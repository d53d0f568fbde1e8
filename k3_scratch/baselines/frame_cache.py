"""What a model of the frame remembers between calls: one cache per layer, of whatever kind its mixer keeps."""

import copy

from k3_scratch.baselines.mixers import new_layer_cache


class FrameCache:
    """The memory of `batch_size` sequences. Made by `Frame.new_cache(batch_size)`, filled by `model(tokens, cache)`.

    length    tokens fed so far, pads included
    started   [B] bool, True once a row has seen a real token (after that no pad may follow); None before the first
    """

    def __init__(self, mixers, batch_size, dtype, device):
        self.batch_size, self.length, self.started = batch_size, 0, None
        self.layers = [new_layer_cache(mixer, batch_size, dtype, device) for mixer in mixers]

    def reset(self):
        """Forget everything, keep the room."""
        for layer in self.layers:
            layer.reset()
        self.length, self.started = 0, None

    def clone(self):
        """An independent copy: feeding one never changes the other."""
        other = copy.copy(self)
        other.layers = [layer.clone() for layer in self.layers]
        return other

    def nbytes(self):
        """Bytes in use, all layers together."""
        return sum(layer.nbytes() for layer in self.layers)
