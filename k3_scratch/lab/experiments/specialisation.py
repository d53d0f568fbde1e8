"""Do experts specialise? Bits that a visit tells about the text, beside a random router of the same loads."""

import numpy as np
import torch

from k3_scratch.analysis.specialisation import mutual_information, random_choice, visits
from k3_scratch.analysis.watch import watched
from k3_scratch.generate import evaluating
from k3_scratch.lab.experiment import Experiment, Quick, Variant
from k3_scratch.lab.models import build_model
from k3_scratch.lab.recipe import recipe_of
from k3_scratch.lab.summary import Above, Within
from k3_scratch.lab.trainer import train
from k3_scratch.plots.expert_families import expert_families
from k3_scratch.pretrained import pretrained
from k3_scratch.tasks.corpus import FAMILIES, Corpus
from k3_scratch.tasks.vocabulary import PAD

ROWS, DRAWS = 24, 3        # rows of each family; random routers
CLASSES = ("small letter", "capital", "digit", "space, newline", "other sign")
KINDS = {"family": len(FAMILIES), "class": len(CLASSES)}


def class_of(token):
    """Number in CLASSES of a byte."""
    character = chr(token)
    checks = character.islower(), character.isupper(), character.isdigit(), character.isspace()
    return checks.index(True) if any(checks) else 4


def measure(job):
    """Train (or load, or leave) a model, let it read 24 held-out rows of each family, and count who visits whom.

    values: mean over the layers with experts, in bits; of a model trained here also the accuracy
    """
    net = model(job.arguments, job.task.vocab_size, job.seed)
    if job.arguments["kind"] == "trained":
        learnt = {"accuracy": train(net, job.task, recipe_of(job.arguments, job.steps), job.seed)["accuracy"][-1]}
    else:
        learnt = {}
    rng = np.random.default_rng([job.seed, 5])
    read = np.concatenate([job.task.batch(rng, ROWS, "test", family).tokens for family in FAMILIES])      # [n, T]
    real = read != PAD
    groups = {"family": np.repeat(np.arange(len(FAMILIES)), ROWS)[:, None].repeat(read.shape[1], 1)[real],
              "class": np.array([class_of(token) for token in read[real].tolist()])}
    gates = {layer: moe.gate for layer, moe in net.moe_layers().items()}
    with evaluating(net), watched(gates) as seen:
        net(torch.from_numpy(read))
    found, maps = {}, {}
    for layer, gate in gates.items():
        x, experts = seen[layer][0].double().numpy()[real], seen[layer][1][0].numpy()[real]
        E, k = gate.weight.shape[0], gate.k
        loads = np.bincount(experts.ravel(), minlength=E)
        random = [random_choice(x, gate.weight.std().item(), loads, k, [job.seed, layer, i]) for i in range(DRAWS)]
        mixed = rng.permutation(len(experts))
        for kind, number in KINDS.items():
            bits = {name: mutual_information(visits(chosen, groups[kind], number, E))
                    for name, chosen in (("router", experts), ("shuffled", experts[mixed]))}
            bits["random"] = np.mean([mutual_information(visits(each, groups[kind], number, E)) for each in random])
            bits["above random"] = bits["router"] - bits["random"]
            for name, value in bits.items():
                found.setdefault(f"{kind}, {name}", []).append(value)
        maps = {name: np.vstack([visits(chosen, groups[kind], number, E) for kind, number in KINDS.items()])
                for name, chosen in (("router", experts), ("random", random[0]))}
    return {"values": {name: float(np.mean(values)) for name, values in found.items()} | learnt, "maps": maps}


def model(arguments, vocab_size, seed=0):
    """The published miniature, or a small model of the arguments as it is initialised."""
    if arguments["kind"] == "published":
        return pretrained("mini")
    return build_model({name: value for name, value in arguments.items() if name != "kind"}, vocab_size, seed)


