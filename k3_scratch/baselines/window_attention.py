"""Sliding-window attention with rotary positions: the local layers of a hybrid, whose global layers see all.

Used by: Gemma 2 and 3 (one or five windows to each global layer), gpt-oss; Command A, with NoPE in its global layers.
Differs from K3's KDA by: o_t = softmax over t - window < s <= t alone; nothing older is kept in any form.
"""

from k3_scratch.baselines.softmax_attention import SoftmaxAttention


class WindowAttention(SoftmaxAttention):
    """`SoftmaxAttention` over the last `window` tokens, itself included; other options as there."""

    def __init__(self, config, *, window=32, rope_theta=10_000.0, convolution=False, output_gate=False):
        super().__init__(config, rope_theta=rope_theta, window=window, convolution=convolution,
                         output_gate=output_gate)
