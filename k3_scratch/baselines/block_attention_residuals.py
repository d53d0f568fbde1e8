"""Block attention residuals: K3's own. A sublayer reads a softmax mix of the finished blocks and the growing one.

Used by: Kimi K3.
Is K3's part: x_i = sum_j softmax_j(w_i . b_j / rms(b_j)) b_j over the bank and the running sum.
"""

from k3_scratch.config import ConfigError
from k3_scratch.layers.attention_residuals import DepthMix, Source


class DepthReaders:
    """One `DepthMix` for each sublayer and one for the output, under the names they have in `K3`."""

    def __init__(self, config, num_sublayers):
        self.eps = config.rms_norm_eps
        self.mixes = [DepthMix(config) for _ in range(num_sublayers)]
        self.output_mix = DepthMix(config)

    def modules_for(self, i):
        return {("mlp_res" if i % 2 else "self_attention_res"): self.mixes[i]}

    def final_modules(self):
        return {"output_attn_res": self.output_mix}

    def source(self, vector):
        """A vector that may be read; its RMS is computed here, once."""
        return Source(vector, self.eps)


class BlockAttentionResiduals(DepthReaders):
    """The state is (bank, here): a tuple of `Source`s and the `Source` of the running sum h [B, T, D].

    boundaries   numbers of the sublayers that begin a block; None: the attention of every attn_res_block_size-th layer
    ConfigError when boundaries is None and the config has no block size.
    """

    def __init__(self, config, num_sublayers, boundaries=None):
        super().__init__(config, num_sublayers)
        if boundaries is None:
            if config.attn_res_block_size is None:
                raise ConfigError("BlockAttentionResiduals: attn_res_block_size must be a whole number, at least 1, "
                                  "but None came")
            boundaries = range(0, num_sublayers, 2 * config.attn_res_block_size)
        self.boundaries = frozenset(boundaries)

    def start(self, h):
        return (), self.source(h)

    def read(self, state, i):
        bank, here = state
        return self.mixes[i]([*bank, here])                              # a boundary still reads the block before

    def write(self, state, i, y):
        bank, here = state
        if i in self.boundaries:                                         # bank the raw sum, not the mix
            return (*bank, here), self.source(y)
        return bank, self.source(here.vector + y)

    def end(self, state):
        bank, here = state
        return self.output_mix([*bank, here])
