"""Four ways to join twenty sublayers: what travels up the model, and does it choose over depth?"""

import numpy as np
import torch

from k3_scratch.analysis.depth_attention import depth_mixes, mix_weights
from k3_scratch.analysis.depth_gradients import depth_gradients
from k3_scratch.analysis.depth_structure import from_equal, vector_shares
from k3_scratch.analysis.magnitudes import magnitudes
from k3_scratch.lab.experiment import Experiment, Paper, Quick, Variant
from k3_scratch.lab.models import build_model
from k3_scratch.lab.pictures import curves
from k3_scratch.lab.recipe import recipe_of
from k3_scratch.lab.summary import Above, Within
from k3_scratch.lab.trainer import evaluate, held_out, train
from k3_scratch.plots.depth_weights import depth_weights
from k3_scratch.plots.stacked import stacked
from k3_scratch.tasks.stack import Stack
from k3_scratch.training.evaluate import batch_loss

PLAIN, BLOCKS, FULL, HYPER = "plain residual", "attention, blocks", "attention, full", "hyper-connections"
HELD, SLOW = "full, queries at zero", "blocks, slow queries"
JOIN = "how sublayers are joined"


def measure(job):
    """Train, then look at 64 rows of the test split: sizes, gradients, weights over depth.

    read over written    the largest quotient over depth of what a sublayer reads and the largest vector before it
    growth of outputs    mean RMS of what the last four sublayers write over that of the first four
    gradient spread      largest over smallest RMS of the loss's gradient at the outputs of the sublayers
    structure            mean total-variation distance of a reader's weights from equal shares
    lost without choice  accuracy on 256 test rows, less that after all queries are set to zero
    """
    net = build_model(job.arguments, job.task.vocab_size, job.seed)
    recipe = recipe_of(job.arguments, job.steps)
    trained = train(net, job.task, recipe, job.seed)
    rows = held_out(job.task, "test", recipe.rows, job.seed)
    net.eval()
    tokens = torch.from_numpy(rows[0].tokens)
    _, read, written = magnitudes(net, tokens)
    gradient = depth_gradients(net, lambda: batch_loss(net, rows[0])[0])
    embedded = net.embed_tokens(tokens).double().square().mean().sqrt().item()
    before = np.maximum.accumulate([embedded, *written[:-1]])
    values = {"accuracy": trained["accuracy"][-1], "loss": trained["loss"][-1], "flat": float(trained["flat"]),
              "first read": read[0], "last read": read[-1], "growth of reads": read[-1] / read[0],
              "read over written": (read / before).max(), "gradient spread": gradient.max() / gradient.min(),
              "growth of outputs": written[-4:].mean() / written[:4].mean()}
    cell = {"values": values, "stopped": trained["stopped"],
            "curve": {"step": trained["step"], "loss": trained["loss"], "sublayer": list(range(len(read))),
                      "read": read, "written": written, "gradient": gradient}}
    if "attention" in net.residual_name:
        weights = mix_weights(net, tokens)
        values["structure"] = from_equal(weights)
        cell["shares"] = vector_shares(weights, getattr(net.residual, "boundaries", None))
        right = evaluate(net, rows)[0]
        with torch.no_grad():
            for mix in depth_mixes(net).values():
                mix.query.zero_()
        values["lost without choice"] = right - evaluate(net, rows)[0]
    return cell


def draw(result):
    """Sizes and gradients over depth, and below them three trained triangles of weights."""
    lines = curves({"read": "size of what each sublayer reads", "gradient": "gradient at what each writes"},
                   x="sublayer", log_y=True, numbers=False, ticks=range(0, 20, 3), x_label="sublayer",
                   y_label="root mean square", title="Twenty sublayers: a sum grows, an average does not")
    panels = {}
    for name, seed in ((FULL, 0), (FULL, 1), (BLOCKS, 0)):
        for cell in result["cells"]:
            if (cell["variant"], cell["seed"]) == (name, seed):
                panels[f"{name}, seed {seed}"] = filled(cell["shares"])
    size = len(next(iter(panels.values())))
    readers = [*(f"$x_{{{i}}}$" for i in range(size - 1)), "head"]
    maps = depth_weights(panels, readers, [f"$v_{{{j}}}$" for j in range(size)], label="times an equal share",
                         limit=3.0)
    return stacked([lines(result), maps])


def filled(rows):
    """Rows of 1, 2, ... n numbers as a square, NaN where a vector does not exist yet.              -> [n, n]"""
    return np.array([[*row, *[np.nan] * (len(rows) - len(row))] for row in rows])


