"""Softmax attention without positions, over all tokens: what sees far beside layers that see near.

Used by: the global layers of Command A and Llama 4, beside windows or chunks with RoPE.
Differs from K3's MLA by: k_s = W_k x_s and v_s = W_v x_s are kept of every token, in place of one latent.
"""

from k3_scratch.baselines.softmax_attention import SoftmaxAttention


class NopeAttention(SoftmaxAttention):
    """`SoftmaxAttention` without positions and without a window; other options as there."""

    def __init__(self, config, *, convolution=False, output_gate=False):
        super().__init__(config, convolution=convolution, output_gate=output_gate)
