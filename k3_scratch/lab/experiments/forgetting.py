"""Keep some, forget some: one decay for all channels against one a channel. Built by hand, no training."""

import numpy as np

from k3_scratch.lab.experiment import Experiment, Quick, Size, Variant
from k3_scratch.lab.pictures import dots
from k3_scratch.lab.summary import Above
from k3_scratch.reference.delta_rule import delta_step

K, OLD, MANY, NEW, MEMORIES = 32, 8, 256, 8, 20
NOISE = 0.1             # on each number read; without it a fact faded to 1e-12 would still count as kept


def measure(job):
    """Old facts with keys on the first half of the channels, then many with keys on the other half; ask old and new.

    A hit: of all values ever written the right one is nearest (largest cosine) to what comes back. Mean over 20
    memories of a seed.
    """
    rng = np.random.default_rng(job.seed)
    old, new = np.mean([one_memory(rng, **job.arguments) for _ in range(MEMORIES)], axis=0)
    return {"values": {"old facts": old, "new facts": new, "worse of the two": min(old, new)}}


def one_memory(rng, keep, fade, erases):
    """Share of the old facts and of the newest that one memory gives back."""
    keys = np.zeros((OLD + MANY, K))
    keys[:OLD, :K // 2] = rng.standard_normal((OLD, K // 2))
    keys[OLD:, K // 2:] = rng.standard_normal((MANY, K // 2))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    values = rng.standard_normal((OLD + MANY, K))
    decay = np.repeat([keep, fade], K // 2)[:, None]                     # [K, 1]
    state = np.zeros((K, K))
    for key, value in zip(keys, values, strict=True):
        state = decay * state
        state = delta_step(state, key, value, 1.0) if erases else state + np.outer(key, value)
    read = keys @ state + NOISE * rng.standard_normal((OLD + MANY, K))
    found = read @ (values / np.linalg.norm(values, axis=1, keepdims=True)).T
    right = found.argmax(1) == np.arange(OLD + MANY)
    return right[:OLD].mean(), right[-NEW:].mean()


def decays(keep, fade):
    """Decay of the channels that hold the old facts and of the others."""
    return {"keep": keep, "fade": fade}


EXPERIMENT = Experiment(
    name="forgetting", letter="b", title="Keep some, forget some: built by hand",
    question="Can a memory keep a few facts for ever and still make room for a stream of passing ones?",
    setup="NumPy, no training. 8 old facts have keys on the first 16 of 32 channels, 256 later ones on the other 16; "
          "asked are the 8 old and the newest 8. Decay a token: one for all channels, or none on the first half and .9 "
          "on the second. Reading adds noise of a tenth of a value's size, so that what has faded is lost. Once the "
          "memory adds, once it follows the delta rule. A seed is the mean over 20 memories.",
    variants=(Variant("per channel: 1 and .9", "the decays", decays(1.0, 0.9)),
              Variant("scalar .9", "the decays", decays(0.9, 0.9)),
              Variant("scalar .99", "the decays", decays(0.99, 0.99)),
              Variant("no decay", "the decays", decays(1.0, 1.0))),
    tied=("keep", "fade"), measure=measure,
    sizes=(Size("addition", {"erases": False}), Size("delta rule", {"erases": True})), seeds=10, seconds=0.2,
    matched="nothing: the memory is the same 32 by 32 numbers, and nothing is trained",
    claims=(
        Above("decay per channel is better at the worse of the two than any scalar", "worse of the two",
              ("per channel: 1 and .9",), ("scalar .9", "scalar .99")),
        Above("with addition it is also better than no decay", "worse of the two", ("per channel: 1 and .9",),
              ("no decay",), sizes=("addition",)),
        Above("with the delta rule it is also better than no decay", "worse of the two", ("per channel: 1 and .9",),
              ("no decay",), sizes=("delta rule",), by="mean"),
    ),
    expected="A scalar that is fast enough for the stream loses the old facts, one that is slow enough for them drowns "
             "in the stream. The delta rule without any decay already clears what is overwritten, so there the gain "
             "over no decay should be small.",
    draw=dots("worse of the two", title="One decay for all channels cannot both keep and forget",
              x_label="share found, the worse of old and new", limits=(-0.03, 1.03)),
    alt="Two panels, addition and delta rule, ten seeds as dots: decay per channel near .8 and above, both scalars "
        "far below; without decay addition is low too, while the delta rule equals decay per channel.",
    quick=Quick(seeds=2, steps=None))
