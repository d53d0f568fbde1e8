"""Shared by the tests of feed-forward parts and residuals: parts in which every number matters, and a small stack."""

import numpy as np
import torch

from k3_scratch.config import preset

CONFIG = preset("nano")                                  # D 24, E 6, k 2, F 18, L 16, dense 40, two shared experts
D = CONFIG.hidden_size


def normal(rng, *shape):
    return torch.from_numpy(rng.normal(size=shape))


@torch.no_grad()
def drawn(module, seed=0, std=0.3, dtype=torch.float64):
    """The module with random numbers everywhere: matrices N(0, std), vectors and biases around their start."""
    rng, module = np.random.default_rng(seed), module.to(dtype)
    for x in module.state_dict().values():
        noise = torch.from_numpy(rng.normal(0.0, std, x.shape)).to(dtype)
        x.copy_(noise if x.dim() > 1 else x + noise)
    return module


@torch.no_grad()
def copied(to, values):
    """Every parameter and buffer of `to` from the dict, whose names must be all of them."""
    to.load_state_dict({name: torch.as_tensor(value) for name, value in values.items()}, strict=True)
    return to


def parts_of(residual, num_sublayers):
    """All modules of a residual in one, named as a model would register them."""
    root = torch.nn.Module()
    root.layers = torch.nn.ModuleList(torch.nn.Module() for _ in range(num_sublayers // 2))
    for i in range(num_sublayers):
        for name, module in residual.modules_for(i).items():
            assert not hasattr(root.layers[i // 2], name)
            root.layers[i // 2].add_module(name, module)
    for name, module in residual.final_modules().items():
        root.add_module(name, module)
    return root


def run_stack(residual, h, sublayers):
    """What the last norm would read.                                          [B, T, D], M callables -> [B, T, D]"""
    state = residual.start(h)
    for i, sublayer in enumerate(sublayers):
        state = residual.write(state, i, sublayer(residual.read(state, i)))
    return residual.end(state)


def losses_of_training(parameters, loss, steps=50, lr=0.01, after=lambda: None):
    """The loss before each of `steps` steps of Adam; `after` runs behind each step."""
    optimizer, losses = torch.optim.Adam(parameters, lr=lr), []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        after()
        losses.append(value.item())
    return losses
