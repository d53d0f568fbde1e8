"""Mistakes in Kimi Delta Attention and in the latent attention; how they are planted is in mistake.py."""

import torch
import torch.nn.functional as F
from mistake import mistake

from k3_scratch.layers import kda_attention, mla_attention
from k3_scratch.layers.kda import kda_chunk, kda_step
from k3_scratch.layers.kda_attention import KimiDeltaAttention
from k3_scratch.layers.kda_inputs import kda_inputs
from k3_scratch.layers.mla import mla_absorbed, mla_naive
from k3_scratch.layers.short_convolution import short_convolution
from k3_scratch.layers.unit_keys import l2_norm

# ---- KDA: the recurrence

def with_step(step):
    """The KDA layer takes this step for every token, in a prompt and in decoding."""
    def whole(q, k, v, g, beta, state=None, *, scale=None, documents=None):
        q, k, v, g, beta, state = kda_inputs("kda_chunk", q, k, v, g, beta, state, documents)
        outputs = []
        for token in zip(*(x.unbind(1) for x in (q, k, v, g, beta)), strict=True):
            o, state = step(state, *token, scale=scale)
            outputs.append(o)
        return torch.stack(outputs, 1), state
    return [(kda_attention, "kda_chunk", whole), (kda_attention, "kda_step", step)]


def decay(state, g):
    return g.exp().unsqueeze(-1) * state


def recall(state, k):
    return (k.unsqueeze(-2) @ state).squeeze(-2)


def write(state, k, value, beta):
    return state + (beta.unsqueeze(-1) * k).unsqueeze(-1) * value.unsqueeze(-2)


def read(state, q, scale):
    return recall(state, q * (q.shape[-1] ** -0.5 if scale is None else scale))


@mistake("layers/kda.py", "the state decays after the write, so a token's own write decays at once")
def decay_after_the_write():
    def step(state, q, k, v, g, beta, *, scale=None):
        state = decay(write(state, k, v - recall(state, k), beta), g)
        return read(state, q, scale), state
    return with_step(step)


@mistake("layers/kda.py", "nothing is erased: v is written, not v minus what the state recalls")
def no_erase_term():
    def step(state, q, k, v, g, beta, *, scale=None):
        state = write(decay(state, g), k, v, beta)
        return read(state, q, scale), state
    return with_step(step)


@mistake("layers/kda.py", "the decay multiplies the value channels of the state")
def decay_on_the_value_axis():
    def step(state, q, k, v, g, beta, *, scale=None):
        state = g.exp().unsqueeze(-2) * state
        state = write(state, k, v - recall(state, k), beta)
        return read(state, q, scale), state
    return with_step(step)


@mistake("layers/kda.py", "a token reads the state before its own write")
def read_before_the_write():
    def step(state, q, k, v, g, beta, *, scale=None):
        state = decay(state, g)
        return read(state, q, scale), write(state, k, v - recall(state, k), beta)
    return with_step(step)


@mistake("layers/kda.py", "the error is taken from the state before it decayed")
def error_from_the_undecayed_state():
    def step(state, q, k, v, g, beta, *, scale=None):
        state = write(decay(state, g), k, v - recall(state, k), beta)
        return read(state, q, scale), state
    return with_step(step)


@mistake("layers/kda.py", "K^-0.5 stands on the key too")
def scale_on_the_key_too():
    def step(state, q, k, v, g, beta, *, scale=None):
        return kda_step(state, q, k * k.shape[-1] ** -0.5, v, g, beta, scale=scale)
    return with_step(step)


# ---- KDA: what goes into the recurrence and what comes out

@mistake("layers/kda_attention.py", "one decay per head, the mean over its channels")
def one_scalar_decay():
    def scalar(self, x, per_channel=KimiDeltaAttention.decay):
        g = per_channel(self, x)
        return g.mean(-1, keepdim=True).expand_as(g)
    return [(KimiDeltaAttention, "decay", scalar)]


@mistake("layers/kda_attention.py", "dt_bias is added after the product with exp(A_log)")
def dt_bias_after_the_product():
    def late(self, x):
        z = self.f_b_proj(self.f_a_proj(x)).unflatten(-1, (self.config.num_heads, -1))
        return self.config.gate_lower_bound * torch.sigmoid(
            self.A_log.exp().unsqueeze(-1) * z + self.dt_bias.view(z.shape[-2:]))
    return [(KimiDeltaAttention, "decay", late)]


