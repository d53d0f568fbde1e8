"""Faults in Kimi Delta Attention, its chunks and its convolution."""

import torch

from k3_scratch.course.faults.alive import kda_inputs, layer, normal
from k3_scratch.course.faults.fault import Table

KDA = Table()
ATTENTION, CONVOLUTION = "layers/kda_attention.py", "layers/short_convolution.py"

_UNFLATTEN = "        return z.unflatten(-1, (self.config.num_heads, self.config.kda_key_dim))\n"


@KDA.fault(
    id="one_scalar_decay", level=1, part="kda", technique="invariance", file=ATTENTION,
    what="all channels of a head forget alike: the logits of the decay are averaged over the channels",
    changes=((_UNFLATTEN, "        z = z.unflatten(-1, (self.config.num_heads, self.config.kda_key_dim))\n"
                          "        return z.mean(-1, keepdim=True).expand_as(z)\n"),))
def _one_scalar_decay(kit):
    part = layer(kit, "kda")
    with torch.no_grad():
        part.A_log.zero_()                                               # where the bias is added does not matter then
    return part.decay(normal(1, 2, 5, 24))


@KDA.fault(
    id="no_unit_keys", level=2, part="kda", technique="limits", file=ATTENTION,
    what="keys keep their length: the L2 norm is on the queries alone",
    changes=(("l2_norm(k.unflatten(-1, (H, K)), eps)", "k.unflatten(-1, (H, K))"),))
def _no_unit_keys(kit):
    return layer(kit, "kda").queries_keys_values(normal(1, 2, 5, 24))[1]


@KDA.fault(
    id="gate_before_the_head_norm", level=2, part="kda", technique="limits", file=ATTENTION,
    what="the output gate acts before the head norm, which takes most of it away again",
    changes=(("self.o_norm(o.to(x.dtype)) * torch.sigmoid(self.output_gate(x)).view_as(o)",
              "self.o_norm(o.to(x.dtype) * torch.sigmoid(self.output_gate(x)).view_as(o))"),))
def _gate_before_the_head_norm(kit):
    part = layer(kit, "kda", rms_norm_eps=1e-30)                         # one token: o is v times a number, whatever
    return part(normal(1, 3, 1, 24))                                     # keys and decays are; the norm takes it away


@KDA.fault(
    id="dt_bias_after_the_rate", level=4, part="kda", technique="liveness", file=ATTENTION,
    what="dt_bias is added after the product with exp(A_log): it should be multiplied too",
    changes=(('"""What `decay` bends into g, dt_bias added.                  ',
              '"""What `decay` bends into g.                                 '),
             ("        z = raised(self.f_b_proj(self.f_a_proj(x))) + self.dt_bias\n",
              "        z = raised(self.f_b_proj(self.f_a_proj(x)))\n"),
             ("        z = self.decay_logits(x)\n",
              "        rate, one = self.A_log.exp().unsqueeze(-1), torch.zeros_like(self.A_log)\n"
              "        z = rate * self.decay_logits(x) + self.dt_bias.view(self.config.num_heads, -1)\n"),
             ("return softplus_decay(z, self.A_log)", "return softplus_decay(z, one)"),
             ("return bounded_decay(z, self.A_log, self.config.gate_lower_bound)",
              "return bounded_decay(z, one, self.config.gate_lower_bound)")))
def _dt_bias_after_the_rate(kit):
    part = layer(kit, "kda")
    with torch.no_grad():                                                # all channels of a head alike
        part.dt_bias.copy_(part.dt_bias[:2].repeat_interleave(8))
        part.f_b_proj.weight.copy_(part.f_b_proj.weight[:2].repeat_interleave(8, 0))
    return part.decay(normal(1, 2, 5, 24))


@KDA.fault(
    id="pads_in_the_convolution", level=3, part="masks", technique="padded", file=ATTENTION,
    what="pads enter the short convolution: the first tokens of a padded row see them",
    changes=(("        if mask is not None:\n            projected = projected * mask.unsqueeze(-1)\n", ""),))
def _pads_in_the_convolution(kit):
    mask = torch.tensor([[False, False, True, True, True], [True] * 5])
    return layer(kit, "kda").queries_keys_values(normal(1, 2, 5, 24), mask=mask)[2][mask]


@KDA.fault(
    id="read_before_the_write", level=3, part="kda", technique="two_forms", file="layers/kda.py",
    what="in the step form a token reads before it writes, so it does not see its own value",
    changes=(("    state = state + (beta.unsqueeze(-1) * k).unsqueeze(-1) * error.unsqueeze(-2)\n"
              "    return (scale * q.unsqueeze(-2) @ state).squeeze(-2), state\n",
              "    o = (scale * q.unsqueeze(-2) @ state).squeeze(-2)                    #              [B, H, V]\n"
              "    return o, state + (beta.unsqueeze(-1) * k).unsqueeze(-1) * error.unsqueeze(-2)\n"),
             ('    """One token: decay, then erase and write, then read.\n', '    """One token.\n'),
             ("and nowhere else; the read comes after the write. Inputs", "and nowhere else. Inputs")))
def _read_before_the_write(kit):
    q, k, v, g, beta, state = kda_inputs(T=1)
    return kit.layers.kda.kda_step(state, *(x[:, 0] for x in (q, k, v, 0 * g, beta)))[0]


