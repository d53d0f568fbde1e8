"""How much is measured: the full benchmark, and the quick one, which shows in under a minute that all of it runs."""

import dataclasses
from dataclasses import dataclass

from k3_scratch.bench.inputs import Shape
from k3_scratch.config import K3Config, preset


@dataclass(frozen=True)
class Plan:
    """Sizes of all measurements; every one of them reads its own fields."""

    name: str = "full"
    rounds: int = 9                              # that count, after the one that warms up
    least_seconds: float = 0.05                  # of one visit to a contender
    forward: tuple = (Shape(1, 256, 4, 64, 64), Shape(8, 128, 4, 32, 32), Shape(1, 1024, 4, 64, 64),
                      Shape(1, 4096, 4, 64, 64), Shape(1, 16384, 2, 64, 64), Shape(1, 2048, 8, 128, 128))
    fla_widest: int = 64                         # fla is compared where K is at most this
    training: tuple = (Shape(1, 256, 4, 64, 64), Shape(8, 128, 4, 32, 32), Shape(1, 1024, 4, 64, 64))
    token_loop: Shape = Shape(1, 1024, 2, 64, 64)
    limit: Shape = Shape(1, 1024, 4, 64, 64)
    lengths: tuple = (256, 512, 1024, 2048, 4096)
    length_shape: Shape = Shape(1, 0, 4, 64, 64)            # T comes from `lengths`
    longest_truth: int = 1024                    # longest T whose gradients are checked (memory of the float64 loop)
    accuracy: Shape = Shape(2, 250, 2, 64, 64)
    kda_contexts: tuple = (1024, 131072)         # the layer's decode step at the second over that at the first
    kda_prefill: int = 4096                      # tokens fed at once to get there
    contexts: tuple = (128, 1024, 16384, 131072)
    reexpand_up_to: int = 16384                  # longest context at which MLA also expands everything for each token
    decode_heads: int = 4
    decode_width: int = 64                       # of a head, keys and values alike
    decode_latent: int = 128
    experts: tuple = (16, 64)
    moe_tokens: int = 2048
    moe_top: int = 2
    moe_latent: int = 64
    moe_hidden: int = 128
    model: K3Config = preset("mini")
    batch_size: int = 32                         # windows and tokens of a training step, as in `k3 train`
    length: int = 80
    prompt: int = 256                            # tokens of context in the decode of the whole model
    chunk_lengths: tuple = (2, 4, 8, 12, 16, 20, 24, 32, 48, 64)
    error_shape: Shape = Shape(1, 256, 2, 64, 64)


FULL = Plan()

QUICK = dataclasses.replace(
    FULL, name="quick", rounds=3, least_seconds=0.01, forward=FULL.forward[:2], training=FULL.training[:1],
    lengths=(128, 512), kda_contexts=(1024, 16384), contexts=(128, 1024, 16384), reexpand_up_to=1024,
    experts=(16,), accuracy=Shape(1, 100, 2, 64, 64), chunk_lengths=(4, 16, 32, 64))
