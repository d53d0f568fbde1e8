"""How large must the state be? One layer, rewrite, four sizes of the state."""

from k3_scratch.lab.experiment import Experiment, Quick, Size, Variant
from k3_scratch.lab.learning import STEPS, learn_cell
from k3_scratch.lab.pictures import dots
from k3_scratch.lab.summary import Above
from k3_scratch.tasks.rewrite import Rewrite

DELTA, WITHOUT = ("KDA", "gated delta rule"), ("scalar decay", "linear attention")
NAMES = {K: f"{K} × {K}" for K in (4, 6, 8, 16)}

EXPERIMENT = Experiment(
    name="state_size", letter="c", title="A key written again: how large a state?",
    question="How large must the state of a head be before the delta rule pays?",
    setup="Rewrite with 6 keys, 18 writes and 6 questions, as above, but one layer alone, so that nothing is kept "
          "anywhere but in its state: two heads of K by V numbers. 4 channels are fewer than there are keys, 6 are as "
          "many. At most 500 updates of 32 rows, up to 200 more until the curve is flat; a solved task ends early. "
          "72 writes: the same models on rows four times as full. A run that never reaches 90 % counts all its "
          "updates.",
    variants=(Variant("KDA", "the mixer"), Variant("gated delta rule", "the mixer", {"layers": "gated_delta_net"}),
              Variant("scalar decay", "the mixer", {"layers": "scalar_decay"}),
              Variant("linear attention", "the mixer", {"layers": "linear_attention"})),
    common={"layers": "kda", "learning_rate": 1e-2, "extra": 200, "rows": 512},
    sizes=tuple(Size(name, {"kda_key_dim": K, "kda_value_dim": K}) for K, name in NAMES.items()),
    task=Rewrite(), measure=learn_cell, steps=500, seeds=3,
    seconds={NAMES[4]: 13.5, NAMES[6]: 12.0, NAMES[8]: 10.0, NAMES[16]: 10.0}, matched="parameters", tolerance=0.09,
    lengths={"72 writes": {"writes": 72}},
    claims=(
        Above("with more channels than keys each delta rule is above each rule without it, in every seed", "accuracy",
              DELTA, WITHOUT, sizes=(NAMES[8], NAMES[16])),
        Above("with as many channels as keys too", "accuracy", DELTA, WITHOUT, sizes=(NAMES[6],)),
        Above("with fewer channels than keys scalar decay is above both delta rules", "accuracy", ("scalar decay",),
              DELTA, sizes=(NAMES[4],), by="mean"),
        Above("at four times the length the delta rules keep their lead where the keys have room", "72 writes", DELTA,
              WITHOUT, sizes=(NAMES[8], NAMES[16])),
    ),
    expected="Where keys can be orthogonal the delta rule erases the old value of one key and touches no other. With 6 "
             "keys in 4 channels whatever it erases takes something of the others along: a trial with one seed and "
             "400 updates gave .43 and .44 for the delta rules, .67 for scalar decay, .46 for linear attention. With 8 "
             "channels it gave 1.0 for the delta rules, .92 and .59 for the others. 6 and 16 had not been tried.",
    table=("accuracy", "72 writes", STEPS),
    draw=dots("accuracy", title="The delta rule pays once the state has room for all keys", x_label="answers right",
              limits=(0.0, 1.03), chance=1 / 6, columns=4),
    alt="Four panels of dots, states of 4 by 4 to 16 by 16 numbers, four mixers with three to five seeds each: share "
        "of answers right. With 4 channels for 6 keys all scatter widely and the delta rules are not ahead; from 6 on "
        "they are at 1, scalar decay at .78 with 6 and a little below 1 with more, linear attention at .5 to .7.",
    quick=Quick(seeds=1, steps=4, variants=("KDA", "scalar decay"), sizes=(NAMES[4], NAMES[16]),
                build={"rows": 32, "evaluate_every": 2, "extra": 0}))
