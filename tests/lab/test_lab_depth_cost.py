"""Formulas of what joining costs: against models that are built, and against the numbers of chapter 06."""

import pytest

from k3_scratch.accounting.built import flops_built
from k3_scratch.baselines.frame import build
from k3_scratch.config import K3Config, preset
from k3_scratch.lab.depth_cost import FORMS, joining_flops, more_flops, more_traffic, traffic
from k3_scratch.lab.experiment import Job, load
from k3_scratch.lab.experiments.residual_cost import measure

SMALL = K3Config(vocab_size=13, hidden_size=12, num_heads=2, kda_key_dim=4, kda_value_dim=6, intermediate_size=20)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("layers", "block"), [(1, 1), (5, 2), (4, 3)])
def test_flops_are_those_of_a_model_that_is_built(form, layers, block):
    config = SMALL.replace(attn_res_block_size=block)
    options = {"streams": 3} if form == "hyper" else {}
    plain = build(["kda"] * layers, "swiglu", "plain", config=config)
    joined = build(["kda"] * layers, "swiglu", form, config=config, **options)
    config = config.replace(num_layers=layers, mla_layers=())
    assert joining_flops(form, config, 3) == flops_built(joined).total - flops_built(plain).total


def test_numbers_of_the_course():
    config = preset("kimi_k3")
    assert more_flops("attention", config) == pytest.approx(0.00021, abs=1e-5)
    assert traffic("attention", config) == pytest.approx(5.2, abs=0.05)
    assert traffic("full_attention", config) == pytest.approx(94, abs=0.01)
    assert more_traffic("attention", config) == pytest.approx(0.008, abs=0.001)
    assert more_traffic("full_attention", config) == pytest.approx(0.35, abs=0.02)
    assert more_traffic("hyper", config) > 10 * more_traffic("attention", config)


@pytest.mark.parametrize("function", [joining_flops, traffic])
def test_another_form_is_refused(function):
    with pytest.raises(ValueError, match="but 'plain' came"):
        function("plain", preset("nano"))


def test_rounds_and_values_belong_together():
    """The median of the rounds at each width is the value that the table shows."""
    experiment = load("residual_cost")
    found = measure(Job(experiment, experiment.variants[2], experiment.sizes[1], 1, quick=True))
    assert found["rounds"].shape == (1, 6) and found["widths"] == [32, 64, 128, 256, 512, 1024]
    values = [found["values"][f"D {D}"] for D in found["widths"]]
    assert values == pytest.approx((100 * (found["rounds"][0] - 1)).tolist())        # of one round the median is it
    assert found["values"]["last over first"] == pytest.approx(values[-1] / values[0])
