"""Whole answers about pictures, and what is left of them when the pictures say nothing.

An answer is right when each of its characters is the likeliest after the true text before it: exactly when the model,
asked, writes it. Beside the pictures themselves there are three controls:

    blanked      every picture black
    swapped      every row has the pictures of the row before it
    text_only    no model at all: the commonest answer to the same question in the training split
"""

import dataclasses
from collections import Counter

import numpy as np
import torch

from k3_scratch.generate import evaluating
from k3_scratch.tasks.batch import IGNORED
from k3_scratch.training.evaluate import batch_loss

CONTROLS = {
    "blanked": np.zeros_like,
    "swapped": lambda images: np.roll(images, 1, axis=0),
}
_ROWS = 64                                       # rows of one forward pass


def picture_scores(model, data, split, rows, seed=0, device="cpu"):
    """{"exact_match": {family: share of right answers}, "controls": {control: the same}} on `rows` rows per family."""
    controls = {name: whole_answers(model, data, split, rows, seed, device, change)
                for name, change in CONTROLS.items()}
    return {"exact_match": whole_answers(model, data, split, rows, seed, device),
            "controls": {**controls, "text_only": text_only(data, split, rows, seed)}}


@torch.no_grad()
def whole_answers(model, data, split, rows, seed=0, device="cpu", change=None):
    """{family: share of answers that are right from the first to the last character}.

    data      a `Pictures`;  change: a function of images uint8 [B, P, Y, X, C] that gives those to be shown
    """
    result = {}
    with evaluating(model):
        for family in data.families:
            right = []
            for batch in _batches(data, split, rows, seed, family):
                if change is not None:
                    batch = dataclasses.replace(batch, images=change(batch.images))
                learnt = batch.targets != IGNORED
                hits = np.zeros(learnt.shape, dtype=bool)
                best = batch_loss(model, batch, device)[1].argmax(-1).cpu().numpy()
                hits[learnt] = best == batch.targets[learnt]
                right += [hits[row, start:stop].all() for row, start, stop in answers(batch)]
            result[family] = float(np.mean(right))
    return result


def text_only(data, split, rows, seed=0):
    """{family: share of answers that are the commonest one to their question among `rows` rows of the training split}.

    A question that the training rows do not have is answered with the family's commonest answer.
    """
    result = {}
    for family in data.families:
        known, anywhere = {}, Counter()
        for question, answer in _asked(data, "train", rows, seed, family):
            known.setdefault(question, Counter())[answer] += 1
            anywhere[answer] += 1
        right = [known.get(question, anywhere).most_common(1)[0][0] == answer
                 for question, answer in _asked(data, split, rows, seed, family)]
        result[family] = float(np.mean(right))
    return result


def answers(batch):
    """[(row, start, stop), ...]: where the scored answers stand in `batch.targets`."""
    edges = np.diff(np.pad(batch.scored.astype(np.int8), ((0, 0), (1, 1))), axis=1)       # [B, T+1]: 1 start, -1 end
    starts, stops = np.argwhere(edges == 1), np.argwhere(edges == -1)
    return [(row, start, stop) for (row, start), (_, stop) in zip(starts.tolist(), stops.tolist(), strict=True)]


def _batches(data, split, rows, seed, family):
    rng = np.random.default_rng([seed, 2])
    for start in range(0, rows, _ROWS):
        yield data.batch(rng, min(_ROWS, rows - start), split, family)


def _asked(data, split, rows, seed, family):
    """(question, answer) of every turn of the family."""
    rng = np.random.default_rng([seed, 3])
    for _ in range(rows):
        for _, example, asked in data.page(rng, split, family):
            yield from ((text.strip(), answer) for (text, answer), name in zip(example.turns, asked, strict=True)
                        if name == family)
