"""Every mixer as a layer: caches, pads, packed documents, precision, training."""

import pytest
import torch
from baseline_helpers import MIXER_CASES, hidden_states, live_mixer
from torch_helpers import NANO, relative_error

from k3_scratch.baselines.frame import build
from k3_scratch.baselines.gated_delta_net import GatedDeltaNet
from k3_scratch.baselines.kda_softplus import KDASoftplus
from k3_scratch.baselines.mixers import MIXERS, new_layer_cache
from k3_scratch.baselines.softmax_attention import SoftmaxAttention
from k3_scratch.layers.kda_attention import KimiDeltaAttention

ALL = pytest.mark.parametrize("case", MIXER_CASES)
CUTS = ([23], [1] * 23, [9, 14], [1, 1, 17, 4], [16, 1, 6])


@torch.no_grad()
def fed(mixer, x, lengths, cache, mask=None):
    parts, start = [], 0
    for length in lengths:
        part = slice(start, start + length)
        parts.append(mixer(x[:, part], cache, mask=None if mask is None else mask[:, part]))
        start += length
    return torch.cat(parts, 1)


def cache_of(mixer, batch_size=2, dtype=torch.float64):
    return new_layer_cache(mixer, batch_size, dtype, "cpu")


@ALL
def test_cut_anywhere(case):
    mixer, x = live_mixer(case), hidden_states(2, 23)
    want = mixer(x)
    for lengths in CUTS:
        assert relative_error(fed(mixer, x, lengths, cache_of(mixer)), want) <= 1e-9, lengths


@ALL
def test_caches_clone_and_reset(case):
    mixer, x, other = live_mixer(case), hidden_states(2, 23), hidden_states(2, 23, seed=4)
    cache = cache_of(mixer)
    fed(mixer, other, [5, 1], cache)
    copy, bytes_then = cache.clone(), cache.nbytes()
    first = fed(mixer, x, [3, 1], cache)
    assert relative_error(fed(mixer, x, [3, 1], copy.clone()), first) <= 1e-12
    assert copy.nbytes() == bytes_then
    cache.reset()
    assert relative_error(fed(mixer, x, [6, 1, 16], cache), mixer(x)) <= 1e-9


@ALL
def test_left_padding(case):
    """A padded row gives what the bare one gives; whatever stands at the pads, and cut where the cache is."""
    mixer, x = live_mixer(case), hidden_states(2, 23)
    mask = torch.ones(2, 23, dtype=torch.bool)
    mask[0, :9] = False
    bare, whole = mixer(x[:1, 9:]), mixer(x[1:])
    for lengths in ([23], [11, 12], [4, 1, 6, 12]):
        cache = None if lengths == [23] else cache_of(mixer)
        got = fed(mixer, x, lengths, cache, mask)
        assert relative_error(got[:1, 9:], bare) <= 1e-9
        assert relative_error(got[1:], whole) <= 1e-9
        assert torch.isfinite(got).all()
    louder = torch.where(mask.unsqueeze(-1), x, 50 * x.flip(-1))
    assert relative_error(mixer(louder, mask=mask)[:1, 9:], bare) <= 1e-9


@ALL
def test_packed_documents(case):
    mixer, x = live_mixer(case), hidden_states(2, 23)
    lengths = [2, 13, 1, 7]
    documents = torch.tensor([[0] * 2 + [1] * 13 + [2] * 1 + [3] * 7, [4] * 23])
    got, start = mixer(x, documents=documents), 0
    for length in lengths:
        part = slice(start, start + length)
        assert relative_error(got[:1, part], mixer(x[:1, part])) <= 1e-9
        start += length
    assert relative_error(got[1:], mixer(x[1:])) <= 1e-9


@ALL
def test_what_a_cache_weighs(case):
    """A recurrence keeps the same whatever it was fed; a window at most `window` rows; attention a row a token."""
    name, options = MIXER_CASES[case]
    mixer, c = live_mixer(case), NANO
    cache, sizes = cache_of(mixer), []
    for _ in range(2):
        fed(mixer, hidden_states(2, 40), [39, 1], cache)
        sizes.append(cache.nbytes())
    H, K, V = c.num_heads, c.kda_key_dim, c.kda_value_dim
    tail = (c.conv_size - 1) * H * (2 * K + V)
    if name == "mla":
        want = [n * (c.kv_lora_rank + c.qk_rope_head_dim) for n in (40, 80)]
    elif "attention_" in name or name == "window_rope":
        rows = [min(n, options.get("window", 32)) if name == "window_rope" else n for n in (40, 80)]
        want = [n * H * (K + V) + (tail if options.get("convolution") else 0) for n in rows]
        if name == "linear_attention":
            want = [H * K * V + tail] * 2
    else:
        want = [H * K * V + tail] * 2
    assert sizes == [2 * 8 * n for n in want]                            # batch 2, float64


@ALL
def test_bfloat16_stays_near(case):
    mixer, x = live_mixer(case, dtype=torch.bfloat16), hidden_states(2, 23)
    want = live_mixer(case, dtype=torch.bfloat16).double()(x.bfloat16().double())
    got = mixer(x.bfloat16())
    assert got.dtype == torch.bfloat16
    assert relative_error(got, want) <= 0.05                             # some ten roundings of 2^-9, through a softmax
    stepped = fed(mixer, x.bfloat16(), [20, 1, 2], cache_of(mixer, dtype=torch.bfloat16))
    assert relative_error(stepped, want) <= 0.05


