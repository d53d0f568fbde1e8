"""The whole model: equal to the NumPy model, causal, the same in any pieces, every parameter alive, refusals."""

import numpy as np
import pytest
import torch
from torch_helpers import KIMI_LINEAR, NANO, VARIANTS, feed, live_model, normal, tokens_for, variant, weights_of

from k3_scratch.accounting import count_parameters, vision_parameters
from k3_scratch.config import preset
from k3_scratch.model import K3
from k3_scratch.reference.k3 import k3_forward
from k3_scratch.shapes import ShapeError

EVERY = pytest.mark.parametrize("name", VARIANTS)
SOME = pytest.mark.parametrize("name", ["k3", "kimi_linear", "all_kda", "all_mla", "wide_values", "partial_last_block",
                                        "no_shared_slice", "one_tap"])


def close(got, want, tolerance=1e-9):
    assert got.shape == want.shape
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=tolerance, atol=tolerance)


# --- the same numbers ---

@EVERY
def test_equals_the_numpy_model(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 19)
    want = k3_forward(tokens.numpy(), weights_of(model), config)
    np.testing.assert_allclose(model(tokens).detach().numpy(), want, rtol=1e-9, atol=1e-9)
    assert want.std() > 0.1                                              # the logits say something


@EVERY
def test_a_later_token_changes_no_earlier_logit(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 19)
    logits = model(tokens)
    for t in (15, 4):
        other = tokens.clone()
        other[:, t] = (other[:, t] + 5) % config.vocab_size
        moved = model(other) - logits
        assert moved[:, :t].abs().max() <= 1e-12
        assert (moved[:, t:].abs().amax((0, 2)) > 1e-9).all()            # and reaches every later one


@EVERY
def test_rows_of_a_batch_do_not_meet(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 3, 9)
    logits = model(tokens)
    for b in range(3):
        close(model(tokens[b:b + 1]), logits[b:b + 1], 1e-12)


@EVERY
def test_prefill_equals_any_pieces(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 19)
    want = model(tokens)
    with torch.no_grad():
        for lengths in ([], [0, 3, 0, 2, 12]):                           # one by one; pieces, then two single tokens
            close(feed(model, tokens, lengths), want)


@EVERY
def test_left_padded_rows_equal_bare_rows(name):
    config = variant(name)
    model, tokens, pads = live_model(config), tokens_for(config, 4, 19), (0, 4, 9, 18)
    mask = torch.stack([torch.arange(19) >= n for n in pads])
    bare = [model(tokens[b:b + 1, n:]) for b, n in enumerate(pads)]

    def check(logits):
        assert torch.isfinite(logits).all()
        for b, n in enumerate(pads):
            close(logits[b:b + 1, n:], bare[b])

    check(model(tokens, mask=mask))
    with torch.no_grad():
        for lengths in ([19], [2, 4, 0, 1, 11]):                         # cuts inside the pads of some rows
            check(feed(model, tokens, lengths, mask=mask))
        cache = model.new_cache(4)
        first = feed(model, tokens[:, :18], [3, 15], cache, mask[:, :18])[:3]
        last = model(tokens[:, 18:], cache)[:3]                          # real tokens need no mask any more
        for b, n in enumerate(pads[:3]):
            close(torch.cat([first, last], 1)[b:b + 1, n:], bare[b])


@EVERY
def test_packed_documents_equal_solo_runs(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 21)
    documents = torch.tensor([[5] * 4 + [2] * 1 + [9] * 12 + [5] * 4, [0] * 16 + [1] * 5])      # 5 comes back
    logits = model(tokens, documents=documents)
    for b, start, end in ((0, 0, 4), (0, 4, 5), (0, 5, 17), (0, 17, 21), (1, 0, 16), (1, 16, 21)):
        close(logits[b:b + 1, start:end], model(tokens[b:b + 1, start:end]))
    together = model(tokens, documents=torch.ones_like(documents))
    close(together, model(tokens))
    assert (together - logits).abs().max() > 1e-3


def test_packed_documents_behind_pads():
    model, tokens = live_model(NANO), tokens_for(NANO, 2, 12)
    mask = torch.arange(12).expand(2, -1) >= torch.tensor([[3], [0]])
    documents = torch.tensor([[0] * 7 + [1] * 5, [0] * 7 + [1] * 5])
    logits = model(tokens, mask=mask, documents=documents)
    close(logits[:1, 3:7], model(tokens[:1, 3:7]))
    close(logits[:, 7:], model(tokens[:, 7:]))
    close(logits[1:, :7], model(tokens[1:, :7]))


