"""The metadata of a `kimi-k3` GGUF file: every key that llama.cpp reads, from the configuration alone."""

from k3_scratch.export.files import ExportError
from k3_scratch.export.gguf_tokenizer import tokenizer_keys

ARCHITECTURE = "kimi-k3"
SIGMOID = 2                                      # llama.cpp's number for a router that scores with a sigmoid
CONTEXT_LENGTH = 4096                            # what a program reserves unless told; without positions no limit


class GGUFError(ExportError):
    """A model, configuration or file that GGUF or llama.cpp cannot hold; the message names the field or tensor."""


def gguf_keys(config):
    """{key: bool, int, float, str or list} with all keys, those of the tokenizer too.

    Raises GGUFError naming the field when llama.cpp cannot run such a model; see `refuse_unfit`.
    """
    refuse_unfit(config)
    c, r = config, config.qk_rope_head_dim
    ours = {
        "context_length": CONTEXT_LENGTH, "vocab_size": c.vocab_size,
        "embedding_length": c.hidden_size, "block_count": c.num_layers,
        "feed_forward_length": c.intermediate_size, "leading_dense_block_count": c.first_k_dense,
        "attention.head_count": c.num_heads,
        "attention.head_count_kv": [int(c.is_mla(layer)) for layer in range(c.num_layers)],   # 1 = MLA, 0 = KDA
        "attention.layer_norm_rms_epsilon": float(c.rms_norm_eps),
        "attention.kv_lora_rank": c.kv_lora_rank,
        "attention.key_length": c.kv_lora_rank + r,          # of what is cached ...
        "attention.value_length": c.kv_lora_rank,
        "attention.key_length_mla": c.qk_head_dim,           # ... and of one head
        "attention.value_length_mla": c.v_head_dim,
        "rope.dimension_count": r,                           # the slice that K3 never rotates
        "ssm.conv_kernel": c.conv_size, "kda.head_dim": c.kda_key_dim,
        "kda.gate_lower_bound": float(c.gate_lower_bound),   # missing: llama.cpp takes softplus without a word
        "expert_count": c.num_experts, "expert_used_count": c.num_experts_per_token,
        "expert_feed_forward_length": c.moe_intermediate_size, "expert_shared_count": c.num_shared_experts,
        "expert_latent_length": c.moe_latent_size,
        "expert_weights_scale": float(c.routed_scaling_factor), "expert_weights_norm": True,
        "expert_gating_func": SIGMOID,
        "activation.situ_beta": float(c.situ_beta), "activation.situ_linear_beta": float(c.situ_linear_beta),
        "attn_res.block_size": c.attn_res_block_size,
    }
    if c.q_lora_rank is not None:
        ours["attention.q_lora_rank"] = c.q_lora_rank
    return {"general.name": "k3_scratch", **{f"{ARCHITECTURE}.{key}": value for key, value in ours.items()},
            **tokenizer_keys(c)}


def refuse_unfit(config):
    """Raise GGUFError when llama.cpp's `kimi-k3` has no way to say what the configuration says."""
    c = config
    for name, fits, wanted in (
            ("kda_value_dim", c.kda_value_dim == c.kda_key_dim, f"kda_key_dim = {c.kda_key_dim}"),
            ("gate_lower_bound", c.gate_lower_bound is not None, "a number (the bounded gate)"),
            ("use_full_rank_gate", c.use_full_rank_gate, "true"),
            ("attn_res_block_size", c.attn_res_block_size is not None, "a number (attention residuals)"),
            ("moe_latent_size", c.moe_latent_size is not None, "a number (experts in a latent space)"),
            ("activation", c.activation == "situ", "'situ'"),
            ("mla_layers", 0 < len(c.mla_layers) < c.num_layers, "some layers and not all (llama.cpp aborts)")):
        if not fits:
            raise GGUFError(f"{name} must be {wanted} in a {ARCHITECTURE} GGUF, but {getattr(c, name)!r} came")


def remarks(config):
    """What llama.cpp computes otherwise than the model, as sentences; empty when nothing.

    llama.cpp has one eps, that of the RMSNorms, and uses it also for the unit-length q and k and for the two latents.
    tests/oracles measures what that does to the trained miniature (1e-6 against 1e-5).
    """
    return [f"{name} is {getattr(config, name):g} here; llama.cpp uses rms_norm_eps = {config.rms_norm_eps:g} there"
            for name in ("l2_norm_eps", "latent_norm_eps") if getattr(config, name) != config.rms_norm_eps]
