"""MXFP4 in torch is the NumPy reference bit for bit, and loses nothing on its own grid."""

import math

import numpy as np
import pytest
import torch

from k3_scratch.export.mxfp4 import error_statistics, pack, unpack
from k3_scratch.reference.mxfp4 import MAGNITUDES, mxfp4_pack, mxfp4_unpack
from k3_scratch.shapes import ShapeError


def samples():
    """(title, array): widths with and without a ragged end, every kind of number."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        wide = rng.standard_normal((3, 5, 96)) * np.exp2(rng.integers(-30, 30, (3, 5, 1)))
        yield f"normal {seed}", wide
        yield f"ragged {seed}", wide[..., :41 + seed]
        yield f"float32 {seed}", wide.astype(np.float32)
        yield f"sparse {seed}", wide * (rng.uniform(size=wide.shape) < 0.05)
    halves = np.concatenate([MAGNITUDES, (MAGNITUDES[1:] + MAGNITUDES[:-1]) / 2, [6.5, 7.0, 7.999]])
    ties = np.resize(np.concatenate([halves, -halves]), (4, 64))
    yield "ties", ties * np.exp2([[0], [1], [-7], [40]])
    yield "beside ties", np.nextafter(ties, np.inf)
    yield "zeros", np.zeros((2, 64))
    yield "negative zeros", -np.zeros((2, 33))
    yield "subnormal", np.resize([1e-38, -1e-40, 3e-45, 1.4e-45, 0], (2, 64)).astype(np.float32)
    yield "far below", np.full((1, 32), 1e-300)
    yield "largest of float32", np.resize([3.4e38, -1.7e38, 1.0], (1, 32)).astype(np.float32)
    yield "beyond the scales", np.resize([1e300, -1e39, 1.0], (1, 32))


@pytest.mark.parametrize(("title", "x"), list(samples()), ids=lambda part: part if isinstance(part, str) else "")
def test_equal_to_the_reference(title, x):
    packed, scale = pack(torch.from_numpy(x))
    wanted_packed, wanted_scale = mxfp4_pack(x)
    assert packed.dtype == scale.dtype == torch.uint8
    assert np.array_equal(packed.numpy(), wanted_packed) and np.array_equal(scale.numpy(), wanted_scale)
    got = unpack(packed, scale, columns=x.shape[-1], dtype=torch.float64).numpy()
    wanted = mxfp4_unpack(wanted_packed, wanted_scale, x.shape[-1])
    assert np.array_equal(got.view(np.int64), wanted.view(np.int64))             # the sign of zero too
    again = pack(torch.from_numpy(got))                                          # packing twice changes nothing
    assert torch.equal(unpack(*again, columns=x.shape[-1], dtype=torch.float64), torch.from_numpy(got))


@pytest.mark.parametrize("byte", [0, 1, 60, 127, 128, 200, 252])
def test_every_code_under_a_scale(byte):
    codes = torch.arange(256, dtype=torch.uint8).reshape(16, 16)                 # every pair of codes, 16 rows
    scale = torch.full((16, 1), byte, dtype=torch.uint8)
    values = unpack(codes, scale)
    assert values.dtype == torch.float32 and values.shape == (16, 32)
    assert np.array_equal(values.double().numpy(), mxfp4_unpack(codes.numpy(), scale.numpy()))
    assert values[0, 2] == 0.5 * 2.0 ** (byte - 127) and values[0, 3] == 0       # row 0: the low nibble is column 2
    assert torch.equal(unpack(*pack(values)), values)                            # and all of it survives


def test_all_scales_are_exact_powers_of_two():
    codes = torch.full((255, 16), 0x22, dtype=torch.uint8)                       # code 2 means 1
    values = unpack(codes, torch.arange(255, dtype=torch.uint8).unsqueeze(1), dtype=torch.float64)
    assert values[:, 0].tolist() == [math.ldexp(1.0, e - 127) for e in range(255)]


def test_refusals():
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="w must be finite"):
            pack(torch.tensor([1.0, bad]))
    with pytest.raises(ShapeError, match="w must have shape"):
        pack(torch.tensor(1.0))
    with pytest.raises(ShapeError, match=r"packed must have shape \[..., 32\]"):
        unpack(torch.zeros(3, 31, dtype=torch.uint8), torch.zeros(3, 2, dtype=torch.uint8))


def test_error_statistics():
    row = torch.zeros(2, 32)
    row[0, :6] = torch.tensor([4.0, 7.0, -7.5, 0.2, -0.25, 3.0])                 # 7 and -7.5 saturate, two vanish
    lost = error_statistics(row)
    errors, values = np.array([1, 1.5, 0.2, 0.25]), row[0, :6].double().numpy()
    assert lost["largest"] == 1.5
    assert lost["saturated"] == 2 / 64 and lost["zeroed"] == 2 / 64
    wanted = math.sqrt((errors ** 2).sum() / (values ** 2).sum())
    assert lost["relative_rms"] == pytest.approx(wanted, rel=1e-6)               # 0.2 is rounded in float32
    assert lost["snr_db"] == pytest.approx(-20 * math.log10(wanted), rel=1e-6)


def test_error_statistics_where_nothing_is_lost():
    grid = torch.tensor([0.5, -6, 1.5, 0]).repeat(3, 16)
    nothing = {"relative_rms": 0.0, "largest": 0.0, "saturated": 0.0, "zeroed": 0.0, "snr_db": math.inf}
    assert error_statistics(grid) == nothing
    assert error_statistics(torch.zeros(2, 32)) == nothing
    ragged = torch.randn(4, 45, generator=torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(ragged, (0, 19))
    assert error_statistics(ragged)["relative_rms"] == error_statistics(padded)["relative_rms"] > 0.05
