"""Full attention residuals: every sublayer output is a source of its own.

Used by: the full form of Attention Residuals, which K3's blocks save memory on.
Differs from K3's by: x_i = sum_{j<=i} softmax_j(w_i . v_j / rms(v_j)) v_j, v_0 the embedding, v_{j+1} = y_j; no sums.
"""

from k3_scratch.baselines.block_attention_residuals import DepthReaders


class FullAttentionResiduals(DepthReaders):
    """The state is the tuple of all `Source`s so far: i + 1 of them before sublayer i.  AttnRes, arXiv 2603.15031."""

    def start(self, h):
        return (self.source(h),)

    def read(self, state, i):
        return self.mixes[i](state)

    def write(self, state, i, y):
        return *state, self.source(y)

    def end(self, state):
        return self.output_mix(state)