@SOME
def test_what_stands_at_a_pad_does_not_matter(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 1, 11)
    mask = (torch.arange(11) >= 6).unsqueeze(0)
    other = tokens.clone()
    other[:, :6] = 1
    assert (model(tokens, mask=mask)[:, 6:] - model(other, mask=mask)[:, 6:]).abs().max() <= 1e-12


@SOME
@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_no_tokens(name, training):
    config = variant(name)
    model = live_model(config).train(training)
    none = torch.zeros(2, 0, dtype=torch.int64)
    assert model(none).shape == (2, 0, 23)
    assert model(none, mask=none.bool(), documents=none).shape == (2, 0, 23)
    model.balance()
    cache = model.new_cache(2)
    assert model(none, cache).shape == (2, 0, 23)
    assert cache.length == 0


def test_int32_tokens():
    model, tokens = live_model(NANO), tokens_for(NANO, 2, 5)
    assert torch.equal(model(tokens.int()), model(tokens))


# --- gradients ---

def loss_of(model, tokens, **keywords):
    logits = model(tokens, **keywords)
    return (logits * normal(np.random.default_rng(8), *logits.shape).to(logits.dtype)).sum()


@EVERY
def test_every_parameter_is_alive(name):
    config = variant(name)
    model = live_model(config).train()
    loss_of(model, tokens_for(config, 4, 19)).backward()
    unused = set()
    if config.attn_res_block_size is not None:                           # layer 0 has one source: no choice
        unused = {"layers.0.self_attention_res.query", "layers.0.self_attention_res.weight"}
    dead = {n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert dead == unused
    assert all(torch.isfinite(p.grad).all() for n, p in model.named_parameters() if n not in unused)
    for name_, p in model.named_parameters():
        if ".experts." in name_:
            counts = model.layers[int(name_.split(".")[1])].block_sparse_moe.expert_counts
            assert torch.equal(p.grad.flatten(1).any(1), counts > 0)     # every expert that was visited


@pytest.mark.parametrize("name", ["k3", "kimi_linear"])
def test_gradients_by_finite_differences(name):
    """Along one random direction over all parameters at once."""
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 2, 7)
    names, parameters = zip(*model.named_parameters(), strict=True)
    rng = np.random.default_rng(0)
    direction = [normal(rng, *p.shape) for p in parameters]
    gradients = torch.autograd.grad(loss_of(model, tokens), parameters, allow_unused=True)
    slope = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True) if g is not None).item()

    def moved(step):
        values = {n: p.detach() + step * d for n, p, d in zip(names, parameters, direction, strict=True)}
        logits = torch.func.functional_call(model, values, (tokens,))
        return (logits * normal(np.random.default_rng(8), *logits.shape)).sum().item()

    assert (moved(1e-6) - moved(-1e-6)) / 2e-6 == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("name", ["k3", "kimi_linear", "partial_last_block"])
def test_gradients_of_packed_documents_add_up(name):
    config = variant(name)
    model, tokens = live_model(config), tokens_for(config, 1, 20)
    documents = torch.tensor([[0] * 4 + [1] * 13 + [0] * 3])
    weight = normal(np.random.default_rng(8), 1, 20, config.vocab_size)

    def gradients(*pieces, **keywords):
        model.zero_grad(set_to_none=False)
        for part in pieces:
            (model(tokens[:, part], **keywords) * weight[:, part]).sum().backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    apart = gradients(slice(0, 4), slice(4, 17), slice(17, 20))
    packed = gradients(slice(0, 20), documents=documents)
    for n, want in apart.items():
        close(packed[n], want, 1e-9 * max(1.0, want.abs().max().item()))


def test_the_selection_bias_is_a_buffer():
    model = K3(NANO)
    name = "layers.1.block_sparse_moe.gate.e_score_correction_bias"
    assert name in dict(model.named_buffers())
    assert name in model.state_dict()
    assert name not in dict(model.named_parameters())
    assert not any(b.requires_grad for b in model.buffers())
    assert not dict(model.named_buffers())[name].any()


