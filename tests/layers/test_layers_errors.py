"""Wrong shapes are refused with one message: the argument, the shape wanted in letters, the shape given."""

import pytest
import torch
from torch_helpers import kda_arguments

from k3_scratch.layers.attention_residuals import depth_mix
from k3_scratch.layers.decay_gates import bounded_decay, softplus_decay
from k3_scratch.layers.experts import expert_mixture
from k3_scratch.layers.kda import kda_chunk, kda_recurrent
from k3_scratch.layers.mla import mla_absorbed, mla_naive
from k3_scratch.layers.quantile_balancing import quantile_bias
from k3_scratch.layers.rms_norm import rms_norm
from k3_scratch.layers.router import route
from k3_scratch.layers.short_convolution import short_convolution
from k3_scratch.layers.situ import situ_glu, swiglu
from k3_scratch.shapes import ShapeError


def z(*shape):
    return torch.zeros(shape)


def whole(*shape):
    return torch.zeros(shape, dtype=torch.int64)


EXPERTS = {"z": z(4, 8), "experts": whole(4, 2), "weights": z(4, 2),
           "w1": z(3, 6, 8), "w3": z(3, 6, 8), "w2": z(3, 8, 6)}
ROUTE = {"x": z(2, 4), "w_router": z(3, 4), "bias": z(3), "k": 2}
DEPTH = {"sources": z(2, 3, 4), "query": z(4), "norm_weight": z(4)}
MLA = {"q": z(2, 4, 3, 7), "latent": z(2, 5, 8), "shared_key": z(2, 5, 2), "w_kvb": z(3, 11, 8)}
# function, right arguments, one wrong argument, what the message must contain
WRONG = [
    (rms_norm, {"x": z(2, 4), "weight": z(4)}, {"weight": z(1)}, "weight must have shape [D] with D = 4, but [1] came"),
    (bounded_decay, {"z": z(2, 5, 3, 4), "A_log": z(3)}, {"A_log": z(1)}, "A_log must have shape [H] with H = 3"),
    (bounded_decay, {"z": z(2, 5, 3, 4), "A_log": z(3)}, {"z": z(3, 4)}, "z must have shape [..., T, H, K]"),
    (softplus_decay, {"z": z(2, 5, 3, 4), "A_log": z(3)}, {"A_log": z(4)}, "A_log must have shape [H] with H = 3"),
    (short_convolution, {"x": z(2, 6, 5), "weight": z(5, 4)}, {"weight": z(1, 4)}, "weight must have shape [P, W]"),
    (short_convolution, {"x": z(2, 6, 5), "weight": z(5, 4)}, {"x": z(6, 5)}, "x must have shape [B, T, P]"),
    (short_convolution, {"x": z(2, 6, 5), "weight": z(5, 4)}, {"tail": z(2, 2, 5)}, "tail must have shape [B, 3, P]"),
    (short_convolution, {"x": z(2, 6, 5), "weight": z(5, 4)}, {"tail": z(1, 3, 5)}, "tail must have shape [B, 3, P]"),
    (situ_glu, {"gate": z(2, 4), "up": z(2, 4)}, {"up": z(2, 1)}, "up must have shape [..., F]"),
    (swiglu, {"gate": z(2, 4), "up": z(2, 4)}, {"up": z(4)}, "up must have shape [..., F]"),
    (route, ROUTE, {"w_router": z(3, 5)}, "w_router must have shape [E, D]"),
    (route, ROUTE, {"bias": z(1)}, "bias must have shape [E] with E = 3"),
    (quantile_bias, {"scores": z(5, 3), "bias": z(3), "k": 1}, {"bias": z(1)}, "bias must have shape [E] with E = 3"),
    (depth_mix, DEPTH, {"query": z(1)}, "query must have shape [D]"),
    (depth_mix, DEPTH, {"norm_weight": z(3)}, "norm_weight must have"),
    (expert_mixture, EXPERTS, {"w2": z(3, 6, 8)}, "w2 must have shape [E, L, F]"),
    (expert_mixture, EXPERTS, {"weights": z(4, 1)}, "weights must have shape [m, k]"),
    (expert_mixture, EXPERTS, {"z": z(1, 8)}, "experts must have shape [m, k] with m = 1"),
    *((form, MLA, wrong, text) for form in (mla_naive, mla_absorbed) for wrong, text in (
        ({"latent": z(1, 5, 8)}, "latent must have shape [B, S, R]"),
        ({"shared_key": z(2, 4, 2)}, "shared_key must have shape [B, S, r]"),
        ({"w_kvb": z(1, 11, 8)}, "w_kvb must have shape [H, M, R]"),
        ({"mask": torch.ones(2, 1, 5, dtype=torch.bool)}, "mask must have shape [B, T, S]"),
        ({"q": z(2, 6, 3, 7)}, "q has T = 6 tokens, more than the S = 5"))),
]


@pytest.mark.parametrize(("function", "right", "wrong", "text"), WRONG,
                         ids=[f"{w[0].__name__}-{next(iter(w[2]))}-{i}" for i, w in enumerate(WRONG)])
def test_wrong_shapes(function, right, wrong, text):
    extra = {"act": situ_glu} if function is expert_mixture else {}
    function(**right, **extra)
    with pytest.raises(ValueError) as error:
        function(**{**right, **wrong}, **extra)
    message = str(error.value)
    assert message.startswith(function.__name__ + ": ")
    assert text in message
    assert "\n" not in message


@pytest.mark.parametrize("form", [kda_recurrent, kda_chunk])
@pytest.mark.parametrize(("name", "shape", "wanted"), [
    ("q", (2, 7, 3, 4), "[B, T, H, K] with B = 2, T = 7, H = 3, K = 5"), ("k", (7, 3, 5), "[B, T, H, K]"),
    ("v", (2, 7, 3), "[B, T, H, V] with B = 2, T = 7, H = 3"), ("v", (2, 1, 3, 4), "[B, T, H, V]"),
    ("g", (2, 7, 3), "[B, T, H, K]"), ("g", (2, 7, 5, 3), "[B, T, H, K]"), ("g", (2, 7, 3, 1), "[B, T, H, K]"),
    ("g", (1, 7, 3, 5), "[B, T, H, K]"), ("beta", (2, 7, 3, 5), "[B, T, H]"), ("beta", (2, 7, 1), "[B, T, H]"),
    ("state", (2, 3, 4, 5), "[B, H, K, V]"), ("state", (3, 5, 4), "[B, H, K, V]"),
    ("documents", (7,), "[B, T] with B = 2, T = 7"), ("documents", (2, 6), "[B, T]")])
def test_wrong_shapes_for_kda(form, name, shape, wanted):
    arguments = kda_arguments("k3", 7)
    arguments[name] = torch.zeros(shape)
    with pytest.raises(ShapeError) as error:
        form(**arguments)
    if name != "k":                                                              # k says what B, T, H and K are
        assert f"{form.__name__}: {name} must have shape {wanted}" in str(error.value)
        assert f"but {list(shape)} came" in str(error.value)


@pytest.mark.parametrize("k", [0, -1, 4])
def test_route_refuses_an_impossible_number_of_experts(k):
    with pytest.raises(ValueError, match=f"route: k must be from 1 to E = 3, but {k} came"):
        route(z(2, 4), z(3, 4), z(3), k)
