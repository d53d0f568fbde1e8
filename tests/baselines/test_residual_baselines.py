"""The residuals to compare with: K3's own model, NumPy's values, known limits, states that never change, training."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from part_helpers import CONFIG, D, drawn, losses_of_training, normal, parts_of, run_stack
from torch import nn

from k3_scratch.baselines.block_attention_residuals import BlockAttentionResiduals
from k3_scratch.baselines.full_attention_residuals import FullAttentionResiduals
from k3_scratch.baselines.hyper_connections import HyperConnections, doubly_stochastic
from k3_scratch.baselines.plain_residual import PlainResidual
from k3_scratch.baselines.residuals import RESIDUALS
from k3_scratch.config import ConfigError
from k3_scratch.layers.attention_residuals import Source
from k3_scratch.model import K3
from k3_scratch.reference.attention_residuals import block_attention_residuals, full_attention_residuals
from k3_scratch.shapes import ShapeError

NAMES = ["plain", "attention", "full_attention", "hyper"]
H = normal(np.random.default_rng(1), 2, 5, D)


def maps(count, seed=2, scale=0.4):
    """`count` sublayers, each its own tanh of a random map; they take arrays and tensors alike."""
    rng = np.random.default_rng(seed)
    matrices = [rng.normal(0.0, scale, (D, D)) for _ in range(count)]

    def sublayer(w):
        return lambda x: torch.tanh(x @ torch.from_numpy(w)) if isinstance(x, torch.Tensor) else np.tanh(x @ w)
    return [sublayer(w) for w in matrices]


def live(residual, num_sublayers, seed=3):
    """The residual with random numbers in all its modules, and those modules."""
    root = drawn(parts_of(residual, num_sublayers), seed)
    return residual, root


def test_the_names_and_their_facts():
    assert list(RESIDUALS) == NAMES
    for name, entry in RESIDUALS.items():
        assert (entry.name, entry.part) == (name, "residual")


def test_the_names_of_the_modules():
    """K3's own, so that its weights load; hyper-connections have others."""
    config = CONFIG.replace(attn_res_block_size=2)
    of_k3 = {name: x.shape for name, x in K3(config).state_dict().items() if "_res." in name}
    assert len(of_k3) == 2 * (2 * config.num_layers + 1)
    for name in ("attention", "full_attention"):
        root = parts_of(RESIDUALS[name](config, 8), 8)
        assert {name: x.shape for name, x in root.state_dict().items()} == of_k3
    assert not parts_of(RESIDUALS["plain"](config, 8), 8).state_dict()
    hyper = parts_of(RESIDUALS["hyper"](config, 4), 4).state_dict()
    assert {name: tuple(x.shape) for name, x in hyper.items()} == {
        **{f"layers.{n}.{part}_hc.{x}": shape for n in (0, 1) for part in ("self_attention", "mlp")
           for x, shape in (("fn", (24, 4 * D)), ("base", (24,)), ("scale", (3,)))},
        "output_hc.fn": (4, 4 * D), "output_hc.base": (4,), "output_hc.scale": (1,)}


# ---- the same as K3 and as NumPy

@pytest.mark.parametrize(("layers", "block_size"), [(4, 1), (4, 2), (4, 3), (5, 2), (3, 9), (4, None)])
def test_the_model_itself(layers, block_size):
    """K3's sublayers, joined by the residual, give K3's own result to the last bit."""
    config = CONFIG.replace(num_layers=layers, attn_res_block_size=block_size, initializer_range=0.2)
    model = drawn(K3(config), 4, std=0.2).eval()
    residual = RESIDUALS["plain" if block_size is None else "attention"](config, 2 * layers)
    root = parts_of(residual, 2 * layers).double()
    root.load_state_dict({name: x for name, x in model.state_dict().items() if "_res." in name})
    sublayers = []
    for layer in model.layers:
        sublayers += [lambda x, layer=layer: layer.attend(x, None, None, None),
                      lambda x, layer=layer: layer.feed_forward(x, None)]
    tokens = torch.arange(14).reshape(2, 7)
    with torch.no_grad():
        got = model.norm(run_stack(residual, model.embed_tokens(tokens), sublayers))
        assert torch.equal(got, model.hidden(tokens))


