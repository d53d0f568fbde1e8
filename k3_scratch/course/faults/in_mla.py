"""Faults in the latent attention and what it caches."""

import torch

from k3_scratch.course.faults.alive import layer, normal, small
from k3_scratch.course.faults.fault import Table

MLA = Table()
LAYER, OPERATOR = "layers/mla_attention.py", "layers/mla.py"

_LATENTS = "        latent, shared_key = self.latents(x)                             # [B, T, R], [B, T, r]\n"
_TURNED = '''

def _places(x, start):
    """Pairs of channels of x [B, T, ..., r], each turned in its plane."""
    half = x.shape[-1] // 2
    at = torch.arange(start, start + x.shape[1], dtype=x.dtype, device=x.device).view(-1, *[1] * (x.dim() - 2))
    angle = at * 10_000.0 ** (-torch.arange(half, dtype=x.dtype, device=x.device) / max(half, 1))
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)
'''
_IMPORTS = "from .mla import mla_absorbed, mla_naive\nfrom .rms_norm import RMSNorm\n"


@MLA.fault(
    id="rope_on_the_slice", level=1, part="mla", technique="permutation", file=LAYER,
    what="the shared key slice and its part of the queries are turned by position (RoPE); in K3 nothing is",
    changes=((_IMPORTS, _IMPORTS + _TURNED),
             (_LATENTS, _LATENTS + "        n = self.config.qk_nope_head_dim\n"
                                   "        start = 0 if cache is None else cache.length\n"
                                   "        shared_key = _places(shared_key, start)\n"
                                   "        q = torch.cat([q[..., :n], _places(q[..., n:], start)], -1)\n")))
def _rope_on_the_slice(kit):
    return layer(kit, "mla", latent_norm_eps=1e-5)(normal(1, 2, 7, 24))


@MLA.fault(
    id="documents_see_each_other", level=2, part="documents", technique="packed", file=LAYER,
    what="the latent attention takes no notice of `documents`: packed texts see each other",
    changes=(("    if documents is not None:\n"
              "        together = documents.unsqueeze(-1) == documents.unsqueeze(1)\n"
              "        seen = together if seen is None else seen & together\n", ""),))
def _documents_see_each_other(kit):
    part, x, documents = layer(kit, "mla"), normal(1, 2, 6, 24), torch.tensor([[0, 0, 1, 1, 1, 2]] * 2)
    return part(x, documents=documents)[:, 2] - part(x[:, 2:3])[:, 0]    # the first of its document sees itself alone


@MLA.fault(
    id="copies_share_their_rows", level=3, part="cache", technique="cached", file=LAYER,
    what="a copy of an MLA cache shares its rows: two conversations write into one memory",
    changes=(("other.rows, other.real = self.rows.clone(), self.real.clone()",
              "other.rows, other.real = self.rows, self.real"),))
def _copies_share_their_rows(kit):
    cache = kit.layers.mla_attention.MLACache(small(kit), 1, torch.float64, "cpu")
    cache.append(normal(0, 1, 3, 16), None)
    other = cache.clone()
    other.append(normal(1, 1, 2, 16), None)
    cache.append(normal(2, 1, 2, 16), None)
    return other.rows[:, :other.length]


@MLA.fault(
    id="pads_come_back", level=4, part="masks", technique="padded", file=LAYER,
    what="a call without a mask makes every earlier pad visible: padded rows go wrong at the second written token",
    changes=(("        self.real[:, start:self.length] = True if mask is None else mask\n",
              "        if mask is None:\n"
              "            self.real[:, :self.length] = True\n"
              "        else:\n"
              "            self.real[:, start:self.length] = mask\n"),))
def _pads_come_back(kit):
    cache = kit.layers.mla_attention.MLACache(small(kit), 1, torch.float64, "cpu")
    cache.append(normal(0, 1, 3, 16), torch.tensor([[False, False, True]]))
    return cache.append(normal(1, 1, 1, 16), None)[2]


@MLA.fault(
    id="eps_of_another_norm", level=5, part="norms", technique="liveness", file=LAYER,
    what="the norm of the latent takes the eps of the model's norms, 1e-5, in place of its own, 1e-6",
    changes=(("self.kv_a_layernorm = RMSNorm(config.kv_lora_rank, config.latent_norm_eps)",
              "self.kv_a_layernorm = RMSNorm(config.kv_lora_rank, config.rms_norm_eps)"),))
def _eps_of_another_norm(kit):
    return layer(kit, "mla", latent_norm_eps=0.3).latents(normal(1, 2, 5, 24))[0]


@MLA.fault(
    id="slice_dropped", level=2, part="mla", technique="liveness", file=OPERATOR,
    what="the key slice that all heads share is dropped, and the scale is that of what is left",
    changes=(("    k_shared = shared_key.to(wide.dtype).unsqueeze(1).expand(-1, q.shape[2], -1, -1)\n"
              "    k = torch.cat([k_latent, k_shared], -1)                              # [B, H, S, Q]\n"
              "    o = _attend(wide.transpose(1, 2), k, v, mask)\n",
              "    o = _attend(wide[..., :n].transpose(1, 2), k_latent, v, mask)\n"),
             (" @ latent.mT + wide[..., n:].flatten(1, 2) @ shared_key.mT  # [B, T *",
              " @ latent.mT                          # [B, T *"),
             ("scores.unflatten(1, (T, H)) * q.shape[-1] ** -0.5", "scores.unflatten(1, (T, H)) * n ** -0.5")))
def _slice_dropped(kit):
    arguments = normal(0, 2, 5, 3, 6), normal(1, 2, 5, 7), normal(2, 2, 5, 2), normal(3, 3, 4 + 3, 7)
    return kit.layers.mla.mla_naive(*arguments)


@MLA.fault(
    id="cache_hidden_from_a_piece", level=3, part="masks", technique="cached", file=OPERATOR,
    what="several tokens after a cache count their places from 0: the causal mask hides most of the cache from them",
    changes=(("    positions, queries = torch.arange(S, device=device), torch.arange(S - T, S, device=device)"
              ".unsqueeze(-1)\n",
              "    positions, queries = torch.arange(S, device=device), torch.arange(T, device=device)"
              ".unsqueeze(-1)\n"),))
def _cache_hidden_from_a_piece(kit):
    q = torch.zeros(1, 2, 3, 6, dtype=torch.float64)
    return kit.layers.mla.mla_absorbed(q, normal(1, 1, 5, 7), normal(2, 1, 5, 2), normal(3, 3, 4 + 3, 7))
