"""Dense gated feed-forward parts: every token goes through the same matrices, no experts.

Used by: Llama, Qwen, Gemma (SwiGLU or its sisters); K3 itself in its first layer, with SiTU.
Differs from K3's LatentMoE by: y = W_down (act(W_gate x) * W_up x), one "expert" of full width with weight 1.
"""

from k3_scratch.layers.feed_forward import FeedForward


class DenseFFN(FeedForward):
    """`FeedForward` of width `intermediate_size` with the config's own activation.       [B, T, D] -> [B, T, D]"""

    def __init__(self, config):
        super().__init__(config, config.intermediate_size)

    def forward(self, x, mask=None):
        """mask [B, T] is taken, as every FFN takes it, and not needed: nothing is counted here."""
        return super().forward(x)


class SwiGLU(DenseFFN):
    """The same with silu(gate) * up, whatever activation the config names.  Shazeer, arXiv 2002.05202."""

    def __init__(self, config):
        super().__init__(config.replace(activation="swiglu"))
