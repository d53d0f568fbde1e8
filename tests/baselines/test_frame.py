"""The frame: K3's own numbers from names, every combination, caches, generation, accounts, the table."""

import copy

import pytest
import torch
from torch_helpers import NANO, feed, live_model, relative_error, tokens_for, variant

from k3_scratch.accounting import count_parameters, flops_per_token
from k3_scratch.accounting.built import count_built, flops_built
from k3_scratch.baselines.entry import Baseline
from k3_scratch.baselines.ffns import FFNS
from k3_scratch.baselines.frame import build
from k3_scratch.baselines.mixers import MIXERS
from k3_scratch.baselines.residuals import RESIDUALS
from k3_scratch.baselines.table import baseline_table
from k3_scratch.config import preset
from k3_scratch.generate import generate
from k3_scratch.model import K3
from k3_scratch.shapes import ShapeError
from k3_scratch.training.muon import make_optimizers

K3_WORDS = {"k3": {}, "plain_residual": {"residual": "plain"}, "no_latent_norm": {"ffn": "latent_moe_no_norm"},
            "all_kda": {"layers": "kda,kda,kda,kda"}, "all_mla": {"layers": ["mla"] * 4}, "all_dense": {"ffn": "dense"},
            "no_dense": {}, "blocks_of_1": {}, "softplus": {}, "low_rank_gate": {}, "wide_values": {},
            "no_shared_experts": {}, "ungated_mla": {}}
BY_MIXER = [(name, "swiglu", "plain", {}) for name in MIXERS]            # test_mixers_modules.py has more on each
PATTERNS = [("kda,mla", ffn, "attention", {}) for ffn in FFNS if ffn != "latent_moe"]
PATTERNS += [("kda,mla", "latent_moe", residual, {}) for residual in RESIDUALS if residual != "attention"]
PATTERNS += [("gated_delta_net,attention_rope,linear_attention", "softmax_moe", "hyper", {"streams": 3}),
             ("window_rope,window_rope,window_rope,attention_nope", "swiglu", "full_attention",
              {"window": 4, "convolution": True})]


def live(layers, ffn, residual, options, seed=0):
    model = build(layers, ffn, residual, config=NANO.replace(attn_res_block_size=1), seed=seed, **options)
    with torch.no_grad():
        for name, x in model.named_parameters():
            if name.endswith(("query", "base")):
                x.normal_(0.0, 0.3)
    return model.double().eval()


@pytest.mark.parametrize("name", K3_WORDS)
def test_it_is_k3(name):
    """The names, the start from a seed, the logits, the counts and the FLOPs of the model itself, bit by bit."""
    config = variant(name)
    k3, frame = live_model(config), build(config=config, seed=9, **K3_WORDS[name]).double().eval()
    assert list(frame.state_dict()) == list(k3.state_dict())
    frame.load_state_dict(k3.state_dict())
    assert frame.config == config
    tokens = tokens_for(config, 2, 19)
    mask = torch.arange(19) >= torch.tensor([[0], [5]])
    documents = torch.tensor([[0] * 7 + [1] * 12, [0] * 18 + [3]])
    with torch.no_grad():
        for given in ({}, {"mask": mask}, {"documents": documents}):
            assert torch.equal(frame(tokens, **given), k3(tokens, **given))
        for lengths in ([19], [6, 1, 12]):
            # K3 reads its bank in two phases where one token comes alone: the same numbers in another order of sums
            assert relative_error(feed(frame, tokens, lengths), feed(k3, tokens, lengths)) <= 1e-12
    same = build(config=config, seed=4, **K3_WORDS[name]).state_dict()
    assert all(torch.equal(x, same[key]) for key, x in K3(config, seed=4).state_dict().items())
    for model in (k3, frame):
        built, count = count_built(model), count_parameters(config)
        assert (built.total, built.active, built.routed_experts) == (count.total, count.active, count.routed_experts)
        for context, decode in ((0, False), (37, False), (37, True)):
            assert flops_built(model, context, decode).total == flops_per_token(config, context, decode).total


def test_gradients_are_k3s():
    config = variant("k3")
    k3, frame = live_model(config).train(), build(config=config).double().train()
    frame.load_state_dict(k3.state_dict())
    tokens, results = tokens_for(config, 3, 13), []
    for recompute in (False, True):
        for model in (k3, frame):
            model.recompute = recompute
            model.zero_grad()
            model(tokens).square().sum().backward()
            results.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    for got in results[1:]:
        assert got.keys() == results[0].keys() and len(got) > 80
        assert all(relative_error(x, results[0][name]) <= 1e-12 for name, x in got.items())
    k3.balance()
    frame.balance()
    for (name, theirs), (_, ours) in zip(k3.named_buffers(), frame.named_buffers(), strict=True):
        assert torch.equal(theirs, ours) and theirs.abs().max() > 0, name


