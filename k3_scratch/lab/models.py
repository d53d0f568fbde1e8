"""Arguments -> a small model. One flat dict holds all of them; the name says where each belongs."""

import dataclasses
import inspect

from k3_scratch.baselines.ffns import FFNS
from k3_scratch.baselines.frame import build
from k3_scratch.baselines.mixers import MIXERS
from k3_scratch.baselines.residuals import RESIDUALS
from k3_scratch.config import K3Config
from k3_scratch.lab.recipe import RECIPE_FIELDS

# The lab's default: D 32, 2 heads of 16 channels, decays from |g| = 1e-3 to 0.3 at the start (bound -5, so that
# |g| = 5 (1 - e^-dt)), no experts. The task gives the vocabulary.
SMALL = K3Config(hidden_size=32, num_heads=2, kda_key_dim=16, kda_value_dim=16, intermediate_size=64, num_experts=8,
                 moe_intermediate_size=32, moe_latent_size=16, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=16,
                 qk_rope_head_dim=8, v_head_dim=16, dt_min=2e-4, dt_max=0.062, initializer_range=0.1)
PARTS = {"layers": "kda,kda", "ffn": "swiglu", "residual": "plain"}
CONFIG_FIELDS = {field.name for field in dataclasses.fields(K3Config)}


def build_model(arguments, vocab_size, seed=0):
    """The `Frame` that the arguments describe; those of the trainer are left out.            dict -> Frame

    An option (such as `convolution`) that no part of this model has is left out too: so a common `convolution=True`
    gives the attention layers of all variants one, and says nothing to the recurrent ones, which always have it.
    Raises what `build` raises.
    """
    config = SMALL.replace(**{"vocab_size": vocab_size, "first_k_dense": 0,
                              **{name: value for name, value in arguments.items() if name in CONFIG_FIELDS}})
    rest = {name: value for name, value in arguments.items() if name not in CONFIG_FIELDS | RECIPE_FIELDS}
    parts = {name: rest.pop(name, default) for name, default in PARTS.items()}
    known, used = _options(), _options_of(parts)
    options = {name: value for name, value in rest.items() if name not in known or name in used}
    return build(parts["layers"], parts["ffn"], parts["residual"], config=config, seed=seed, **options)


def _options_of(parts):
    names = parts["layers"].split(",") if isinstance(parts["layers"], str) else parts["layers"]
    found = [*(MIXERS[name.strip()] for name in names), FFNS[parts["ffn"]], RESIDUALS[parts["residual"]]]
    return {name for part in found for name in inspect.signature(part.make).parameters}


def _options():
    everything = (*MIXERS.values(), *FFNS.values(), *RESIDUALS.values())
    return {name for part in everything for name in inspect.signature(part.make).parameters}
