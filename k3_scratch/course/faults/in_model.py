"""Faults over depth, in norms, head, configuration, caches, documents and training."""

import torch

from k3_scratch.course.faults.alive import alive, layer, normal, small, tokens
from k3_scratch.course.faults.fault import Table

MODEL = Table()
FILE, NORM, MUON = "model.py", "layers/rms_norm.py", "training/muon.py"


def silence(model):
    """Every sublayer writes nothing, in place: only the embedding is left in the stream."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", "routed_expert_up_proj.weight")) and \
                    "routed_expert_down" not in name:
                parameter.zero_()
    return model


@MODEL.fault(
    id="no_mix_at_the_output", level=1, part="residuals", technique="liveness", file=FILE,
    what="the head reads the running sum of the last block, without the last mix over depth",
    changes=(("        if self.config.attn_res_block_size is not None:\n"
              "            h = bank.read(self.output_attn_res, Source(h, self.config.rms_norm_eps))\n", ""),
             ('"""What the head reads: the last mix over depth, normed; arguments as `forward`.            ',
              '"""What the head reads, normed; arguments as `forward`.                                      ')))
def _no_mix_at_the_output(kit):
    return silence(alive(kit, rms_norm_eps=1e-30)).hidden(tokens(0, 2, 5))


@MODEL.fault(
    id="ffn_blind_to_its_attention", level=1, part="residuals", technique="liveness", file=FILE,
    what="the FFN reads what its layer's attention had read, and not what the attention has added",
    changes=(("        m = bank.read(self.mlp_res, Source(h, self.eps))                 # the FFN sees its own layer's "
              "attention\n", "        m = a\n"),))
def _ffn_blind_to_its_attention(kit):
    block = alive(kit).layers[1]
    source = kit.layers.attention_residuals.Source(normal(1, 2, 5, 24), 1e-5)
    return block(kit.layers.attention_residuals.Bank([source]), normal(2, 2, 5, 24))[1]


@MODEL.fault(
    id="blocks_end_early", level=2, part="residuals", technique="counts", file=FILE,
    what="blocks end one layer early: the number of the next layer is asked, so the embedding is no source of its own",
    changes=(("self.block_size is not None and number % self.block_size == 0",
              "self.block_size is not None and (number + 1) % self.block_size == 0"),))
def _blocks_end_early(kit):
    return seals(kit, 13, 3)


def seals(kit, layers, size):
    """How many vectors a model of so many layers banks: the bank is watched while one token goes through."""
    model, counted = alive(kit, num_layers=layers, attn_res_block_size=size), []

    class Watching(kit.layers.attention_residuals.Bank):
        def grown(self, here):
            counted.append(here)
            return Watching((*self.sources, here))
    model.new_bank = lambda cache, tokens: Watching()
    model(tokens(0, 1, 2))
    return len(counted)


@MODEL.fault(
    id="a_new_block_keeps_the_sum", level=3, part="residuals", technique="limits", file=FILE,
    what="a new block starts with the old running sum: the sources become sums of all that came before",
    changes=(("            bank, h = bank.grown(here), y\n", "            bank, h = bank.grown(here), h + y\n"),))
def _a_new_block_keeps_the_sum(kit):
    block = silence(alive(kit, attn_res_block_size=1)).layers[1]         # blocks of one layer end at every layer
    source = kit.layers.attention_residuals.Source(normal(1, 2, 5, 24), 1e-5)
    return block(kit.layers.attention_residuals.Bank([source]), normal(2, 2, 5, 24))[1]


@MODEL.fault(
    id="a_number_comes_back", level=4, part="documents", technique="packed", file=FILE,
    what="documents are told apart by their number alone: one whose number comes back sees the first of that number",
    changes=(("        if documents is not None:                                        # runs, so that a number may "
              "come back later\n"
              "            changed = documents[:, 1:] != documents[:, :-1]\n"
              "            first = documents.new_zeros(documents.shape)[:, :1]\n"
              "            documents = torch.cat([first, changed.cumsum(1)], 1)\n", ""),))
def _a_number_comes_back(kit):
    model, ids = alive(kit), tokens(0, 1, 14)
    again, new = (torch.tensor([[0] * 4 + [1] * 5 + [number] * 5]) for number in (0, 2))
    return model(ids, documents=again) - model(ids, documents=new)


@MODEL.fault(
    id="tied_head", level=1, part="head", technique="counts", file=FILE,
    what="the head is the embedding once more; K3's head has a matrix of its own",
    changes=(("            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)\n",
              "            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)\n"
              "            self.lm_head.weight = self.embed_tokens.weight\n"),))