@pytest.mark.parametrize(("layers", "ffn", "residual", "options"), BY_MIXER + PATTERNS, ids=str)
def test_every_part_in_the_frame(layers, ffn, residual, options):
    """Cut anywhere, left-padded, packed, copied: the same numbers, whatever the parts."""
    model = live(layers, ffn, residual, options)
    tokens = tokens_for(NANO, 2, 17)
    with torch.no_grad():
        want = model(tokens)
        assert torch.isfinite(want).all()
        for lengths in ([17], [5, 1, 7]):
            assert relative_error(feed(model, tokens, lengths), want) <= 1e-9
        mask = torch.arange(17) >= torch.tensor([[0], [6]])
        bare = model(tokens[1:, 6:])
        assert relative_error(model(tokens, mask=mask)[1:, 6:], bare) <= 1e-9
        cache = model.new_cache(2)
        feed(model, tokens[:, :9], [4], cache, mask[:, :9])
        rest = model(tokens[:, 9:], cache.clone())
        assert relative_error(rest[1:], bare[:, 3:]) <= 1e-9 and cache.nbytes() > 0
        cache.reset()
        assert cache.nbytes() >= 0 and relative_error(feed(model, tokens, [8], cache), want) <= 1e-9
        packed = model(tokens, documents=torch.tensor([[0] * 7 + [1] * 10] * 2))
        assert relative_error(packed[:, :7], want[:, :7]) <= 1e-9
        assert relative_error(packed[:, 7:], model(tokens[:, 7:])) <= 1e-9
        other = copy.deepcopy(model)
        assert torch.equal(other(tokens), want)
        for parameter in other.parameters():
            parameter.zero_()
        assert torch.equal(model(tokens), want) and not torch.equal(other(tokens), want)


@pytest.mark.parametrize(("layers", "ffn", "residual", "options"), PATTERNS, ids=str)
def test_a_training_step(layers, ffn, residual, options):
    """Muon and AdamW take every model, and its loss falls."""
    torch.manual_seed(0)
    model = build(layers, ffn, residual, config=NANO.replace(attn_res_block_size=1), **options).train()
    tokens = tokens_for(NANO, 4, 12)
    optimizers = make_optimizers(model, 5e-3)
    losses = []
    for _ in range(8):
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        model.zero_grad()
        (loss + model.aux_loss()).backward()
        for optimizer in optimizers:
            optimizer.step()
        model.balance()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.05 and all(loss == loss for loss in losses), losses
    assert (model.aux_loss() > 0) == (ffn == "softmax_moe")


@pytest.mark.parametrize("words", [
    {"layers": "gated_delta_net,attention_nope", "residual": "plain"},
    {"layers": "window_rope,kda", "ffn": "softmax_moe", "residual": "hyper", "window": 3}], ids=str)
def test_generate_works_on_it(words):
    model = build(config=NANO.replace(initializer_range=0.3), seed=2, **words)
    prompts = [[3, 1, 4], [1], [5, 9, 2, 6, 5, 3, 5]]
    together = generate(model, prompts, 9)
    assert together == [generate(model, prompt, 9) for prompt in prompts]
    for prompt, answer in zip(prompts, together, strict=True):
        for token in answer:                                             # greedy without a cache
            assert model(torch.tensor([prompt]))[0, -1].argmax() == token
            prompt = [*prompt, token]


def test_counts_of_other_parts():
    """By hand: what one word changes in the numbers."""
    c = preset("mini")
    D, H, K, V = c.hidden_size, c.num_heads, c.kda_key_dim, c.kda_value_dim

    def of(layers, **words):
        model = build(layers, config=c, residual="plain", ffn="swiglu", **words)
        return count_built(model), flops_built(model, 100)

    kda, kda_flops = of("kda,kda")
    gated, gated_flops = of("gated_delta_net,gated_delta_net")
    delta, delta_flops = of("delta_net,delta_net")
    linear, linear_flops = of("linear_attention,linear_attention")
    decay, decay_flops = of("scalar_decay,scalar_decay")
    per_channel, per_head = D * K + K * H * K + H * K, D * H + H         # decay projections and dt_bias
    assert kda.total - gated.total == 2 * (per_channel - per_head)
    assert gated.total - delta.total == 2 * (per_head + H)               # and A_log
    assert (decay.total, linear.total) == (gated.total, delta.total)
    assert kda.active == kda.total - c.vocab_size * D
    assert kda_flops.modules["mixing"] == gated_flops.modules["mixing"] == 2 * (7 * H * K * V + 8 * H * (2 * K + V))
    for flops, each in ((delta_flops, 6), (decay_flops, 5), (linear_flops, 4)):
        assert gated_flops.modules["mixing"] - flops.modules["mixing"] == 2 * (7 - each) * H * K * V
    assert gated_flops.modules["matrices"] - delta_flops.modules["matrices"] == 2 * 2 * D * H
    window, window_flops = of("window_rope", window=10, convolution=True)
    rope, rope_flops = of("attention_rope")
    assert window.total - rope.total == c.conv_size * H * (2 * K + V)
    assert rope_flops.modules["mixing"] == 101 * H * 2 * (K + V)
    assert window_flops.modules["mixing"] == 10 * H * 2 * (K + V) + 2 * c.conv_size * H * (2 * K + V)
    full = build("kda,kda", config=c, residual="full_attention")
    assert flops_built(full).modules["depth"] == 6 * D * (2 + 3 + 4 + 5)
    hyper = flops_built(build("kda,kda", config=c, residual="hyper", ffn="swiglu", streams=3)).modules
    assert hyper["mixing"] - kda_flops.modules["mixing"] == 4 * 2 * (3 * 3 + 2 * 3) * D + 2 * 3 * D
    assert hyper["matrices"] - kda_flops.modules["matrices"] == 4 * 2 * 15 * 3 * D + 2 * 3 * 3 * D
    assert hyper["depth"] == 0
    dense, moe = (build("kda", config=c.replace(first_k_dense=0), ffn=ffn) for ffn in ("swiglu", "sigmoid_moe"))
    F, k = c.moe_intermediate_size, c.num_experts_per_token
    assert count_built(moe).routed_experts == c.num_experts * 3 * D * F
    assert count_built(moe).total - count_built(moe).active == c.vocab_size * D + (c.num_experts - k) * 3 * D * F
    assert flops_built(moe).modules["routed_experts"] == 2 * k * 3 * D * F
    assert flops_built(dense).modules["routed_experts"] == 0
    was = full.train()
    flops_built(was)
    assert was.training and all(moe.expert_counts is None for moe in was.moe_layers().values())


