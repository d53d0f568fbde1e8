"""FFNS: the feed-forward parts by name.

A part is a module made from a `K3Config` alone. `part(x, mask=None)` takes x [B, T, D], the normed input of the
sublayer, and mask [B, T], False at pads, which are neither counted nor in a loss; it returns [B, T, D]. Parts with
experts also have

    expert_counts   [E] tokens per expert in the last training batch, None before the first
    balance()       set what the next batch is chosen by; call it after each training batch
    forget_observed()  call it before each training batch, as training/shards.py does
    aux_loss        only "softmax_moe": a scalar after a training forward, 1 at perfect balance; the training loss adds
                    `aux_weight` times it. Of the thread's own part of the batch (`PART` in layers/latent_moe.py).

Read them with `getattr(part, "aux_loss", None)`. Parameters have the names of `LatentMoE` and `FeedForward`. Matrices
of experts and routers are left unset: whoever builds the model draws them.
"""

from k3_scratch.baselines.dense_ffn import DenseFFN, SwiGLU
from k3_scratch.baselines.entry import Baseline, registry
from k3_scratch.baselines.latent_moe_no_norm import LatentMoENoNorm
from k3_scratch.baselines.sigmoid_moe import SigmoidMoE
from k3_scratch.baselines.softmax_moe import SoftmaxMoE
from k3_scratch.layers.latent_moe import LatentMoE


def full_width(config):
    """The config with experts that read x itself: no latent, no norm on their sum."""
    return config.replace(moe_latent_size=None, moe_latent_norm=False)


FFNS = registry(
    Baseline("swiglu", "ffn", "Llama, Qwen; every expert of Kimi Linear",
             "y = W_down (silu(W_gate x) * W_up x)", "Shazeer, arXiv 2002.05202", SwiGLU),
    Baseline("dense", "ffn", "Kimi K3 in its first layer",
             "y = W_down (act(W_gate x) * W_up x), act of the config (K3: SiTU)", "K3 report", DenseFFN),
    Baseline("latent_moe", "ffn", "Kimi K3",
             "y = W_up RMSNorm(sum_e p_e E_e(W_down x)) + E_shared(x), bias by quantiles", "K3 report", LatentMoE),
    Baseline("latent_moe_no_norm", "ffn", "Nemotron 3",
             "y = W_up sum_e p_e E_e(W_down x) + E_shared(x): no norm before W_up",
             "LatentMoE, arXiv 2601.18089", LatentMoENoNorm),
    Baseline("softmax_moe", "ffn", "DeepSeekMoE, DeepSeek-V2; Mixtral and Qwen3 with renormalised weights",
             "p = softmax(W_r x), loss + a E/(k m) sum_e n_e P_e; y = sum_e p_e E_e(x) + E_shared(x)",
             "DeepSeekMoE, arXiv 2401.06066", lambda config: SoftmaxMoE(full_width(config))),
    Baseline("sigmoid_moe", "ffn", "DeepSeek-V3; Kimi Linear has the same router and experts",
             "b <- b + rate * sign(mean load - load); y = sum_e p_e E_e(x) + E_shared(x): no latent",
             "DeepSeek-V3, arXiv 2412.19437", lambda config: SigmoidMoE(full_width(config))),
)
