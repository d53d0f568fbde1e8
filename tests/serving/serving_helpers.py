"""Shared by the tests of serving: conversations, and what a store holds."""

import hashlib

import numpy as np


def conversation(rng, vocab_size, *lengths):
    """Random tokens of several turns, and the ends of the turns."""
    return rng.integers(vocab_size, size=sum(lengths)).tolist(), np.cumsum(lengths).tolist()


def tensors(store):
    """Every tensor that a store holds, by name."""
    found = {}
    for name, checkpoint in store.index.checkpoints.items():
        for number, layer in enumerate(checkpoint.state):
            for kind, x in zip(("state", "tail"), layer, strict=True):
                found[kind, name, number] = x
    for name, block in store.index.blocks.items():
        for number, rows in enumerate(block.latents):
            found["latents", name, number] = rows
    return found


def fingerprint(store):
    """{name: hash of the bits} of every tensor in a store."""
    return {name: hashlib.sha256(x.numpy().tobytes()).hexdigest() for name, x in tensors(store).items()}
