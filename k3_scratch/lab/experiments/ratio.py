"""How many attention layers beside KDA? Lists that outgrow the state."""

from k3_scratch.analysis.silence import silenced
from k3_scratch.lab.experiment import Experiment, Paper, Quick, Variant
from k3_scratch.lab.lists_task import Lists
from k3_scratch.lab.models import build_model
from k3_scratch.lab.pictures import curves
from k3_scratch.lab.recipe import recipe_of
from k3_scratch.lab.summary import Above, Within
from k3_scratch.lab.trainer import evaluate, held_out, train

PAIRS, SILENT = (2, 4, 8, 16, 32), "attention silent"


def measure(job):
    """Train on lists of three lengths; then every length in PAIRS, with and without what the attention layers say."""
    model, recipe = build_model(job.arguments, job.task.vocab_size, job.seed), recipe_of(job.arguments, job.steps)
    trained = train(model, job.task, recipe, job.seed)
    rows = {name: held_out(task, "test", recipe.rows, job.seed) for name, task in job.lengths.items()}

    def shares():
        return [evaluate(model, batches)[0] for batches in rows.values()]

    values = dict(zip(rows, shares(), strict=True))
    curve = {"pairs": PAIRS, "as trained": list(values.values())}
    attention = [layer.self_attn for layer, name in zip(model.layers, model.mixers, strict=True)
                 if name.startswith(("mla", "attention"))]
    if attention:
        with silenced(*attention):
            curve[SILENT] = shares()
        for name, share in zip(rows, curve[SILENT], strict=True):
            values |= {f"{name}, {SILENT}": share, f"{name} due to attention": values[name] - share}
    return {"values": values | {"flat": float(trained["flat"])}, "curve": curve, "steps": trained["step"][-1],
            "stopped": trained["stopped"], "training": trained["accuracy"]}


def stack(name, pattern, cost):
    """Eight layers: a pattern again and again, K for KDA and A for attention."""
    names = {"K": "kda", "A": "attention_nope"}
    return Variant(name, "the mixers", {"layers": ",".join(names[each] for each in pattern * (8 // len(pattern)))},
                   cost=cost)


ATTENTION, HYBRID, ALONE = "0:1, attention alone", "3:1", "1:0, KDA alone"

EXPERIMENT = Experiment(
    name="ratio", letter="i", title="How many attention layers beside KDA",
    question="Lists that hold more than the small states of KDA can keep: does one attention layer in four find what "
             "KDA alone has lost, and how many are best?",
    setup="Lists of 4, 8 or 16 pairs, each key asked once (32 keys, 16 values: guessing gives 1/16), tested up to 32 "
          "pairs. Eight layers of width 32 with one head of 8 by 8 numbers, 700 updates of 32 rows, fewer when solved; "
          "the attention layers are softmax attention without positions, with KDA's short convolution and K3's output "
          "gate, and are the last of each group. Every length is also asked with all attention layers silent: what "
          "remains is what KDA knows. The last column says whether a curve was flat.",
    variants=(stack(ATTENTION, "A", 0.25), stack("1:1", "KA", 0.75), stack(HYBRID, "KKKA", 0.87),
              stack("7:1", "KKKKKKKA", 0.93), stack(ALONE, "K", 1.0)),
    common={"num_heads": 1, "kda_key_dim": 8, "kda_value_dim": 8, "initializer_range": 0.15, "convolution": True,
            "output_gate": True, "learning_rate": 1e-2, "rows": 128, "evaluate_every": 50},
    task=Lists(keys=32), lengths={f"{n} pairs": {"pairs": (n,)} for n in PAIRS}, measure=measure, steps=700, seeds=3,
    seconds=66.0, matched="parameters", tolerance=0.05,
    claims=(
        Above("at 16 pairs, twice as many as a state has rows, 3:1 is above KDA alone", "16 pairs", (HYBRID,),
              (ALONE,)),
        Above("at 32 pairs, twice the longest list of the training, too", "32 pairs", (HYBRID,), (ALONE,)),
        Within("3:1 needs its attention layers: without them at least .1 of the answers at 16 pairs are lost",
               "16 pairs due to attention", (HYBRID,), low=0.1),
        Above("attention alone, which has no state to outgrow, is above KDA alone at 32 pairs", "32 pairs",
              (ATTENTION,), (ALONE,)),
    ),
    expected="The states should lose pairs beyond 8 and the attention layers should find them. The trials, one seed "
             "each, speak against it. Two attention layers solved the task in 300 updates, also at 32 pairs. Two KDA "
             "layers had .75, .49 and .33 at 8, 16 and 32 pairs after 500. But KDA and one attention layer (KA, KKKA, "
             "AKKKAKKK, AKKKKKKK) learned what KDA learns, .29 or less at 16 pairs after 300 to 500 updates, and "
             "silencing an attention layer cost at most .04 of it; so did K3's MLA in its place, attention residuals, "
             "and states of 4 by 16. Only when decays started fast, at half-lives below 1.5 tokens, was the attention "
             "layer used, and then little was learned (.12 at 16 pairs after 500). Lists of 16 pairs alone, without "
             "short ones, were not learned by any mixture in 400. Not tried: more updates, wider models.",
    table=("4 pairs", "8 pairs", "16 pairs", f"16 pairs, {SILENT}", "32 pairs", "flat"),
    draw=curves({"as trained": "as trained", SILENT: f"the same models, {SILENT}"}, x="pairs",
                title="Lists that outgrow the state", x_label="pairs in the list, trained on 4, 8 and 16",
                y_label="share of answers right", limits=(0, 1.04), level=1 / 16, log_x=True, ticks=PAIRS),
    alt="Two panels over the number of pairs from 2 to 32, three seeds each, five ratios of KDA to attention: share of "
        "answers right as trained, and with all attention layers silent; a dashed line shows guessing.",
    paper=Paper("Kimi Linear, arXiv 2510.26692", "Sixteen layers, validation perplexity: three KDA layers to one of "
                "attention is best, and attention alone is worse than every mixture up to 7:1.",
                {"0:1": 5.77, "1:1": 5.66, "3:1": 5.65, "7:1": 5.70, "15:1": 5.82}, "validation perplexity"),
    quick=Quick(seeds=1, steps=2, variants=(HYBRID, ALONE, ATTENTION), build={"rows": 16, "evaluate_every": 2},
                seconds=4.0))