def _tied_head(kit):
    return sum(parameter.numel() for parameter in kit.model.K3(small(kit)).parameters())


@MODEL.fault(
    id="keys_averaged_over_tokens", level=4, part="residuals", technique="causality",
    file="layers/attention_residuals.py",
    what="scores over depth are averaged over the tokens, which leaks the future; at queries of zero nothing shows",
    changes=(("    return torch.stack(scores).softmax(0)\n",
              "    scores = torch.stack(scores)                                         # [N, ..., T]\n"
              "    return scores.mean(-1, keepdim=True).expand_as(scores).softmax(0)\n"),))
def _keys_averaged_over_tokens(kit):
    return kit.layers.attention_residuals.depth_mix(normal(1, 3, 2, 5, 7), normal(2, 7), normal(3, 7))


@MODEL.fault(
    id="depth_scores_shrink_while_decoding", level=4, part="residuals", technique="cached", file="layers/two_phase.py",
    what="while decoding, scores over depth are divided by the root of the width; K3 divides nowhere",
    changes=(("        directions = raised(directions).to(bank.dtype)\n",
              "        directions = raised(directions).to(bank.dtype) * bank.shape[-1] ** -0.5\n"),))
def _depth_scores_shrink_while_decoding(kit):
    depth, phases = kit.layers.attention_residuals, kit.layers.two_phase
    mix = depth.DepthMix(small(kit)).double()
    with torch.no_grad():
        mix.query.copy_(normal(1, 24))
    sources = [depth.Source(normal(2 + i, 2, 1, 24), 1e-5) for i in range(3)]
    return phases.TwoPhaseBank([[mix]], sources[:2]).read(mix, sources[2])


@MODEL.fault(
    id="norm_of_the_sum", level=1, part="norms", technique="limits", file=NORM,
    what="RMSNorm divides by the root of the sum of squares; its name says the mean",
    changes=(("torch.rsqrt(torch.linalg.vecdot(x, x).div_(x.shape[-1]).add_(eps))",
              "torch.rsqrt(torch.linalg.vecdot(x, x).add_(eps))"),
             ("        mean = torch.linalg.vecdot(g, y).div_(y.shape[-1]).unsqueeze(-1)\n"
              "        return torch.addcmul(g, y, mean, value=-1)",
              "        along = torch.linalg.vecdot(g, y).unsqueeze(-1)\n"
              "        return torch.addcmul(g, y, along, value=-1)"),
             ('"""x / sqrt(mean(x^2) + eps) * weight over the last axis.                       [',
              '"""x / rms(x) * weight over the last axis, eps inside the root.                 ['),
             ("g = weight d: (g - y mean(g y)) / rms.", "g = weight d.")))
def _norm_of_the_sum(kit):
    return kit.layers.rms_norm.rms_norm(normal(1, 5, 7), normal(2, 7), 1e-5)


@MODEL.fault(
    id="gradient_of_the_norm_weight", level=5, part="norms", technique="gradients", file=NORM,
    what="the gradient of a norm's weight is averaged over the tokens: every token must add to it",
    changes=(("(d * y).reshape(-1, y.shape[-1]).sum(0), None", "(d * y).reshape(-1, y.shape[-1]).mean(0), None"),))
def _gradient_of_the_norm_weight(kit):
    def gradient(rows):
        weight = normal(2, 7).requires_grad_()
        y = kit.layers.rms_norm.rms_norm(normal(1, 1, 7).expand(rows, 7), weight, 1e-5)
        return torch.autograd.grad(y.sum(), weight)[0]
    return gradient(5) / gradient(1)


@MODEL.fault(
    id="last_layer_is_a_memory", level=1, part="config", technique="counts", file="config.py",
    what="only every fourth layer is MLA; in K3 the last one is MLA too, 24 of 93",
    changes=(("every_fourth = set(range(3, self.num_layers, 4)) | {self.num_layers - 1}",
              "every_fourth = set(range(3, self.num_layers, 4))"),
             ("MLA layers; None: every fourth and the last", "MLA layers; None: after three KDA layers")))
def _last_layer_is_a_memory(kit):
    return len(kit.config.preset("kimi_k3").mla_layers), len(kit.config.preset("kimi_linear_48b").mla_layers)


