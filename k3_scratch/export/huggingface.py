"""A folder in the released layout of Hugging Face: `config.json` and `model.safetensors`, and back to our model.

A third file, `k3_export.json`, holds digests of what was written, for `k3 verify`; other programs ignore it.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from k3_scratch.export.files import ExportError, digest, tensor_digest, write_folder
from k3_scratch.export.folder import RECORD, WEIGHTS, is_export_file, open_folder
from k3_scratch.export.mxfp4 import pack, unpack
from k3_scratch.export.names import model_shapes, places
from k3_scratch.export.released_config import config_from_hf, hf_config
from k3_scratch.export.text_part import text_part
from k3_scratch.model import K3

__all__ = ["ExportError", "config_from_hf", "from_huggingface", "hf_config", "hf_tensors", "to_huggingface"]


def hf_tensors(model_or_state_dict, config, *, mxfp4=False, progress=None):
    """{released name: tensor} of a model or of its state dict; plain ones share memory with it, so write into none.

    mxfp4      True: the routed experts as uint8 codes and scales, two tensors a matrix
    progress   called with (tensor name, number done, number of all) after each tensor
    dtypes     the model's; A_log, dt_bias, convolutions, o_norm and selection biases at least float32, as released
    Raises ExportError naming the tensor that is missing, unexpected, misshapen or, when packed, not 32 k wide.
    """
    given = getattr(model_or_state_dict, "state_dict", lambda: model_or_state_dict)()
    _check_weights(given, config)
    wanted, tensors = places(config, mxfp4=mxfp4), {}
    for number, (name, place) in enumerate(wanted.items(), 1):
        if place.packed == "weight_packed":                              # the scales come with the codes
            codes, scale = pack(place.of(given))
            tensors |= {name: codes, name.removesuffix("weight_packed") + "weight_scale": scale}
        elif place.packed is None:
            x = place.to_file(place.of(given).detach())
            tensors[name] = (x.to(torch.promote_types(x.dtype, torch.float32)) if place.wide else x).contiguous()
        if progress is not None:
            progress(name, number, len(wanted))
    return tensors


def to_huggingface(model, folder, *, mxfp4=False, force=False, progress=None):
    """Write a model into `folder`, which appears whole or not at all; arguments as `hf_tensors`.

    force True: replace an earlier export. Returns remarks for the user, often none; of a model with eyes the text part
    is written. Raises ExportError, and then an earlier export stays as it was.
    """
    model, remarks = text_part(model)
    config = model.config
    stored = "mxfp4" if mxfp4 else config.expert_dtype
    if not mxfp4 and stored == "mxfp4":                                  # the file says what it holds
        stored = "bfloat16" if model.embed_tokens.weight.dtype == torch.bfloat16 else "float32"
    fields = (json.dumps(hf_config(config.replace(expert_dtype=stored)), indent=2) + "\n").encode()

    def write(temporary):
        tensors = {name: x.cpu() for name, x in hf_tensors(model, config, mxfp4=mxfp4, progress=progress).items()}
        record = {"config.json": digest(fields), "tensors": {name: tensor_digest(x) for name, x in tensors.items()}}
        (temporary / "config.json").write_bytes(fields)
        save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
        (temporary / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    write_folder(folder, write, mine=is_export_file, force=force)
    return remarks


def from_huggingface(folder):
    """The model in a folder that `to_huggingface` or another writer of this layout made, in evaluation mode.

    Names, shapes, dtypes and completeness are checked before anything is built. The model has the dtype of the
    matrices, or float32 when the small float32 tensors would not fit into it exactly, or when experts are packed.
    Raises ExportError that lists what is missing, unexpected and misshapen, or names the file or field.
    """
    found = open_folder(folder)
    weights = {}
    for name, place in found.places.items():
        if place.packed == "weight_scale":
            continue
        if place.packed:
            scale = found.read(name.removesuffix("weight_packed") + "weight_scale")
            if (scale == 255).any():
                raise ExportError(f"{Path(folder)}: {name}: scale 255 means not a number")
            x = unpack(found.read(name), scale)
        else:
            x = place.from_file(_unpadded(found, name, place))
        if place.expert is None:
            weights[place.ours] = x
        else:
            weights.setdefault(place.ours, []).append(x)                 # in order of the experts
    weights = {name: torch.stack(x) if isinstance(x, list) else x for name, x in weights.items()}
    model = K3(found.config).to(_model_dtype(weights, found))
    model.load_state_dict(weights)
    return model.eval()


def _unpadded(found, name, place):
    """The tensor itself, once what pads it is known to be zero."""
    x = found.read(name)
    if x.reshape(-1)[torch.Size(place.part).numel():].any():
        raise ExportError(f"{found.folder}: {name}: wanted zeros after the first {place.part[0]} values")
    return x


def _model_dtype(weights, found):
    dtype = weights["embed_tokens.weight"].dtype
    wide = [weights[place.ours] for place in found.places.values() if place.wide]
    exact = all(torch.equal(x, x.to(dtype).to(x.dtype)) for x in wide)
    return dtype if exact and not found.packed else torch.promote_types(dtype, torch.float32)


def _check_weights(given, config):
    wanted, shapes = model_shapes(config), {name: tuple(x.shape) for name, x in given.items()}
    for name in {**wanted, **shapes}:
        if wanted.get(name) != shapes.get(name):
            raise ExportError(f"{name}: the configuration wants {wanted.get(name, 'no such tensor')}, "
                              f"the model has {shapes.get(name, 'none')}")
