"""flash-linear-attention's plain PyTorch files: KDA token by token and in chunks, and the mix over depth.

They compute in float32, scale q inside and do not normalise; ours get the same numbers in float64. The chunk form wants
a multiple of 64 tokens (`padded` fills up with tokens that change nothing).
"""

import pytest
import torch
from torch_helpers import kda_arguments

from k3_scratch.bench.peers import FLA_CHUNK, PINS, load_fla
from k3_scratch.layers.attention_residuals import depth_mix
from k3_scratch.layers.kda import kda_chunk, kda_recurrent

ORACLE, VERSION = "flash-linear-attention (naive)", PINS["fla-core"]
REGIMES = ("gentle", "strong", "k3", "mixed", "floor", "repeated", "none")
# Float32 against float64. Their chunk form subtracts sums of log-decay as large as 64 * 5 = 320 from each other, where
# neighbouring float32 numbers lie 3e-5 apart; a decay is then wrong by that factor.
LIMITS = {"recurrent": 5e-6, "chunk": 3e-5}


@pytest.fixture(scope="module")
def naive():
    return load_fla("ops/kda/naive.py")


def in_float32(function, arguments, T):
    """o and the final state of an fla function, whose arguments are filled up to T tokens that change nothing."""
    q, k, v, g, beta, state = (x.float() for x in arguments.values())
    more = T - q.shape[1]
    q, k, v, g = (torch.nn.functional.pad(x, (0, 0, 0, 0, 0, more)) for x in (q, k, v, g))
    beta = torch.nn.functional.pad(beta, (0, 0, 0, more))
    o, state = function(q, k, v, g, beta, initial_state=state, output_final_state=True)
    return o[:, :arguments["q"].shape[1]].double(), state.double()


def difference(got, want):
    assert all(a.shape == b.shape for a, b in zip(got, want, strict=True))
    return max((a - b).abs().max().item() for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize(("K", "V"), [(5, 4), (16, 24)])
@pytest.mark.parametrize("form", ["recurrent", "chunk"])
def test_kda(naive, record, form, K, V):
    """Outputs and final states, from a state that is not empty; both of our forms."""
    largest = {"recurrent": 0.0, "chunk": 0.0}
    for regime in REGIMES:
        for T in (1, 5, 64, 65, 200):
            arguments = {name: x.float().double() for name, x in kda_arguments(regime, T, K=K, V=V, seed=T).items()}
            if form == "recurrent":
                theirs = in_float32(naive.naive_recurrent_kda, arguments, T)
            else:
                theirs = in_float32(naive.naive_chunk_kda, arguments, T + -T % FLA_CHUNK)
            for name, ours in (("recurrent", kda_recurrent), ("chunk", kda_chunk)):
                largest[name] = max(largest[name], difference(theirs, ours(*arguments.values())))
    for name, value in largest.items():
        record(ORACLE, VERSION, f"KDA alone, their {form} form, 7 decay regimes, K ≠ V",
               f"largest difference of output and state, our {name} form", value, LIMITS[form])


def test_attention_residuals(record):
    """The mix and its weights over 1 to 9 sources, some of them large."""
    naive_attnres, largest = load_fla("ops/attnres/naive.py").naive_attnres, 0.0
    generator = torch.Generator().manual_seed(3)
    for N in (1, 2, 5, 9):
        for D in (24, 64):
            sources = torch.randn(N, 2, 7, D, generator=generator) * torch.logspace(-1, 1, N).view(-1, 1, 1, 1)
            query, weight = torch.randn(D, generator=generator), 1 + 0.3 * torch.randn(D, generator=generator)
            theirs = naive_attnres(query, list(sources), weight, rms_eps=1e-5, return_weights=True)
            ours = depth_mix(sources.double(), query.double(), weight.double(), 1e-5)
            largest = max(largest, difference([x.double() for x in theirs], ours))
            assert N == 1 or ours[1].max() - ours[1].min() > 0.2         # the weights are no plain mean
    # scores of size sqrt(D) = 8 and sources of size 10 multiply float32's rounding, 6e-8
    record(ORACLE, VERSION, "attention residuals alone", "largest difference of the mix and its weights", largest, 5e-5)
