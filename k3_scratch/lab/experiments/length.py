"""NoPE against RoPE on texts longer than those of the training, and whether the layer compared is used at all."""

from k3_scratch.analysis.silence import silenced
from k3_scratch.lab.experiment import Experiment, Paper, Quick, Size, Variant
from k3_scratch.lab.models import build_model
from k3_scratch.lab.pictures import curves_of
from k3_scratch.lab.recipe import recipe_of
from k3_scratch.lab.summary import Above, Within
from k3_scratch.lab.trainer import evaluate, held_out, train
from k3_scratch.plots.lab_curves import lab_curves
from k3_scratch.tasks.right_after import RightAfter


def measure(job):
    """Train, then answer at each length: as trained, without the last attention layer, without the first mixer."""
    model, recipe = build_model(job.arguments, job.task.vocab_size, job.seed), recipe_of(job.arguments, job.steps)
    trained = train(model, job.task, recipe, job.seed)
    rows = {name: held_out(task, "test", recipe.rows, job.seed) for name, task in job.lengths.items()}
    first, *_, last = (layer.self_attn for layer in model.layers)

    def shares():
        return [evaluate(model, batches)[0] for batches in rows.values()]

    curve = {"length": [task.length for task in job.lengths.values()], "as trained": shares()}
    for name, part in (("last layer silent", last), ("first layer silent", first)):
        with silenced(part):
            curve[name] = shares()
    values = dict(zip(rows, curve["as trained"], strict=True))
    for name in ("last layer silent", "first layer silent"):
        values |= {f"{place}, {name}": share for place, share in zip(rows, curve[name], strict=True)}
    values["due to the last layer"] = curve["as trained"][0] - curve["last layer silent"][0]
    return {"values": values | {"flat": float(trained["flat"])}, "curve": curve, "steps": trained["step"][-1],
            "stopped": trained["stopped"], "training": trained["accuracy"]}


def draw(result):
    """A row of panels for each size: as trained, and with the last layer silent."""
    panels = {f"{size}\n{words}": curves_of(result, size, line, "length")
              for size in result["sizes"] for line, words in PANELS.items()}
    return lab_curves(panels, title="Longer texts: a state fades, RoPE meets new angles, NoPE reads on",
                      x_label="tokens in the text, trained on 32", y_label="share of answers right", limits=(0, 1.04),
                      level=0.125, log_x=True, ticks=(32, 64, 128, 256))


PANELS = {"as trained": "as trained", "last layer silent": "the last layer's attention silent"}
SLOW, FAST, BARE = "decays start slow", "decays start fast", "attention without a convolution"
LONGER = ("128 tokens", "256 tokens")


def stack(name, layers, against, cost):
    """Two layers; what differs from `against` is one of them, or both."""
    return Variant(name, "the mixers", {"layers": layers}, against, cost)