EXPERIMENT = Experiment(
    name="residuals", letter="f", title="Ways to join twenty sublayers",
    question="Do sizes stay bounded when sublayers read a mixture over depth, does the mixture choose, and is that "
             "more than averaging does by itself?",
    setup="Ten layers of softmax attention (convolution of 4 taps, no positions) and SwiGLU, D = 32, on Stack: two "
          "stacks, six symbols, eight operations, and the symbol that comes off is asked. Only the way of joining "
          "differs: the plain sum; attention residuals in blocks of two layers, as K3 has them; their full form; "
          "hyper-connections with four streams and three turns of Sinkhorn. The queries over depth start at zero and "
          "have ten times the common learning rate, without which they hardly leave it; one variant shows blocks "
          "without the factor. Another holds all queries at zero: every mix is then a plain average, the network "
          "computes what the plain residual computes, and whatever it has in common with attention residuals is no "
          "merit of attention. Structure: how far a reader's mean weights are from equal shares, as the share of "
          "weight that would have to move (0 at the start). Lost without choice: accuracy lost when the queries of "
          "the trained model are set to zero. Twenty sublayers after 450 steps are not flat to the last per cent.",
    variants=(Variant(PLAIN, JOIN), Variant(BLOCKS, JOIN, {"residual": "attention"}, cost=1.4),
              Variant(FULL, JOIN, {"residual": "full_attention"}, cost=1.7),
              Variant(HYPER, JOIN, {"residual": "hyper"}, cost=2.4),
              Variant(HELD, "the rate of the queries", {"residual": "full_attention", "depth_rate": 0.0}, FULL, 1.7),
              Variant(SLOW, "the rate of the queries", {"residual": "attention", "depth_rate": 1.0}, BLOCKS, 1.4)),
    common={"layers": ["attention_nope"] * 10, "convolution": True, "residual": "plain", "attn_res_block_size": 2,
            "streams": 4, "iterations": 3, "depth_rate": 10.0, "batch_size": 16},
    task=Stack(2, 6, 8), measure=measure, steps=450, seeds=3, seconds=28.0,
    matched="nothing: the sublayers are equal; each way of joining brings parameters of its own, 1 % for attention "
            "over depth and some 60 % for hyper-connections with four streams",
    claims=(
        Within("under the plain sum the last sublayer reads at least five times what the first one reads",
               "growth of reads", (PLAIN,), low=5.0),
        Within("in the full form, an average, no sublayer reads more than the largest vector written before it",
               "read over written", (FULL,), high=1.0),
        Within("in blocks none reads more than the sum of the four outputs that a block holds", "read over written",
               (BLOCKS, SLOW), high=4.0),
        Above("the last sublayer reads less than under the plain sum", "growth of reads", (FULL, BLOCKS), (PLAIN,),
              lower=True),
        Above("that is no merit of the choice: plain averaging keeps sizes even smaller", "growth of reads", (HELD,),
              (FULL, BLOCKS), lower=True),
        Within("as in the paper, what is written grows at least twofold from the first to the last sublayers of the "
               "plain model", "growth of outputs", (PLAIN,), low=2.0),
        Above("gradients are spread more evenly over depth than under the plain sum", "gradient spread",
              (FULL, BLOCKS), (PLAIN,), lower=True, by="mean"),
        Within("the weights have structure: at least .15 of the weight is away from equal shares", "structure",
               (FULL, BLOCKS), low=0.15),
        Above("that needs the larger rate for the queries", "structure", (BLOCKS,), (SLOW,), margin=0.1),
        Within("the model uses its choice: with queries of zero it loses at least .03 of accuracy",
               "lost without choice", (FULL, BLOCKS), low=0.03),
        Above("attention residuals reach a lower loss than the plain sum", "loss", (FULL, BLOCKS), (PLAIN,),
              lower=True, by="mean"),
    ),
    expected="Trials before this one, seed 0, 300 steps: the first sublayer reads .11; the last one 1.6 under the sum, "
             ".46 in blocks, .10 in the full form; under hyper-connections it went from .3 to 2.6; outputs of the "
             "plain model did not grow; the gradient was 17 times as large at the first sublayer as at the last in "
             "plain and blocks, and no more even in the full form (40); structure .22 in blocks, .25 in the full form, "
             ".03 at the common rate; with queries of zero both lose .08 of accuracy. So sizes and structure should "
             "show. Growing outputs, even gradients and a lower loss are the paper's findings at hundreds of millions "
             "of parameters; nothing of them is promised here, and the loss of 300 steps was the same for all within "
             ".05.",
    table=("loss", "accuracy", "first read", "last read", "read over written", "growth of outputs", "gradient spread",
           "structure", "lost without choice"),
    draw=draw,
    alt="Above, two panels over twenty sublayers on scales of factors, three to five seeds of six variants: what "
        "is read rises steadily under the plain sum and hyper-connections and stays low under attention residuals "
        "and under plain averages; gradients fall from the first to the last sublayer in all. Below, three "
        "triangles of trained weights over depth, two seeds of the full form and one of blocks: rows and columns "
        "stand out from equal shares, at other places in each seed.",
    paper=Paper("AttnRes, arXiv 2603.15031", "In 27 blocks the size of the outputs grows from .04 to 12.15 under the "
                "plain residual and stays within .07 to 1.9 under attention residuals; gradients fall from 2.47 to .07 "
                "against .09 to .72. Validation loss at 436 M active parameters as in the picture.",
                {"plain residual": 1.766, "hyper-connections": 1.747, "attention, blocks of 4 sublayers": 1.746,
                 "attention, full": 1.737}, "validation loss"),
    quick=Quick(seeds=1, steps=3, build={"rows": 16, "evaluate_every": 3, "batch_size": 4}, seconds=3.0))
