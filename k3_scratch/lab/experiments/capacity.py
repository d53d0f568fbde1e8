"""How many pairs does a matrix memory hold? No training."""

import numpy as np

from k3_scratch.lab.experiment import Experiment, Paper, Quick, Variant
from k3_scratch.lab.pictures import curves
from k3_scratch.lab.summary import Above, Within
from k3_scratch.reference.delta_rule import delta_step

PAIRS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128)


def measure(job):
    """Write n random pairs (unit keys [n, K], normal values [n, K]), ask for each.

    A key is recalled when of all n values its own is the nearest (largest cosine) to what the memory gives back.
    """
    K, rule, passes = (job.arguments[name] for name in ("K", "rule", "passes"))
    hits, errors = [], []
    for n in PAIRS:
        rng = np.random.default_rng([job.seed, n])
        keys = rng.standard_normal((n, K))
        keys /= np.linalg.norm(keys, axis=1, keepdims=True)
        values = rng.standard_normal((n, K))
        if rule == "add":
            state = keys.T @ values                                      # [K, V]
        else:
            state = np.zeros((K, K))
            for _ in range(passes):
                for key, value in zip(keys, values, strict=True):
                    state = delta_step(state, key, value, 1.0)
        found = keys @ state                                             # [n, V]
        cosine = (found / np.linalg.norm(found, axis=1, keepdims=True)
                  @ (values / np.linalg.norm(values, axis=1, keepdims=True)).T)
        hits.append(float((cosine.argmax(1) == np.arange(n)).mean()))
        errors.append(float(np.linalg.norm(found - values) / np.linalg.norm(values)))
    at = dict(zip(PAIRS, range(len(PAIRS)), strict=True))
    values = {f"hits at {n}": hits[at[n]] for n in (16, 32, 64)} | {"error at 16": errors[at[16]]}
    return {"values": values, "curve": {"pairs": PAIRS, "hits": hits, "error": errors}}


EXPERIMENT = Experiment(
    name="capacity", letter="a", title="How much a matrix memory holds",
    question="How many random pairs can a memory of 32 by 32 numbers give back, and does the delta rule hold more than "
             "plain addition?",
    setup="NumPy, no training. 4 to 128 pairs of a random unit key and a random value are written into S (K = V = 32), "
          "then every key is asked; a hit is a key whose own value is nearest. One pass writes each pair once, as a "
          "model reading a text does; 50 passes are what the delta rule tends to when pairs come again and again.",
    variants=(Variant("delta rule, one pass", "the rule of writing"),
              Variant("addition", "the rule of writing", {"rule": "add"}),
              Variant("delta rule, 50 passes", "how often the pairs are read", {"passes": 50})),
    common={"K": 32, "rule": "delta", "passes": 1}, measure=measure, seeds=10, seconds=0.3,
    matched="nothing: the memory is the same 32 by 32 numbers, and nothing is trained",
    claims=(
        Within("read again and again, the delta rule recalls K/2 pairs exactly", "hits at 16",
               ("delta rule, 50 passes",), low=1.0),
        Above("read again and again, it holds more than addition at K pairs", "hits at 32",
              ("delta rule, 50 passes",), ("addition",), by="mean"),
        Above("in one pass it already holds more than addition at K/2 pairs: smaller error", "error at 16",
              ("delta rule, one pass",), ("addition",), lower=True),
        Above("in one pass it also finds more beyond the size of the memory, at 2K pairs", "hits at 64",
              ("delta rule, one pass",), ("addition",)),
    ),
    expected="With repeated passes the delta rule is exact up to K/2 pairs and good up to K. In one pass it should be "
             "better than addition while there is room.",
    table=("hits at 16", "hits at 32", "hits at 64", "error at 16"),
    draw=curves({"hits": "keys that give back their own value", "error": "relative error of what comes back"},
                x="pairs", title="The delta rule corrects what is there, but the newest pair costs the oldest",
                x_label="pairs written (K = 32)", y_label="share, or error", log_x=True,
                ticks=(4, 8, 16, 32, 64, 128)),
    alt="Two panels over the number of pairs from 4 to 128, ten seeds each. Left, the share of keys recalled: the "
        "delta rule with 50 passes stays near 1 up to 32 pairs; in one pass it lies below addition from 12 pairs on. "
        "Right, the relative error: addition has the largest, the delta rule with 50 passes has none up to 24 pairs.",
    paper=Paper("Schlag et al., arXiv 2102.11174", "The capacity of an additive memory ends at K orthogonal keys; the "
                "delta rule edits what is stored under a key in place of adding to it."),
    quick=Quick(seeds=2, steps=None))
