"""The norm before W_up and the two ceilings of SiTU: what do they hold back?"""

import torch

from k3_scratch.analysis.expert_sizes import expert_sizes
from k3_scratch.lab.experiment import Experiment, Quick, Size, Variant
from k3_scratch.lab.facts import Facts, memory
from k3_scratch.lab.pictures import curves
from k3_scratch.lab.recipe import recipe_of
from k3_scratch.lab.summary import Above, Within
from k3_scratch.lab.trainer import train

WINDOW = 20        # updates that one point of a curve covers
BOUND = 100.0      # of SiTU: 4 in the gate times 25 in the up branch


def measure(job):
    """Train, and keep of every WINDOW updates the largest activation of a routed expert and the sizes W_up reads."""
    model = memory(job.arguments, job.task.vocab_size, job.seed)
    recipe = recipe_of(job.arguments, job.steps)
    curve = {"step": [], "largest": [], "size": []}
    spreads = []
    with expert_sizes(list(model.moe_layers().values())) as seen:
        def watch(step, _):
            if (step + 1) % WINDOW == 0 or step + 1 == job.steps:
                sizes = torch.cat(seen.sums)
                for name, value in (("step", step + 1), ("largest", seen.largest), ("size", sizes.mean().item())):
                    curve[name].append(value)
                spreads.append((sizes.std() / sizes.mean()).item())
                seen.clear()
        trained = train(model, job.task, recipe, job.seed, watch)
    values = {"largest activation": max(curve["largest"]), "size W_up reads": curve["size"][-1],
              "spread of that size": spreads[-1], "loss": trained["loss"][-1], "accuracy": trained["accuracy"][-1]}
    return {"values": values, "curve": curve}


K3, SWIGLU, BARE, BARE_SWIGLU = "norm, SiTU", "norm, SwiGLU", "no norm, SiTU", "no norm, SwiGLU"
USUAL, HIGH = "learning rate .01", "learning rate .1"

EXPERIMENT = Experiment(
    name="latent_norm_situ", letter="g", title="The norm before W_up, and SiTU",
    question="How large do the numbers inside the experts become with and without the norm on their sum, with SiTU "
             "and with SwiGLU, and does it matter?",
    setup="The 16,384 facts once more, two sublayers of 2 of 16 experts in a latent of half the width, no shared "
          "expert, 400 steps of 1,024 facts; once at a usual learning rate, once at ten times that, gradients clipped "
          "at 1. Recorded are the largest activation of any routed expert in training (what w2 reads), the size (RMS) "
          "of what W_up reads, and how much that differs from token to token. SiTU's bounds are K3's, 4 and 25, so no "
          "activation can exceed 100.",
    variants=(Variant(K3, "norm or activation"), Variant(SWIGLU, "the activation", {"activation": "swiglu"}),
              Variant(BARE, "the norm", {"moe_latent_norm": False}),
              Variant(BARE_SWIGLU, "the activation", {"moe_latent_norm": False, "activation": "swiglu"}, BARE)),
    common={"ffn": "latent_moe", "labels": 64, "num_shared_experts": 0, "moe_latent_norm": True, "activation": "situ",
            "num_experts": 16, "num_experts_per_token": 2, "moe_intermediate_size": 64, "moe_latent_size": 16,
            "batch_size": 1024, "rows": 4096, "evaluate_every": 100},
    sizes=(Size(USUAL, {"learning_rate": 1e-2}), Size(HIGH, {"learning_rate": 0.1})),
    task=Facts(), model=memory, measure=measure, steps=400, seeds=3, seconds=9.0, matched="parameters",
    tolerance=0.001,
    claims=(
        Within("no activation of SiTU exceeds its bound", "largest activation", (K3, BARE), high=BOUND),
        Within("at the high rate SwiGLU exceeds that bound", "largest activation", (SWIGLU, BARE_SWIGLU),
               low=BOUND, sizes=(HIGH,)),
        Above("SwiGLU's largest activation is above SiTU's", "largest activation", (SWIGLU,), (K3,)),
        Above("also without the norm", "largest activation", (BARE_SWIGLU,), (BARE,)),
        Above("without the norm W_up reads larger vectors", "size W_up reads", (BARE, BARE_SWIGLU), (K3, SWIGLU)),
        Above("at the high rate the norm gives a smaller loss", "loss", (K3,), (BARE,), (HIGH,), by="mean", lower=True),
        Above("at the high rate SiTU gives a smaller loss than SwiGLU", "loss", (K3,), (SWIGLU,), (HIGH,), by="mean",
              lower=True),
    ),
    expected="At the usual rate neither should matter for the loss. At ten times that SwiGLU's product of two "
             "unbounded factors should run away, SiTU's cannot. The norm makes vectors of one size for W_up, "
             "whatever the experts put out. One other seed of 150 steps before this run, at .01 and .1: SiTU 12 "
             "and 85, SwiGLU 19 and 936, without the norm 23 and 99, 38 and 2,600; at .1 losses of 3.64 (K3), 3.68 "
             "(SwiGLU), 3.72 (no norm), at .01 within .07 of each other and in no such order.",
    table=("largest activation", "size W_up reads", "spread of that size", "loss", "accuracy"),
    draw=curves("largest", x="step", title="SiTU has a ceiling at 100; where training is pushed, SwiGLU has none",
                x_label="training step", y_label="largest activation in 20 steps", log_y=True, level=BOUND),
    alt="Two panels on a scale of factors, a usual and a high learning rate: the largest activation inside the experts "
        "against training steps. At the usual rate all four variants stay below the dashed line at 100; at the high "
        "rate both lines with SwiGLU rise to about ten thousand, both with SiTU end at 100.",
    quick=Quick(seeds=1, steps=3, build={"rows": 128, "evaluate_every": 3, "batch_size": 128}))
