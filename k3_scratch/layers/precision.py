"""One rule for all parts: never compute below float32."""

import torch


def raised(x):
    """bfloat16 and half become float32; float32 stays, and a float64 model stays float64 throughout.  [...] -> [...]"""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()
