"""An experiment that trains: two mixers, a few updates."""

from k3_scratch.lab.experiment import Experiment, Quick, Variant
from k3_scratch.lab.pictures import curves
from k3_scratch.lab.summary import Above
from k3_scratch.lab.trainer import train_cell
from k3_scratch.tasks.rewrite import Rewrite

EXPERIMENT = Experiment(
    name="learning", letter="c", title="Learning: a test", question="Who learns?", setup="A few updates.",
    variants=(Variant("KDA", "the mixer"), Variant("delta rule", "the mixer", {"layers": "delta_net"})),
    common={"layers": "kda", "hidden_size": 16, "kda_key_dim": 4, "kda_value_dim": 6, "intermediate_size": 24,
            "batch_size": 4, "evaluate_every": 2, "rows": 8}, task=Rewrite(2, 4, 4, 2),
    lengths={"longer": {"writes": 8}}, measure=train_cell,
    steps=5, seeds=2, matched="parameters", tolerance=0.15, seconds=1.0, expected="Nothing.",
    claims=(Above("KDA is better", "accuracy", ("KDA",), ("delta rule",), by="mean"),),
    draw=curves("accuracy", x="step", title="Accuracy", x_label="step", y_label="accuracy"), alt="Two curves.",
    quick=Quick(seeds=1, steps=3))
