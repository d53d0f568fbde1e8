"""Train one small model on one task until its curve is flat. One thread, one process, deterministic.

The main loop (training/loop.py) trains K3 on the corpus; this one trains any `Frame` on any task with `batch`.
"""

import numpy as np
import torch

from k3_scratch.generate import evaluating
from k3_scratch.lab.recipe import recipe_of
from k3_scratch.layers.attention_residuals import DepthMix
from k3_scratch.tasks.batch import IGNORED
from k3_scratch.training.evaluate import batch_loss
from k3_scratch.training.muon import Muon, head_blocks

BETAS = (0.9, 0.98)


def train_cell(job):
    """`measure` of experiments that train: build, train, evaluate at the task's size and at each further length.

    values: accuracy (share of scored targets right, held out), loss, flat (1 or 0), and one for each of `lengths`.
    """
    model = job.experiment.model(job.arguments, job.task.vocab_size, job.seed)
    recipe = recipe_of(job.arguments, job.steps)
    trained = train(model, job.task, recipe, job.seed)
    values = {"accuracy": trained["accuracy"][-1], "loss": trained["loss"][-1], "flat": float(trained["flat"])}
    for name, task in job.lengths.items():
        values[name] = evaluate(model, held_out(task, "test", recipe.rows, job.seed))[0]
    curve = {name: trained[name] for name in ("step", "accuracy", "loss")}
    return {"values": values, "curve": curve, "stopped": trained["stopped"], "steps": trained["step"][-1]}


def train(model, task, recipe, seed=0, after_step=None):
    """Train `model` in place.   -> {"step", "accuracy", "loss": curves; "flat": bool, "stopped": why}

    after_step   called with (step, model) after each update, to watch loads or magnitudes
    The batch of step s is drawn from (seed, s) alone. Loss on the answers only, plus `model.aux_loss()`.
    """
    optimizers = make_optimizers(model, recipe)
    curve = {"step": [], "accuracy": [], "loss": []}
    stopped, validation = "steps", held_out(task, "validation", recipe.rows, seed)
    model.train()
    for step in range(recipe.steps + recipe.extra):
        update(model, task, recipe, optimizers, step, seed)
        if after_step is not None:
            after_step(step, model)
        if (step + 1) % recipe.evaluate_every == 0 or step + 1 == recipe.steps + recipe.extra:
            right, loss = evaluate(model, validation)
            for name, value in (("step", step + 1), ("accuracy", right), ("loss", loss)):
                curve[name].append(value)
            if min(curve["accuracy"][-2:]) >= recipe.solved and len(curve["accuracy"]) > 1:
                stopped = "solved"
                break
            if step + 1 >= recipe.steps and recipe.extra and is_flat(curve["accuracy"], recipe.flat):
                stopped = "flat"
                break
    return {**curve, "flat": stopped == "solved" or is_flat(curve["accuracy"], recipe.flat), "stopped": stopped}


def update(model, task, recipe, optimizers, step, seed):
    """One update of the model on the batch of (seed, step), at the recipe's rate and clip; returns its loss."""
    for moe in model.moe_layers().values():
        moe.forget_observed()
    batch = task.batch(np.random.default_rng([seed, step]), recipe.batch_size)
    loss = batch_loss(model, batch)[0] + model.aux_loss()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step) * group.get("factor", 1.0)
        optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip, error_if_nonfinite=True)
    for optimizer in optimizers:
        optimizer.step()
    if recipe.balance:
        model.balance()
    return loss.item()


def held_out(task, split, rows, seed=0):
    """`rows` rows of a split, in batches of 64 at most: drawn once, they serve every evaluation of a run."""
    rng = np.random.default_rng([seed, 10 ** 6])
    return [task.batch(rng, min(64, rows - start), split) for start in range(0, rows, 64)]


@torch.no_grad()
def evaluate(model, batches):
    """(share of scored targets whose argmax is right, mean loss) on a list of batches."""
    right, scored, losses = 0, 0, []
    with evaluating(model):
        for part in batches:
            loss, logits = batch_loss(model, part)
            learnt = part.targets != IGNORED
            hits = logits.argmax(-1).numpy() == part.targets[learnt]
            right += int(hits[part.scored[learnt]].sum())
            scored += int(part.scored.sum())
            losses.append(loss.item())
    return right / scored, float(np.mean(losses))


def is_flat(accuracy, gain):
    """Did the last three evaluations gain less than `gain` on the three before them?

    >>> is_flat([.2, .5, .8, .9, .9, .9], .01), is_flat([.9, .9, .9, .901, .902, .9], .01), is_flat([.9, .9], .01)
    (False, True, False)
    """
    return len(accuracy) >= 6 and float(np.mean(accuracy[-3:]) - np.mean(accuracy[-6:-3])) < gain


def make_optimizers(model, recipe):
    """[Muon for matrices, AdamW for the rest], or AdamW for everything. Raises ValueError for another name.

    The queries of attention residuals have a group of their own, whose "factor" `update` puts on the rate.
    """
    named = dict(model.named_parameters())
    if recipe.optimizer == "adamw":
        blocks = {}
    elif recipe.optimizer in ("muon", "head_muon"):
        blocks = head_blocks(model)
        if recipe.optimizer == "muon":                                   # one block a matrix; experts stay apart
            blocks = {name: named[name].shape[-2] for name in blocks}
    else:
        raise ValueError(f"optimizer must be adamw, muon or head_muon, but {recipe.optimizer!r} came")
    rest = {name: p for name, p in named.items() if name not in blocks}
    decayed = [p for name, p in rest.items() if p.dim() >= 2 and "conv1d" not in name]
    queries = [module.query for module in model.modules() if isinstance(module, DepthMix)]
    apart = {id(p) for p in queries}
    plain = [p for name, p in rest.items() if (p.dim() < 2 or "conv1d" in name) and id(p) not in apart]
    groups = [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0},
              *([{"params": queries, "weight_decay": 0.0, "factor": recipe.depth_rate}] if queries else [])]
    adamw = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=BETAS)
    muon = {named[name]: rows for name, rows in blocks.items()}
    return [*([Muon(muon, recipe.learning_rate, weight_decay=recipe.weight_decay)] if muon else []), adamw]
