"""Softmax attention with rotary positions.

Used by: Llama, Qwen, Mistral and nearly all dense models.
Differs from K3's MLA by: scores (R_t q_t) . (R_s k_s) / sqrt(K), order comes from angles, not from a recurrence.
"""

from k3_scratch.baselines.softmax_attention import SoftmaxAttention


class RopeAttention(SoftmaxAttention):
    """`SoftmaxAttention` with positions; options as there."""

    def __init__(self, config, *, rope_theta=10_000.0, convolution=False, output_gate=False):
        super().__init__(config, rope_theta=rope_theta, convolution=convolution, output_gate=output_gate)
