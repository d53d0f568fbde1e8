"""How many attention layers beside KDA? Lists that outgrow the state."""

import torch

from k3_scratch.analysis.silence import silenced
from k3_scratch.lab.experiment import Experiment, Paper, Quick, Size, Variant
from k3_scratch.lab.lists_task import Lists
from k3_scratch.lab.models import build_model
from k3_scratch.lab.pictures import curves_of
from k3_scratch.lab.recipe import recipe_of
from k3_scratch.lab.summary import Above, Within
from k3_scratch.lab.trainer import evaluate, held_out, train
from k3_scratch.plots.lab_curves import lab_curves

PAIRS, SILENT = (2, 4, 8, 16, 32), "attention silent"


def model(arguments, vocab_size, seed=0):
    """The stack; the output matrices of its KDA layers start at `kda_output` times their usual random values."""
    rest = {name: value for name, value in arguments.items() if name != "kda_output"}
    net = build_model(rest, vocab_size, seed)
    with torch.no_grad():
        for layer, name in zip(net.layers, net.mixers, strict=True):
            if name == "kda":
                layer.self_attn.o_proj.weight.mul_(arguments["kda_output"])
    return net


def measure(job):
    """Train on lists of three lengths; then every length in PAIRS, with and without what the attention layers say."""
    net, recipe = model(job.arguments, job.task.vocab_size, job.seed), recipe_of(job.arguments, job.steps)
    trained = train(net, job.task, recipe, job.seed)
    rows = {name: held_out(task, "test", recipe.rows, job.seed) for name, task in job.lengths.items()}

    def shares():
        return [evaluate(net, batches)[0] for batches in rows.values()]

    values = dict(zip(rows, shares(), strict=True))
    curve = {"pairs": PAIRS, "as trained": list(values.values())}
    attention = [layer.self_attn for layer, name in zip(net.layers, net.mixers, strict=True)
                 if name.startswith(("mla", "attention"))]
    if attention:
        with silenced(*attention):
            curve[SILENT] = shares()
        for name, share in zip(rows, curve[SILENT], strict=True):
            values |= {f"{name}, {SILENT}": share, f"{name} due to attention": values[name] - share}
    return {"values": values | {"flat": float(trained["flat"])}, "curve": curve, "steps": trained["step"][-1],
            "stopped": trained["stopped"], "training": trained["accuracy"]}


def draw(result):
    """Two panels, as trained and silent; the lines of all sizes together."""
    panels = {}
    for line, words in (("as trained", "as trained"), (SILENT, f"the same models, {SILENT}")):
        four = curves_of(result, FOUR, line, "pairs")
        others = {f"{name}, {size}": drawn for size in (EIGHT, ROOMY)
                  for name, drawn in curves_of(result, size, line, "pairs").items()}
        panels[words] = {**four, **others}
    return lab_curves({title: lines for title, lines in panels.items() if lines},
                      title="Lists that outgrow the state: one attention layer in four finds what KDA alone has lost",
                      x_label="pairs in the list, trained on 4, 8 and 16", y_label="share of answers right",
                      limits=(0, 1.04), level=1 / 16, log_x=True, ticks=PAIRS)


def stack(name, pattern, cost):
    """Layers from first to last: K for KDA, A for attention."""
    names = {"K": "kda", "A": "attention_nope"}
    return Variant(name, "the mixers", {"layers": ",".join(names[each] for each in pattern)}, cost=cost)


ATTENTION, HYBRID, SPARSE, ALONE = "0:1, attention alone", "3:1", "7:1", "1:0, KDA alone"
PLAIN, RANDOM = "3:1, plain residual", "3:1, random start"
FOUR, EIGHT, ROOMY = "four layers", "eight layers", "16 by 16"

