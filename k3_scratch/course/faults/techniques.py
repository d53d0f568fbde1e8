"""The techniques of the course, each a set of questions to a kit; a fault is seen when one of them is answered no."""

import torch

from k3_scratch.course.faults import properties as p
from k3_scratch.course.faults.alive import alive, kda_inputs, layer, normal, tokens
from k3_scratch.course.faults.properties import close

# ---- two forms of one thing


def steps_and_chunks(kit):
    """Token by token = in chunks of several lengths, for gentle and strong decay and repeated keys."""
    for regime in ("gentle", "strong", "repeated"):
        inputs = kda_inputs(regime)
        o, state = kit.layers.kda.kda_recurrent(*inputs)
        for chunk in (1, 8, 37):
            other = kit.layers.kda_chunk.kda_chunk(*inputs, chunk=chunk)
            if not (close(other[0], o) and close(other[1], state)):
                return False
    return True


def naive_and_absorbed(kit):
    """Latent attention with its keys written out = folded into the queries, for the last 5 and 1 of 5 positions."""
    q, latent, shared, w = normal(0, 2, 5, 3, 6), normal(1, 2, 5, 7), normal(2, 2, 5, 2), normal(3, 3, 4 + 3, 7)
    naive, absorbed = kit.layers.mla.mla_naive, kit.layers.mla.mla_absorbed
    return close(naive(q, latent, shared, w), absorbed(q, latent, shared, w)) and \
        close(naive(q[:, -1:], latent, shared, w), absorbed(q[:, -1:], latent, shared, w))


def many_tokens_and_one(kit):
    """Five tokens through the experts at once = one after the other."""
    part, x = layer(kit, "moe"), normal(1, 1, 5, 24)
    return close(part(x), torch.cat([part(x[:, t:t + 1]) for t in range(5)], 1))


def one_phase_and_two(kit):
    """Depth scores in one pass = the bank first, the growing sum after it."""
    depth, phases = kit.layers.attention_residuals, kit.layers.two_phase
    sources, query, weight = normal(1, 3, 2, 5, 7), normal(2, 7), normal(3, 7)
    log_total, mean = phases.bank_phase(sources[:2], query[None], weight[None])
    merged = phases.merge_phase(log_total[0], mean[0], sources[2], query, weight)
    return close(merged, depth.depth_mix(sources, query, weight)[0])


# ---- two regimes

def strongest_decay_in_float32(kit):
    """At g = -20 the chunk form stays finite and equal to the steps, in float32 too."""
    q, k, v, g, beta, state = (x.float() for x in kda_inputs())
    g = torch.full_like(g, -20.0)
    want, came = kit.layers.kda.kda_recurrent(q, k, v, g, beta, state), \
        kit.layers.kda_chunk.kda_chunk(q, k, v, g, beta, state, chunk=32)
    return close(came[0], want[0], 1e-4) and close(came[1], want[1], 1e-4)


def close_scores_in_bfloat16(kit):
    """Two experts whose scores differ by less than bfloat16 shows: the router still tells them apart."""
    x, w = torch.tensor([[1.0, 2.0 ** -9]]).bfloat16(), torch.tensor([[1.0, 1.0], [1.0, 0.0]]).bfloat16()
    return kit.layers.router.route(x, w, torch.tensor([0.0, 2.0 ** -13]), 1)[0].item() == 0


# ---- with a cache = without it

def pieces(model, ids, lengths, cache):
    """Logits of one call after the other, `lengths` tokens each."""
    return torch.cat([model(piece, cache) for piece in ids.split(lengths, 1)], 1)


@torch.no_grad()
def prompt_in_pieces(kit):
    """A prompt at once = in pieces, down to single tokens."""
    model, ids = alive(kit), tokens(1, 2, 9)
    want = model(ids)
    return all(close(pieces(model, ids, lengths, model.new_cache(2)), want)
               for lengths in ([4, 2, 1, 1, 1], [1] * 9))


@torch.no_grad()
def conversations(kit):
    """Copies go on by themselves, a snapshot is good twice, and a cache that was reset is a new one."""
    model, ids = alive(kit), tokens(1, 1, 6)
    want = model(ids)[:, 4:]
    cache = model.new_cache(1)
    model(ids[:, :4], cache)
    snapshot, copies = cache.snapshot(), [cache.clone(), cache.clone()]
    for other, seed in zip(copies, (2, 3), strict=True):
        model(tokens(seed, 1, 2), other)
    answers = [model(ids[:, 4:], cache)]
    for _ in range(2):
        cache.restore(snapshot)
        answers.append(model(ids[:, 4:], cache))
    talks = [cache.clone() for _ in range(2)]
    for talk in talks:
        talk.restore(snapshot)
    said = [model(tokens(seed, 1, 1), talk) for seed, talk in zip((2, 3), talks, strict=True)]
    said = [torch.cat([one, model(tokens(seed, 1, 1), talk)], 1)
            for one, seed, talk in zip(said, (4, 5), talks, strict=True)]
    alone = [model(torch.cat([ids[:, :4], tokens(a, 1, 1), tokens(b, 1, 1)], 1))[:, 4:] for a, b in ((2, 4), (3, 5))]
    cache.reset()
    answers.append(torch.cat([model(ids[:, :4], cache), model(ids[:, 4:], cache)], 1)[:, 4:])
    return all(close(answer, want) for answer in answers) and all(map(close, said, alone))


