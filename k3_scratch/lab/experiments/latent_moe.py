"""Experts and latents at equal work: how many facts does a feed-forward memory keep?"""

from k3_scratch.lab.experiment import Experiment, Paper, Quick, Variant
from k3_scratch.lab.facts import Facts, memory
from k3_scratch.lab.pictures import curves
from k3_scratch.lab.summary import Above
from k3_scratch.lab.trainer import train_cell


def moe(name, E, k, F, L=None, against=None, cost=1.2):
    """k of E experts of F slots at the width L; None: the model's 32."""
    return Variant(name, "how the multiplications are spent", {
        "num_experts": E, "num_experts_per_token": k, "moe_intermediate_size": F, "moe_latent_size": L}, against, cost)


DENSE, FULL = "one dense FFN", ("1 of 8 experts", "2 of 16 experts", "4 of 32 experts")
HALF, QUARTER, FEW = "4 of 32, half width", "8 of 64, quarter width", "2 of 16, half width"

EXPERIMENT = Experiment(
    name="latent_moe", letter="g", title="Experts, top-k and latent width at equal work",
    question="If every token is multiplied with equally many weights, what is better: one network, few large experts, "
             "many small ones, or more experts in a narrow latent?",
    setup="Pure storage: 16,384 random vectors of 32 numbers with one of 64 labels, four times the facts of chapter "
          "05; two feed-forward sublayers and nothing else, 700 steps of 1,024 facts, asked for the same facts. "
          "Equal are all multiplications of a token, those of the router, of W_down and of W_up included, so number "
          "and width of the experts, k and the latent move together. No shared expert; all experts have the norm on "
          "their sum. The full width is 32, half is 16, a quarter 8. Work is equal within 8 %; the curves still rise "
          "at the end, so speed is compared as much as room. The same rate for all, .02: in a trial of 300 "
          "steps better than .005 for the dense network, for 2 of 16 and for half width.",
    variants=(Variant(DENSE, "how the multiplications are spent", {"ffn": "dense", "intermediate_size": 84}),
              moe(FULL[0], 8, 1, 80), moe(FULL[1], 16, 2, 40), moe(FULL[2], 32, 4, 20),
              moe(HALF, 32, 4, 32, 16, FULL[2], 1.3), moe(FEW, 16, 2, 64, 16, HALF, 1.2),
              moe(QUARTER, 64, 8, 28, 8, HALF, 2.1)),
    common={"ffn": "latent_moe", "labels": 64, "num_shared_experts": 0, "moe_latent_norm": True, "batch_size": 1024,
            "learning_rate": 2e-2, "rows": 4096},
    tied=("ffn", "intermediate_size", "num_experts", "num_experts_per_token", "moe_intermediate_size",
          "moe_latent_size"),
    task=Facts(), model=memory, measure=train_cell, steps=700, seeds=3, seconds=15.0,
    matched="active compute", tolerance=0.08,
    claims=(
        Above("for the same work experts keep more facts than one dense network", "accuracy",
              (*FULL, HALF, FEW), (DENSE,)),
        Above("also in a latent of a quarter of the width", "accuracy", (QUARTER,), (DENSE,)),
        Above("at this width a latent costs facts: full width keeps more than half, at the same k and number",
              "accuracy", (FULL[2],), (HALF,)),
        Above("and half more than a quarter", "accuracy", (HALF,), (QUARTER,)),
        Above("in the latent more and smaller experts keep more than fewer and larger ones, as the paper found",
              "accuracy", (HALF,), (FEW,)),
        Above("at full width few large experts keep more than many small ones", "accuracy", (FULL[0],), FULL[1:]),
    ),
    expected="Experts store several times as much for the same work. In a model of 32 numbers a latent of 16 or 8 is "
             "itself the narrowest place, so this should be a trade and not a win: what the latent saves, messages of "
             "half the size and memory to read, a toy on one core does not feel. Chapter 05 has a quarter of the facts "
             "and counts the work inside the experts alone; there half the width costs nothing. One seed of 500 steps "
             "at a rate of .01 before this run: dense .22, full width .94, .80 and .79, half .54, a quarter .29. Fewer "
             "experts in the latent had not been tried.",
    table=("accuracy", "loss", "flat"),
    draw=curves({"accuracy": ""}, x="step", title="Equal work: experts hold most, a latent gives some of it back",
                x_label="training step", y_label="share of 16,384 facts known", limits=(0, 1.02)),
    alt="Share of facts known against training steps, three seeds: one of 8 experts learns fastest, then 2 of 16 and 4 "
        "of 32 at full width, then half and quarter width; the dense network stays lowest.",
    paper=Paper("LatentMoE, arXiv 2601.18089", "Quality is kept up to a quarter of the width when the number of "
                "experts and k grow with it, and clearly lost when the number of experts does not."),
    quick=Quick(seeds=1, steps=4, build={"rows": 256, "evaluate_every": 4, "batch_size": 256}))
