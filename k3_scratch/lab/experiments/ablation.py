"""The miniature with each of its parts taken out in turn."""

from k3_scratch.lab.experiment import Experiment, Quick, Variant
from k3_scratch.lab.models import build_model
from k3_scratch.lab.pictures import dots
from k3_scratch.lab.recipe import recipe_of
from k3_scratch.lab.summary import Above, spread
from k3_scratch.lab.trainer import train
from k3_scratch.tasks.corpus import Corpus
from k3_scratch.training.evaluate import accuracy


def measure(job):
    """Train; then the share of right characters in every family of held-out texts, their mean, the lowest, the loss."""
    model, recipe = build_model(job.arguments, job.task.vocab_size, job.seed), recipe_of(job.arguments, job.steps)
    trained = train(model, job.task, recipe, job.seed)
    right, loss = accuracy(model, job.task, "test", recipe.rows, job.seed)
    values = {"loss": loss, "mean of the families": sum(right.values()) / len(right), **right,
              "lowest family": min(right.values()), "flat": float(trained["flat"])}
    return {"values": values, "curve": {name: trained[name] for name in ("step", "accuracy", "loss")}}


def draw(result):
    """Dots of four shares, rows from the smallest mean loss to the largest."""
    losses = {name: spread(result, name, "loss") for name in result["variants"]}
    rows = sorted((name for name in losses if losses[name]), key=lambda name: losses[name].mean)
    return _dots({**result, "variants": {name: result["variants"][name] for name in rows}})


def layers(name, mixers, against=None, cost=1.0):
    """A variant with other mixers."""
    return Variant(name, "the mixers", {"layers": mixers}, against, cost)


_dots = dots({"mean of the families": "mean of the families", "recall": "recall", "brackets": "brackets",
              "addition": "addition"}, title="What the miniature misses when one part is gone, smallest loss first",
             x_label="share right", limits=(-0.03, 1.03), columns=4)
K3, GATED, ADDS, ATTENTION = "K3", "one decay a head", "one decay a head, no delta rule", "softmax attention alone"

EXPERIMENT = Experiment(
    name="ablation", letter="j", title="The miniature with each part taken out",
    question="Which part does a small K3 miss most when it has to learn in a short time?",
    setup="Four layers, KDA KDA KDA MLA, width 32, two heads of 16 channels, a dense part and three LatentMoEs of 8 "
          "experts, 2 a token, attention residuals, per-head Muon at .01. Three families of the mixed corpus, windows "
          "of 48 characters: recall three times as often as brackets and addition, because copying and reversing "
          "were hardly learnt in trials of this length (below .07) and stories need longer windows. 240 updates of 24 "
          "windows, the same for all: curves are not flat, so this is how fast one learns, not how far one gets. One "
          "argument differs, and what a token computes stays within 6 %: a dense part has the width that costs what "
          "two experts, the shared one and the latent cost; experts without a latent are half as wide (and so is the "
          "shared one, so there are two of those). Softmax attention has the same short convolution as KDA, and a "
          "gate.",
    variants=(Variant(K3, "nothing"),
              Variant("no short convolution", "taps of the convolution", {"conv_size": 1}),
              layers("no decay", "delta_net,delta_net,delta_net,mla"),
              layers(GATED, "gated_delta_net,gated_delta_net,gated_delta_net,mla"),
              layers(ADDS, "scalar_decay,scalar_decay,scalar_decay,mla", GATED, 0.7),
              layers("KDA alone", "kda,kda,kda,kda"),
              layers(ATTENTION, "attention_nope,attention_nope,attention_nope,attention_nope", cost=0.6),
              Variant("no output gate on MLA", "the gate of MLA", {"mla_output_gate": False}),
              Variant("dense, no experts", "the feed-forward part", {"ffn": "dense"}, cost=0.9),
              Variant("experts without a latent", "where the experts work", {
                  "moe_latent_size": None, "moe_intermediate_size": 16, "num_shared_experts": 2}),
              Variant("no norm before W_up", "the norm", {"ffn": "latent_moe_no_norm"}),
              Variant("SwiGLU", "the activation", {"activation": "swiglu"}),
              Variant("plain residual", "the residual", {"residual": "plain"}, cost=0.9),
              Variant("no balancing", "the bias of the router", {"balance": False})),
    common={"layers": "kda,kda,kda,mla", "ffn": "latent_moe", "residual": "attention", "attn_res_block_size": 2,
            "conv_size": 4, "first_k_dense": 1, "intermediate_size": 80, "num_experts": 8, "num_experts_per_token": 2,
            "num_shared_experts": 1, "moe_intermediate_size": 32, "moe_latent_size": 16, "mla_output_gate": True,
            "activation": "situ", "balance": True, "convolution": True, "output_gate": True, "initializer_range": 0.03,
            "optimizer": "head_muon", "learning_rate": 1e-2, "weight_decay": 0.1, "warmup": 20, "batch_size": 24,
            "evaluate_every": 60, "rows": 128},
    tied=("moe_latent_size", "moe_intermediate_size", "num_shared_experts"),
    task=Corpus(48, {"recall": 3, "brackets": 1, "addition": 1}, ("recall", "brackets", "addition")),
    measure=measure, steps=240, seeds=5, seconds=25.0, matched="active compute", tolerance=0.06,
    claims=(
        Above("without the delta rule the loss is higher", "loss", (GATED,), (ADDS,), by="mean", lower=True),
        Above("without KDA the loss is higher", "loss", (K3,), (ATTENTION,), by="mean", lower=True),
        Above("without the short convolution the loss is higher", "loss", (K3,), ("no short convolution",), by="mean",
              lower=True),
    ),
    expected="The parts that remember should be missed: the delta rule, KDA itself, the convolution that joins a "
             "letter to its digit. Of all others nothing is promised: their use in large models is capacity, cost and "
             "training that does not break, none of which three small tasks ask for, and the MLA layer of the trained "
             "miniature was found idle. One trial, K3 alone with seed 0 and 260 updates, gave .91 of recall, .64 of "
             "brackets and .29 of addition; no other variant had been trained when this was written.",
    table=("loss", "mean of the families", "lowest family", "recall", "brackets", "addition"),
    draw=draw,
    alt="Four panels of dots, one row a variant with five seeds, from the smallest held-out loss to the largest: "
        "share of characters right in the mean of the families, in recall, in brackets and in addition.",
    quick=Quick(seeds=1, steps=2, variants=(K3, ADDS, GATED, ATTENTION, "no short convolution"),
                build={"rows": 16, "evaluate_every": 2}, seconds=3.0))
