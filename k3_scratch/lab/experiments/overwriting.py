"""What if a key is written again? No training."""

import numpy as np

from k3_scratch.lab.experiment import Experiment, Quick, Variant
from k3_scratch.lab.pictures import curves
from k3_scratch.lab.summary import Above
from k3_scratch.reference.delta_rule import delta_step

KEYS, TIMES = 12, (1, 2, 3, 4, 5, 6, 7, 8)


def measure(job):
    """Write every key 1 ... 8 times, in a new random order each time; is the newest value the one that comes back?

    A hit: of all values ever written, the newest of this key is nearest (largest cosine) to what comes back.
    """
    K, erases, decay = (job.arguments[name] for name in ("K", "erases", "decay"))
    hits = []
    for times in TIMES:
        rng = np.random.default_rng([job.seed, times])
        keys = rng.standard_normal((KEYS, K))
        keys /= np.linalg.norm(keys, axis=1, keepdims=True)
        values = rng.standard_normal((times, KEYS, K))
        state = np.zeros((K, K))
        for each in values:
            for i in rng.permutation(KEYS):
                state = decay * state
                state = delta_step(state, keys[i], each[i], 1.0) if erases else state + np.outer(keys[i], each[i])
        written = values.reshape(-1, K) / np.linalg.norm(values, axis=-1).reshape(-1, 1)
        found = (keys @ state) @ written.T                               # [KEYS, times * KEYS]
        hits.append(float((found.argmax(1) == (times - 1) * KEYS + np.arange(KEYS)).mean()))
    values = {"newest found after 2": hits[1], "newest found after 8": hits[-1]}
    return {"values": values, "curve": {"times": TIMES, "hits": hits}}


EXPERIMENT = Experiment(
    name="overwriting", letter="a", title="A key that is written again",
    question="When a key gets a new value, does the memory give the new one back, or a mixture of all?",
    setup="NumPy, no training. 12 random unit keys (K = V = 32) are each written 1 to 8 times, in a new order each "
          "time; then each is asked. A hit: of all values ever written, the newest of this key is nearest.",
    variants=(Variant("delta rule", "erases before it writes"),
              Variant("addition", "does not erase", {"erases": False}),
              Variant("addition, decay .95", "forgets by itself", {"erases": False, "decay": 0.95}, against="addition"),
              Variant("delta rule, decay .95", "forgets by itself", {"decay": 0.95})),
    common={"K": 32, "erases": True, "decay": 1.0}, measure=measure, seeds=10, seconds=0.2,
    matched="nothing: the memory is the same 32 by 32 numbers, and nothing is trained",
    claims=(
        Above("after 8 writes the delta rule finds the newest value more often than addition", "newest found after 8",
              ("delta rule", "delta rule, decay .95"), ("addition",)),
        Above("it also finds it more often than a memory that only forgets", "newest found after 8", ("delta rule",),
              ("addition, decay .95",), by="mean"),
    ),
    expected="Addition returns the sum of all values of a key and finds the newest less and less often; the delta rule "
             "takes the old one out first. Forgetting helps addition, without looking at keys.",
    draw=curves({"hits": ""}, x="times", title="Only what is erased does not come back",
                x_label="times that each of the 12 keys is written", y_label="newest value found",
                limits=(-0.03, 1.03)),
    alt="Share of keys that give back their newest value against the number of times each was written, ten seeds: "
        "addition falls to about an eighth, addition with decay stays near .9, the two delta rules near 1.",
    quick=Quick(seeds=2, steps=None))
