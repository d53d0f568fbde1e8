"""One frame for all: any sequence mixer, feed-forward part and residual in one small model, by name.

    build("kda,kda,kda,mla", ffn="latent_moe", residual="attention")        K3 itself: its names, its numbers
    build("window_rope,window_rope,window_rope,attention_nope", convolution=True)
    build("gated_delta_net,gated_delta_net", ffn="swiglu", residual="plain")

Two models built with one word changed differ in that one thing: embedding, norms, head and the order of the parts stay.
Names and what they mean: mixers.py, ffns.py, residuals.py, or all in one table: `python -m k3_scratch.baselines.table`.
"""

import inspect

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from k3_scratch.baselines.ffns import FFNS
from k3_scratch.baselines.frame_cache import FrameCache
from k3_scratch.baselines.mixers import MIXERS
from k3_scratch.baselines.residuals import RESIDUALS
from k3_scratch.config import K3Config
from k3_scratch.layers.calls import check_call
from k3_scratch.layers.feed_forward import FeedForward
from k3_scratch.layers.rms_norm import RMSNorm


def build(layers="kda,kda,kda,mla", ffn="latent_moe", residual="attention", *, config=None, seed=0, **options):
    """A `Frame` with the parts named.

    layers    mixers from first to last layer: names of MIXERS, as a list or as one text with commas
    ffn       name in FFNS; the first `config.first_k_dense` layers have "dense", as K3 has
    residual  name in RESIDUALS
    config    every size; None: K3Config(). Its layers are replaced: the model's own `config` says how many there are,
              which of them are MLA, and for residual="plain" that there are no blocks
    seed      of the parameters; torch's global generator is left as it was
    options   of the parts: window, rope_theta, convolution, output_gate for softmax attention; streams, iterations, eps
              for "hyper"; boundaries for "attention". Each part takes those that it knows
    Raises ValueError for a name or an option that no part here has, and lists the known ones.
    """
    names = [name.strip() for name in layers.split(",")] if isinstance(layers, str) else list(layers)
    for kind, known, given in (("layers", MIXERS, names), ("ffn", FFNS, [ffn]), ("residual", RESIDUALS, [residual])):
        for name in given:
            if name not in known:
                raise ValueError(f"build: {kind} must be of {', '.join(known)}, but {name!r} came")
    if not names:
        raise ValueError("build: layers must name at least one mixer, but none came")
    config = (config or K3Config()).replace(
        num_layers=len(names), mla_layers=tuple(i for i, name in enumerate(names) if name == "mla"),
        first_k_dense=min((config or K3Config()).first_k_dense, len(names)))
    if residual == "plain":
        config = config.replace(attn_res_block_size=None)
    parts = [*(MIXERS[name] for name in names), FFNS[ffn], RESIDUALS[residual]]
    known = sorted({option for part in parts for option in _options(part)})
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"build: options of these parts are {', '.join(known) or 'none'}, but {unknown[0]!r} came")
    return Frame(config, names, ffn, residual, seed, options)


def _options(part):
    """Names of what a part's constructor takes beside config and number of sublayers."""
    return [name for name in inspect.signature(part.make).parameters if name not in ("config", "num_sublayers")]


def _make(part, given, *arguments):
    return part(*arguments, **{name: given[name] for name in _options(part) if name in given})