def with_inputs(convolve=short_convolution, activate=(F.silu, F.silu, F.silu), unit=(l2_norm, l2_norm)):
    """The layer's q, k, v with another convolution, other activations or other norms."""
    def inputs(self, x, cache=None, mask=None, documents=None):
        parts = (self.q_proj, self.k_proj, self.v_proj)
        projected = torch.cat([part(x) for part in parts], -1)
        if mask is not None:
            projected = projected * mask.unsqueeze(-1)
        taps = torch.cat([conv.weight for conv in (self.q_conv1d, self.k_conv1d, self.v_conv1d)])
        mixed, tail = convolve(projected, taps, None if cache is None else cache.tail, documents=documents)
        if cache is not None:
            cache.tail = tail.detach().clone()
        q, k, v = (act(z).unflatten(-1, (self.config.num_heads, -1)) for act, z in
                   zip(activate, mixed.split([part.out_features for part in parts], -1), strict=True))
        return unit[0](q), unit[1](k), v
    return [(KimiDeltaAttention, "queries_keys_values", inputs)]


@mistake("layers/kda_attention.py", "keys keep their length: the L2 norm on k is missing")
def no_unit_keys():
    return with_inputs(unit=(l2_norm, lambda k: k))


@mistake("layers/kda_attention.py", "SiLU is missing after the convolution of the queries")
def no_silu_on_queries():
    return with_inputs(activate=(lambda z: z, F.silu, F.silu))


@mistake("layers/kda_attention.py", "SiLU is missing after the convolution of the values")
def no_silu_on_values():
    return with_inputs(activate=(F.silu, F.silu, lambda z: z))


@mistake("layers/short_convolution.py", "the taps are reversed: the first one belongs to the current token")
def taps_reversed():
    def convolve(x, weight, tail=None, *, documents=None):
        return short_convolution(x, weight.flip(1), tail, documents=documents)
    return with_inputs(convolve)


@mistake("layers/kda_attention.py", "the output gate acts before the head norm")
def gate_before_the_head_norm():
    def forward(self, x, cache=None, *, mask=None, documents=None):
        q, k, v = self.queries_keys_values(x, cache, mask, documents)
        g, beta = self.decay(x), torch.sigmoid(self.b_proj(x))
        if mask is not None:
            g, beta = g * mask[..., None, None], beta * mask.unsqueeze(-1)
        o, state = kda_chunk(q, k, v, g, beta, None if cache is None else cache.state, documents=documents)
        if cache is not None:
            cache.state = state.detach()
        return self.o_proj(self.o_norm(o * torch.sigmoid(self.output_gate(x)).view_as(o)).flatten(2))
    return [(KimiDeltaAttention, "forward", forward)]


# ---- MLA

def with_attention(wrong):
    """Both forms of the latent attention are called by wrong(right form, q, latent, shared_key, w_kvb, mask)."""
    def changed(right):
        return lambda q, latent, shared_key, w_kvb, *, mask=None: wrong(right, q, latent, shared_key, w_kvb, mask)
    return [(mla_attention, right.__name__, changed(right)) for right in (mla_naive, mla_absorbed)]


@mistake("layers/mla.py", "the shared key slice and its part of the queries are rotated by position (RoPE)")
def rope_on_the_slice():
    def rotated(x, first):
        half = x.shape[-1] // 2
        position = torch.arange(first, first + x.shape[1], dtype=x.dtype).view(-1, *[1] * (x.dim() - 2))
        angle = position * 10_000.0 ** (-torch.arange(half, dtype=x.dtype) / max(half, 1))
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def attend(right, q, latent, shared_key, w_kvb, mask):
        n = q.shape[-1] - shared_key.shape[-1]
        turned = rotated(q[..., n:], latent.shape[1] - q.shape[1])
        return right(torch.cat([q[..., :n], turned], -1), latent, rotated(shared_key, 0), w_kvb, mask=mask)
    return with_attention(attend)


@mistake("layers/mla.py", "the shared key slice is dropped, and the scale is that of the rest")
def slice_dropped():
    def attend(right, q, latent, shared_key, w_kvb, mask):
        n = q.shape[-1] - shared_key.shape[-1]
        return right(q[..., :n], latent, shared_key[..., :0], w_kvb, mask=mask)
    return with_attention(attend)
