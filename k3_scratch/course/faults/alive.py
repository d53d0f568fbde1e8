"""Small models and inputs in which every part matters.

At its start a K3 hides half of its faults: queries over depth, selection biases and A_log are zero, norms are one.
Here all of them are random, and the sizes all differ.
"""

import torch
import torch.nn.functional as F


def enliven(model, seed=0):
    """Random numbers into every vector of a model, in place: norms around 1, dt_bias around -1, the rest around 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, x in model.state_dict().items():
            if x.dim() > 1:
                continue
            noise = 0.3 * torch.randn(x.shape, generator=generator, dtype=torch.float64)
            center = -1.0 if "dt_bias" in name else 0.0 if name.endswith(("query", "A_log", "bias")) else 1.0
            x.copy_(center + noise)
    return model


def small(kit, **changes):
    """A configuration of the kit for tests: nano, 23 tokens, larger weights."""
    return kit.config.preset("nano").replace(**{"vocab_size": 23, "initializer_range": 0.15, **changes})


def alive(kit, seed=0, **changes):
    """An enlivened small K3 of a kit, float64, evaluating."""
    return enliven(kit.model.K3(small(kit, **changes), seed=seed).double().eval(), seed + 100)


def layer(kit, kind, seed=0, **changes):
    """One enlivened layer of a kit alone, float64: kind is "kda", "mla" or "moe"."""
    kinds = {"kda": kit.layers.kda_attention.KimiDeltaAttention, "mla": kit.layers.mla_attention.GatedMLA,
             "moe": kit.layers.latent_moe.LatentMoE}
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = kinds[kind](small(kit, **changes)).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return enliven(made, seed + 100)


def normal(seed, *shape):
    """Standard normal float64 numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens(seed, *shape):
    """Whole numbers below 23."""
    return torch.randint(23, shape, generator=torch.Generator().manual_seed(seed))


REGIMES = {"gentle": -0.1, "strong": -5.0}


def kda_inputs(regime="strong", T=37, B=2, H=3, K=5, V=4, seed=0):
    """q, k, v, g, beta, state of KDA, leading batch axis; regime: a name of REGIMES, or "repeated" keys."""
    q, k, v, state = (normal(seed + i, *shape) for i, shape in
                      enumerate(((B, T, H, K), (B, T, H, K), (B, T, H, V), (B, H, K, V))))
    beta = torch.sigmoid(normal(seed + 4, B, T, H))
    g = REGIMES.get(regime, -0.01) * torch.sigmoid(normal(seed + 5, B, T, H, K))
    if regime == "repeated":
        k, beta = k[:, :1].expand(B, T, H, K), 0.9 + 0.09 * beta
    return F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, g, beta, state
