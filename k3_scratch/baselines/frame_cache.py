"""What a model of the frame remembers between calls: one cache per layer, of whatever kind its mixer keeps."""

from k3_scratch.baselines.mixers import new_layer_cache
from k3_scratch.layers.calls import LayerCaches


class FrameCache(LayerCaches):
    """The memory of `batch_size` sequences. Made by `Frame.new_cache(batch_size)`, filled by `model(tokens, cache)`."""

    def __init__(self, mixers, batch_size, dtype, device):
        super().__init__([new_layer_cache(mixer, batch_size, dtype, device) for mixer in mixers], batch_size)