def queries_and_weights(residual):
    mixes = [*residual.mixes, residual.output_mix]
    return [np.stack([getattr(mix, name).detach().numpy() for mix in mixes]) for name in ("query", "weight")]


@pytest.mark.parametrize("seed", [5, 6])
@pytest.mark.parametrize(("sublayers", "block_size"), [(6, 1), (6, 2), (10, 3), (4, 7)])
def test_attention_residuals_are_the_reference(sublayers, block_size, seed):
    block, _ = live(BlockAttentionResiduals(CONFIG.replace(attn_res_block_size=block_size), sublayers), sublayers, seed)
    want = block_attention_residuals(H.numpy(), maps(sublayers), *queries_and_weights(block), block_size)[0]
    np.testing.assert_allclose(run_stack(block, H, maps(sublayers)).detach(), want, rtol=1e-11, atol=1e-12)
    full, _ = live(FullAttentionResiduals(CONFIG, sublayers), sublayers, seed)
    want = full_attention_residuals(H.numpy(), maps(sublayers), *queries_and_weights(full))[0]
    np.testing.assert_allclose(run_stack(full, H, maps(sublayers)).detach(), want, rtol=1e-11, atol=1e-12)


def test_plain_residual_is_a_sum():
    h, f = H, maps(4)
    for sublayer in f:
        h = h + sublayer(h)
    assert torch.equal(run_stack(PlainResidual(CONFIG, 4), H, f), h)


# ---- known limits

@pytest.mark.parametrize("sublayers", [1, 2, 7])
def test_blocks_of_one_sublayer_are_full_attention_residuals(sublayers):
    one = BlockAttentionResiduals(CONFIG, sublayers, boundaries=range(sublayers))
    full = FullAttentionResiduals(CONFIG, sublayers)
    h = H.clone().requires_grad_()
    results = []
    for residual in (one, full):
        for number, mix in enumerate([*residual.mixes, residual.output_mix]):
            drawn(mix, number)
        end = run_stack(residual, h, maps(sublayers))
        results.append((end, torch.autograd.grad(end.square().sum(), [h, residual.output_mix.query])))
    assert torch.equal(results[0][0], results[1][0])
    for a, b in zip(results[0][1], results[1][1], strict=True):
        assert (a - b).abs().max() <= 1e-12
    if sublayers == 7:                                                           # and larger blocks are something else
        other = BlockAttentionResiduals(CONFIG, 7, boundaries=range(0, 7, 2))
        for number, mix in enumerate([*other.mixes, other.output_mix]):
            drawn(mix, number)
        assert (run_stack(other, h, maps(7)) - results[1][0]).abs().max() > 0.01


def test_zero_queries_are_a_plain_mean():
    """As they are made, before any training."""
    f, full = maps(5), FullAttentionResiduals(CONFIG, 5)
    for mix in (*full.mixes, full.output_mix):
        mix.double()
    state, sources = full.start(H), [H]
    for i, sublayer in enumerate(f):
        x = full.read(state, i)
        assert (x - sum(sources) / len(sources)).abs().max() <= 1e-14
        sources.append(sublayer(x))
        state = full.write(state, i, sources[-1])
    assert (full.end(state) - sum(sources) / 6).abs().max() <= 1e-14
    block = BlockAttentionResiduals(CONFIG.replace(attn_res_block_size=1), 4)
    for mix in (*block.mixes, block.output_mix):
        mix.double()
    y = [f[i](H) for i in range(4)]
    state = block.start(H)
    for i in range(4):
        state = block.write(state, i, y[i])
    assert (block.end(state) - (H + (y[0] + y[1]) + (y[2] + y[3])) / 3).abs().max() <= 1e-14


