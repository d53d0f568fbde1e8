"""A key written again, learned: every sequence mixer there is, on one task."""

from k3_scratch.lab.experiment import Experiment, Quick, Variant
from k3_scratch.lab.learning import STEPS, learn_cell
from k3_scratch.lab.pictures import dots
from k3_scratch.lab.summary import Above
from k3_scratch.tasks.rewrite import Rewrite

NAMES = {"KDA": "kda", "KDA, softplus gate": "kda_softplus", "gated delta rule": "gated_delta_net",
         "delta rule": "delta_net", "scalar decay": "scalar_decay", "linear attention": "linear_attention",
         "MLA": "mla", "NoPE attention": "attention_nope", "RoPE attention": "attention_rope",
         "RoPE, window 32": "window_rope"}
DELTA, WITHOUT = tuple(NAMES)[:4], ("scalar decay", "linear attention")

EXPERIMENT = Experiment(
    name="rewrite", letter="c", title="A key written again: learned, all mixers",
    question="Which sequence mixers learn that only the newest value of a key counts?",
    setup="Rewrite: 6 keys are written 18 times with one of 6 values, then all 6 are asked (42 tokens); guessing gives "
          "a sixth. Two layers of the mixer, two heads of 16 channels, D 32. At most 600 updates of 32 rows, then up "
          "to 200 more at the final rate until the curve is flat; a solved task ends early. Softmax attention has the "
          "short convolution and the output gate that the recurrent mixers have; MLA stands as in K3, where it never "
          "is alone, without a convolution. 36 and 72 writes: the same models on rows twice and four times as full. "
          "A run that never reaches 90 % counts all its updates.",
    variants=tuple(Variant(label, "the mixer", {"layers": f"{name},{name}"}) for label, name in NAMES.items()),
    common={"convolution": True, "output_gate": True, "q_lora_rank": 24, "kv_lora_rank": 24, "learning_rate": 1e-2,
            "extra": 200, "rows": 512},
    task=Rewrite(), measure=learn_cell, steps=600, seeds=3, seconds=18.6, matched="parameters", tolerance=0.09,
    lengths={"36 writes": {"writes": 36}, "72 writes": {"writes": 72}},
    claims=(
        Above("every delta rule is above every recurrent rule without it, in every seed", "accuracy", DELTA, WITHOUT),
        Above("also on rows four times as full as those of the training", "72 writes", DELTA, WITHOUT),
        Above("there the delta rules are above softmax attention too", "72 writes", DELTA,
              ("NoPE attention", "RoPE attention", "RoPE, window 32", "MLA")),
    ),
    expected="A delta rule takes the old value out before it writes the new one, however often that happens. A memory "
             "that only adds has to tell old from new by their sizes, attention by where they stand. Trials with one "
             "seed: the delta rules were at 1 after 100 to 500 updates; scalar decay, .88 at that time, comes close "
             "(.97 to .99) when it is trained on, and linear attention .86.",
    table=("accuracy", "36 writes", "72 writes", STEPS),
    draw=dots({"accuracy": "18 writes, as trained", "36 writes": "36 writes", "72 writes": "72 writes"},
              title="What is erased cannot come back, however often a key is written", x_label="answers right",
              limits=(0.0, 1.03), chance=1 / 6),
    alt="Three panels of dots, 18, 36 and 72 writes, one row for each of ten mixers, three to five seeds each: the "
        "four delta rules stay at 1 in all panels, scalar decay a little below; linear and softmax attention fall, "
        "least with a window; MLA without a convolution is at a third.",
    quick=Quick(seeds=1, steps=4, variants=("KDA", "scalar decay", "NoPE attention"),
                build={"rows": 32, "evaluate_every": 2, "extra": 0}))
