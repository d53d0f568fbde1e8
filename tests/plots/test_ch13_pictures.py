import numpy as np
import pytest
from picture_helpers import clipped, drawn_texts

from k3_scratch.plots.fault_matrix import fault_matrix
from k3_scratch.plots.style import PlotError
from k3_scratch.shapes import ShapeError

SEEN = np.array([[0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=bool)


def test_fault_matrix_marks_what_is_seen():
    figure = fault_matrix(SEEN, [1, 3, 5], ["kda", "mla", "moe"], ["shapes", "limits", "counts", "gradients"])
    words = [text.get_text() for text, _ in drawn_texts(figure)]
    assert words.count("●") == 4 and words.count("·") == 8
    axes, = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["kda  1", "mla  3", "moe  5"]
    assert [label.get_text() for label in axes.get_xticklabels()][0] == "shapes" and clipped(figure) == {}


@pytest.mark.parametrize(("levels", "error"), [([1, 2], ShapeError), ([3, 1, 5], PlotError), ([0, 1, 2], PlotError),
                                               ([1, 2, 6], PlotError)])
def test_fault_matrix_refuses(levels, error):
    with pytest.raises(error, match="levels"):
        fault_matrix(SEEN, levels, ["kda", "mla", "moe"], ["a", "b", "c", "d"])