def draw(result):
    """The last layer of the small trained model, seed 0: its own router and a random one, on the same vectors."""
    cell = next(cell for cell in result["cells"] if cell["variant"] == TRAINED)
    panels, titles = [], []
    for name, title in (("router", "trained router"), ("random", "random router, same loads")):
        counts = np.array(cell["maps"][name])
        families = counts[:len(FAMILIES)]
        order = np.lexsort((-families.max(0) / np.maximum(families.sum(0), 1), families.argmax(0)))
        family, kind = mutual_information(families), mutual_information(counts[len(FAMILIES):])
        panels.append(counts[:, order])
        titles.append(f"{title}: {family:.2f} bit of the family, {kind:.2f} of the class")
    return expert_families(np.stack(panels), [*FAMILIES, *CLASSES], titles)


TRAINED, START, MINI = "small model, trained", "small model, untrained", "published miniature"

EXPERIMENT = Experiment(
    name="specialisation", letter="g", title="Whom experts work for",
    question="How much does a visit to an expert tell about the text: about the family of the task and the class of "
             "the character? And how much of that would a random router give?",
    setup="The mixed corpus. A small model of three layers (KDA, KDA, MLA; width 48, 16 experts, 2 a token, latent "
          "24) trained for 400 steps of 16 windows by per-head Muon, and the same model untrained; beside them the "
          "published miniature, where a seed is another batch and other random routers. Each reads 24 held-out rows "
          "of each of six families. Mutual information in bits, mean over the layers with experts. Random: a router "
          "with random weights on the very same vectors, its bias set so that every expert has the load that it has "
          "under the model's own router, mean of 3. Shuffled: the model's own visits given to other tokens. Of a "
          "family there are 2.58 bits to tell.",
    variants=(Variant(TRAINED, "the model"), Variant(START, "the model", {"kind": "untrained"}, cost=0.02),
              Variant(MINI, "the model", {"kind": "published"}, cost=0.04)),
    common={"kind": "trained", "layers": "kda,kda,mla", "ffn": "latent_moe", "residual": "attention",
            "attn_res_block_size": 2, "hidden_size": 48, "num_heads": 3, "num_experts": 16, "num_experts_per_token": 2,
            "moe_intermediate_size": 32, "moe_latent_size": 24, "initializer_range": 0.03, "optimizer": "head_muon",
            "learning_rate": 1e-2, "weight_decay": 0.1, "warmup": 20, "batch_size": 16, "rows": 64,
            "evaluate_every": 100},
    task=Corpus(80), measure=measure, model=model, steps=400, seeds=3, seconds=45.0,
    matched="nothing: the comparison is within a model, of its router with a random one",
    claims=(
        Within("a trained router tells more about the family than a random one", "family, above random",
               (TRAINED, MINI), low=0.0),
        Within("it also tells more about the class of the character", "class, above random", (TRAINED, MINI), low=0.0),
        Within("visits that are shuffled tell nothing", "family, shuffled", (TRAINED, START, MINI), high=0.02),
        Above("a trained model's experts know more about the family than an untrained one's", "family, router",
              (TRAINED,), (START,)),
    ),
    expected="In the published miniature chapter 05 found .7 to .9 bit about the family and .4 to .6 for random "
             "routers with even loads; so much of what looks like specialisation comes for free. The small model "
             "should show the same, with less: 400 steps are few for six families. One batch of the "
             "published miniature before this run: .80 against .56, and .55 against .35 about the class; untrained .02 "
             "for both.",
    table=("family, router", "family, random", "family, shuffled", "class, router", "class, random",
           "class, shuffled", "accuracy"),
    draw=draw,
    alt="Two maps, six families and five classes of characters against 16 experts; colour is how often a row visits an "
        "expert, relative to an even share. The trained router has bright cells of 2 to 4 in each row; the random "
        "router's map is paler, but has bright cells too.",
    quick=Quick(seeds=1, steps=2, variants=(TRAINED, MINI), build={"rows": 16, "evaluate_every": 2}, seconds=5.0))
