"""The schedule, the options of a run, and the device."""

import math

import pytest
import torch

from k3_scratch.training.loop import choose_device
from k3_scratch.training.options import OptionsError, TrainOptions
from k3_scratch.training.run_folder import RunError
from k3_scratch.training.schedule import learning_rate


def test_warm_up_is_linear_and_ends_at_the_peak():
    rates = [learning_rate(step, 1000, 0.5, 0.01, 0.1) for step in range(11)]
    assert rates[:10] == pytest.approx([0.05 * (i + 1) for i in range(10)])
    assert rates[10] == pytest.approx(0.5)                                # the cosine begins at its top


def test_the_cosine_falls_to_its_rest():
    rates = [learning_rate(step, 1000, 0.5, 0.01, 0.1) for step in range(9, 1001)]
    assert all(a >= b for a, b in zip(rates, rates[1:], strict=False))
    half_way = 10 + 990 // 2
    assert learning_rate(half_way, 1000, 0.5, 0.01, 0.1) == pytest.approx(0.5 * (0.1 + 0.9 / 2))
    quarter = learning_rate(10 + 330, 1000, 0.5, 0.01, 0.1)
    assert quarter == pytest.approx(0.5 * (0.1 + 0.9 * (1 + math.cos(math.pi / 3)) / 2))
    assert learning_rate(1000, 1000, 0.5, 0.01, 0.1) == pytest.approx(0.05)
    assert 0.05 < learning_rate(999, 1000, 0.5, 0.01, 0.1) < 0.0501


def test_short_runs_and_no_warm_up():
    assert learning_rate(0, 1, 0.5) == 0.5                                # a run of one step takes the peak
    assert learning_rate(0, 1, 0.5, 0.0, 0.0) == 0.5
    assert [learning_rate(s, 2, 0.5, 0.0, 0.0) for s in (0, 1)] == [0.5, 0.5]
    assert learning_rate(0, 100, 0.5, 0.0) == 0.5
    assert [learning_rate(s, 4, 1.0, 1.0) for s in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert learning_rate(5, 10, 0.5, 0.1, 1.0) == pytest.approx(0.5)      # a rest as high as the peak: constant


WHOLE = ("steps", "batch_size", "length", "validate_every", "validation_rows", "test_rows", "exact_examples",
         "checkpoint_every", "shards")


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [0, -1, 1.0, True, "5", None])
def test_counts_are_whole_numbers_from_one(name, value):
    with pytest.raises(OptionsError) as caught:
        TrainOptions(**{name: value})
    assert str(caught.value) == f"{name} must be a whole number, at least 1, but {value!r} came"


@pytest.mark.parametrize(("name", "value", "wanted"), [
    ("seed", -1, "a whole number from 0 on"), ("seed", 0.0, "a whole number from 0 on"),
    ("seed", 2 ** 63, "a whole number from 0 on"),
    ("learning_rate", 0, "a number above 0 and at most 1000"),
    ("learning_rate", float("inf"), "a number above 0 and at most 1000"),
    ("learning_rate", float("nan"), "a number above 0 and at most 1000"),
    ("clip", -1.0, "a number above 0 and at most 1000"),
    ("warmup", 1.5, "a number from 0 to 1"), ("final_rate", -0.1, "a number from 0 to 1"),
    ("weight_decay", float("nan"), "a number from 0 to 1"), ("optimizer", "sgd", "muon or adamw"),
])
def test_other_options(name, value, wanted):
    with pytest.raises(OptionsError) as caught:
        TrainOptions(**{name: value})
    assert str(caught.value) == f"{name} must be {wanted}, but {value!r} came"


def test_options_of_another_kind_are_refused_by_name():
    wrong = [("learning_rate", "fast"), ("learning_rate", True), ("clip", None), ("warmup", "1"), ("balance", "no"),
             ("recompute", 1), ("text", 5)]
    for name, value in wrong:
        with pytest.raises(OptionsError, match=f"^{name} must be .* but {value!r} came"):
            TrainOptions(**{name: value})


def test_the_options_are_those_of_the_specification():
    """Muon per head, weight decay .1, 1 % warm-up, balancing on."""
    options = TrainOptions()
    assert (options.optimizer, options.weight_decay, options.warmup, options.balance) == ("muon", 0.1, 0.01, True)
    assert TrainOptions(**options.to_dict()) == options


def test_devices():
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")


@pytest.mark.parametrize(("there", "auto"), [((False, False), "cpu"), ((True, True), "cuda"), ((False, True), "mps")])
def test_auto_takes_cuda_then_mps_then_the_cpu(there, auto, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there[0])
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: there[1])
    assert choose_device("auto").type == auto
    for name, here in zip(("cuda", "mps"), there, strict=True):
        if here:
            assert choose_device(name).type == name
        else:
            with pytest.raises(RunError, match=r"device must be auto or one that is here \(cpu.*\), but '" + name):
                choose_device(name)
    with pytest.raises(RunError, match="but 'tpu' came"):
        choose_device("tpu")