@pytest.mark.parametrize("changes", [{}, KIMI_LINEAR], ids=["k3", "kimi_linear"])
def test_recomputation_changes_nothing(changes):
    config = NANO.replace(**changes)
    model, tokens = live_model(config).train(), tokens_for(config, 3, 19)
    mask = torch.arange(19).expand(3, -1) >= torch.tensor([[0], [5], [2]])
    results = []
    for recompute in (False, True):
        model.recompute = recompute
        model.zero_grad()
        loss_of(model, tokens, mask=mask).backward()
        results.append((model(tokens).detach(), {n: p.grad for n, p in model.named_parameters()},
                        [moe.expert_counts for moe in model.moe_layers().values()]))
    (logits, gradients, counts), (logits2, gradients2, counts2) = results
    assert torch.equal(logits, logits2)
    for n, gradient in gradients.items():
        if gradient is None:
            assert gradients2[n] is None
        else:
            close(gradients2[n], gradient, 1e-12 * max(1.0, gradient.abs().max().item()))
    for one, two in zip(counts, counts2, strict=True):
        assert torch.equal(one, two)
        assert one.sum() == tokens.numel() * config.num_experts_per_token


# --- what a fresh model is ---

def test_each_seed_gives_the_same_weights_and_leaves_the_generator_alone():
    torch.manual_seed(123)
    before = torch.random.get_rng_state()
    first = K3(NANO, seed=3).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(321)
    torch.rand(5)
    again, other = K3(NANO, seed=3).state_dict(), K3(NANO, seed=4).state_dict()
    assert all(torch.equal(first[n], again[n]) for n in first)
    random = [n for n in first if first[n].dim() > 1 or "dt_bias" in n]
    assert all(not torch.equal(first[n], other[n]) for n in random)
    default, zero = K3(NANO).state_dict(), K3(NANO, seed=0).state_dict()
    assert all(torch.equal(default[n], zero[n]) for n in first)


@pytest.mark.parametrize("spread", [0.02, 0.15])
def test_initial_values(spread):
    model = K3(preset("mini").replace(initializer_range=spread, num_experts=5))
    for name, p in model.named_parameters():
        assert p.dtype == torch.float32
        if name.endswith(("query", "A_log")):
            assert (p == 0).all()
        elif "dt_bias" in name:
            assert p.std() > 0
        elif p.dim() == 1:
            assert (p == 1).all()
        elif "conv1d" in name:
            assert 0.4 < p.abs().max() <= 0.5
        else:
            assert abs(p.mean().item()) < 6 * spread / p.numel() ** 0.5
            assert p.std().item() == pytest.approx(spread, rel=6 / p.numel() ** 0.5)
    assert not any(b.any() for b in model.buffers())


@pytest.mark.parametrize("name", ["kimi_k3", "kimi_linear_48b", "mini", "vision", "nano"])
def test_parameters_of_the_presets(name):
    config = preset(name)
    with torch.device("meta"):
        model = K3(config)
    count, sums, instances = count_parameters(config), {}, {}
    sizes = {n: x.numel() for n, x in model.state_dict().items()}
    assert sum(sizes.values()) == count.total_with_vision
    pictures = {n: sizes.pop(n) for n in list(sizes) if n.startswith("vision.")}
    projector = sum(size for n, size in pictures.items() if n.startswith("vision.projector"))
    assert vision_parameters(config) == {"encoder": sum(pictures.values()) - projector, "projector": projector}

    def add(part, *prefixes, number=1):
        for prefix in prefixes:
            names = [n for n in sizes if n.startswith(prefix)]
            sums[part] = sums.get(part, 0) + sum(sizes.pop(n) for n in names)
            instances[part] = instances.get(part, 0) + (number if names else 0)

    add("embedding", "embed_tokens."), add("lm_head", "lm_head."), add("final_norm", "norm.")
    add("output_depth_mix", "output_attn_res.")
    for i in range(config.num_layers):
        layer = f"layers.{i}."
        moe = layer + "block_sparse_moe."
        add("mla" if i in config.mla_layers else "kda", layer + "self_attn.")
        add("dense_ffn", layer + "mlp.")
        add("router", moe + "gate.")
        add("routed_experts", moe + "experts.", number=config.num_experts)
        add("latent", moe + "routed_expert_")
        add("shared_experts", moe + "shared_experts.")
        add("sublayer_norms", layer + "input_layernorm.", layer + "post_attention_layernorm.")
        add("depth_mixes", layer + "self_attention_res.", layer + "mlp_res.")
    assert not sizes                                                     # every tensor belongs to one part
    for part, (each, number, total) in count.modules.items():
        assert (sums.get(part, 0), instances.get(part, 0)) == (total, number), part
        assert each * number == total
    if name == "kimi_k3":
        assert count.total == 2_779_484_476_000


