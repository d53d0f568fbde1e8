"""What the machine can do at best: the rate of a plain matrix product, and the floating-point work to compare with."""

import torch
from torch.utils.flop_counter import FlopCounterMode

SIDE = 1024
GEMM_FLOPS = 2 * SIDE ** 3
CHUNK = 32                      # C of the limit, whatever chunk the layer takes


def gemm():
    """A function that multiplies two [1024, 1024] matrices: GEMM_FLOPS each time."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(SIDE, SIDE, generator=generator) for _ in range(2))
    return lambda: a @ b


def kda_flops(shape, training=False):
    """FLOPs of the products in a chunk form with C = 32; forward and backward together cost three forwards.

    B T H (4CK + C(K+V) + 2CV + 6KV): the two tiles, the triangular solve, tile times values, three products with S.

    >>> from k3_scratch.bench.inputs import Shape
    >>> kda_flops(Shape(1, 1, 1, 64, 64))
    40960
    """
    B, T, H, K, V = shape
    forward = B * T * H * (4 * CHUNK * K + CHUNK * (K + V) + 2 * CHUNK * V + 6 * K * V)
    return forward * (3 if training else 1)


def counted_flops(call):
    """FLOPs of the products in one call, by PyTorch's counter and the two operations of the CPU that it lacks."""
    aten = torch.ops.aten
    missing = {aten._scaled_dot_product_flash_attention_for_cpu: _attention,
               aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward}
    if hasattr(aten, "_grouped_mm"):
        missing[aten._grouped_mm] = _grouped
    with FlopCounterMode(display=False, custom_mapping=missing) as counter:
        call()
    return counter.get_total_flops()


def _grouped(a, b, *_, **__):
    """[m, k] x [E, k, n], or [m, k] x [k, n] cut into groups along k: either way every number of a meets n columns."""
    return 2 * a[-2] * a[-1] * b[-1]


def _attention(q, k, v, *_, **__):
    """[B, H, T, Q] x [B, H, S, Q] and [B, H, T, S] x [B, H, S, v], all pairs as PyTorch counts them."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (q[3] + v[3])


def _attention_backward(d_o, q, k, v, *_, **__):
    """Scores again, and two products for each of the two of the forward pass."""
    return 2 * q[0] * q[1] * q[2] * k[2] * (3 * q[3] + 2 * v[3])
