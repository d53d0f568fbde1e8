"""The smallest benchmark, and peers that are our own token loop: tests need no peer and assert no time."""

import dataclasses

import pytest
import torch

from k3_scratch.bench.inputs import Shape
from k3_scratch.bench.peers import Peers
from k3_scratch.bench.plan import FULL
from k3_scratch.bench.suite import MEASUREMENTS
from k3_scratch.config import preset
from k3_scratch.layers.kda import kda_recurrent


@pytest.fixture(scope="session")
def tiny():
    """A plan in which every measurement takes a fraction of a second."""
    return dataclasses.replace(
        FULL, name="tiny", rounds=2, least_seconds=0.0, forward=(Shape(1, 20, 2, 8, 8), Shape(2, 8, 1, 4, 6)),
        training=(Shape(1, 20, 2, 8, 8),), fla_widest=4, token_loop=Shape(1, 20, 2, 8, 8), limit=Shape(1, 20, 2, 8, 8),
        lengths=(8, 16, 32), length_shape=Shape(1, 0, 2, 4, 4), longest_truth=16, accuracy=Shape(1, 40, 2, 8, 8),
        kda_contexts=(8, 33), kda_prefill=16, contexts=(8, 32), reexpand_up_to=8, decode_heads=2, decode_width=4,
        decode_latent=8, experts=(4, 6), moe_tokens=20, moe_latent=8, moe_hidden=12, model=preset("nano"), batch_size=2,
        prompt=12, chunk_lengths=(4, 16, 32, 64), error_shape=Shape(1, 64, 1, 4, 4))


@pytest.fixture(scope="session")
def own_peers():
    """Peers that compute the right thing: the token loop under other names."""
    def loop(q, k, v, g, beta):
        return kda_recurrent(q, k, v, g, beta)[0]

    def one_decay(q, k, v, g, beta):
        return loop(q, k, v, g.unsqueeze(-1).expand_as(k), beta)
    return Peers(loop, loop, one_decay, {"transformers": "0", "fla-core": "0"})


@pytest.fixture(scope="session")
def measured(tiny, own_peers):
    """{name: Measured}; no measurement moves torch's global generator."""
    before = torch.get_rng_state()
    done = {name: measure(tiny, own_peers) for name, measure in MEASUREMENTS.items()}
    assert torch.equal(torch.get_rng_state(), before)
    return done