@KDA.fault(
    id="error_from_the_undecayed_state", level=4, part="kda", technique="two_forms", file="layers/kda.py",
    what="in the step form the error is taken from the state before it decays: hardly visible while decay is gentle",
    changes=(("    state = g.exp().unsqueeze(-1) * state                                # decay            "
              "[B, H, K, V]\n"
              "    error = v - (k.unsqueeze(-2) @ state).squeeze(-2)                    # what v is not yet     "
              "[B, H, V]\n",
              "    error = v - (k.unsqueeze(-2) @ state).squeeze(-2)                    # what v is not yet     "
              "[B, H, V]\n"
              "    state = g.exp().unsqueeze(-1) * state                                # decay            "
              "[B, H, K, V]\n"),))
def _error_from_the_undecayed_state(kit):
    q, k, v, g, beta, state = kda_inputs(T=1)
    return kit.layers.kda.kda_step(state, *(x[:, 0] for x in (q, k, v, g, beta)))[1]


@KDA.fault(
    id="no_erase_across_chunks", level=4, part="chunk", technique="two_forms", file="layers/kda_scan.py",
    what="what earlier chunks have written is never erased: only inside a chunk is the error taken",
    changes=(("            torch.baddbmm(U_n, W_n, now, alpha=-1, out=out)\n", "            out.copy_(U_n)\n"),
             ('    """V~_n = U_n - W_n S_n;  S_{n+1}', '    """V~_n;  S_{n+1}')))
def _no_erase_across_chunks(kit):
    return kit.layers.kda_chunk.kda_chunk(*kda_inputs("gentle"), chunk=8)


@KDA.fault(
    id="gradient_of_the_solve", level=5, part="chunk", technique="gradients", file="layers/kda_solve.py",
    what="the backward pass of the triangular solve has the wrong sign for L: d_L = -d_R X^T",
    changes=(("        d_L = (d_right @ solved.mT).tril_(-1).neg_()\n",
              "        d_L = (d_right @ solved.mT).tril_(-1)\n"),
             ("d_R = (I + L)^-T d_X and d_L = -d_R X^T below the diagonal.", "d_R = (I + L)^-T d_X.")))
def _gradient_of_the_solve(kit):
    k = kda_inputs("repeated", T=9)[1].clone().requires_grad_()
    q, _, v, g, beta, state = kda_inputs("repeated", T=9)
    return torch.autograd.grad(kit.layers.kda_chunk.kda_chunk(q, k, v, g, beta, state)[0].square().sum(), k)[0]


@KDA.fault(
    id="split_out_of_range", level=5, part="chunk", technique="regimes", file="layers/kda_tiles.py",
    what="the centred split is allowed up to e^700, which float64 holds and float32 does not: strong decay overflows",
    changes=(("LARGEST_EXPONENT = 80.0   # e^80 is still far from float32's largest number, about e^88",
              "LARGEST_EXPONENT = 700.0  # e^700 is still far from the largest number, about e^709"),
             ("keeps both factors below e^80. ", "keeps both factors in range.   ")))
def _split_out_of_range(kit):
    q, k, v, g, beta, state = (x.float() for x in kda_inputs())
    return kit.layers.kda_chunk.kda_chunk(q, k, v, 0 * g - 20.0, beta, state, chunk=32)


@KDA.fault(
    id="document_leaves_its_keys", level=5, part="documents", technique="packed", file="layers/kda_chunk.py",
    what="keys of a document that ends inside a chunk get into the state of the next chunk",
    changes=(("        q_in, k_in, k_end = q_in * entering, k_in * entering, k_end * leaving\n",
              "        q_in, k_in = q_in * entering, k_in * entering\n"),))
def _document_leaves_its_keys(kit):
    q, k, v, g, beta, _ = kda_inputs("gentle", T=21)
    documents = torch.tensor([[0] * 5 + [1] * 16, [0] * 21])
    return kit.layers.kda_chunk.kda_chunk(q, k, v, g, beta, chunk=8, documents=documents)


@KDA.fault(
    id="taps_reversed", level=2, part="convolution", technique="paper", file=CONVOLUTION,
    what="the taps are reversed: the first one belongs to the current token, in every form of the convolution",
    changes=(("weight.t().flip(0).contiguous()", "weight.t().contiguous()"),
             ("torch.stack(d_taps[::-1], 1)", "torch.stack(d_taps, 1)"),
             ("(seen * weight.mT).sum(1, keepdim=True)", "(seen * weight.flip(1).mT).sum(1, keepdim=True)"),
             ('"""y_t = sum over `back` of weight[:, -1 - back] * x_{t - back}, and',
              '"""y_t = sum over `back` of a tap times x_{t - back}, and')))
def _taps_reversed(kit):
    return kit.layers.short_convolution.short_convolution(normal(0, 2, 6, 3), normal(1, 3, 4))[0]


@KDA.fault(
    id="tail_loses_the_newest", level=3, part="cache", technique="cached", file=CONVOLUTION,
    what="while decoding, the convolution's tail drops the newest input in place of the oldest",
    changes=(("(seen * weight.mT).sum(1, keepdim=True), seen[:, 1:]",
              "(seen * weight.mT).sum(1, keepdim=True), seen[:, :-1]"),))
def _tail_loses_the_newest(kit):
    return kit.layers.short_convolution.short_convolution(normal(0, 2, 1, 3), normal(1, 3, 4), normal(2, 2, 3, 3))[1]
