"""Facts: vectors with labels, nothing to be understood, only to be kept; and a network of feed-forward parts alone.

As in chapter 05, with more facts and two sublayers. There is no sequence: a row is one token, the number of a fact.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from k3_scratch.baselines.ffns import FFNS
from k3_scratch.lab.models import CONFIG_FIELDS, SMALL
from k3_scratch.layers.rms_norm import RMSNorm
from k3_scratch.tasks.arguments import need_whole
from k3_scratch.tasks.batch import Batch


@dataclass(frozen=True)
class Facts:
    """Facts 0, 1, ... with a label each, drawn once and for all. The splits are the same: it is memory that is asked.

    >>> print(Facts(facts=9, labels=4).batch(np.random.default_rng(0), 3).tokens.ravel())
    [7 5 4]
    """

    facts: int = 16_384
    labels: int = 64
    world: int = 0          # seed of the labels

    def __post_init__(self):
        for name in ("facts", "labels"):
            need_whole(name, getattr(self, name), 1)

    @property
    def vocab_size(self):
        return self.facts

    @property
    def length(self):
        return 1

    def batch(self, rng, batch_size, split="train"):
        """`batch_size` facts and their labels as targets.                                                -> [B, 1]"""
        need_whole("batch_size", batch_size, 1)
        asked = rng.integers(self.facts, size=(batch_size, 1))
        return Batch.from_targets(asked, np.random.default_rng(self.world).integers(
            self.labels, size=self.facts)[asked])


class Memory(nn.Module):
    """Two feed-forward sublayers over a vector that is given: x <- x + ffn(norm(x)), twice.  tokens [B, 1] -> [B, 1, n]

    Every fact is a fixed normal vector of D numbers; trained are the sublayers and the head to the n labels. It has
    what the lab's trainer asks of a `Frame`.
    """

    def __init__(self, config, ffn, labels):
        super().__init__()
        D = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, D).requires_grad_(False)
        self.norms = nn.ModuleList(RMSNorm(D, config.rms_norm_eps) for _ in range(2))
        self.ffns = nn.ModuleList(FFNS[ffn].make(config) for _ in range(2))
        self.norm = RMSNorm(D, config.rms_norm_eps)
        self.lm_head = nn.Linear(D, labels, bias=False)

    def hidden(self, tokens):
        """What the head reads.                                                                -> [B, 1, D]"""
        x = self.embed_tokens(tokens)
        for norm, ffn in zip(self.norms, self.ffns, strict=True):
            x = x + ffn(norm(x))
        return self.norm(x)

    def forward(self, tokens):
        return self.lm_head(self.hidden(tokens))

    def moe_layers(self):
        """{number: sublayer} of those that have experts."""
        return {i: ffn for i, ffn in enumerate(self.ffns) if hasattr(ffn, "experts")}

    def balance(self):
        """Set what the experts of the next batch are chosen by from the last one."""
        for moe in self.moe_layers().values():
            moe.balance()

    def aux_loss(self):
        """No part used here has one."""
        return 0.0


def memory(arguments, vocab_size, seed=0):
    """The `Memory` that the arguments describe: fields of K3Config, `ffn` and `labels`.             dict -> Memory

    Matrices start at 1 / sqrt(inputs). torch's global generator is left as it was.
    """
    config = SMALL.replace(vocab_size=vocab_size,
                           **{name: value for name, value in arguments.items() if name in CONFIG_FIELDS})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Memory(config, arguments["ffn"], arguments["labels"])
        for name, p in model.named_parameters():
            if p.dim() >= 2 and name != "embed_tokens.weight":
                nn.init.normal_(p, std=p.shape[-1] ** -0.5)
    return model
