"""Which earlier vectors each sublayer reads: sums, starts, numbers of sources, and the same numbers by hand."""

import numpy as np
import pytest
import torch

from k3_scratch.analysis.depth_attention import depth_attention

# Sources that exist for each of the 9 mixes of nano (4 layers x 2 and the output), by layers per block. A mix on the
# attention side still reads the old bank; a block that starts banks its h before the mix on the feed-forward side.
SOURCES = {1: [1, 2, 2, 3, 3, 4, 4, 5, 5], 2: [1, 2, 2, 2, 2, 3, 3, 3, 3], 3: [1, 2, 2, 2, 2, 2, 2, 3, 3],
           4: [1, 2, 2, 2, 2, 2, 2, 2, 2], 9: [1, 2, 2, 2, 2, 2, 2, 2, 2]}
NAMES = {1: ["embedding", "layer 0", "layer 1", "layer 2", "this block"], 2: ["embedding", "layers 0-1", "this block"],
         3: ["embedding", "layers 0-2", "this block"], 4: ["embedding", "this block"], 9: ["embedding", "this block"]}
READERS = ["0 KDA", "0 dense", "1 KDA", "1 MoE", "2 KDA", "2 MoE", "3 MLA", "3 MoE", "output"]


@pytest.mark.parametrize("size", SOURCES)
def test_rows_sum_to_one_over_the_sources_that_exist(size, make, tokens, mask):
    weights, readers, sources = depth_attention(make(attn_res_block_size=size), tokens, mask)
    assert readers == READERS and sources == NAMES[size]
    assert weights.shape == (9, len(sources)) and weights.dtype == np.float64
    there = ~np.isnan(weights)
    assert there.sum(1).tolist() == SOURCES[size]
    np.testing.assert_allclose(np.nansum(weights, 1), 1.0, atol=1e-6)
    assert (weights[there] > 0).all()
    assert there[:, -1].all()                                             # everyone reads the running sum, last
    assert np.nanstd(weights[1:], 1).min() > 1e-3                         # these queries are not at their start
    for row, count in zip(there, SOURCES[size], strict=True):
        assert row[:count - 1].all() and not row[count - 1:-1].any()      # and the earliest of the bank


@pytest.mark.parametrize("size", [1, 2, 3])
def test_queries_of_zero_read_all_alike(size, make, tokens):
    model = make(attn_res_block_size=size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("_res.query"):
                parameter.zero_()
    weights, _, _ = depth_attention(model, tokens)
    for row, count in zip(weights, SOURCES[size], strict=True):
        np.testing.assert_allclose(row[~np.isnan(row)], 1 / count, atol=1e-6)


def softmax_over_depth(vectors, query, gamma, eps=1e-5):
    """[N, n, D] -> mean over the n tokens of softmax_N(sum_c w_c gamma_c v_c / sqrt(mean v^2 + eps))."""
    scores = (vectors * query * gamma).sum(-1) / np.sqrt((vectors ** 2).mean(-1) + eps)
    p = np.exp(scores - scores.max(0))
    return (p / p.sum(0)).mean(1)


@pytest.mark.parametrize("size", [1, 3])
def test_weights_are_those_of_the_equation(size, make, tokens, mask):
    """The forward pass done by hand, sublayer by sublayer, in float64, from the vectors that the sublayers write."""
    model = make(attn_res_block_size=size).double()
    weights, _, _ = depth_attention(model, tokens, mask)
    outputs = {}
    handles = [module.register_forward_hook(lambda m, i, out, name=name: outputs.__setitem__(name, out[mask].detach()))
               for name, module in model.named_modules() if name.endswith(("self_attn", ".mlp", "sparse_moe"))]
    model(tokens)
    for handle in handles:
        handle.remove()
    bank, h, rows = [], model.embed_tokens(tokens)[mask].detach().numpy(), []

    def read(mix):
        rows.append(softmax_over_depth(np.stack([*bank, h]), mix.query.detach().numpy(), mix.weight.detach().numpy()))

    for i, layer in enumerate(model.layers):
        read(layer.self_attention_res)
        y = outputs[f"layers.{i}.self_attn"].numpy()
        if i % size == 0:
            bank.append(h)
            h = y
        else:
            h = h + y
        read(layer.mlp_res)
        h = h + outputs[f"layers.{i}.mlp" if i == 0 else f"layers.{i}.block_sparse_moe"].numpy()
    read(model.output_attn_res)
    for row, wanted in zip(weights, rows, strict=True):
        np.testing.assert_allclose(row[~np.isnan(row)], wanted, atol=1e-9)


def test_the_mask_counts(make, tokens, mask):
    model = make()
    every, some = depth_attention(model, tokens)[0], depth_attention(model, tokens, mask)[0]
    np.testing.assert_array_equal(every, depth_attention(model, tokens, torch.ones_like(mask))[0])
    assert np.nanmax(np.abs(every - some)) > 1e-4