EXPERIMENT = Experiment(
    name="length", letter="e", title="NoPE against RoPE: texts longer than in training",
    question="A global attention layer above layers that know order: does it read texts longer than those of the "
             "training better without positions than with RoPE?",
    setup="What came right after this key? 6 pairs in filler, trained on 32 tokens, asked at 32 to 256 (8 values: "
          "guessing gives 1/8). Two layers, two heads of 16, attention with K3's output gate. Every answer is asked "
          "twice more, with the last layer's attention silent and with the first layer's: a layer whose silence "
          "changes nothing has not been tested. Decays start slow: half-lives of 2 to 700 tokens, the lab's default. "
          "They start fast: 0.2 to 1.5 tokens; both with the same convolution of 4 taps in every layer. Without a "
          "convolution: pure attention, and a window of 2 tokens with RoPE in the place of KDA. Training ends when two "
          "evaluations are 99.8 % right, or after 800 steps (1,200 with fast decays, 500 without a convolution) and at "
          "most 300 more while the curve climbs.",
    variants=(stack("KDA + NoPE", "kda,attention_nope", None, 1.0),
              stack("KDA + RoPE", "kda,attention_rope", "KDA + NoPE", 1.0),
              stack("pure NoPE", "attention_nope,attention_nope", "KDA + NoPE", 0.4),
              stack("pure RoPE", "attention_rope,attention_rope", "pure NoPE", 0.4),
              stack("window + NoPE", "window_rope,attention_nope", "pure NoPE", 0.4),
              stack("window + RoPE", "window_rope,attention_rope", "window + NoPE", 0.4)),
    common={"output_gate": True, "initializer_range": 0.15, "learning_rate": 5e-3, "extra": 300, "window": 2},
    sizes=(Size(SLOW, {"convolution": True}, only=("KDA + NoPE", "KDA + RoPE", "pure NoPE", "pure RoPE")),
           Size(FAST, {"convolution": True, "dt_min": 0.1, "dt_max": 1.0, "steps": 1200},
                only=("KDA + NoPE", "KDA + RoPE")),
           Size(BARE, {"convolution": False, "steps": 500},
                only=("pure NoPE", "pure RoPE", "window + NoPE", "window + RoPE"))),
    task=RightAfter(), measure=measure, steps=800, seeds=5, seconds={SLOW: 18.0, FAST: 31.0, BARE: 21.0},
    lengths={"32 tokens": {}, "64 tokens": {"filler": 46}, "128 tokens": {"filler": 110},
             "256 tokens": {"filler": 238}},
    matched="parameters", tolerance=0.06,
    claims=(
        Above("four times the length of training, the KDA hybrid with NoPE reads better than with RoPE, in the mean",
              "128 tokens", ("KDA + NoPE",), ("KDA + RoPE",), sizes=(FAST,), by="mean"),
        Above("so it does at eight times that length", "256 tokens", ("KDA + NoPE",), ("KDA + RoPE",), sizes=(FAST,),
              by="mean"),
        Above("also where decays start slow, at eight times the length", "256 tokens", ("KDA + NoPE",),
              ("KDA + RoPE",), sizes=(SLOW,), by="mean"),
        Above("the window hybrid with NoPE reads better than with RoPE, at eight times the length", "256 tokens",
              ("window + NoPE",), ("window + RoPE",), by="mean"),
        Above("pure attention with a convolution does so too, at eight times the length", "256 tokens",
              ("pure NoPE",), ("pure RoPE",), sizes=(SLOW,), by="mean"),
        Within("the attention of the hybrids is used: silent, it costs most answers at 32 tokens",
               "due to the last layer", ("KDA + NoPE", "KDA + RoPE", "window + NoPE", "window + RoPE"), low=0.5,
               sizes=(FAST, BARE)),
        Within("where decays start slow the attention is idle: the state does it all", "due to the last layer",
               ("KDA + NoPE", "KDA + RoPE"), -0.05, 0.05, sizes=(SLOW,)),
    ),
    expected="Where the attention has work to do, RoPE should lose answers with length and NoPE none, with ties: a "
             "RoPE layer may use its slow channels alone. Where the state does the work nothing should differ. Trials "
             "before this run, one or two seeds each: with slow decays KDA learns the task first and attention stays "
             "idle (NoPE .82 at 256 tokens, silent or not); states of 8 by 8 and of 4 by 4 numbers did not wake it, "
             "they answered less. With fast decays it was used: NoPE 1.0 at 256, RoPE .75; the second seed was slower, "
             "RoPE at .6 after 700 steps, hence 1,200 there. Fast decays and attention without a convolution stayed "
             "near .3 in 400 steps and were left out. Windows: NoPE 1.0, RoPE .63.",
    table=("32 tokens", "64 tokens", *LONGER, "32 tokens, last layer silent", "256 tokens, last layer silent",
           "32 tokens, first layer silent", "flat"),
    draw=draw,
    alt="Six panels, a row for each way of building: share of answers right at 32 to 256 tokens, five seeds, as "
        "trained and with the last layer's attention silent. Where decays start slow both are the same for the KDA "
        "hybrids; where they start fast, and with windows, silence leaves guesses.",
    paper=Paper("Kimi Linear, arXiv 2510.26692",
                "Hybrids that are alike but for the positions in their attention layers: without them the average of "
                "the long-context tests is 54.5, with RoPE 51.8.",
                {"hybrid, NoPE": 54.5, "hybrid, RoPE": 51.8, "attention in all layers": 52.2},
                "average of long-context tests"),
    quick=Quick(seeds=1, steps=3, build={"steps": 3, "extra": 0, "batch_size": 8, "rows": 8, "evaluate_every": 3},
                seconds=1.0))