@ALL
def test_every_parameter_has_a_gradient(case):
    mixer, x = live_mixer(case), hidden_states(2, 23).requires_grad_()
    mixer(x).square().sum().backward()
    for name, parameter in [("x", x), *mixer.named_parameters()]:
        if case == "window_of_1" and name in ("q_proj.weight", "k_proj.weight"):
            continue                                                     # alone in its window a token looks at itself
        assert parameter.grad is not None and parameter.grad.abs().max() > 0, name
        assert torch.isfinite(parameter.grad).all()


def test_modules_have_the_limits_of_their_operators():
    """The same weights: KDA with equal gates is Gated DeltaNet; without erasing or decay the rest follow."""
    x, config = hidden_states(2, 23), NANO
    gated = live_mixer("gated_delta_net")
    kda = live_mixer("kda", seed=1)
    shared = {name: value for name, value in gated.state_dict().items() if name not in ("f_proj.weight", "dt_bias")}
    H, K = config.num_heads, config.kda_key_dim
    per_channel = torch.zeros(H * K, K, dtype=torch.float64)             # f_b f_a: through the first H of K channels
    narrow = torch.zeros(K, config.hidden_size, dtype=torch.float64)
    narrow[:H] = gated.f_proj.weight.detach()
    for h in range(H):
        per_channel[h * K:(h + 1) * K, h] = 1.0
    kda.load_state_dict({**shared, "f_a_proj.weight": narrow, "f_b_proj.weight": per_channel,
                         "dt_bias": gated.dt_bias.detach().repeat_interleave(K)})
    assert relative_error(kda(x), gated(x)) <= 1e-10
    delta = live_mixer("delta_net", seed=2)
    delta.load_state_dict({name: value for name, value in shared.items() if name != "A_log"})
    with torch.no_grad():
        gated.dt_bias.fill_(-60.0)                                       # a sigmoid of -60: no decay
        gated.f_proj.weight.zero_()
        assert relative_error(delta(x), gated(x)) <= 1e-10
    decay, linear = live_mixer("scalar_decay", seed=2), live_mixer("linear_attention", seed=3)
    decay.load_state_dict(gated.state_dict())
    linear.load_state_dict(delta.state_dict())
    assert relative_error(linear(x), decay(x)) <= 1e-10
    assert relative_error(linear(x), delta(x)) > 1e-2                    # with any keys, erasing matters


def test_windows_and_positions():
    x = hidden_states(2, 23)
    full, window = live_mixer("attention_rope"), live_mixer("window_rope")      # of 32
    assert torch.equal(full(x), window(x))
    nope, short = live_mixer("attention_nope"), live_mixer("window_of_5")
    assert relative_error(nope(x), full(x)) > 1e-2 and relative_error(short(x), full(x)) > 1e-2
    moved = x.clone()
    moved[:, 3] += 1.0                                                   # token 3 is seen by 3 ... 7 and no other
    change = (short(moved) - short(x)).abs().amax((0, 2)) > 0
    assert change.nonzero().squeeze(-1).tolist() == [3, 4, 5, 6, 7]


def test_kda_softplus_is_kda_by_configuration():
    mine, config = live_mixer("kda_softplus"), NANO.replace(gate_lower_bound=None)
    theirs = KimiDeltaAttention(config).double()
    theirs.load_state_dict(mine.state_dict())
    x = hidden_states(1, 23)
    assert torch.equal(mine(x), theirs(x))
    assert KDASoftplus(config).config.gate_lower_bound is None
    softplus = GatedDeltaNet(config)
    assert (softplus.decay(x.float()) < 0).all()


@pytest.mark.parametrize("name", ["gated_delta_net", "scalar_decay", "kda_softplus"])
def test_decays_start_between_dt_min_and_dt_max(name):
    """As KDA's do: at a zero input -g is softplus(dt_bias), from slow to fast."""
    config = NANO.replace(num_heads=40, gate_lower_bound=None, dt_min=0.01, dt_max=0.2)
    mixer = MIXERS[name](config)
    rate = -mixer.decay(torch.zeros(1, 1, config.hidden_size)).flatten()
    assert rate.min() > 0.0099 and rate.max() < 0.201 and rate.max() > 4 * rate.min()


def test_impossible_options_are_refused():
    with pytest.raises(ValueError, match="window must be None or at least 1, but 0 came"):
        SoftmaxAttention(NANO, window=0)
    with pytest.raises(ValueError, match="even kda_key_dim, but 5 came"):
        MIXERS["attention_rope"](NANO.replace(kda_key_dim=5))


@pytest.mark.parametrize("case", [*MIXERS, "window_conv"])
def test_fifty_steps_of_training(case):
    """A few random rows, to be learnt by heart: the loss is finite at every step and ends far below where it began."""
    name, options = MIXER_CASES[case]
    config = NANO.replace(initializer_range=0.08)
    model = build([name], ffn="swiglu", residual="plain", config=config, seed=1, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
    tokens = torch.randint(0, NANO.vocab_size, (3, 12), generator=torch.Generator().manual_seed(5))
    losses = []
    for _ in range(50):
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(torch.isfinite(torch.tensor(losses)))
    assert losses[-1] < 0.7 * losses[0], losses[::10]