def test_counting_refuses_what_is_no_model():
    for function in (count_built, flops_built):
        with pytest.raises(TypeError, match="model must be a torch module, but a K3Config came"):
            function(NANO)
    model = build("kda", config=NANO)
    with pytest.raises(ValueError, match="context must be a whole number, at least 0"):
        flops_built(model, -1)
    with pytest.raises(TypeError, match="decode must be True"):
        flops_built(model, 0, "yes")


@pytest.mark.parametrize(("words", "message"), [
    ({"layers": "kda,mamba"}, "layers must be of kda, .*window_rope, but 'mamba' came"),
    ({"layers": ""}, "layers must be of kda.* but '' came"), ({"layers": []}, "at least one mixer, but none came"),
    ({"ffn": "moe"}, "ffn must be of .*latent_moe.* but 'moe' came"),
    ({"residual": "none"}, "residual must be of plain, attention.* but 'none' came"),
    ({"window": 3}, "options of these parts are .*but 'window' came"),
    ({"layers": "kda,window_rope", "windows": 3}, "options of these parts are .*rope_theta.*window, but 'windows'")])
def test_unknown_words_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        build(config=NANO, **words)


def test_what_cannot_be_meant_is_refused():
    model, tokens = build("kda,attention_rope", config=NANO), tokens_for(NANO, 2, 5)
    late = torch.tensor([[True, True, False, True, True]] * 2)
    for message, given in (("left padding", {"mask": late}), ("mask must be bool", {"mask": late.long()})):
        with pytest.raises(ValueError, match=message):
            model(tokens, **given)
    for bad in ({"mask": late[:, :4]}, {"documents": late[:1].long()}, {"cache": model.new_cache(3)}):
        with pytest.raises(ShapeError), torch.no_grad():
            model(tokens, **bad)
    with pytest.raises(ShapeError, match="tokens"):
        model(tokens[0])
    with pytest.raises(ValueError, match="whole numbers"):
        model(tokens.float())
    with pytest.raises(ValueError, match="from 0 to 22"):
        model(tokens + 20)
    with pytest.raises(ValueError, match="without gradients"):
        model(tokens, model.new_cache(2))
    with torch.no_grad():
        cache = model.new_cache(2)
        with pytest.raises(ValueError, match="documents"):
            model(tokens, cache, documents=tokens)
        model(tokens, cache)
        with pytest.raises(ValueError, match="left padding"):
            model(tokens, cache, mask=torch.arange(5) >= torch.tensor([[0], [1]]))


def test_the_seed_alone_decides():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, second = build("delta_net,mla", config=NANO, seed=3), build("delta_net,mla", config=NANO, seed=3)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    other = build("delta_net,mla", config=NANO, seed=4)
    assert not torch.equal(first.embed_tokens.weight, other.embed_tokens.weight)


def test_the_table_has_all_of_them():
    lines = baseline_table().splitlines()
    entries = [*MIXERS.values(), *FFNS.values(), *RESIDUALS.values()]
    assert len(lines) == 2 + len(entries) and len({line.count(" | ") for line in lines}) == 1
    for line, entry in zip(lines[2:], entries, strict=True):
        assert isinstance(entry, Baseline) and line.startswith(f"| `{entry.name}` | {entry.part} |")
        assert entry.equation in line and entry.source in line and entry.used_by in line
    assert sum("H K V in all" in line for line in lines) == 6
