"""How good is the model? Teacher-forced accuracy on the characters of answers, and whole answers written by itself."""

import numpy as np
import torch
import torch.nn.functional as F

from k3_scratch.generate import evaluating, generate
from k3_scratch.tasks.batch import IGNORED
from k3_scratch.tasks.corpus import FAMILIES
from k3_scratch.tasks.vocabulary import encode


def batch_loss(model, batch, device="cpu"):
    """Cross-entropy on the learnt targets, and the logits there.                -> scalar, [number of targets, vocab]

    Every window counts the same, whether it has two characters to be learnt or forty: the mean over rows of each row's
    mean. The head runs only where something is to be learnt, in the order of `batch.targets != IGNORED`.
    """
    targets = torch.from_numpy(batch.targets).to(device)
    learnt, pictures = targets != IGNORED, {}
    if batch.images is not None:
        pictures["images"] = torch.from_numpy(batch.images).flatten(0, 1).to(device)     # row after row
    logits = model.lm_head(model.hidden(torch.from_numpy(batch.tokens).to(device), **pictures)[learnt]).float()
    weights = learnt / (learnt.sum(1, keepdim=True).clamp_min(1) * len(targets))         # [B, T]
    return (F.cross_entropy(logits, targets[learnt], reduction="none") * weights[learnt]).sum(), logits


@torch.no_grad()
def accuracy(model, data, split, rows, seed=0, device="cpu"):
    """({family: share of scored characters whose argmax is right}, mean loss) on `rows` windows per family.

    data without families (plain text) has one entry, "text". The model is put back into the mode it was in.
    """
    right, losses = {}, []
    with evaluating(model):
        for family in getattr(data, "families", (None,)):
            rng, hits, scored = np.random.default_rng([seed, 1]), 0, 0
            for start in range(0, rows, 64):
                part = data.batch(rng, min(64, rows - start), split, family)
                loss, logits = batch_loss(model, part, device)
                learnt = part.targets != IGNORED
                right_here = logits.argmax(-1).cpu().numpy() == part.targets[learnt]
                hits += int(right_here[part.scored[learnt]].sum())
                scored += int(part.scored.sum())
                losses.append(loss.item())
            right[family or "text"] = hits / scored
    return right, float(np.mean(losses))


def exact_match(model, families, split, examples, seed=0):
    """{family: share of answers that greedy generation writes exactly, newline or next prompt not counted}.

    Every answer of `examples` examples is asked with the true text before it.
    """
    result = {}
    for name in families:
        rng, asked = np.random.default_rng([seed, 2]), []
        for _ in range(examples):
            text = ""
            for prompt, answer in FAMILIES[name].example(rng, split).turns:
                text += prompt
                asked.append((text, answer))
                text += answer
        longest = max(len(answer) for _, answer in asked)
        right = 0
        for start in range(0, len(asked), 128):
            part = asked[start:start + 128]
            written = generate(model, [encode(text) for text, _ in part], longest)
            right += sum(out[:len(answer)] == encode(answer) for out, (_, answer) in zip(written, part, strict=True))
        result[name] = right / len(asked)
    return result
