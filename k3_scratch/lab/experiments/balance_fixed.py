"""One batch again and again: how many updates of the bias until every expert has its share?"""

import numpy as np

from k3_scratch.lab.balancing import imbalance, loads, next_bias
from k3_scratch.lab.experiment import Experiment, Quick, Size, Variant
from k3_scratch.lab.pictures import curves
from k3_scratch.lab.summary import Above, Within

GOAL, UPDATES, D = 0.05, 60, 64


def measure(job):
    """Update the bias on one fixed batch of scores; count updates until every load is within 5 % of the mean.

    Scores are sigmoids of a random router on 64 channels whose tokens share a direction: without a bias some experts
    get two or three times their share.
    """
    m, E, k, rule = (job.arguments[name] for name in ("tokens", "experts", "k", "rule"))
    rng = np.random.default_rng(job.seed)
    tokens = rng.standard_normal((m, D)) + 0.3 * rng.standard_normal(D)          # a mean of their own
    scores = 1 / (1 + np.exp(-tokens @ rng.standard_normal((D, E)) / D ** 0.5))  # [m, E]
    bias, distances = np.zeros(E), []
    for _ in range(UPDATES + 1):
        counts = loads(scores, bias, k)
        distances.append(float(imbalance(counts)))
        bias = next_bias(rule, scores, bias, counts, k)
    within = np.array(distances) <= GOAL
    stays = len(within) - int(np.argmin(within[::-1])) if not within.all() else 0        # from here on always within
    values = {"updates needed": stays, "largest distance after 20 updates": distances[20],
              "largest distance at the start": distances[0]}
    return {"values": values, "curve": {"update": list(range(UPDATES + 1)), "distance": np.maximum(distances, 1e-3)}}


SMALL, LARGE = "16 experts, 2 a token", "64 experts, 4 a token"
QUANTILES = ("Quantile Balancing", "histogram of 10,000 bins")
SIGNS = ("sign rule .001", "sign rule .01", "sign rule .1")

EXPERIMENT = Experiment(
    name="balance_fixed", letter="h", title="Balancing one fixed batch",
    question="How many updates of the selection bias make every expert's load even?",
    setup=f"8,192 tokens with fixed router scores; the bias is updated on them {UPDATES} times. Counted are the "
          "updates until every load is within 5 % of the mean and stays there; "
          f"{UPDATES + 1} means: not within {UPDATES}. The sign rule starts from 0 like all others.",
    variants=(Variant("Quantile Balancing", "the rule"),
              Variant("histogram of 1,000 bins", "the rule", {"rule": "histogram 1000"}),
              Variant("histogram of 10,000 bins", "the rule", {"rule": "histogram 10000"}),
              *(Variant(f"sign rule {rate}", "the rule", {"rule": f"sign 0{rate}"}) for rate in (".001", ".01", ".1")),
              Variant("no balancing", "the rule", {"rule": "none"})),
    common={"tokens": 8192, "rule": "quantile"}, measure=measure, sizes=(
        Size(SMALL, {"experts": 16, "k": 2}), Size(LARGE, {"experts": 64, "k": 4})), seeds=5,
    seconds={SMALL: 1.0, LARGE: 2.0},
    matched="nothing: the scores are the same for all rules, and nothing is trained",
    claims=(
        Within("Quantile Balancing has every load within 5 % in at most 20 updates", "updates needed", QUANTILES,
               high=20),
        Above("every sign rule needs more updates", "updates needed", QUANTILES,
              SIGNS, lower=True),
        Within("a histogram of 1,000 bins is enough for that", "updates needed", ("histogram of 1,000 bins",), high=20),
    ),
    expected="A quantile is a whole step to the right place, a sign only a direction: a small rate needs many updates, "
             "a large one overshoots and never settles.",
    table=("updates needed", "largest distance at the start", "largest distance after 20 updates"),
    draw=curves("distance", x="update", title="A quantile finds the bias in a few steps; a fixed step crawls or jumps",
                x_label="updates of the bias", y_label="largest distance from the mean load", level=GOAL, log_y=True),
    alt="Two panels, 16 and 64 experts: the largest distance of a load from the mean on a scale of factors against "
        "updates. Quantile Balancing falls to the 5 % line within a few updates, the histogram of 1,000 bins stays a "
        "little above the others; the sign rules fall slowly or swing far above; without balancing nothing moves.",
    quick=Quick(seeds=1, steps=None, build={"tokens": 512}))
