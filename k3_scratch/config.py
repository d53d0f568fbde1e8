"""The numbers that make a K3: one frozen dataclass, one remark per field, and the presets.

The same class describes Kimi K3, Kimi Linear 48B and the toys of this course; which part a layer is built from follows
from the fields alone. Sources: released config of moonshotai/Kimi-K3; Kimi Linear, arXiv 2510.26692; K3 report.
"""

import dataclasses
import json
import math
from dataclasses import dataclass
from pathlib import Path


class ConfigError(ValueError):
    """A field of a configuration is impossible; the message names the field, what was wanted and what came."""


@dataclass(frozen=True)
class VisionConfig:
    """MoonViT-V2, the picture encoder of K3, and its projector into the language model."""

    num_layers: int = 27              # encoder layers
    hidden_size: int = 1024           # width of the encoder
    num_heads: int = 12               # attention heads
    qkv_size: int = 1536              # width of q, of k and of v, all heads together
    intermediate_size: int = 4096     # hidden width of the encoder's MLP
    patch_size: int = 14              # a patch is patch_size x patch_size pixels
    num_channels: int = 3             # red, green, blue
    position_table: int = 64          # learned positions: a table of 64 x 64
    merge: int = 2                    # pixel shuffle: merge x merge patches become one token
    image_token: int = 259            # the marker, one for each token of a picture; 259 in our byte vocabulary

    @property
    def projector_size(self):
        """Width of one merged token: merge^2 * hidden_size."""
        return self.merge ** 2 * self.hidden_size

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _need_integer(self, field.name, 1, "vision.")
        _need(self, "qkv_size", self.qkv_size % (4 * self.num_heads) == 0,
              f"a multiple of 4 num_heads = {4 * self.num_heads} (2-D positions turn pairs in two halves)", "vision.")


