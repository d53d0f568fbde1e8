"""Keep some, forget some: one decay for all channels against one a channel. Built by hand, no training."""

import numpy as np

from k3_scratch.lab.experiment import Experiment, Quick, Size, Variant
from k3_scratch.lab.pictures import dots
from k3_scratch.lab.summary import Above
from k3_scratch.reference.delta_rule import delta_step

K, OLD, MANY, NEW = 32, 8, 256, 8


def measure(job):
    """Old facts with keys on the first half of the channels, then many with keys on the other half; ask old and new.

    A hit: of all values ever written the right one is nearest (largest cosine) to what comes back.
    """
    keep, fade, erases = (job.arguments[name] for name in ("first half", "second half", "erases"))
    rng = np.random.default_rng(job.seed)
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
    found = (keys @ state) @ (values / np.linalg.norm(values, axis=1, keepdims=True)).T
    right = found.argmax(1) == np.arange(OLD + MANY)
    old, new = float(right[:OLD].mean()), float(right[-NEW:].mean())
    return {"values": {"old facts": old, "new facts": new, "worse of the two": min(old, new)}}


def decays(first, second):
    """Decay of the channels that hold the old facts and of the others."""
    return {"first half": first, "second half": second}


EXPERIMENT = Experiment(
    name="forgetting", letter="b", title="Keep some, forget some: built by hand",
    question="Can a memory keep a few facts for ever and still make room for a stream of passing ones?",
    setup="NumPy, no training. 8 old facts have keys on the first 16 of 32 channels, 256 later ones on the other 16; "
          "asked are the 8 old and the newest 8. Decay a token: one for all channels, or none on the first half and .9 "
          "on the second. Once the memory adds, once it follows the delta rule.",
    variants=(Variant("per channel: 1 and .9", "the decays", decays(1.0, 0.9)),
              Variant("scalar .9", "the decays", decays(0.9, 0.9)),
              Variant("scalar .99", "the decays", decays(0.99, 0.99)),
              Variant("no decay", "the decays", decays(1.0, 1.0))),
    tied=("first half", "second half"), measure=measure,
    sizes=(Size("addition", {"erases": False}), Size("delta rule", {"erases": True})), seeds=10, seconds=0.5,
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
              x_label="hits among old or among new facts, whichever is fewer", limits=(-0.03, 1.03)),
    alt="Two panels, addition and delta rule, ten seeds as dots: decay per channel near .8 and above, both scalars "
        "far below; without decay addition is low too, while the delta rule equals decay per channel.",
    quick=Quick(seeds=2, steps=None))
