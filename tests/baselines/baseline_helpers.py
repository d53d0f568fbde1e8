"""Shared by the tests of mixers and frame: operators with their arguments, live mixers, ways to feed them."""

import torch
from torch_helpers import NANO, kda_arguments

from k3_scratch.baselines.delta_net import delta_chunk, delta_recurrent
from k3_scratch.baselines.gated_delta_net import gated_delta_chunk, gated_delta_recurrent
from k3_scratch.baselines.linear_attention import linear_attention_chunk, linear_attention_recurrent
from k3_scratch.baselines.mixers import MIXERS
from k3_scratch.baselines.scalar_decay import scalar_decay_chunk, scalar_decay_recurrent

# name: recurrent form, chunk form, what each takes between k and state
OPERATORS = {
    "linear_attention": (linear_attention_recurrent, linear_attention_chunk, ("v",)),
    "scalar_decay": (scalar_decay_recurrent, scalar_decay_chunk, ("v", "g")),
    "delta": (delta_recurrent, delta_chunk, ("v", "beta")),
    "gated_delta": (gated_delta_recurrent, gated_delta_chunk, ("v", "g", "beta")),
}

# Every mixer, and every option that changes what it computes.
MIXER_CASES = {
    **{name: (name, {}) for name in MIXERS},
    "window_of_1": ("window_rope", {"window": 1}), "window_of_5": ("window_rope", {"window": 5}),
    "window_conv": ("window_rope", {"window": 4, "convolution": True, "output_gate": True}),
    "nope_conv": ("attention_nope", {"convolution": True}),
    "rope_gate": ("attention_rope", {"output_gate": True, "rope_theta": 100.0}),
}


def arguments_of(name, regime, T, **sizes):
    """Arguments of an operator in their order, g one a head: the first channel of KDA's."""
    given = kda_arguments(regime, T, **sizes)
    given["g"] = given["g"][..., 0]
    return {key: given[key] for key in ("q", "k", *OPERATORS[name][2], "state")}


def live_mixer(case, config=NANO, seed=0, dtype=torch.float64):
    """A mixer in which every part matters: matrices of a size, vectors random too."""
    name, options = MIXER_CASES[case]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        mixer = MIXERS[name](config, **options).to(dtype)
        with torch.no_grad():
            for key, x in mixer.named_parameters():
                if x.dim() == 1:
                    x.copy_((-1.0 if "dt_bias" in key else 0.0 if "A_log" in key else 1.0) + 0.3 * torch.randn_like(x))
                elif "conv1d" not in key:
                    x.normal_(0.0, x.shape[-1] ** -0.5)
    return mixer


def hidden_states(*shape, seed=3):
    return torch.randn(*shape, NANO.hidden_size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