class FrameLayer(nn.Module):
    """One mixer and one feed-forward part, each with its norm; names as in K3's layers."""

    def __init__(self, config, mixer, ffn, options):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = _make(MIXERS[mixer], options, config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        part = _make(FFNS[ffn], options, config)
        self.is_dense = isinstance(part, FeedForward)
        self.add_module("mlp" if self.is_dense else "block_sparse_moe", part)

    @property
    def ffn(self):
        """The feed-forward part, whatever its name."""
        return self.mlp if self.is_dense else self.block_sparse_moe

    def attend(self, x, cache=None, mask=None, documents=None):
        """The mixer on x, normed.                                                    [B, T, D] -> [B, T, D]"""
        return self.self_attn(self.input_layernorm(x), cache, mask=mask, documents=documents)

    def feed_forward(self, x, mask=None):
        """The feed-forward part on x, normed.                                        [B, T, D] -> [B, T, D]"""
        return self.ffn(self.post_attention_layernorm(x), mask)


class Frame(nn.Module):
    """A language model made of named parts: tokens [B, T] -> logits [B, T, vocab]. Made by `build`."""

    def __init__(self, config, mixers, ffn, residual, seed=0, options=None):
        super().__init__()
        options = options or {}
        self.config, self.mixers, self.ffn_name, self.residual_name = config, tuple(mixers), ffn, residual
        self.recompute = False                                           # True: less memory, one more forward pass
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
            self.layers = nn.ModuleList(FrameLayer(config, name, "dense" if config.is_dense(i) else ffn, options)
                                        for i, name in enumerate(mixers))
            self.residual = _make(RESIDUALS[residual], options, config, 2 * len(mixers))
            for i in range(2 * len(mixers)):                             # what it learns lies where K3 has it
                for name, module in self.residual.modules_for(i).items():
                    self.layers[i // 2].add_module(name, module)
            for name, module in self.residual.final_modules().items():
                self.add_module(name, module)
            self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
            self.reset_matrices()

    @torch.no_grad()
    def reset_matrices(self):
        """Every matrix N(0, initializer_range). Vectors and convolutions keep what their own classes gave them."""
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2 and "conv1d" not in name:
                parameter.normal_(0.0, self.config.initializer_range)

    def new_cache(self, batch_size):
        """An empty cache for `batch_size` sequences, in the model's dtype and on its device."""
        weight = self.embed_tokens.weight
        return FrameCache([layer.self_attn for layer in self.layers], batch_size, weight.dtype, weight.device)

    def forward(self, tokens, cache=None, *, mask=None, documents=None):
        """Logits for the token after each position.

        tokens     [B, T]  whole numbers below vocab_size
        cache      from `new_cache(B)`; the tokens continue what it holds, and it is filled with them
        mask       [B, T]  bool, False at pads, which must all come first in a row (left padding)
        documents  [B, T]  whole numbers; where the number changes a new document begins that sees nothing before it
        returns    logits [B, T, vocab]; at pads they mean nothing. Raises ShapeError or ValueError naming the argument.
        """
        return self.lm_head(self.hidden(tokens, cache, mask=mask, documents=documents))

    def hidden(self, tokens, cache=None, *, mask=None, documents=None):
        """What the head reads; arguments as `forward`.                                             -> [B, T, D]"""
        check_call("Frame", self.config.vocab_size, tokens, cache, mask, documents,
                   self.training and torch.is_grad_enabled())
        if cache is not None:
            cache.begin(tokens, mask)
        if documents is not None:                                        # runs, so that a number may come back later
            changed = documents[:, 1:] != documents[:, :-1]
            documents = torch.cat([torch.zeros_like(documents[:, :1]), changed.cumsum(1)], 1)
        state = self.residual.start(self.embed_tokens(tokens))           # [B, T, D]
        for i, layer in enumerate(self.layers):
            part = None if cache is None else cache.layers[i]
            y = self._run(layer.attend, self.residual.read(state, 2 * i), part, mask, documents)
            state = self.residual.write(state, 2 * i, y)
            y = self._run(layer.feed_forward, self.residual.read(state, 2 * i + 1), mask)
            state = self.residual.write(state, 2 * i + 1, y)
        if cache is not None:
            cache.length += tokens.shape[1]
        return self.norm(self.residual.end(state))

    def _run(self, sublayer, *arguments):
        if self.recompute and self.training:
            return checkpoint(sublayer, *arguments, use_reentrant=False)
        return sublayer(*arguments)

    def moe_layers(self):
        """{layer number: its feed-forward part} of the layers that have experts."""
        return {i: layer.block_sparse_moe for i, layer in enumerate(self.layers) if not layer.is_dense}

    def balance(self):
        """Set what the experts of the next batch are chosen by from the last training batch."""
        for moe in self.moe_layers().values():
            moe.balance()

    def aux_loss(self):
        """What the training loss must add: sum of aux_weight * aux_loss over the layers that have one, or 0.   -> []"""
        losses = [(moe.aux_weight, moe.aux_loss) for moe in self.moe_layers().values() if hasattr(moe, "aux_loss")]
        return sum((weight * loss for weight, loss in losses if loss is not None), self.norm.weight.new_zeros(()))
