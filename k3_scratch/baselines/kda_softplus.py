"""KDA with softplus decay: the gate that K3 replaced.

Used by: Kimi Linear (which also has a low-rank output gate: use_full_rank_gate=False in the config).
Differs from K3's KDA by: g = -e^A softplus(z) without a lower bound, in place of -5 sigmoid(e^A z).  arXiv 2510.26692
"""

from k3_scratch.layers.kda_attention import KDACache, KimiDeltaAttention


class KDASoftplus(KimiDeltaAttention):
    """`KimiDeltaAttention` with gate_lower_bound=None, whatever the config says."""

    def __init__(self, config):
        super().__init__(config.replace(gate_lower_bound=None))

    def new_cache(self, batch_size, dtype, device):
        """An empty `KDACache`."""
        return KDACache(self.config, batch_size, dtype, device)
