"""Shared by the oracles: models in which every part matters, prompts, and ways to feed a model in pieces."""

import numpy as np
import torch

from k3_scratch.config import preset
from k3_scratch.model import K3
from k3_scratch.tasks.corpus import FAMILIES
from k3_scratch.tasks.vocabulary import encode

LENGTHS = (1, 5, 64, 65, 200)
QUERY_STD = 0.06             # attention residuals amplify rounding: large depth queries part any two float32 programs

# The K = V that all oracles need; everything else differs from everything else.
BASE = preset("nano").replace(vocab_size=37, hidden_size=28, num_layers=6, num_heads=3, attn_res_block_size=2,
                              kda_key_dim=8, kda_value_dim=8, initializer_range=0.1, routed_scaling_factor=2.5)


def live_k3(config, seed=0, dt_bias=-1.0):
    """A float64 model in which every part matters: norms, depth queries, selection biases and decays are random too.

    dt_bias is the centre of the decay's logit: 0 forgets fast (mean log-decay about -2.5), -4.5 slowly (-.06).
    """
    model = K3(config, seed=seed).double().eval().requires_grad_(False)
    # Embeddings of size 1, as small vectors under a norm part two float32 programs; logits of standard deviation 1.5.
    model.embed_tokens.weight.mul_(1.0 / config.initializer_range)
    model.lm_head.weight.mul_(0.3 / config.initializer_range)
    generator = torch.Generator().manual_seed(seed + 100)
    centre_and_spread = {"query": (0.0, QUERY_STD), "A_log": (0.0, 0.3), "dt_bias": (dt_bias, 0.3),
                         "e_score_correction_bias": (0.0, 0.3)}
    for name, x in model.state_dict().items():
        centre, spread = centre_and_spread.get(name.rsplit(".", 1)[-1], (1.0, 0.3))
        if x.dim() == 1:
            x.copy_(centre + spread * torch.randn(x.shape, generator=generator, dtype=torch.float64))
    return model.float().double()                       # numbers that float32 holds too: both sides get the same


def prompt(config, length, seed=1):
    """[1, length] random ids, the second half with runs of one token, so that keys repeat."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, config.vocab_size, size=length)
    half = length // 2
    ids[half:] = np.repeat(ids[half:][::5], 5)[:length - half]
    return torch.from_numpy(ids).unsqueeze(0)


def pieces(length, way):
    """The lengths of the calls that feed `length` tokens: "whole", "split" (two unequal parts) or "steps"."""
    first = max(1, length * 2 // 5)
    return {"whole": [length], "split": [first, length - first], "steps": [1] * length}[way]


def cut(ids, lengths):
    """[1, T] -> a list of [1, T_i]; empty pieces are left out."""
    return [part for part in torch.split(ids, lengths, dim=1) if part.shape[1]]


def largest_difference(got, want):
    """The largest absolute difference; also demands the same shape and the same most likely token everywhere."""
    got = torch.as_tensor(np.asarray(got), dtype=torch.float64)
    assert got.shape == want.shape, f"{tuple(got.shape)} came, {tuple(want.shape)} was wanted"
    assert torch.equal(got.argmax(-1), want.argmax(-1)), "another token is the most likely one"
    return (got - want).abs().max().item()


def corpus_prompts(count, split="test"):
    """`count` prompts of the corpus as lists of ids, the families in turn, each up to its first answer."""
    rng, families = np.random.default_rng(7), list(FAMILIES.values())
    return [encode(families[i % len(families)].example(rng, split).turns[0][0]) for i in range(count)]
