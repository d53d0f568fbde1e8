"""AdamW, Muon on whole matrices, Muon on each head and expert: which learns faster?"""

from k3_scratch.lab.experiment import Experiment, Quick, Variant
from k3_scratch.lab.experiments.ablation import EXPERIMENT as MINIATURE
from k3_scratch.lab.models import build_model
from k3_scratch.lab.pictures import curves
from k3_scratch.lab.recipe import recipe_of
from k3_scratch.lab.summary import Above
from k3_scratch.lab.trainer import evaluate, held_out, train

RATES = (4e-3, 8e-3, 16e-3)
GOAL = 1.2                  # loss whose first evaluation at or below it is looked for
STEPS = f"steps to a loss of {GOAL}"


def measure(job):
    """Train at every rate, take the one with the smallest validation loss, and report that model on the test split.

    `STEPS` is that of the first evaluation at or below GOAL; where there is none, of the last.
    """
    runs = []
    for rate in RATES:
        model = build_model(job.arguments, job.task.vocab_size, job.seed)
        recipe = recipe_of({**job.arguments, "learning_rate": rate}, job.steps)
        runs.append((train(model, job.task, recipe, job.seed), model, rate))
    trained, model, rate = min(runs, key=lambda run: run[0]["loss"][-1])
    accuracy, loss = evaluate(model, held_out(job.task, "test", recipe.rows, job.seed))
    reached = [step for step, value in zip(trained["step"], trained["loss"], strict=True) if value <= GOAL]
    values = {"loss": loss, "accuracy": accuracy, STEPS: (reached or trained["step"][-1:])[0], "rate": rate}
    values |= {f"validation loss at {each}": run["loss"][-1] for run, _, each in runs}
    return {"values": values, "curve": {name: trained[name] for name in ("step", "accuracy", "loss")}}


ADAMW, WHOLE, HEADS = "AdamW", "Muon, whole matrices", "Muon, each head and expert"

EXPERIMENT = Experiment(
    name="optimisers", letter="k", title="Three optimisers",
    question="Does a small K3 learn faster with Muon than with AdamW, and does it matter whether Muon takes whole "
             "matrices or each head and expert on its own?",
    setup="Model, texts and length of training of the miniature of (j): four layers, KDA KDA KDA MLA, width 32, "
          "LatentMoE with 8 experts, attention residuals; 240 updates of 24 windows of recall, brackets and addition. "
          "Muon moves the matrices; embedding, head, router and vectors stay with AdamW at the same rate. Every "
          "optimiser has a rate of its own: each run is made at .004, .008 and .016, the one with the smallest loss on "
          "validation texts is taken, and its loss on other, test texts is reported. Weight decay .1 for all. The "
          f"steps are those of the first validation, one in 20 steps, with a loss of at most {GOAL}; 240 where there "
          "is none.",
    variants=(Variant(ADAMW, "the optimiser"), Variant(WHOLE, "the optimiser", {"optimizer": "muon"}),
              Variant(HEADS, "the optimiser", {"optimizer": "head_muon"})),
    common={**{name: value for name, value in MINIATURE.common.items() if name != "learning_rate"},
            "optimizer": "adamw", "evaluate_every": 20},
    task=MINIATURE.task, measure=measure, steps=240, seeds=5, seconds=75.0, matched="parameters", tolerance=0.0,
    claims=(
        Above("at equal steps both forms of Muon reach a smaller loss than AdamW", "loss", (WHOLE, HEADS), (ADAMW,),
              by="mean", lower=True),
        Above(f"both need fewer steps to a loss of {GOAL}", STEPS, (WHOLE, HEADS), (ADAMW,), by="mean", lower=True),
        Above("each head and expert on its own is better than whole matrices", "loss", (HEADS,), (WHOLE,), by="mean",
              lower=True),
    ),
    expected="Muon should be ahead of AdamW while both still climb. Between its two forms nothing is promised: with "
             "two heads of 16 channels a whole matrix has little to hide. No trial of this set-up; on all six "
             "families, with width 48 and 240 steps, one seed gave losses of 1.74 (AdamW, .008) and 1.67 (Muon on "
             "whole matrices, .008), both hardly beyond the frequencies of characters.",
    table=("loss", "accuracy", STEPS, "rate", *(f"validation loss at {rate}" for rate in RATES)),
    draw=curves({"loss": "loss on answers", "accuracy": "characters of answers right"}, x="step",
                title="Three optimisers at equal steps, each at the rate that suits it", x_label="training step",
                y_label="validation: loss, share right"),
    alt="Two panels against training steps, five seeds each: validation loss and share of characters right under "
        "AdamW, Muon on whole matrices and Muon on each head and expert.",
    quick=Quick(seeds=1, steps=2, build={"rows": 16, "evaluate_every": 2}, seconds=4.0))
