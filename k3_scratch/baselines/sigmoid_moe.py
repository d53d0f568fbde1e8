"""Sigmoid MoE balanced by the sign rule: experts at full width, no latent.

Used by: DeepSeek-V3 (there the choice is limited to some groups of experts; here there is one group).
Differs from K3's LatentMoE by: y = sum_e p_e E_e(x), no W_down, no W_up, and b <- b + rate * sign(mean load - load).
"""

import torch

from k3_scratch.baselines.sign_rule import sign_rule
from k3_scratch.layers.latent_moe import LatentMoE


class SigmoidMoE(LatentMoE):
    """The router, the experts and the counting of `LatentMoE`; `balance` is one step of the sign rule.

    The config's latent and norm are taken as they are: FFNS["sigmoid_moe"] switches them off, and this class with K3's
    own config is a LatentMoE that differs from K3's in the balancing alone.
    rate   size of a step, in units of the score; DeepSeek-V3 used 0.001
    """

    def __init__(self, config, rate=0.001):
        super().__init__(config)
        self.rate = rate

    @torch.no_grad()
    def balance(self):
        """Set the selection bias for the next batch from the counts of the last one."""
        if self.observed:
            bias = self.gate.e_score_correction_bias
            bias.copy_(sign_rule(bias, self.expert_counts, self.rate))
