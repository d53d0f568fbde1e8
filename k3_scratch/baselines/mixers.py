"""MIXERS: the sequence mixers by name.

A mixer is a module made from a `K3Config` and its own options, `mixer(x, cache=None, *, mask=None, documents=None)`:
x [B, T, D] (the normed input of the sublayer), mask [B, T], False at pads, documents [B, T]; it returns [B, T, D].
`new_layer_cache` makes its cache. The recurrent ones are KDA's block around another operator (recurrent_mixer.py).
"""

from dataclasses import dataclass

from k3_scratch.baselines.delta_net import DeltaNet
from k3_scratch.baselines.entry import Baseline, registry
from k3_scratch.baselines.gated_delta_net import GatedDeltaNet
from k3_scratch.baselines.kda_softplus import KDASoftplus
from k3_scratch.baselines.linear_attention import LinearAttention
from k3_scratch.baselines.nope_attention import NopeAttention
from k3_scratch.baselines.rope_attention import RopeAttention
from k3_scratch.baselines.scalar_decay import ScalarDecay
from k3_scratch.baselines.window_attention import WindowAttention
from k3_scratch.layers.kda_attention import KDACache, KimiDeltaAttention
from k3_scratch.layers.mla_attention import GatedMLA, MLACache


@dataclass(frozen=True)
class MixerBaseline(Baseline):
    """A `Baseline` that also says what its cache holds, in numbers per sequence."""

    keeps: str = ""


STATE = "H K V in all"
ROWS = "H (K + V) a token"

MIXERS = registry(
    MixerBaseline("kda", "mixer", "Kimi K3",
                  "S_t = (I - b_t k_t k_t^T) diag(e^g_t) S_{t-1} + b_t k_t v_t^T, g_t per channel, above -5",
                  "K3 report; Kimi Linear, arXiv 2510.26692", KimiDeltaAttention, STATE),
    MixerBaseline("kda_softplus", "mixer", "Kimi Linear", "g_t = -e^A softplus(z_t), no lower bound",
                  "Kimi Linear, arXiv 2510.26692", KDASoftplus, STATE),
    MixerBaseline("gated_delta_net", "mixer", "Qwen3-Next",
                  "S_t = (I - b_t k_t k_t^T) e^g_t S_{t-1} + b_t k_t v_t^T, one g_t per head",
                  "Yang et al., arXiv 2412.06464", GatedDeltaNet, STATE),
    MixerBaseline("delta_net", "mixer", "DeltaNet", "S_t = (I - b_t k_t k_t^T) S_{t-1} + b_t k_t v_t^T, no decay",
                  "Schlag et al., arXiv 2102.11174; Yang et al., arXiv 2406.06484", DeltaNet, STATE),
    MixerBaseline("scalar_decay", "mixer", "Mamba-2, RetNet", "S_t = e^g_t S_{t-1} + b_t k_t v_t^T, no erasing",
                  "Mamba-2, arXiv 2405.21060; RetNet, arXiv 2307.08621", ScalarDecay, STATE),
    MixerBaseline("linear_attention", "mixer", "linear transformers",
                  "S_t = S_{t-1} + b_t k_t v_t^T, no decay, no erasing", "Katharopoulos et al., arXiv 2006.16236",
                  LinearAttention, STATE),
    MixerBaseline("mla", "mixer", "Kimi K3; with RoPE on the slice r DeepSeek-V2 and V3",
                  "[k; v] = W_kvb norm(W_a x), softmax over all tokens, no positions, gated",
                  "K3 report; DeepSeek-V2, arXiv 2405.04434", GatedMLA, "R + r a token"),
    MixerBaseline("attention_nope", "mixer", "global layers of Command A and Llama 4",
                  "k = W_k x, v = W_v x, softmax(q_t . k_s / sqrt(K)) over all s <= t",
                  "Vaswani et al., arXiv 1706.03762; NoPE, arXiv 2305.19466", NopeAttention, ROWS),
    MixerBaseline("attention_rope", "mixer", "Llama, Qwen, Mistral",
                  "softmax((R_t q_t) . (R_s k_s) / sqrt(K)) over all s <= t", "Su et al., arXiv 2104.09864",
                  RopeAttention, ROWS),
    MixerBaseline("window_rope", "mixer", "local layers of Gemma 2 and 3",
                  "softmax((R_t q_t) . (R_s k_s) / sqrt(K)) over t - window < s <= t",
                  "Beltagy et al., arXiv 2004.05150; Gemma 2, arXiv 2408.00118", WindowAttention,
                  ROWS + ", at most window tokens"),
)


def new_layer_cache(mixer, batch_size, dtype, device):
    """An empty cache of `batch_size` sequences for a mixer, K3's own two included."""
    if hasattr(mixer, "new_cache"):
        return mixer.new_cache(batch_size, dtype, device)
    return (MLACache if isinstance(mixer, GatedMLA) else KDACache)(mixer.config, batch_size, dtype, device)
