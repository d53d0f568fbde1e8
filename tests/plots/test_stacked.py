"""Pictures below each other keep every pixel."""

import io

import matplotlib.image
import numpy as np
import pytest

from k3_scratch.plots.lab_dots import lab_dots
from k3_scratch.plots.stacked import stacked
from k3_scratch.plots.style import PlotError, to_bytes


def pixels(figure):
    return matplotlib.image.imread(io.BytesIO(to_bytes(figure)))[..., :3]


def test_every_pixel_of_every_picture_is_there():
    def make():
        return [lab_dots({name: {row: [1.0, 2.0] for row in "abc"[:rows]} for name in panels}, title="t", x_label="x")
                for panels, rows in ((("one", "two"), 1), (("one",), 3))]
    parts, whole = [pixels(figure) for figure in make()], pixels(stacked(make()))
    assert whole.shape[:2] == (sum(len(part) for part in parts), max(part.shape[1] for part in parts))
    top = 0
    for part in parts:
        np.testing.assert_array_equal(whole[top:top + len(part), :part.shape[1]], part)
        assert (whole[top:top + len(part), part.shape[1]:] == 1).all()
        top += len(part)
    assert to_bytes(stacked(make())) == to_bytes(stacked(make()))


def test_no_picture_is_refused():
    with pytest.raises(PlotError, match="at least one"):
        stacked([])
