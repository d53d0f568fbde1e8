"""Quantile Balancing over several processes: counts can be added, sorted margins cannot.

Every process counts in which of 1,000 bins the biases lie that its tokens would need (alpha - s); the counts are added,
and the quantile is looked up in the sum. Whole numbers have one sum in any order and for any division of the tokens, so
all processes find the same, bit for bit. K3 report, MoE, reads the bias there and then, with a straight line inside the
bin (reference/quantile_balancing.py). Here the bin that was found is counted once more in 1,000 finer ones, and the
smallest number in the finer bin is the bias: the very number that sorting finds, but for two that differ by less than a
millionth part of the range. A run of several processes then follows that of one, which sorts; errors of a bin would add
up over the updates.
"""

import math

import torch

from k3_scratch.shapes import check_shapes

BINS = 1000


@torch.no_grad()
def pooled_bias(scores, bias, k, add, least):
    """The bias for the next batch, `quantile_bias` of the tokens of all processes.              [m, E], [E] -> [E]

    scores [m, E] of the router without the bias, of this process' tokens (m may be 0); bias [E], the same everywhere
    add, least   the sum of int64 and the smallest of floats over all processes, element by element: tensor -> tensor;
                 the processes call this function together
    """
    E = check_shapes("pooled_bias", scores=(scores, "m E"), bias=(bias, "E"))["E"]
    if k >= E:                                                           # no token is ever refused
        return bias.clone()
    needed = needed_biases(scores, bias, k)
    places = margin_places(needed, bias)
    counts = add(count_places(places // BINS))
    tokens = int(counts[0].sum())
    if tokens == 0:
        return bias.clone()
    rank = torch.full((E, 1), min(tokens * k // E + 1, tokens), device=counts.device)    # floor(q) + 1, as there
    coarse, rank = _find(counts, rank)
    fine, _ = _find(add(count_places(places % BINS, places // BINS == coarse.T)), rank)
    beyond = torch.full_like(needed[:1].sum(0), torch.inf)               # also where there is no token at all
    found = torch.where(places == (coarse * BINS + fine).T, needed, beyond)
    new = least(torch.cat([found, beyond.unsqueeze(0)]).amin(0)).to(bias)
    return new - math.fsum(new.tolist()) / E                             # the same bits everywhere, unlike mean()


def needed_biases(scores, bias, k):
    """alpha - s: the bias with which a token would just choose an expert.               [m, E], [E] -> [m, E]"""
    E = check_shapes("needed_biases", scores=(scores, "m E"), bias=(bias, "E"))["E"]
    if not 1 <= k < E:
        raise ValueError(f"needed_biases: k must be from 1 to E - 1 = {E - 1}, but {k} came")
    return (scores + bias).topk(k + 1, -1).values[:, -1:] - scores       # alpha: the best score not chosen


def margin_places(needed, bias):
    """In which of BINS^2 equal bins between min b - 1 and max b + 1 each alpha - s lies.  [m, E], [E] -> int64 [m, E]

    No alpha - s can leave these edges. A token's places depend on that token alone.
    """
    check_shapes("margin_places", needed=(needed, "m E"), bias=(bias, "E"))
    low, high = (bias.min() - 1).item(), (bias.max() + 1).item()
    return ((needed - low) / (high - low) * BINS ** 2).floor().long().clamp(0, BINS ** 2 - 1)


def count_places(places, which=None):
    """How often each place occurs, for each expert.                                  int64 [m, E] -> int64 [E, BINS]

    places from 0 to BINS - 1;   which bool [m, E]: count only these; None: all
    """
    check_shapes("count_places", places=(places, "m E"), **({} if which is None else {"which": (which, "m E")}))
    E = places.shape[1]
    places = places + BINS * torch.arange(E, device=places.device)       # every expert has bins of its own
    return torch.bincount((places if which is None else places[which]).flatten(), minlength=E * BINS).view(E, BINS)


def _find(counts, rank):
    """The bin that holds the rank-th smallest, and its rank inside.       [E, BINS], [E, 1] -> [E, 1], [E, 1]"""
    up_to = counts.cumsum(1)
    place = (up_to < rank).sum(1, keepdim=True)
    return place, rank - (up_to - counts).gather(1, place)