@MODEL.fault(
    id="snapshot_good_for_once", level=4, part="cache", technique="cached", file="cache.py",
    what="restore hands out the snapshot itself: what is fed afterwards goes into it, and the second return is wrong",
    changes=(("self.__dict__.update(snapshot.clone().__dict__)", "self.__dict__.update(snapshot.__dict__)"),
             ('"""Return to `snapshot`, which stays good for the next time."""', '"""Return to `snapshot`."""')))
def _snapshot_good_for_once(kit):
    cache = kit.cache.K3Cache(small(kit), 1, torch.float64, "cpu")
    snapshot = cache.snapshot()
    cache.restore(snapshot)
    cache.layers[0].state = normal(1, 1, 2, 8, 10)
    return snapshot.layers[0].state


@MODEL.fault(
    id="prompts_without_their_mask", level=3, part="masks", technique="padded", file="generate.py",
    what="prompts of different lengths are padded, and the model is not told which tokens are pads",
    changes=(("mask=None if mask.all() else mask, **pictures", "**pictures"),
             ("        pictures = {} if images is None else {\"images\": images}\n",
              "        pictures = {} if images is None else {\"images\": images, \"mask\": mask}\n")))
def _prompts_without_their_mask(kit):
    class Model:
        """Writes how many real tokens it was shown."""

        config, embed_tokens, training = small(kit), torch.nn.Embedding(1, 1), False

        def new_cache(self, batch_size):
            return None

        def eval(self):
            return self

        def train(self, mode):
            return self

        def __call__(self, tokens, cache, *, mask=None, **pictures):
            real = torch.full(tokens.shape[:1], tokens.shape[1]) if mask is None else mask.sum(1)
            return torch.nn.functional.one_hot(real, 23).double().unsqueeze(1)
    return torch.tensor(kit.generate.generate(Model(), [[1, 2], [1, 2, 3, 4]], 1))


@MODEL.fault(
    id="warm_up_from_zero", level=2, part="training", technique="limits", file="training/schedule.py",
    what="the warm-up begins at a rate of zero: the first batch teaches nothing, and the peak is never reached",
    changes=(("        return peak * (step + 1) / rise\n", "        return peak * step / rise\n"),))
def _warm_up_from_zero(kit):
    return [kit.training.schedule.learning_rate(step, 50, 3e-3, 0.1) for step in range(5)]


@MODEL.fault(
    id="vectors_decay_too", level=3, part="training", technique="limits", file=MUON,
    what="weight decay pulls vectors to zero as well: norms, decays and queries; it is for matrices",
    changes=(('groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]\n'
              "    adamw = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)\n",
              "adamw = torch.optim.AdamW([*decayed, *plain], lr=lr, betas=(0.9, 0.95), weight_decay=weight_decay, "
              "fused=True)\n"),
             ("    AdamW decays matrices only; betas", "    Betas of AdamW")))
def _vectors_decay_too(kit):
    model = alive(kit, num_layers=1)
    vectors = still_step(kit, model)
    return torch.cat([change.flatten() for name, change in vectors.items() if "norm" in name])


def still_step(kit, model):
    """{name: what a vector moves by} in one update of a model whose gradients are all zero."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for optimizer in kit.training.muon.make_optimizers(model, 0.1):
        optimizer.step()
    return {name: parameter.detach() - before[name] for name, parameter in model.named_parameters()
            if parameter.dim() == 1}


@MODEL.fault(
    id="heads_are_turned_together", level=4, part="training", technique="invariance", file=MUON,
    what="Muon makes all heads of the keys one matrix; per head each is orthogonalised on its own",
    changes=(('                 "k_proj": config.kda_key_dim, "v_proj": config.kda_value_dim}\n',
              '                 "v_proj": config.kda_value_dim}\n'),))
def _heads_are_turned_together(kit):
    return key_update(kit, 1.0)


def key_update(kit, factor):
    """What one Muon step does to W_k of a KDA layer whose first head has a gradient `factor` times as large."""
    part = layer(kit, "kda")
    before, rows = part.k_proj.weight.detach().clone(), kit.training.muon.head_blocks(_Named(part, small(kit)))
    part.k_proj.weight.grad = normal(1, *before.shape)
    part.k_proj.weight.grad[:8] *= factor
    kit.training.muon.Muon({part.k_proj.weight: rows["layers.0.self_attn.k_proj.weight"]}, 0.1).step()
    return part.k_proj.weight.detach() - before


class _Named:
    """One layer under the names it has in a model."""

    def __init__(self, part, config):
        self.part, self.config = part, config

    def named_parameters(self):
        return [(f"layers.0.self_attn.{name}", parameter) for name, parameter in self.part.named_parameters()]
