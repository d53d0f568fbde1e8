"""Single questions to a kit, each True for a healthy one. None of them knows the package's own numbers.

They are put together into techniques in `techniques.py`.
"""

import torch

from k3_scratch.accounting import count_parameters
from k3_scratch.config import K3Config
from k3_scratch.course.faults.alive import alive, kda_inputs, layer, normal, small, tokens
from k3_scratch.course.faults.in_model import key_update, seals, silence, still_step


def close(one, other, tolerance=1e-9):
    """Equal up to rounding; nan and inf are equal to nothing."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=tolerance, atol=tolerance)


# ---- a case for paper

def situ_on_paper(kit):
    """SiTU(4, 25) = 56.9593, SiTU(-3, 5) = -.594544."""
    act = kit.layers.situ.activation(small(kit))
    came = act(torch.tensor([4.0, -3.0]).double(), torch.tensor([25.0, 5.0]).double())
    return close(came, torch.tensor([56.9593, -0.594544]).double(), 1e-5)


def last_tap_is_now(kit):
    """A convolution with the taps 0 0 0 1 changes nothing, for many tokens and for one."""
    x, taps = normal(1, 2, 6, 3), torch.tensor([[0.0, 0.0, 0.0, 1.0]] * 3).double()
    convolve = kit.layers.short_convolution.short_convolution
    return close(convolve(x, taps)[0], x) and close(convolve(x[:, :1], taps, normal(2, 2, 3, 3))[0], x[:, :1])


SCORES = torch.tensor([[.94, .55, .07, .35], [.60, .42, .51, .02], [.06, .62, .02, .52], [.34, .81, .23, .12],
                       [.75, .53, .22, .40], [.55, .10, .61, .14], [.69, .45, .14, .56], [.67, .85, .09, .51]]).double()


def balance_on_paper(kit):
    """Eight tokens, four experts, one each: the worked example of chapter 05."""
    new = kit.layers.quantile_balancing.quantile_bias(SCORES, torch.zeros(4).double(), 1)
    return close(new, torch.tensor([-0.1325, -0.1025, 0.1075, 0.1275]).double(), 1e-6)


# ---- limits

def norm_has_size_one(kit):
    """What leaves RMSNorm with a weight of one has a mean square of one."""
    y = kit.layers.rms_norm.rms_norm(3 * normal(1, 5, 7), torch.ones(7).double(), 1e-12)
    return close(y.square().mean(-1), torch.ones(5).double())


def keys_have_length_one(kit):
    """Queries and keys of the KDA layer."""
    q, k, _ = layer(kit, "kda", l2_norm_eps=1e-12).queries_keys_values(normal(1, 2, 5, 24))
    return all(close(x.norm(dim=-1), torch.ones_like(x[..., 0]), 1e-6) for x in (q, k))


def half_a_gate_halves(kit):
    """The output of KDA with its gate at one half is half of that with an open gate."""
    part, x, outputs = layer(kit, "kda"), normal(1, 2, 5, 24), []
    for logit in (0.0, 60.0):
        part.output_gate = lambda x, logit=logit: torch.full((*x.shape[:-1], 20), logit, dtype=x.dtype)
        outputs.append(part(x))
    return close(2 * outputs[0], outputs[1])


def situ_reaches_its_bound(kit):
    """For huge arguments SiTU is the product of its bounds, 100."""
    huge = torch.full((1,), 1e4).double()
    return close(kit.layers.situ.activation(small(kit))(huge, huge), 0 * huge + 100)


def weights_sum_to_the_scale(kit):
    """Mixing weights of a router with a scale of 2.5."""
    weights = kit.layers.router.route(normal(1, 5, 7), normal(2, 6, 7), torch.zeros(6).double(), 2, 2.5)[1]
    return close(weights.sum(-1), torch.full((5,), 2.5).double())


def balancing_evens_the_load(kit):
    """A few updates on one set of scores: the fullest expert gets less than it had."""
    scores, bias = normal(1, 40, 6).add(torch.arange(6)).sigmoid(), torch.zeros(6).double()
    fullest = []
    for _ in range(5):
        chosen = (scores + bias).topk(2, -1).indices
        fullest.append(torch.bincount(chosen.flatten(), minlength=6).max())
        bias = kit.layers.quantile_balancing.quantile_bias(scores, bias, 2)
    return bool(fullest[-1] < fullest[0])


def a_new_block_begins_empty(kit):
    """Where a block ends and the sublayers are silent, nothing is left in the running sum."""
    block, depth = silence(alive(kit, attn_res_block_size=1)).layers[1], kit.layers.attention_residuals
    _, h = block(depth.Bank([depth.Source(normal(1, 2, 5, 24), 1e-5)]), normal(2, 2, 5, 24))
    return close(h, 0 * h)


def every_update_counts(kit):
    """The warm-up rises from above zero to the peak."""
    rates = [kit.training.schedule.learning_rate(step, 50, 3e-3, 0.1) for step in range(5)]
    return 0 < rates[0] < rates[-1] == max(rates) == 3e-3


def still_vectors_stay(kit):
    """A vector without a gradient does not move."""
    return all(close(change, 0 * change) for change in still_step(kit, alive(kit, num_layers=1)).values())


# ---- what must not matter

def a_bias_for_all_chooses_nobody(kit):
    """The same number added to every selection bias changes no choice and no weight."""
    x, w, bias = normal(1, 5, 7), normal(2, 6, 7), 0.1 * normal(3, 6)
    one, other = (kit.layers.router.route(x, w, bias + shift, 2)[:2] for shift in (0.0, 0.7))
    return torch.equal(one[0], other[0]) and close(one[1], other[1])


def size_of_the_experts(kit):
    """Experts ten times as loud sound the same after the norm on their sum."""
    x, outputs = normal(1, 2, 5, 24), []
    for factor in (1.0, 10.0):
        part = layer(kit, "moe", num_shared_experts=0, rms_norm_eps=1e-30)
        with torch.no_grad():
            part.experts.w2.mul_(factor)
        outputs.append(part(x))
    return close(*outputs)


def training_mode(kit):
    """A forward pass in training gives the numbers of evaluation and changes no bias."""
    part, x = layer(kit, "moe"), normal(1, 2, 5, 24)
    bias, want = part.gate.e_score_correction_bias.clone(), part(x)
    came = part.train()(x)
    return close(came, want) and torch.equal(bias, part.gate.e_score_correction_bias)


def another_channels_bias(kit):
    """The bias of one decay channel moves no other channel."""
    part, x = layer(kit, "kda"), normal(1, 2, 5, 24)
    before = part.decay(x).detach()
    with torch.no_grad():
        part.dt_bias[3] += 1.0
    moved = (part.decay(x).detach() - before).abs().amax((0, 1)).flatten() > 1e-12
    return moved.tolist() == [channel == 3 for channel in range(len(moved))]


def another_heads_gradient(kit):
    """A head's update does not depend on how large another head's gradient is."""
    return close(key_update(kit, 1.0)[8:], key_update(kit, 1000.0)[8:], 1e-6)


# ---- everything must matter

def every_parameter_matters(kit):
    """In a live model each parameter has a gradient that is not zero."""
    model, ids = alive(kit), tokens(1, 2, 40)
    loss = (model(ids) * normal(2, 2, 40, 23)).sum()
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    dead = [name for name, g in zip(names, gradients, strict=True) if g is None or not g.any()]
    return dead == ["layers.0.self_attention_res.query", "layers.0.self_attention_res.weight"]  # one source: no choice


def every_row_of_the_latents_matters(kit):
    """Each channel of what is cached has a gradient, the shared slice among them."""
    part = layer(kit, "mla")
    weight = part.kv_a_proj_with_mqa.weight
    gradient, = torch.autograd.grad((part(normal(1, 2, 7, 24)) * normal(2, 2, 7, 24)).sum(), weight)
    return bool((gradient.abs().amax(1) > 1e-9).all())


def the_rate_matters_for_a_zero_input(kit):
    """With x = 0 only dt_bias is left in the logits, and A_log must still scale it."""
    part = layer(kit, "kda")
    gradient, = torch.autograd.grad(part.decay(torch.zeros(1, 2, 24).double()).sum(), part.A_log)
    return bool((gradient.abs() > 1e-6).all())


def every_eps_matters(kit):
    """Each eps of the configuration, made large, changes the logits."""
    ids = tokens(1, 2, 9)
    want = alive(kit)(ids)
    names = ("rms_norm_eps", "l2_norm_eps", "latent_norm_eps")
    norms = all((alive(kit, **{name: 0.5})(ids) - want).abs().max() > 1e-6 for name in names)
    x = normal(1, 2, 5, 24)
    latents = [layer(kit, "mla", latent_norm_eps=eps).latents(x)[0] for eps in (1e-6, 0.5)]
    return norms and not close(*latents)


# ---- counting

def parameters_are_counted(kit):
    """Parameters of a small model by its sizes, and the layers of K3 and Kimi Linear that are MLA."""
    config = small(kit)
    built = sum(p.numel() for p in kit.model.K3(config).parameters())
    biases = config.num_experts * (config.num_layers - config.first_k_dense)             # buffers
    K3 = K3Config.from_dict(kit.config.preset("kimi_k3").to_dict())
    return (built + biases == count_parameters(K3Config.from_dict(config.to_dict())).total
            and count_parameters(K3).total == 2_779_484_476_000)


def blocks_are_counted(kit):
    """13 layers in blocks of 3 bank 5 vectors; 4 layers in blocks of 3 bank 2."""
    return seals(kit, 13, 3) == 5 and seals(kit, 4, 3) == 2


def visits_are_counted_once(kit):
    """After a pass that is repeated for its gradient each token has made k visits."""
    model = alive(kit).train()
    model.recompute = True
    model(tokens(1, 2, 9)).sum().backward()
    return all(moe.expert_counts.sum() == 2 * 9 * 2 for moe in model.moe_layers().values())


# ---- gradients by hand

def gradients_of(function, *arguments):
    """Is the gradient of each argument that of finite differences?"""
    leaves = [argument.clone().requires_grad_() for argument in arguments]
    return torch.autograd.gradcheck(function, leaves, eps=1e-6, atol=1e-6, rtol=1e-5, raise_exception=False)


def gradient_of_the_chunk_form(kit):
    """Two chunks and a half, one head."""
    inputs = kda_inputs("repeated", T=5, B=1, H=1, K=3, V=2)
    return gradients_of(lambda *a: kit.layers.kda_chunk.kda_chunk(*a, chunk=2), *inputs)


def gradients_of_the_small_parts(kit):
    """Norm, activation, decay, convolution, keys, mix over depth."""
    parts, depth = kit.layers, kit.layers.attention_residuals

    class Config:
        hidden_size = 4
    mix = depth.DepthMix(Config).double()

    def read(query, weight, *vectors):
        return torch.func.functional_call(mix, {"query": query, "weight": weight},
                                          ([depth.Source(v, 1e-5) for v in vectors],))
    return (gradients_of(lambda x, w: parts.rms_norm.rms_norm(x, w, 1e-5), normal(1, 3, 4), normal(2, 4))
            and gradients_of(lambda g, u: parts.situ.situ_glu(g, u, 4.0, 25.0), 3 * normal(1, 5), 20 * normal(2, 5))
            and gradients_of(lambda z, a: parts.decay_gates.bounded_decay(z, a), normal(1, 3, 2, 4), normal(2, 2))
            and gradients_of(lambda x, w: parts.short_convolution.short_convolution(x, w)[0], normal(1, 1, 5, 2),
                             normal(2, 2, 4))
            and gradients_of(parts.unit_keys.l2_norm, normal(1, 3, 4))
            and gradients_of(read, normal(1, 4), normal(2, 4), normal(3, 1, 3, 4), normal(4, 1, 3, 4)))
