"""Shape contracts: what fits, what does not, and what the error says."""

import numpy as np
import pytest
import torch

from k3_scratch.shapes import ShapeError, check_shapes

BOTH = pytest.mark.parametrize("zeros", [np.zeros, torch.zeros], ids=["numpy", "torch"])


def refusal(**arguments):
    with pytest.raises(ShapeError) as caught:
        check_shapes("f", **arguments)
    return str(caught.value)


@BOTH
def test_sizes_come_back_by_letter(zeros):
    assert check_shapes("f", k=(zeros((3, 5)), "H K"), v=(zeros((3, 2)), "H V")) == {"H": 3, "K": 5, "V": 2}
    assert check_shapes("f", x=(zeros((4, 0)), "T D")) == {"T": 4, "D": 0}
    assert check_shapes("f", square=(zeros((4, 4)), "C C"), point=(zeros(()), "")) == {"C": 4}


@BOTH
def test_same_letter_other_size(zeros):
    message = refusal(k=(zeros((3, 5)), "H K"), v=(zeros((4, 2)), "H V"))
    assert message.startswith("f: v must have shape [H, V] with H = 3") and message.endswith("but [4, 2] came")
    assert "K = 5" not in message                                         # only the letters of this argument
    message = refusal(L=(zeros((4, 5)), "C C"))
    assert message == "f: L must have shape [C, C] with C = 4, but [4, 5] came"


@BOTH
def test_wrong_number_of_axes(zeros):
    assert refusal(q=(zeros((2, 3)), "B T H")) == "f: q must have shape [B, T, H], but [2, 3] came"
    assert refusal(q=(zeros((2, 3, 4, 5)), "B T H")) == "f: q must have shape [B, T, H], but [2, 3, 4, 5] came"


@BOTH
def test_numbers_are_exact(zeros):
    assert check_shapes("f", x=(zeros((7, 12)), "T 12")) == {"T": 7}
    assert refusal(x=(zeros((7, 11)), "T 12")) == "f: x must have shape [T, 12] with T = 7, but [7, 11] came"


@BOTH
def test_leading_dots_are_any_batch_axes_but_the_same_everywhere(zeros):
    assert check_shapes("f", x=(zeros((5,)), "... D")) == {"...": (), "D": 5}
    sizes = check_shapes("f", x=(zeros((2, 3, 4, 5)), "... T D"), y=(zeros((2, 3, 9)), "... F"))
    assert sizes == {"...": (2, 3), "T": 4, "D": 5, "F": 9}
    message = refusal(x=(zeros((2, 3, 4, 5)), "... T D"), y=(zeros((3, 2, 5)), "... D"))
    assert message == "f: y must have shape [..., D] with ... = [2, 3], D = 5, but [3, 2, 5] came"
    assert refusal(x=(zeros((5,)), "... T D")) == "f: x must have shape [..., T, D], but [5] came"
    message = refusal(x=(zeros((2, 5)), "... D"), w=(zeros((2, 6)), "... D"))
    assert message == "f: w must have shape [..., D] with ... = [2], D = 5, but [2, 6] came"


def test_what_is_no_array_is_named():
    assert refusal(x=([1.0, 2.0], "T D")) == "f: x must be an array of shape [T, D], but a list came"
    assert refusal(x=(None, "D")) == "f: x must be an array of shape [D], but a NoneType came"


def test_arguments_are_checked_in_order_and_may_have_any_name():
    assert refusal(b=(np.zeros(2), "X"), a=(np.zeros(3), "X")).startswith("f: a must")
    assert check_shapes("f", function=(np.zeros(2), "X"), arguments=(np.zeros(2), "X")) == {"X": 2}


def test_a_shape_error_is_a_value_error():
    assert issubclass(ShapeError, ValueError)
