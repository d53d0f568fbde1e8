"""Keep some, forget some, in a trained model: does decay per channel do what no scalar does?"""

from k3_scratch.lab.experiment import Experiment, Quick, Size, Variant
from k3_scratch.lab.lifetimes_task import Lifetimes
from k3_scratch.lab.pictures import dots
from k3_scratch.lab.summary import Above
from k3_scratch.lab.trainer import train_cell

SCALARS = ("gated delta rule", "scalar decay")

FEW, MANY = "few passing facts", "many passing facts"

EXPERIMENT = Experiment(
    name="lifetimes", letter="b", title="Keep some, forget some: trained",
    question="In a trained model, does decay per channel keep lasting facts and let passing ones expire, where one "
             "decay for all channels cannot?",
    setup="Lifetimes: 4 facts hold for ever; others are written while the text goes on and expire by themselves, "
          "nothing overwrites them. Few: 4 keys, half of the rounds of four tokens write; a fact at most 1 round old "
          "is answered with its value, one at least 4 rounds old with expired. Many: 12 keys, every round writes, at "
          "most 3 against at least 6 rounds. One layer, one head of 16 by 16 numbers, trained on 16 rounds (72 "
          "tokens), tested on 16 and on 64 rounds (264 tokens). One head on purpose: two heads with a scalar each are "
          "two decays.",
    variants=(Variant("KDA", "the mixer"), Variant("gated delta rule", "the mixer", {"layers": "gated_delta_net"}),
              Variant("scalar decay", "the mixer", {"layers": "scalar_decay"}),
              Variant("delta rule, no decay", "the mixer", {"layers": "delta_net"})),
    common={"layers": "kda", "num_heads": 1, "learning_rate": 5e-3, "evaluate_every": 100},
    sizes=(Size(FEW), Size(MANY, task={"passing": 12, "busy": 1.0, "young": 3, "old": 6})),
    task=Lifetimes(), measure=train_cell, steps=500, seeds=5, seconds={FEW: 12.0, MANY: 16.5},
    lengths={"64 rounds": {"rounds": 64}, "lasting, 64 rounds": {"rounds": 64, "score": "lasting"},
             "fresh, 64 rounds": {"rounds": 64, "score": "fresh"},
             "expired, 64 rounds": {"rounds": 64, "score": "expired"}},
    matched="parameters", tolerance=0.08,
    claims=(
        Above("at the length of training KDA is better than every scalar decay", "accuracy", ("KDA",), SCALARS),
        Above("at four times that length KDA is better than every scalar decay", "64 rounds", ("KDA",), SCALARS),
        Above("at four times that length KDA is better than the delta rule without decay", "64 rounds", ("KDA",),
              ("delta rule, no decay",)),
    ),
    expected="A scalar decay that is fast enough to tell fresh from expired loses the lasting facts when the text gets "
             "longer; only KDA has slow and fast channels. Four trials before this one, one seed each: the task is "
             "learned by every rule at the length of training, and the delta rule without decay, which was to fail, "
             "lets facts expire by writing over them; trained on 80 rounds KDA had not learned it after 600 steps.",
    table=("accuracy", "64 rounds", "lasting, 64 rounds", "fresh, 64 rounds", "expired, 64 rounds"),
    draw=dots("64 rounds", title="Four times the length of training: one scalar decay loses what should last",
              x_label="share of answers right at 64 rounds", limits=(-0.03, 1.03)),
    alt="Two panels of dots, few and many passing facts, five seeds, four mixers: share of answers right at four times "
        "the length of training. Both scalar decays lie below KDA and the delta rule without decay.",
    quick=Quick(seeds=1, steps=4, build={"rows": 16, "evaluate_every": 2}, seconds=4.0))
