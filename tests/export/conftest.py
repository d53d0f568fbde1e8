"""Small models written to a temporary folder, and the tools to damage what was written."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch_helpers import live_model, variant

from k3_scratch.export.huggingface import to_huggingface


@pytest.fixture(scope="session")
def packable():
    """A live float32 model whose experts have rows of 32 and 64 columns."""
    return live_model(variant("k3").replace(moe_latent_size=32, moe_intermediate_size=64), 3, torch.float32)


@pytest.fixture(scope="session")
def live():
    """A live float32 model in which all sizes differ."""
    return live_model(variant("k3"), 4, torch.float32)


@pytest.fixture
def folder(live, tmp_path):
    """An export of `live`, to be damaged."""
    to_huggingface(live, tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def edit_json():
    """edit_json(file, change): `change` gets the fields and changes them in place."""
    def edit(file, change):
        fields = json.loads(file.read_text(encoding="utf-8"))
        change(fields)
        file.write_text(json.dumps(fields), encoding="utf-8")
    return edit


@pytest.fixture
def edit_tensors():
    """edit_tensors(folder, change): `change` gets {name: tensor} of model.safetensors and changes it in place."""
    def edit(folder, change):
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")
    return edit


@pytest.fixture
def same_weights():
    """same_weights(a, b): the same names, dtypes and bits, zeros with their signs."""
    def compare(a, b):
        a, b = a.state_dict(), b.state_dict()
        assert list(a) == list(b)
        for name, x in a.items():
            assert x.dtype == b[name].dtype, name
            assert torch.equal(x.reshape(-1).view(torch.uint8), b[name].reshape(-1).view(torch.uint8)), name
    return compare
