"""Mistakes in the attention residuals; how they are planted is in mistake.py."""

from unittest.mock import patch

import torch
from mistake import mistake

from k3_scratch.layers import attention_residuals
from k3_scratch.layers.attention_residuals import Bank, DepthMix, Source, mixing_weights
from k3_scratch.model import K3, DecoderLayer


def with_mix(wrong):
    """Every mix over depth becomes wrong(module, sources, the right mix)."""
    right = DepthMix.forward
    return [(DepthMix, "forward", lambda self, sources: wrong(self, sources, lambda given: right(self, given)))]


def with_weights(wrong):
    """wrong(sources, query, norm_weight) -> [N, ...] in place of the softmax over the sources."""
    return [(attention_residuals, "mixing_weights", wrong)]


def right_seal(layer, bank, here, y):
    """A block ends where the layer's number is divisible by the block size.          -> the new bank and h"""
    return (bank.grown(here), y) if layer.ends_block else (bank, here.vector + y)


def with_layer(seal=right_seal, ffn_reads_before=False):
    """A decoder layer with another rule for the bank and the running sum, or whose FFN reads other sources."""
    def forward(self, bank, h, cache=None, mask=None, documents=None):
        here = Source(h, self.eps)
        y = self.attend(bank.read(self.self_attention_res, here), cache, mask, documents)
        after, h = seal(self, bank, here, y)
        m = bank.read(self.mlp_res, here) if ffn_reads_before else after.read(self.mlp_res, Source(h, self.eps))
        return after, h + self.feed_forward(m, mask)
    return [(DecoderLayer, "forward", forward)]


@mistake("model.py", "the FFN reads what its layer's attention had read, without the attention's output")
def ffn_blind_to_its_attention():
    return with_layer(ffn_reads_before=True)


@mistake("model.py", "blocks end one layer late")
def block_boundary_one_layer_late():
    def late(layer, bank, here, y):
        ends = layer.number > 0 and (layer.number - 1) % layer.block_size == 0
        return (bank.grown(here), y) if ends else (bank, here.vector + y)
    return with_layer(late)


@mistake("model.py", "a zero vector is banked first, and the embedding stays in the running sum of the first block")
def zero_vector_as_first_source():
    def zero_first(layer, bank, here, y):
        if layer.number > 0:
            return right_seal(layer, bank, here, y)
        return Bank([Source(torch.zeros_like(y), layer.eps)]), here.vector + y
    return with_layer(zero_first)


@mistake("model.py", "the output reads the running sum of the last block, without a mix")
def no_mix_at_the_output():
    right = K3.hidden

    def hidden(self, *arguments, **keywords):
        with patch.object(self.output_attn_res, "forward", lambda sources: sources[-1].vector):
            return right(self, *arguments, **keywords)
    return [(K3, "hidden", hidden)]


@mistake("layers/attention_residuals.py", "sources are cumulative sums, not the blocks themselves")
def cumulative_sums_as_sources():
    def wrong(self, sources, mix):
        return mix([Source(x, 1e-5) for x in torch.stack([source.vector for source in sources]).cumsum(0)])
    return with_mix(wrong)


@mistake("layers/attention_residuals.py", "the running sum is added to the mix once more, as a residual")
def residual_added_back():
    return with_mix(lambda self, sources, mix: mix(sources) if len(sources) == 1 else mix(sources) + sources[-1].vector)


@mistake("layers/attention_residuals.py", "scores are averaged over the tokens, which leaks the future")
def keys_averaged_over_tokens():
    def wrong(sources, query, norm_weight):
        scores = torch.stack([(s.vector * s.inverse_rms.unsqueeze(-1)) @ (query * norm_weight) for s in sources])
        return scores.mean(-1, keepdim=True).expand_as(scores).softmax(0)
    return with_weights(wrong)


@mistake("layers/attention_residuals.py", "depth scores are divided by sqrt(D)")
def depth_scores_over_root_of_width():
    return with_weights(lambda sources, query, norm_weight:
                        mixing_weights(sources, query * query.shape[0] ** -0.5, norm_weight))


@mistake("layers/attention_residuals.py", "keys are not normalised before they are scored")
def keys_not_normalised():
    return with_weights(lambda sources, query, norm_weight:
                        torch.stack([s.vector @ (query * norm_weight) for s in sources]).softmax(0))


@mistake("layers/attention_residuals.py", "the normalised vectors are mixed, not the raw ones")
def normalised_vectors_mixed():
    def wrong(self, sources, mix):
        if len(sources) == 1:
            return sources[0].vector
        weights = attention_residuals.mixing_weights(sources, self.query, self.weight)
        return sum(p.unsqueeze(-1) * s.vector * s.inverse_rms.unsqueeze(-1)
                   for p, s in zip(weights, sources, strict=True))
    return with_mix(wrong)
