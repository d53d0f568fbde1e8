"""Per-head Muon: a matrix moves along the nearest orthogonal matrix of its momentum, each head and expert on its own.

K3 report, Optimiser; Muon: Jordan et al. 2024; update scale: Moonlight, arXiv 2502.16982. Not published for K3, ours:
momentum .95 Nesterov, five Newton-Schulz steps, update times .2 sqrt(max(rows, columns)), which gives an entry about
the size that AdamW gives it, so that both share one learning rate.
"""

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_TABLES = ("embed_tokens.weight", "lm_head.weight", "vision.position_table")     # a row each, looked up or picked


def newton_schulz(matrices, steps=5):
    """Push all singular values towards 1.                                              [n, rows, cols] -> the same

    x <- a x + (b x x^T + c (x x^T)^2) x, starting from the matrix over its Frobenius norm. The result is orthogonal
    only roughly (singular values between about .7 and 1.2), which is all the update needs.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def head_blocks(model):
    """{parameter name: rows of one block} for every matrix that Muon moves.

    q, k and v of KDA, and W_qb (or W_q) and W_kvb of MLA, are cut into heads; each expert is a matrix of its own; other
    matrices are one block. Embedding, head, router, convolutions, depth queries, the pictures' position table and all
    vectors are left to AdamW.
    """
    config, blocks = model.config, {}
    head_rows = {"q_b_proj": config.qk_head_dim, "kv_b_proj": config.qk_nope_head_dim + config.v_head_dim,
                 "k_proj": config.kda_key_dim, "v_proj": config.kda_value_dim}
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2 or "conv1d" in name or name in _TABLES:
            continue
        parts = name.split(".")
        if parts[-2] == "gate":                                          # the router
            continue
        if parts[-2] == "q_proj":
            blocks[name] = config.qk_head_dim if config.is_mla(int(parts[1])) else config.kda_key_dim
        else:
            blocks[name] = head_rows.get(parts[-2], parameter.shape[-2])
    return blocks


class Muon(torch.optim.Optimizer):
    """Muon over matrices, given as {parameter: rows of one block}; see `head_blocks`."""

    def __init__(self, blocks, lr, momentum=0.95, weight_decay=0.1, steps=5):
        super().__init__(list(blocks), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps})
        self.rows = list(blocks.values())

    @torch.no_grad()
    def step(self):
        """Blocks of one shape are orthogonalised together, whichever parameter they come from."""
        group, by_shape = self.param_groups[0], {}
        moved = [(p, rows) for p, rows in zip(group["params"], self.rows, strict=True) if p.grad is not None]
        if not moved:
            return
        parameters, gradients = [p for p, _ in moved], [p.grad for p, _ in moved]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        momenta = [self.state[p]["momentum"] for p in parameters]
        torch._foreach_mul_(momenta, group["momentum"])
        torch._foreach_add_(momenta, gradients)
        look_ahead = torch._foreach_add(gradients, momenta, alpha=group["momentum"])             # Nesterov
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        for (parameter, rows), direction in zip(moved, look_ahead, strict=True):
            blocks = direction.reshape(-1, rows, parameter.shape[-1])
            turned = rows > parameter.shape[-1]
            by_shape.setdefault(tuple(sorted(blocks.shape[1:])), []).append(
                (parameter, blocks.mT if turned else blocks, turned))
        for (_, longest), entries in by_shape.items():
            update = newton_schulz(torch.cat([blocks for _, blocks, _ in entries]), group["steps"])
            parts = update.split([len(blocks) for _, blocks, _ in entries])
            for (parameter, _, turned), part in zip(entries, parts, strict=True):
                part = (part.mT if turned else part).reshape(parameter.shape)
                parameter.add_(part, alpha=-group["lr"] * 0.2 * longest ** 0.5)


def make_optimizers(model, lr, weight_decay=0.1, kind="muon"):
    """[Muon for matrices, AdamW for the rest], or one AdamW for everything with kind "adamw".

    AdamW decays matrices only; betas (.9, .95) as in the K2 and K3 reports.
    """
    blocks = head_blocks(model) if kind == "muon" else {}
    named = dict(model.named_parameters())
    rest = {name: parameter for name, parameter in named.items() if name not in blocks}
    decayed = [p for name, p in rest.items() if p.dim() >= 2 and "conv1d" not in name]
    plain = [p for name, p in rest.items() if p.dim() < 2 or "conv1d" in name]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    adamw = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=True)
    muon = [Muon({named[name]: rows for name, rows in blocks.items()}, lr, weight_decay=weight_decay)] if blocks else []
    return [*muon, adamw]


def descend(optimizers, rate):
    """One step of every optimiser at the learning rate `rate`; the gradients are used up and forgotten."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
