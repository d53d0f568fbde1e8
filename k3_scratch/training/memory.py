"""The most memory this process has used so far."""

import sys

import torch


def peak_memory_bytes(device):
    """Peak bytes of the process (CPU, MPS) or of the tensors on the GPU (CUDA)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:                                                  # Windows
        import psutil
        return psutil.Process().memory_info().peak_wset
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024            # macOS counts bytes, Linux KiB
