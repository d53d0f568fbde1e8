"""One sequence in segments, in one process and in several: the numbers of the whole."""

import pytest
import torch
import torch.distributed as dist

from k3_scratch.config import preset
from k3_scratch.layers.kda import kda_recurrent
from k3_scratch.model import K3
from k3_scratch.training.context_parallel import compose, forward_in_segments, forward_on_ranks, segment_map
from k3_scratch.training.processes import run_processes

NANO = preset("nano").replace(initializer_range=0.2)
KINDS = {"nano": NANO, "mini": preset("mini"), "two taps": NANO.replace(conv_size=2),
         "one tap": NANO.replace(conv_size=1),
         "all MLA": NANO.replace(mla_layers=(0, 1, 2, 3)), "all KDA": NANO.replace(mla_layers=()),
         "softplus, low rank": NANO.replace(gate_lower_bound=None, use_full_rank_gate=False, q_lora_rank=None)}


def whole(config, dtype, seed, B, T):
    """(model, tokens, its logits of the whole sequence)"""
    model = K3(config, seed=seed).to(dtype).eval()
    tokens = torch.randint(256, (B, T), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        return model, tokens, model(tokens)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [(19, 18), (1, 35, 1), (2, 1, 33, 1), (7, 16, 14), (37,)])
def test_segments_give_the_whole(kind, lengths):
    """Also segments shorter than the convolution, which then reaches through one of them."""
    model, tokens, wanted = whole(KINDS[kind], torch.float64, 1, 2, 37)
    with torch.no_grad():
        got = forward_in_segments(model, tokens, lengths)
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-9)
    assert all("Segment" not in type(layer.self_attn).__name__ for layer in model.layers)        # put back


def test_in_float32():
    for seed in range(3):
        model, tokens, wanted = whole(preset("mini"), torch.float32, seed, 2, 61)
        with torch.no_grad():
            got = forward_in_segments(model, tokens, (20, 30, 11))
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-6)


def test_gradients_pass_through_segments_of_one_process():
    model, tokens, _ = whole(NANO, torch.float64, 4, 1, 21)
    target = torch.randn(1, 21, NANO.vocab_size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    results = []
    for logits in (model(tokens), forward_in_segments(model, tokens, (9, 5, 7))):
        names, parameters = zip(*model.named_parameters(), strict=True)
        results.append(torch.autograd.grad((logits * target).sum(), parameters, allow_unused=True))
    for name, one, other in zip(names, *results, strict=True):
        if one is None:
            assert other is None
        else:
            torch.testing.assert_close(other, one, rtol=1e-7, atol=1e-9, msg=name)


def operands(B, T, H, K, V, decay, seed=0):
    draw = torch.Generator().manual_seed(seed)
    q, k = (torch.nn.functional.normalize(torch.randn(B, T, H, K, generator=draw, dtype=torch.float64), dim=-1)
            for _ in range(2))
    v = torch.randn(B, T, H, V, generator=draw, dtype=torch.float64)
    g = -decay * torch.rand(B, T, H, K, generator=draw, dtype=torch.float64)
    return q, k, v, g, torch.rand(B, T, H, generator=draw, dtype=torch.float64)


@pytest.mark.parametrize("decay", [0.1, 5.0])
def test_a_segment_is_an_affine_map(decay):
    """For any state that comes in, the map gives the outputs and the state that the token loop gives."""
    parts = operands(2, 23, 3, 5, 7, decay)
    state = torch.randn(2, 3, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(8))
    wanted, last = kda_recurrent(*parts, state)
    o_zero, reads, M, N = segment_map(*parts)
    assert (reads.shape, M.shape, N.shape) == ((2, 23, 3, 5), (2, 3, 5, 5), (2, 3, 5, 7))
    torch.testing.assert_close(o_zero + torch.einsum("bthk,bhkv->bthv", reads, state), wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(M @ state + N, last, rtol=0, atol=1e-12)


def test_maps_compose_in_any_grouping():
    parts = operands(1, 30, 2, 4, 6, 0.05)
    one, two, three = ([*segment_map(*(x[:, start:stop] for x in parts))][2:]
                       for start, stop in ((0, 7), (7, 18), (18, 30)))
    whole_map = segment_map(*parts)[2:]
    for grouped in (compose(compose(one, two), three), compose(one, compose(two, three))):
        for got, wanted in zip(grouped, whole_map, strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)
    swapped = compose(compose(two, one), three)
    assert (swapped[1] - whole_map[1]).abs().max() > 0.01                # the order of the segments matters


@pytest.mark.parametrize("lengths", [(10, 10), (21, 0), (30, -9), ()])
def test_lengths_that_do_not_fit_are_refused(lengths):
    with pytest.raises(ValueError, match="lengths must be at least 1 each and sum to T = 21"):
        forward_in_segments(K3(NANO), torch.zeros(1, 21, dtype=torch.int64), lengths)


# In float32 with the weights a model starts with: with ten times larger ones rounding alone moves its logits by 1e-5.
STARTS = {torch.float64: NANO, torch.float32: preset("nano")}
CUTS = {2: (11, 26), 3: (2, 30, 5), 4: (13, 1, 17, 6)}                   # odd, unequal, and shorter than the taps


def parts_of_all_groups(rank, world):
    """This rank's part of the logits in a group of 2, of 3 and of 4 processes, in float64 and float32."""
    results = {}
    for size, lengths in CUTS.items():
        group = dist.new_group(range(size))
        for dtype in (torch.float64, torch.float32):
            if rank < size:
                model, tokens, _ = whole(STARTS[dtype], dtype, 1, 2, 37)
                results[size, dtype] = forward_on_ranks(model, tokens, lengths, group)
    return results


def test_processes_give_the_whole():
    parts = run_processes(parts_of_all_groups, 4)
    for size, lengths in CUTS.items():
        for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-6)):
            _, _, wanted = whole(STARTS[dtype], dtype, 1, 2, 37)
            mine = [part[size, dtype] for part in parts[:size]]
            assert [part.shape[1] for part in mine] == list(lengths)
            torch.testing.assert_close(torch.cat(mine, 1), wanted, rtol=0, atol=tolerance)
