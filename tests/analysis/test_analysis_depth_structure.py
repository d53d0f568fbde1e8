"""Distance from equal shares, shares of single vectors, and gradients at what sublayers write."""

import numpy as np
import pytest
import torch

from k3_scratch.analysis.depth_attention import mix_weights
from k3_scratch.analysis.depth_gradients import depth_gradients
from k3_scratch.analysis.depth_structure import from_equal, vector_shares
from k3_scratch.baselines.frame import build as frame
from k3_scratch.config import K3Config

CONFIG = K3Config(vocab_size=11, hidden_size=12, num_heads=2, kda_key_dim=4, kda_value_dim=6, intermediate_size=16,
                  first_k_dense=0, initializer_range=0.3, attn_res_block_size=2, rms_norm_eps=1e-9)
TOKENS = torch.randint(0, 11, (3, 7), generator=torch.Generator().manual_seed(1))


def model(residual, layers=5, moved=1.0, **options):
    net = frame(["kda"] * layers, "swiglu", residual, config=CONFIG, seed=4, **options).double().eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("_res.query"):
                parameter.add_(moved * torch.randn(parameter.shape, generator=generator))
    return net


def test_distance_is_the_weight_that_has_to_move():
    assert from_equal({"a": np.array([[1.0], [0.0]])}) == pytest.approx(0.5)          # all on one of two
    assert from_equal({"a": np.eye(4)[:, :1]}) == pytest.approx(0.75)
    assert from_equal({"a": np.array([[1.0, 0.0], [0.0, 1.0]])}) == 0                 # tokens differ, the mean does not
    assert from_equal({"a": np.ones((1, 3)), "b": np.array([0.7, 0.3]), "c": np.full(3, 1 / 3)}) == pytest.approx(0.1)
    assert from_equal({"a": np.ones((1, 3))}) == 0


@pytest.mark.parametrize("residual", ["attention", "full_attention"])
def test_queries_of_zero_are_equal_shares(residual):
    weights = mix_weights(model(residual, moved=0.0), TOKENS)
    assert len(weights) == 11 and from_equal(weights) < 1e-12
    net = model(residual)
    assert from_equal(mix_weights(net, TOKENS)) > 0.05
    for i, row in enumerate(vector_shares(weights, getattr(net.residual, "boundaries", None))):
        np.testing.assert_allclose(row, np.ones(i + 1))


@pytest.mark.parametrize(("residual", "options"), [("full_attention", {}), ("attention", {}),
                                                  ("attention", {"boundaries": range(10)})])
def test_shares_rebuild_what_is_read_when_weights_do_not_depend_on_the_token(residual, options):
    """One token, so that its weights are the mean: shares times vectors point where the reader's input points."""
    net, tokens = model(residual, **options), TOKENS[:1, :1]
    seen = {}
    places = {"embed_tokens": net.embed_tokens, "norm": net.norm}
    for i, layer in enumerate(net.layers):
        places |= {f"w{2 * i}": layer.self_attn, f"w{2 * i + 1}": layer.mlp if layer.is_dense else layer.ffn,
                   f"r{2 * i}": layer.input_layernorm, f"r{2 * i + 1}": layer.post_attention_layernorm}
    for name, module in places.items():
        module.register_forward_hook(lambda m, given, out, name=name: seen.__setitem__(name, (given[0], out)))
    rows = vector_shares(mix_weights(net, tokens), getattr(net.residual, "boundaries", None))
    written = np.stack([seen["embed_tokens"][1][0, 0].numpy(), *(seen[f"w{i}"][1][0, 0].numpy() for i in range(10))])
    for i, row in enumerate(rows):
        rebuilt = row @ written[:i + 1]
        read = seen[f"r{i}" if i < 10 else "norm"][0][0, 0].numpy()
        assert row.mean() == pytest.approx(1.0)
        cosine = rebuilt @ read / np.linalg.norm(rebuilt) / np.linalg.norm(read)
        assert cosine == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("residual", ["plain", "hyper", "full_attention"])
def test_gradients_are_slopes_of_the_loss(residual):
    """Add a small multiple of the gradient's direction to one output: the loss rises by its RMS times that length."""
    net = model(residual)

    def loss():
        return net(TOKENS).square().mean()

    found = depth_gradients(net, loss)
    assert found.shape == (10,) and (found > 0).all()
    assert all(parameter.grad is None for parameter in net.parameters())
    for place, body in ((0, net.layers[0].self_attn), (7, net.layers[3].ffn)):
        changed = torch.zeros(*TOKENS.shape, 12, dtype=torch.float64, requires_grad=True)
        handle = body.register_forward_hook(lambda module, given, out, changed=changed: out + changed)
        gradient, = torch.autograd.grad(loss(), changed)
        handle.remove()
        assert found[place] == pytest.approx(gradient.square().mean().sqrt().item(), rel=1e-9)


def test_zero_queries_pull_like_the_plain_sum():
    """Outputs have the same scale in both, so the gradients agree; what is read does not."""
    nets = [model("plain"), model("full_attention", moved=0.0)]
    nets[1].load_state_dict(nets[0].state_dict(), strict=False)
    plain, mean = (depth_gradients(net, lambda net=net: net(TOKENS).square().mean()) for net in nets)
    np.testing.assert_allclose(plain, mean, rtol=1e-5)