def fixed_weights(hyper, num_sublayers, pre, mixing):
    """Set a hyper-connection to constants: it reads with sigmoid(pre), mixes with softmax rows, writes with 1."""
    n = hyper.n
    root = parts_of(hyper, num_sublayers).double()
    with torch.no_grad():
        for name, x in root.named_parameters():
            x.zero_()
            if name.endswith("base"):
                x[:n] = pre
            if name.endswith("base") and "output" not in name:
                x[2 * n:] = mixing.flatten()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_streams_that_are_kept_apart_are_the_plain_residual(n):
    """Identity mixing, reading the mean of the streams, writing to all with weight 1: each stream is the plain sum."""
    hyper = HyperConnections(CONFIG, 6, streams=n, eps=0.0)
    pre = 60.0 if n == 1 else -np.log(n - 1)                                     # sigmoid(pre) = 1 / n
    fixed_weights(hyper, 6, pre, torch.full((n, n), -60.0).fill_diagonal_(60.0))
    got, want = run_stack(hyper, H, maps(6)), run_stack(PlainResidual(CONFIG, 6), H, maps(6))
    assert (got - want).abs().max() <= 1e-12
    if n > 1:                                                                    # the sum of unequal streams is kept
        fixed_weights(hyper, 6, pre, normal(np.random.default_rng(4), n, n))
        assert (run_stack(hyper, H, maps(6)) - want).abs().max() <= 1e-12


# ---- hyper-connections

@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("n", [1, 2, 4, 7])
def test_mixing_matrices_are_doubly_stochastic(n, seed):
    logits = normal(np.random.default_rng(seed), 3, 5, n, n)
    matrix = doubly_stochastic(logits, iterations=200)
    assert (matrix > 0).all()
    for axis in (-1, -2):
        assert (matrix.sum(axis) - 1).abs().max() <= 3e-6                        # eps is 1e-6, twice in each turn
    assert torch.linalg.matrix_norm(matrix, 2).max() <= 1 + 3e-6                 # no stream grows


@pytest.mark.parametrize("n", [2, 4, 7])
def test_what_few_iterations_reach(n):
    """Columns always; rows the better, the more turns: with 20 to 1e-5 near the start of training, later less."""
    logits = normal(np.random.default_rng(n), 20, n, n)
    off = []
    for iterations in (1, 5, 20, 80):
        matrix = doubly_stochastic(2 * logits, iterations, eps=0.0)
        assert (matrix.sum(-2) - 1).abs().max() <= 1e-14
        off.append((matrix.sum(-1) - 1).abs().max().item())
    assert off[0] > 0.3
    assert all(later < 0.5 * earlier for earlier, later in zip(off, off[1:], strict=False))
    assert (doubly_stochastic(0.3 * logits).sum(-1) - 1).abs().max() <= 1e-5


def test_mixing_keeps_what_is_doubly_stochastic_already():
    even = torch.zeros(4, 4, dtype=torch.float64)
    assert (doubly_stochastic(even, eps=0.0) - 0.25).abs().max() <= 1e-15
    swap = torch.full((3, 3), -80.0, dtype=torch.float64)
    swap[0, 1] = swap[1, 2] = swap[2, 0] = 0.0
    assert (doubly_stochastic(swap, eps=0.0) - (swap == 0).double()).abs().max() <= 1e-15
    assert torch.isfinite(doubly_stochastic(1e4 * normal(np.random.default_rng(0), 9, 4, 4).float())).all()


def test_mixing_has_a_gradient():
    logits = normal(np.random.default_rng(1), 2, 3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: doubly_stochastic(x, iterations=4), logits)


def test_the_sum_of_the_streams_is_kept():
    """Mixing alone changes no sum over the streams: rows that sum to 1."""
    hyper, _ = live(HyperConnections(CONFIG, 2, streams=3, iterations=100), 2)
    streams, weights = hyper._before(0, normal(np.random.default_rng(2), 2, 5, 3, D))
    after = hyper.write((streams, weights), 0, torch.zeros(2, 5, D, dtype=torch.float64))[0]
    assert (after.sum(-2) - streams.sum(-2)).abs().max() <= 1e-4
    assert (after - streams).abs().max() > 0.1
    assert after.norm() <= streams.norm() * (1 + 1e-5)


def test_bfloat16_streams_stay_bfloat16():
    hyper = HyperConnections(CONFIG, 2)
    drawn(parts_of(hyper, 2), dtype=torch.bfloat16)
    state = hyper.start(H.bfloat16())
    x = hyper.read(state, 0)
    assert x.dtype == hyper.write(state, 0, x)[0].dtype == hyper.end(state).dtype == torch.bfloat16
    assert state[1][2].dtype == torch.float32                                    # Sinkhorn's algorithm is not


# ---- what all have in common

