"""LatentMoE without the norm before W_up.

Used by: Nemotron 3 (there with experts without a gate and squared ReLU; here with the config's activation).
Differs from K3's LatentMoE by: y = W_up (sum_e p_e E_e(W_down x)) in place of W_up RMSNorm(sum_e ...).
"""

from k3_scratch.config import ConfigError
from k3_scratch.layers.latent_moe import LatentMoE


class LatentMoENoNorm(LatentMoE):
    """`LatentMoE` with `moe_latent_norm` off; ConfigError for a config without a latent.  LatentMoE, 2601.18089."""

    def __init__(self, config):
        if config.moe_latent_size is None:
            raise ConfigError("LatentMoENoNorm: moe_latent_size must be a whole number, at least 1, but None came")
        super().__init__(config.replace(moe_latent_norm=False))
