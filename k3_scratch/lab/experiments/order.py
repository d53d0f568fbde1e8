"""Is a layer blind to order? Exact, no training."""

import numpy as np
import torch

from k3_scratch.baselines.mixers import MIXERS
from k3_scratch.lab.experiment import Experiment, Paper, Quick, Size, Variant
from k3_scratch.lab.models import SMALL
from k3_scratch.lab.pictures import dots
from k3_scratch.lab.summary import Within

SMALLEST = 1e-17        # a difference of exactly 0 has no place on a scale of factors


@torch.no_grad()
def measure(job):
    """Shuffle all tokens but the last: how much does the output at the last one change, relative to its size?

    Mean over 20 shuffles of 24 random tokens, float64, layers as they are initialised. "no mask" compares all outputs:
    attention without a mask should give shuffled outputs for shuffled inputs.
    """
    names, taps, causal = (job.arguments[name] for name in ("mixers", "taps", "causal"))
    config = SMALL.replace(conv_size=taps)
    options = {"convolution": taps > 1}
    layers = [MIXERS[name](config, **(options if name.startswith("attention") else {})).double() for name in names]
    rng = np.random.default_rng(job.seed)
    x = torch.from_numpy(rng.standard_normal((1, 24, config.hidden_size)))
    changes = []
    for _ in range(20):
        places = np.append(rng.permutation(23), 23)
        if causal:
            before, after = run(layers, x)[0, -1], run(layers, x[:, places])[0, -1]
        else:
            before, after = unmasked(layers[0], x)[0, places], unmasked(layers[0], x[:, places])[0]
        changes.append(float((after - before).norm() / before.norm()))
    return {"values": {"change": max(float(np.mean(changes)), SMALLEST)}}


def run(layers, x):
    """The layers one after the other; all but the first on top of a plain residual.             [B, T, D] -> same"""
    y = layers[0](x)
    for layer in layers[1:]:
        x = x + y
        y = layer(x)
    return y


def unmasked(layer, x):
    """Softmax attention of `layer` in which every token sees all.                                [B, T, D] -> same"""
    q, k, v = (part.transpose(1, 2) for part in layer.queries_keys_values(x))
    return layer.o_proj(torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def mixer(name, *names):
    """A variant with these layers."""
    return Variant(name, "the layers", {"mixers": names})


BLIND = ("NoPE attention", "linear attention")
SEES = ("RoPE attention", "scalar decay", "delta rule", "gated delta rule", "KDA")
BARE, CONVOLVED = "no convolution", "convolution of 4 taps"

EXPERIMENT = Experiment(
    name="order", letter="d", title="Who sees order?",
    question="If all tokens before the last are shuffled, does the output at the last one change?",
    setup="No training, float64: 24 random tokens, 20 shuffles, layers as initialised, relative change of the last "
          "output. Every layer once without and once with a short convolution of 4 taps.",
    variants=(mixer("NoPE attention", "attention_nope"),
              Variant("NoPE attention, no mask", "the mask", {"causal": False}),
              mixer("linear attention", "linear_attention"),
              mixer("two NoPE layers", "attention_nope", "attention_nope"),
              mixer("RoPE attention", "attention_rope"), mixer("scalar decay", "scalar_decay"),
              mixer("delta rule", "delta_net"), mixer("gated delta rule", "gated_delta_net"), mixer("KDA", "kda")),
    common={"causal": True, "mixers": ("attention_nope",)}, measure=measure,
    sizes=(Size(BARE, {"taps": 1}), Size(CONVOLVED, {"taps": 4})), seeds=5, seconds=0.2,
    matched="nothing: the layers are not trained, and their sizes do not matter to the question",
    claims=(
        Within("attention without positions and linear attention are exactly blind to order", "change",
               (*BLIND, "NoPE attention, no mask"), high=1e-12, sizes=(BARE,)),
        Within("two causal layers without positions are blind no longer: the mask itself tells order", "change",
               ("two NoPE layers",), low=1e-3, sizes=(BARE,)),
        Within("whatever decays or erases sees order without any positions", "change", SEES, low=0.05, sizes=(BARE,)),
        Within("with a short convolution every causal layer sees order", "change", (*BLIND, *SEES), low=0.05,
               sizes=(CONVOLVED,)),
    ),
    expected="A sum over all earlier tokens cannot know their order. A decay or an erasing makes late tokens count "
             "other than early ones: that is where K3 gets positions from, with no rotation anywhere.",
    draw=dots("change", title="A recurrence is a position: no rotation is needed to see order",
              x_label="relative change of the last output", log=True, columns=2),
    alt="Two panels on a scale of factors. Without a convolution, attention without positions and linear attention "
        "change by about 1e-16, two such layers and all others by more than a tenth. With a convolution of four taps "
        "every layer changes.",
    paper=Paper("Haviv et al., arXiv 2203.16634", "A causal mask alone lets deep stacks of attention without positions "
                "learn where they are; one layer cannot."),
    quick=Quick(seeds=2, steps=None))