def tensors(state):
    if isinstance(state, torch.Tensor):
        return [state]
    if isinstance(state, Source):
        return [state.vector, state.inverse_rms]
    return [] if state is None else [x for part in state for x in tensors(part)]


@pytest.mark.parametrize("name", NAMES)
def test_a_state_is_never_changed(name):
    """Every earlier state reads the same again, after all that came later, and can be continued another way."""
    residual, _ = live(RESIDUALS[name](CONFIG, 8), 8)
    f, states, reads = maps(8), [residual.start(H)], []
    kept = []
    for i in range(8):
        kept.append([x.clone() for x in tensors(states[-1])])
        reads.append(residual.read(states[-1], i))
        states.append(residual.write(states[-1], i, f[i](reads[-1])))
    for i in range(8):
        assert all(torch.equal(a, b) for a, b in zip(tensors(states[i]), kept[i], strict=True))
        assert torch.equal(residual.read(states[i], i), reads[i])
    other = residual.write(states[3], 3, torch.ones_like(H))
    assert (residual.end(other) - residual.end(states[4])).abs().max() > 0.01


@pytest.mark.parametrize("name", NAMES)
def test_tokens_do_not_see_each_other(name):
    """So a prefix, a single token or another order of the batch gives the same, and no cache is needed."""
    residual, _ = live(RESIDUALS[name](CONFIG, 4), 4)
    whole = run_stack(residual, H, maps(4))
    assert whole.shape == H.shape
    assert (run_stack(residual, H[:, :2], maps(4)) - whole[:, :2]).abs().max() <= 1e-12
    assert (run_stack(residual, H[:1, 3:4], maps(4)) - whole[:1, 3:4]).abs().max() <= 1e-12
    assert run_stack(residual, H[:, :0], maps(4)).shape == (2, 0, D)


@pytest.mark.parametrize("name", NAMES[1:])
def test_every_parameter_has_a_gradient(name):
    residual, root = live(RESIDUALS[name](CONFIG.replace(attn_res_block_size=1), 6), 6)
    run_stack(residual, H, maps(6)).square().sum().backward()
    without = [name for name, x in root.named_parameters() if x.grad is None or not x.grad.abs().max() > 0]
    first = ["layers.0.self_attention_res.query", "layers.0.self_attention_res.weight"]
    assert without == ([] if name == "hyper" else first)                         # one source: nothing to choose


class Stack(nn.Module):
    """A small model of one residual: six sublayers on single tokens, in float32."""

    def __init__(self, name):
        super().__init__()
        rng = np.random.default_rng(7)
        self.residual = RESIDUALS[name](CONFIG, 6)
        self.joints = drawn(parts_of(self.residual, 6), std=0.02, dtype=torch.float32)
        self.maps = nn.ParameterList(normal(rng, D, D).float() / 8 for _ in range(6))

    def forward(self, x):
        return run_stack(self.residual, x, [lambda x, w=w: torch.tanh(F.rms_norm(x, (D,)) @ w) for w in self.maps])


@pytest.mark.parametrize("name", NAMES)
def test_fifty_steps_of_training(name):
    rng, stack = np.random.default_rng(8), Stack(name)
    x = normal(rng, 4, 8, D).float()
    y = torch.tanh(x @ normal(rng, D, D).float() / 3)
    losses = losses_of_training(stack.parameters(), lambda: (stack(x) - y).square().mean())
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_of_the_model_is_its_own(name):
    stack = Stack(name)
    x = H.float()
    before, twin = stack(x), copy.deepcopy(stack)
    assert torch.equal(twin(x), before)
    with torch.no_grad():
        for parameter in twin.joints.parameters():
            parameter.add_(1.0)
    assert torch.equal(stack(x), before)
    assert name == "plain" or (twin(x) - before).abs().max() > 1e-3
    assert twin.double()(H).dtype == torch.float64


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="attn_res_block_size"):
        RESIDUALS["attention"](CONFIG.replace(attn_res_block_size=None), 8)
    with pytest.raises(ValueError, match="streams"):
        HyperConnections(CONFIG, 8, streams=0)
    with pytest.raises(ValueError, match="iterations"):
        doubly_stochastic(torch.zeros(3, 3), iterations=0)
    with pytest.raises(ShapeError, match="logits"):
        doubly_stochastic(torch.zeros(5, 3, 2))