# ---- causality, permutation, packing, padding

def the_future_changes_nothing(kit):
    """Another token 6 leaves the logits before it as they were."""
    model, ids = alive(kit), tokens(1, 2, 9)
    other = ids.clone()
    other[:, 6] = (other[:, 6] + 1) % 23
    one, changed = model(ids), model(other)
    return close(one[:, :6], changed[:, :6]) and not close(one[:, 6:], changed[:, 6:])


def attention_sees_a_set(kit):
    """The latent attention's last output does not depend on the order of what came before; KDA's does."""
    x, order = normal(1, 2, 7, 24), [3, 0, 5, 1, 4, 2, 6]
    mla, kda = layer(kit, "mla"), layer(kit, "kda")
    return close(mla(x)[:, -1], mla(x[:, order])[:, -1]) and not close(kda(x)[:, -1], kda(x[:, order])[:, -1])


def packed_is_alone(kit):
    """Documents in one row = each alone; the third has the number of the first."""
    model, ids, lengths = alive(kit), tokens(1, 1, 50), [21, 3, 26]
    numbers = torch.repeat_interleave(torch.tensor([4, 7, 4]), torch.tensor(lengths))[None]
    alone = torch.cat([model(part) for part in ids.split(lengths, 1)], 1)
    return close(model(ids, documents=numbers), alone)


@torch.no_grad()
def padded_is_alone(kit):
    """A row with pads before it = the same row without, at once and going on with a cache; prompts written together."""
    model, ids, pads = alive(kit), tokens(1, 1, 9), 4
    padded = torch.cat([tokens(2, 1, pads), ids], 1)
    mask = torch.arange(9 + pads)[None] >= pads
    want, cache = model(ids), model.new_cache(1)
    fed = [model(padded[:, :6 + pads], cache, mask=mask[:, :6 + pads])]
    fed += [model(ids[:, t:t + 1], cache) for t in range(6, 9)]
    one, other = ids[0].tolist(), ids[0, :5].tolist()
    written = kit.generate.generate(model, [one, other], 3)
    return close(model(padded, mask=mask)[:, pads:], want) and close(torch.cat(fed, 1)[:, pads:], want) and \
        written == [kit.generate.generate(model, prompt, 3) for prompt in (one, other)]


TECHNIQUES = {
    "paper": (p.situ_on_paper, p.last_tap_is_now, p.balance_on_paper),
    "limits": (p.norm_has_size_one, p.keys_have_length_one, p.half_a_gate_halves, p.situ_reaches_its_bound,
               p.weights_sum_to_the_scale, p.balancing_evens_the_load, p.a_new_block_begins_empty,
               p.every_update_counts, p.still_vectors_stay),
    "invariance": (p.a_bias_for_all_chooses_nobody, p.size_of_the_experts, p.training_mode, p.another_channels_bias,
                   p.another_heads_gradient),
    "liveness": (p.every_parameter_matters, p.every_row_of_the_latents_matters, p.the_rate_matters_for_a_zero_input,
                 p.every_eps_matters),
    "two_forms": (steps_and_chunks, naive_and_absorbed, many_tokens_and_one, one_phase_and_two),
    "regimes": (strongest_decay_in_float32, close_scores_in_bfloat16),
    "cached": (prompt_in_pieces, conversations),
    "causality": (the_future_changes_nothing,),
    "permutation": (attention_sees_a_set,),
    "packed": (packed_is_alone,),
    "padded": (padded_is_alone,),
    "gradients": (p.gradient_of_the_chunk_form, p.gradients_of_the_small_parts),
    "counts": (p.parameters_are_counted, p.blocks_are_counted, p.visits_are_counted_once),
}


def sees(technique, kit):
    """Does a technique find something wrong with a kit? What it stops with counts as found."""
    for question in TECHNIQUES[technique]:
        try:
            if not question(kit):
                return True
        except Exception:
            return True
    return False


UPDATES = 6


def shapes_only(kit):
    """What a weak test asks: shapes, finite numbers, and a loss that falls in a few updates.       -> is all well?"""
    model, ids = kit.model.K3(kit.config.preset("nano").replace(vocab_size=23)), tokens(1, 3, 12)
    optimizers = kit.training.muon.make_optimizers(model, 5e-3)
    losses = []
    for step in range(UPDATES):
        logits = model(ids[:, :-1])
        if logits.shape != (3, 11, 23) or not torch.isfinite(logits).all():
            return False
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        losses.append(loss.item())
        loss.backward()
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = kit.training.schedule.learning_rate(step, UPDATES, 5e-3)
            optimizer.step()
            optimizer.zero_grad()
        model.balance()
    with torch.no_grad():
        cache = model.eval().new_cache(3)
        shapes = [model(piece, cache).shape for piece in ids.split([7, 1, 4], 1)]
    return shapes == [(3, 7, 23), (3, 1, 23), (3, 4, 23)] and losses[-1] < 0.99 * losses[0]
