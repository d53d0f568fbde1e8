"""A nano model whose parts all differ, and tokens with pads at the end."""

import pytest
import torch

from k3_scratch.config import preset
from k3_scratch.model import K3


def build(**changes):
    """A nano model in evaluation mode; its queries over depth and its gates are not at their start."""
    model = K3(preset("nano").replace(initializer_range=0.2, **changes), seed=2).eval()
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("_res.query", "A_log", "dt_bias")):
                parameter.add_(torch.randn(parameter.shape, generator=generator))
            elif name.endswith("_res.weight"):
                parameter.mul_(1 + 0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture
def make():
    return build


@pytest.fixture
def tokens():
    return torch.randint(0, 256, (3, 11), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def mask():
    mask = torch.ones(3, 11, dtype=torch.bool)
    mask[0, 6:] = mask[2, 9:] = False
    return mask