@EVERY
def test_parameters_of_the_variants(name):
    config = variant(name)
    assert sum(x.numel() for x in K3(config).state_dict().values()) == count_parameters(config).total


# --- refusals ---

TOKENS = torch.zeros(2, 5, dtype=torch.int64)
MASK = torch.ones(2, 5, dtype=torch.bool)


@pytest.mark.parametrize(("tokens", "keywords", "kind", "text"), [
    (TOKENS[0], {}, ShapeError, "K3: tokens must have shape [B, T], but [5] came"),
    (TOKENS.unsqueeze(0), {}, ShapeError, "K3: tokens must have shape [B, T], but [1, 2, 5] came"),
    ([[1, 2]], {}, ShapeError, "K3: tokens must be an array of shape [B, T], but a list came"),
    (TOKENS.float(), {}, ValueError, "K3: tokens must be whole numbers (int64), but torch.float32 came"),
    (TOKENS.bool(), {}, ValueError, "K3: tokens must be whole numbers (int64), but torch.bool came"),
    (TOKENS + 23, {}, ValueError, "K3: tokens must be from 0 to 22, but 23 came"),
    (TOKENS - 1, {}, ValueError, "K3: tokens must be from 0 to 22, but -1 came"),
    (TOKENS, {"mask": MASK[:, :4]}, ShapeError, "K3: mask must have shape [B, T] with B = 2, T = 5, but [2, 4] came"),
    (TOKENS, {"mask": MASK[:1]}, ShapeError, "K3: mask must have shape [B, T] with B = 2, T = 5, but [1, 5] came"),
    (TOKENS, {"mask": MASK.long()}, ValueError, "K3: mask must be bool (True = a real token), but torch.int64 came"),
    (TOKENS, {"mask": MASK & (torch.arange(5) != 2)}, ValueError, "K3: mask must be left padding"),
    (TOKENS, {"mask": MASK & (torch.arange(5) < 4)}, ValueError, "K3: mask must be left padding"),
    (TOKENS, {"documents": TOKENS[:, :3]}, ShapeError, "K3: documents must have shape [B, T] with B = 2, T = 5"),
    (TOKENS, {"images": torch.zeros(1, 3, 4, 4)}, ValueError, "K3: images needs a model with a vision encoder"),
])
def test_wrong_arguments(tokens, keywords, kind, text):
    model = K3(NANO)
    with pytest.raises(kind) as error:
        model(tokens, **keywords)
    assert str(error.value).startswith(text)
    assert "\n" not in str(error.value)


def test_wrong_arguments_with_a_cache():
    model = K3(NANO)
    with pytest.raises(ValueError, match="a cache holds numbers without gradients"):
        model.train()(TOKENS, model.new_cache(2))
    model.eval()
    with pytest.raises(ShapeError, match="K3: the cache was made for batch 3, but tokens has batch 2"):
        model(TOKENS, model.new_cache(3))
    with pytest.raises(ValueError, match="K3: documents packs whole sequences; it cannot be used together with"):
        model(TOKENS, model.new_cache(2), documents=TOKENS)
    cache = model.new_cache(2)
    mask = torch.tensor([[False, False], [False, True]])
    with torch.no_grad():
        model(TOKENS[:, :2], cache, mask=mask)
        want = model(TOKENS[:, 2:4], cache.clone(), mask=mask | torch.tensor([[False], [True]]))
        with pytest.raises(ValueError, match=r"left padding: once a row has a real token, no pad may follow \(row 1\)"):
            model(TOKENS[:, 2:4], cache, mask=mask)
        assert cache.length == 2                                         # a refused call changes nothing
        close(model(TOKENS[:, 2:4], cache, mask=mask | torch.tensor([[False], [True]])), want, 1e-6)
