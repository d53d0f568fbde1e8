"""Names and shapes of the released checkpoint, and where each of its tensors sits in our model.

The file has one matrix for each expert where we stack them, A_log padded with zeros to a multiple of 128, convolutions
with a middle axis of one, and depth queries as one-row matrices (spec 3).
"""

from dataclasses import dataclass

import torch

from k3_scratch.export.files import ExportError
from k3_scratch.export.mxfp4 import BLOCK
from k3_scratch.model import K3

PREFIX = "language_model."                       # Kimi Linear's files have none
A_LOG_MULTIPLE = 128
MIXES = ("self_attention_res", "mlp_res", "output_attn_res")
NEVER_BELOW_FLOAT32 = ("A_log", "dt_bias", "conv1d.weight", "o_norm.weight", "e_score_correction_bias")


@dataclass(frozen=True)
class Place:
    """One tensor of the file: which of ours it is, or which expert's part of it."""

    ours: str                                    # name in our state dict
    part: tuple[int, ...]                        # shape of ours, of one expert where they are stacked
    shape: tuple[int, ...]                       # shape in the file
    expert: int | None = None                    # number of the expert; None: not stacked
    wide: bool = False                           # at least float32 in the file
    packed: str | None = None                    # MXFP4: "weight_packed" or "weight_scale", both uint8

    def of(self, weights):
        """Our tensor in `weights`, or the expert's part of it."""
        return weights[self.ours] if self.expert is None else weights[self.ours][self.expert]

    def to_file(self, x):
        """Our values in the file's shape: padded, with its extra axes.                          part -> shape"""
        if self.ours.endswith("A_log"):
            x = torch.cat([x, x.new_zeros(torch.Size(self.shape).numel() - x.numel())])
        return x.reshape(self.shape)

    def from_file(self, x):
        """The inverse of `to_file`.                                                             shape -> part"""
        return x.reshape(-1)[:torch.Size(self.part).numel()].reshape(self.part)


def model_shapes(config):
    """{our name: shape} of every tensor of the text part, parameters and selection biases, without making one."""
    with torch.device("meta"):
        return {name: tuple(x.shape) for name, x in K3(config.replace(vision=None)).state_dict().items()}


def places(config, *, mxfp4=False, prefix=PREFIX):
    """{released name: Place} of all tensors that a checkpoint of this configuration has, no more and no fewer.

    mxfp4 True: the routed experts packed. prefix "": Kimi Linear's own files, whose A_log is [1, 1, H, 1].
    Raises ExportError when an expert's row is not made of whole blocks of 32.
    """
    found = {}
    for ours, shape in model_shapes(config).items():
        if ".experts." not in ours:
            wide = ours.endswith(NEVER_BELOW_FLOAT32)
            found[prefix + _released(ours)] = Place(ours, shape, _file_shape(ours, shape, prefix), wide=wide)
            continue
        stem, matrix = ours.rsplit(".", 1)                               # ours is one stack [E, rows, columns]
        for expert in range(shape[0]):
            name = f"{prefix}model.{stem}.{expert}.{matrix}."
            if not mxfp4:
                found[name + "weight"] = Place(ours, shape[1:], shape[1:], expert)
                continue
            rows, columns = shape[1:]
            if columns % BLOCK:
                raise ExportError(f"{name}weight_packed: rows of MXFP4 must be a multiple of {BLOCK} wide, "
                                  f"but {columns} came")
            for kind, width in (("weight_packed", columns // 2), ("weight_scale", columns // BLOCK)):
                found[name + kind] = Place(ours, shape[1:], (rows, width), expert, packed=kind)
    return found


def _released(ours):
    for mix in MIXES:
        ours = ours.replace(f"{mix}.query", f"{mix}_proj.weight").replace(f"{mix}.weight", f"{mix}_norm.weight")
    return ours if ours.startswith("lm_head") else "model." + ours


def _file_shape(ours, shape, prefix):
    if ours.endswith("A_log"):
        heads = shape[0]
        return (-(-heads // A_LOG_MULTIPLE) * A_LOG_MULTIPLE,) if prefix else (1, 1, heads, 1)
    if ours.endswith("conv1d.weight"):
        return (shape[0], 1, shape[1])
    if ours.endswith(".query"):
        return (1, *shape)
    return shape
