"""The miniature K3, and every other size of it. What differs from a textbook transformer, and where it lives:

    three of four layers are a recurrence, not attention         layers/kda_attention.py, layers/kda.py
    the fourth caches one small latent per token                 layers/mla_attention.py, layers/mla.py
    no positions anywhere: order comes from the recurrence       (nothing to see)
    experts work in a latent space, balanced by quantiles        layers/latent_moe.py, layers/quantile_balancing.py
    sublayers read a mixture over depth, not a running sum       layers/attention_residuals.py, `DecoderLayer` below;
                                                                 while decoding, layers/two_phase.py
    both factors of the gated activation are bounded             layers/situ.py
    RMSNorm without bias, embedding without scale, head untied   layers/rms_norm.py, `K3` below
    pictures are tokens of the same sequence                     vision.py
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from k3_scratch.cache import K3Cache
from k3_scratch.layers.attention_residuals import Bank, DepthMix, Source
from k3_scratch.layers.calls import check_call
from k3_scratch.layers.feed_forward import FeedForward
from k3_scratch.layers.kda_attention import KimiDeltaAttention
from k3_scratch.layers.latent_moe import LatentMoE
from k3_scratch.layers.mla_attention import GatedMLA
from k3_scratch.layers.rms_norm import RMSNorm
from k3_scratch.layers.two_phase import TwoPhaseBank
from k3_scratch.vision import Vision, check_images


class DecoderLayer(nn.Module):
    """One attention part (KDA or MLA) and one feed-forward part (dense or LatentMoE), joined by attention residuals."""

    def __init__(self, config, number):
        super().__init__()
        D, eps = config.hidden_size, config.rms_norm_eps
        self.number, self.block_size, self.eps = number, config.attn_res_block_size, eps
        self.is_dense = config.is_dense(number)
        self.input_layernorm = RMSNorm(D, eps)
        self.self_attn = (GatedMLA if config.is_mla(number) else KimiDeltaAttention)(config)
        self.post_attention_layernorm = RMSNorm(D, eps)
        if self.is_dense:
            self.mlp = FeedForward(config, config.intermediate_size)
        else:
            self.block_sparse_moe = LatentMoE(config)
        self.ends_block = self.block_size is not None and number % self.block_size == 0
        if self.block_size is not None:
            self.self_attention_res = DepthMix(config)
            self.mlp_res = DepthMix(config)

    def forward(self, bank, h, cache=None, mask=None, documents=None):
        """bank: a `Bank` of earlier sums, h [B, T, D]: the running sum of this block  ->  the new bank and h.

        The bank is never changed in place, and neither is a vector in it.
        """
        if self.block_size is None:                                      # the plain residual of Kimi Linear
            h = h + self.attend(h, cache, mask, documents)
            return bank, h + self.feed_forward(h, mask)
        here = Source(h, self.eps)
        a = bank.read(self.self_attention_res, here)
        y = self.attend(a, cache, mask, documents)
        if self.ends_block:                                              # bank the raw h, not a
            bank, h = bank.grown(here), y
        else:
            h = h + y
        m = bank.read(self.mlp_res, Source(h, self.eps))                 # the FFN sees its own layer's attention
        return bank, h + self.feed_forward(m, mask)

    def attend(self, x, cache, mask, documents):
        """The attention part on a mix x, normed.                                     [B, T, D] -> [B, T, D]"""
        return self.self_attn(self.input_layernorm(x), cache, mask=mask, documents=documents)

    def feed_forward(self, x, mask):
        """The feed-forward part on a mix x, normed; mask as in `forward` of K3.      [B, T, D] -> [B, T, D]"""
        x = self.post_attention_layernorm(x)
        return self.mlp(x) if self.is_dense else self.block_sparse_moe(x, mask)


class K3(nn.Module):
    """The language model: tokens [B, T] -> logits [B, T, vocab]."""

    def __init__(self, config, seed=0):
        """Parameters are drawn from `seed` alone; torch's global generator is left as it was."""
        super().__init__()
        self.config = config
        self.recompute = False                                           # True: less memory, one more forward pass
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
            self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.num_layers))
            if config.attn_res_block_size is not None:
                self.output_attn_res = DepthMix(config)
            self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.reset_matrices()
            if config.vision is not None:                                # drawn last: the text part is that without it
                self.vision = Vision(config)
                self.reset_matrices(self.vision)

    @torch.no_grad()
    def reset_matrices(self, part=None):
        """Every matrix N(0, initializer_range). Vectors and convolutions keep what their own classes gave them."""
        for name, parameter in (part or self).named_parameters():
            if parameter.dim() >= 2 and "conv1d" not in name:
                parameter.normal_(0.0, self.config.initializer_range)

    def new_cache(self, batch_size):
        """An empty cache for `batch_size` sequences, in the model's dtype and on its device."""
        weight = self.embed_tokens.weight
        return K3Cache(self.config, batch_size, weight.dtype, weight.device)

    def forward(self, tokens, cache=None, *, mask=None, documents=None, images=None):
        """Logits for the token after each position.

        tokens     [B, T]  whole numbers below vocab_size
        cache      from `new_cache(B)`; the tokens continue what it holds, and it is filled with them
        mask       [B, T]  bool, False at pads, which must all come first in a row (left padding)
        documents  [B, T]  whole numbers; where the number changes a new document begins that sees nothing before it
        images     [P, Y, X, C]  uint8, all pictures of the batch, row after row, for a config with a vision encoder:
                   each takes as many tokens `config.vision.image_token` as `vision.picture_tokens` says, all in one
                   call, where its vectors stand in place of their embeddings
        returns    logits [B, T, vocab]; at pads they mean nothing. Raises ShapeError or ValueError naming the argument.
        """
        return self.lm_head(self.hidden(tokens, cache, mask=mask, documents=documents, images=images))

    def hidden(self, tokens, cache=None, *, mask=None, documents=None, images=None):
        """What the head reads: the last mix over depth, normed; arguments as `forward`.            -> [B, T, D]"""
        self._check(tokens, cache, mask, documents, images)
        h, bank = self.embed_tokens(tokens), self.new_bank(cache, tokens)            # [B, T, D]
        if self.config.vision is not None:
            h = self.vision.place(h, tokens, images)
        if documents is not None:                                        # runs, so that a number may come back later
            changed = documents[:, 1:] != documents[:, :-1]
            first = documents.new_zeros(documents.shape)[:, :1]
            documents = torch.cat([first, changed.cumsum(1)], 1)
        for i, layer in enumerate(self.layers):
            part = None if cache is None else cache.layers[i]
            if self.recompute and self.training:
                bank, h = checkpoint(layer, bank, h, part, mask, documents, use_reentrant=False)
            else:
                bank, h = layer(bank, h, part, mask, documents)
        if cache is not None:
            cache.length += tokens.shape[1]
        if self.config.attn_res_block_size is not None:
            h = bank.read(self.output_attn_res, Source(h, self.config.rms_norm_eps))
        return self.norm(h)

    def new_bank(self, cache, tokens):
        """An empty bank; for one token after a cache the one that is read for all mixes of a block at once."""
        if self.config.attn_res_block_size is None or cache is None or tokens.shape[1] != 1:
            return Bank()
        readers = [[]]
        for layer in self.layers:
            readers[-1].append(layer.self_attention_res)
            if layer.ends_block:
                readers.append([])
            readers[-1].append(layer.mlp_res)
        readers[-1].append(self.output_attn_res)
        return TwoPhaseBank(readers)

    def moe_layers(self):
        """{layer number: LatentMoE} of the layers that have one."""
        return {i: layer.block_sparse_moe for i, layer in enumerate(self.layers) if not layer.is_dense}

    def balance(self):
        """Set every selection bias for the next batch from the last training batch."""
        for moe in self.moe_layers().values():
            moe.balance()

    def _check(self, tokens, cache, mask, documents, images):
        """Refuse what cannot be meant, with the argument's name."""
        check_call("K3", self.config.vocab_size, tokens, cache, mask, documents,
                   self.training and torch.is_grad_enabled())
        if self.config.vision is not None:
            check_images(self.config.vision, tokens, images)
        elif images is not None:
            raise ValueError("K3: images needs a model with a vision encoder, and this configuration has none")
        if cache is not None:
            cache.begin(tokens, mask)