@dataclass(frozen=True)
class K3Config:
    """Every size and switch of a model. Immutable; wrong values raise ConfigError when it is made."""

    # The stack
    vocab_size: int = 260                     # tokens; 260 = 256 bytes and 4 specials
    hidden_size: int = 64                     # D, width of the embedding and of every mix over depth
    num_layers: int = 4                       # decoder layers, each one attention part and one FFN part
    num_heads: int = 4                        # H, heads of KDA and of MLA alike
    mla_layers: tuple[int, ...] | None = None  # 0-based MLA layers; None: every fourth and the last
    rms_norm_eps: float = 1e-5                # eps of every RMSNorm but the two inside MLA
    attn_res_block_size: int | None = 2       # decoder layers per AttnRes block; None: the plain residual h + y

    # Kimi Delta Attention
    kda_key_dim: int = 16                     # K, channels of q, k and of the decay, per head
    kda_value_dim: int = 16                   # V, channels of v and of the output, per head (K3: V = K)
    conv_size: int = 4                        # taps of the causal depthwise convolution on q, k and v
    gate_lower_bound: float | None = -5.0     # K3: g = bound * sigmoid(exp(A) z); None: g = -exp(A) softplus(z)
    use_full_rank_gate: bool = True           # output gate W_g full rank (K3) or through K channels (Kimi Linear)
    l2_norm_eps: float = 1e-6                 # eps under the root of the unit-length q and k

    # Gated MLA without positions
    q_lora_rank: int | None = 32              # rank of the query path; None: one full-rank W_q
    kv_lora_rank: int = 32                    # R, rank of the latent that is cached
    qk_nope_head_dim: int = 16                # key channels per head that are expanded from the latent
    qk_rope_head_dim: int = 8                 # width of the key slice shared by all heads; in K3 it is never rotated
    v_head_dim: int = 16                      # value channels per head
    mla_output_gate: bool = True              # sigmoid gate on the concatenated heads
    latent_norm_eps: float = 1e-6             # eps of the RMSNorms on the q and kv latents

    # Feed-forward parts
    intermediate_size: int = 128              # hidden width of the dense FFN in the first layers
    first_k_dense: int = 1                    # layers at the start with a dense FFN in place of the MoE
    num_experts: int = 16                     # E, routed experts per layer
    num_experts_per_token: int = 2            # k, experts chosen for each token
    num_shared_experts: int = 1               # fused into one MLP of num_shared_experts * moe_intermediate_size
    moe_intermediate_size: int = 64           # F, hidden width of one expert
    moe_latent_size: int | None = 32          # L, width at which the routed experts work; None: they work at D
    moe_latent_norm: bool = True              # RMSNorm on the summed experts, before W_up; also without a latent
    routed_scaling_factor: float = 1.0        # factor on the renormalised mixing weights
    activation: str = "situ"                  # "situ" (K3) or "swiglu" (Kimi Linear)
    situ_beta: float = 4.0                    # bound of the gate branch of SiTU
    situ_linear_beta: float = 25.0            # bound of the up branch of SiTU

    # Initialisation
    initializer_range: float = 0.02           # standard deviation of the matrices
    dt_min: float = 1e-3                      # dt_bias = inverse softplus of dt, log-uniform from dt_min ...
    dt_max: float = 1e-1                      # ... to dt_max

    # The checkpoint on disk, for counting bytes
    checkpoint_dtype: str = "float32"         # "float32" or "bfloat16"; small float32 tensors stay float32 (spec 3)
    expert_dtype: str = "float32"             # "float32", "bfloat16" or "mxfp4" (4.25 bits) for routed experts
    vision: VisionConfig | None = None        # the picture encoder; None: text only

    def __post_init__(self):
        if self.mla_layers is None and isinstance(self.num_layers, int):
            every_fourth = set(range(3, self.num_layers, 4)) | {self.num_layers - 1}
            object.__setattr__(self, "mla_layers", tuple(sorted(every_fourth)))
        if isinstance(self.mla_layers, list):
            object.__setattr__(self, "mla_layers", tuple(self.mla_layers))
        if isinstance(self.vision, dict):
            object.__setattr__(self, "vision", _from_fields(VisionConfig, self.vision, "vision."))
        self._validate()

    def _validate(self):
        for name in ("vocab_size", "hidden_size", "num_layers", "num_heads", "kda_key_dim", "kda_value_dim",
                     "conv_size", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "intermediate_size", "num_experts",
                     "num_experts_per_token", "moe_intermediate_size"):
            _need_integer(self, name, 1)
        for name in ("qk_rope_head_dim", "first_k_dense", "num_shared_experts"):
            _need_integer(self, name, 0)
        for name in ("q_lora_rank", "moe_latent_size", "attn_res_block_size"):
            if getattr(self, name) is not None:
                _need_integer(self, name, 1)
        for name in ("rms_norm_eps", "l2_norm_eps", "latent_norm_eps", "routed_scaling_factor", "situ_beta",
                     "situ_linear_beta", "initializer_range", "dt_min", "dt_max"):
            _need(self, name, is_number(getattr(self, name)) and getattr(self, name) > 0, "a number above 0")
        for name in ("use_full_rank_gate", "mla_output_gate", "moe_latent_norm"):
            _need(self, name, isinstance(getattr(self, name), bool), "true or false")
        for name, allowed in (("activation", ("situ", "swiglu")), ("checkpoint_dtype", ("float32", "bfloat16")),
                              ("expert_dtype", ("float32", "bfloat16", "mxfp4"))):
            _need(self, name, getattr(self, name) in allowed, "one of " + ", ".join(allowed))
        _need(self, "gate_lower_bound", self.gate_lower_bound is None
              or (is_number(self.gate_lower_bound) and self.gate_lower_bound < 0),
              "a number below 0, or null (softplus)")
        _need(self, "dt_max", self.dt_max >= self.dt_min, f"at least dt_min = {self.dt_min}")
        _need(self, "first_k_dense", self.first_k_dense <= self.num_layers,
              f"at most num_layers = {self.num_layers}")
        _need(self, "num_experts_per_token", self.num_experts_per_token <= self.num_experts,
              f"at most num_experts = {self.num_experts}")
        _need(self, "mla_layers", isinstance(self.mla_layers, tuple) and all(is_integer(i) for i in self.mla_layers)
              and list(self.mla_layers) == sorted(set(self.mla_layers))
              and all(0 <= i < self.num_layers for i in self.mla_layers),
              f"ascending layer numbers from 0 to {self.num_layers - 1}, each once")
        _need(self, "vision", self.vision is None or isinstance(self.vision, VisionConfig), "null or its fields")
        if self.vision is not None:
            _need(self.vision, "image_token", self.vision.image_token < self.vocab_size,
                  f"below vocab_size = {self.vocab_size}", "vision.")

    @property
    def kda_layers(self):
        """0-based numbers of the layers that are KDA."""
        return tuple(i for i in range(self.num_layers) if i not in self.mla_layers)

    @property
    def qk_head_dim(self):
        """Width of one MLA query: the expanded part and the shared slice."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def expert_size(self):
        """Width at which the routed experts read and write: L, or D without a latent."""
        return self.moe_latent_size or self.hidden_size

    def is_mla(self, layer):
        """True when this 0-based layer is MLA."""
        return layer in self.mla_layers

    def is_dense(self, layer):
        """True when this 0-based layer has the dense FFN."""
        return layer < self.first_k_dense

    def replace(self, **changes):
        """The same configuration with other values. A new `num_layers` places the MLA layers anew unless given."""
        if "num_layers" in changes:
            changes.setdefault("mla_layers", None)
        unknown = set(changes) - {field.name for field in dataclasses.fields(self)}
        if unknown:
            raise ConfigError(f"K3Config has no field {sorted(unknown)[0]!r}")
        return dataclasses.replace(self, **changes)

    def to_dict(self):
        """Plain numbers, texts, lists and dicts: what `from_dict` reads."""
        fields = dataclasses.asdict(self)
        return {**fields, "mla_layers": list(fields["mla_layers"])}

    @classmethod
    def from_dict(cls, fields):
        """A configuration from `to_dict`'s result; missing fields take their defaults, unknown ones raise."""
        return _from_fields(cls, fields)

    def to_json(self):
        """The text of a config.json, which `from_json` reads."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, path):
        """Read a JSON file. Raises ConfigError when it is not readable JSON or a field is wrong."""
        try:
            fields = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: not a readable JSON configuration ({error})") from error
        try:
            return cls.from_dict(fields)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error


def _from_fields(cls, fields, prefix=""):
    if not isinstance(fields, dict):
        raise ConfigError(f"a configuration is an object of fields, but a {type(fields).__name__} came")
    names = {field.name for field in dataclasses.fields(cls)}
    unknown = sorted(set(fields) - names)
    if unknown:
        raise ConfigError(f"{prefix}{unknown[0]}: no such field; known are {', '.join(sorted(names))}")
    return cls(**fields)


def is_integer(value):
    """A whole number, and not true or false."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value):
    """A finite number, and not true or false."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _need_integer(config, name, least, prefix=""):
    value = getattr(config, name)
    _need(config, name, is_integer(value) and value >= least, f"a whole number, at least {least}", prefix)


def _need(config, name, condition, wanted, prefix=""):
    if not condition:
        raise ConfigError(f"{prefix}{name} must be {wanted}, but {getattr(config, name)!r} came")


# The main job: the whole architecture at the size that a laptop trains in minutes. 4 sublayers = 2 layers per block.
_MINI = K3Config()

# For tests: every part present, every size another, a step in milliseconds.
_NANO = K3Config(
    vocab_size=260, hidden_size=24, num_layers=4, num_heads=2, attn_res_block_size=3, kda_key_dim=8, kda_value_dim=10,
    q_lora_rank=14, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, intermediate_size=40,
    num_experts=6, num_experts_per_token=2, num_shared_experts=2, moe_intermediate_size=18, moe_latent_size=16,
)

# The miniature with eyes: pictures of 12 x 12 pixels, 36 patches, 9 tokens each.
_VISION = K3Config(vision=VisionConfig(
    num_layers=2, hidden_size=48, num_heads=4, qkv_size=48, intermediate_size=96, patch_size=2, position_table=6,
))

# Kimi Linear 48B-A3B: softplus decay, low-rank gate, ungated MLA, plain MoE, plain residual (arXiv 2510.26692).
_KIMI_LINEAR_48B = K3Config(
    vocab_size=163_840, hidden_size=2304, num_layers=27, num_heads=32, attn_res_block_size=None, kda_key_dim=128,
    kda_value_dim=128, gate_lower_bound=None, use_full_rank_gate=False, q_lora_rank=None, kv_lora_rank=512,
    qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, mla_output_gate=False, intermediate_size=9216,
    num_experts=256, num_experts_per_token=8, num_shared_experts=1, moe_intermediate_size=1024, moe_latent_size=None,
    moe_latent_norm=False, routed_scaling_factor=2.446, activation="swiglu", checkpoint_dtype="bfloat16",
    expert_dtype="bfloat16",
)

# Kimi K3, 2.78 T (released config).
_KIMI_K3 = K3Config(
    vocab_size=163_840, hidden_size=7168, num_layers=93, num_heads=96, attn_res_block_size=12, kda_key_dim=128,
    kda_value_dim=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
    intermediate_size=33_792, num_experts=896, num_experts_per_token=16, num_shared_experts=2,
    moe_intermediate_size=3072, moe_latent_size=3584, checkpoint_dtype="bfloat16", expert_dtype="mxfp4",
    vision=VisionConfig(),
)

PRESETS = {"nano": _NANO, "mini": _MINI, "vision": _VISION, "kimi_linear_48b": _KIMI_LINEAR_48B, "kimi_k3": _KIMI_K3}


def preset(name):
    """The preset called `name`; an unknown name raises ConfigError that lists the known ones."""
    if name not in PRESETS:
        raise ConfigError(f"preset must be one of {', '.join(PRESETS)}, but {name!r} came")
    return PRESETS[name]