EXPERIMENT = Experiment(
    name="ratio", letter="i", title="How many attention layers beside KDA",
    question="Lists that hold more than the small states of KDA can keep: does one attention layer in four find what "
             "KDA alone has lost, and how many are best?",
    setup="Lists of 4, 8 or 16 pairs, each key asked once (32 keys, 16 values: guessing gives 1/16), tested up to 32 "
          "pairs. Four layers of width 32 with two heads of 4 by 4 numbers; 7:1 needs eight layers, twice the "
          "parameters, and stands apart. Attention residuals over blocks of one layer, their queries at ten times the "
          "rate of the rest, .015; Muon per head; at most 1,000 updates of 32 rows, fewer when solved. The output "
          "matrices of KDA start at zero, so that attention does not see their noise at first. The attention layers "
          "are softmax attention without positions, with KDA's short convolution and K3's output gate, the last of "
          "each group. Every length is also asked with all attention layers silent: what remains is what KDA knows. "
          "One variant has a plain residual in place of attention residuals, one starts KDA's output matrices at "
          "random like the rest; KDA alone is also trained with states of 16 by 16, to see whether it is their size "
          "that fails it.",
    variants=(stack(HYBRID, "KKKA", 0.8), stack(ATTENTION, "AAAA", 0.3), stack("1:1", "KAKA", 0.7),
              stack(SPARSE, "KKKKKKKA", 2.0), stack(ALONE, "KKKK", 1.0),
              Variant(PLAIN, "the residual", {"residual": "plain"}, cost=0.8),
              Variant(RANDOM, "the start of KDA's output matrices", {"kda_output": 1.0}, cost=0.9)),
    common={"layers": "kda,kda,kda,attention_nope", "num_heads": 2, "kda_key_dim": 4, "kda_value_dim": 4,
            "convolution": True, "output_gate": True, "residual": "attention", "attn_res_block_size": 2,
            "depth_rate": 10.0, "optimizer": "head_muon", "learning_rate": 0.015, "rows": 128, "evaluate_every": 50,
            "kda_output": 0.0},
    sizes=(Size(FOUR, only=(HYBRID, ATTENTION, "1:1", ALONE, PLAIN, RANDOM)), Size(EIGHT, only=(SPARSE,)),
           Size(ROOMY, {"kda_key_dim": 16, "kda_value_dim": 16}, only=(ALONE,))),
    task=Lists(keys=32), lengths={f"{n} pairs": {"pairs": (n,)} for n in PAIRS}, model=model, measure=measure,
    steps=1000, seeds=3, seconds=65.0, matched="parameters", tolerance=0.05,
    claims=(
        Above("at 16 pairs, four times as many as a state has rows, 3:1 is above KDA alone by more than .1", "16 pairs",
              (HYBRID,), (ALONE,), (FOUR,), margin=0.1),
        Above("at 32 pairs, twice the longest list of the training, too", "32 pairs", (HYBRID,), (ALONE,), (FOUR,),
              margin=0.1),
        Within("3:1 needs its attention layer: without it at least half of the answers at 16 pairs are lost",
               "16 pairs due to attention", (HYBRID,), low=0.5),
        Above("the attention layer needs attention residuals, which let it read the embeddings: with a plain residual "
              "3:1 is below by more than .1", "16 pairs", (HYBRID,), (PLAIN,), margin=0.1),
        Above("and it needs KDA to start silent: with random output matrices 3:1 is below by more than .1", "16 pairs",
              (HYBRID,), (RANDOM,), margin=0.1),
        Within("with states of 16 by 16 KDA alone finds at least .9 at 16 pairs", "16 pairs", (ALONE,), low=0.9,
               sizes=(ROOMY,)),
        Above("attention alone, which has no state to outgrow, is above KDA alone at 32 pairs", "32 pairs",
              (ATTENTION,), (ALONE,), (FOUR,)),
    ),
    expected="The states should lose pairs beyond 4 and the attention layer should find them. This is the second "
             "form of the experiment. In the first, with AdamW and KDA's output matrices started at random like all "
             "others, 3:1 had .97, .25 and .17 at 16 pairs in three seeds and KDA alone .18, .24 and .16: one seed "
             "only. What the KDA layers write at the start is noise, larger than the embeddings; it hides them from "
             "the attention layer, which alone solves the task in 200 updates. Trials: with the silent start and "
             "AdamW, 800 updates, .99, .86 and .26; with Muon in place of AdamW, 1,000 updates, four seeds, 1.0, 1.0, "
             "1.0 and .53, all .06 with the attention silent. With a plain residual and AdamW the silent start did "
             "not help (.28).",
    table=("4 pairs", "8 pairs", "16 pairs", f"16 pairs, {SILENT}", "32 pairs", "flat"),
    draw=draw,
    alt="Two panels over the number of pairs from 2 to 32, three to five seeds each, ratios of KDA to attention: share "
        "of answers right as trained, and with all attention layers silent; a dashed line shows guessing.",
    paper=Paper("Kimi Linear, arXiv 2510.26692", "Sixteen layers, validation perplexity: three KDA layers to one of "
                "attention is best, and attention alone is worse than every mixture up to 7:1.",
                {"0:1": 5.77, "1:1": 5.66, "3:1": 5.65, "7:1": 5.70, "15:1": 5.82}, "validation perplexity"),
    quick=Quick(seeds=1, steps=2, variants=(HYBRID, ALONE, ATTENTION, PLAIN), build={"rows": 16, "evaluate_every": 2},
                seconds=4.0))
