"""Per-head Muon: the orthogonalisation, which matrix is cut how, and the step against a plain loop in NumPy."""

import copy

import numpy as np
import pytest
import torch

from k3_scratch.config import preset
from k3_scratch.model import K3
from k3_scratch.training.muon import Muon, head_blocks, make_optimizers, newton_schulz

NANO = preset("nano")
# what Muon moves in nano, by the last part of the name: rows of one block (2 heads; K 8, V 10, q 6 + 4, k 6 + v 5)
KDA = {"q_proj": 8, "k_proj": 8, "v_proj": 10, "f_a_proj": 8, "f_b_proj": 16, "b_proj": 2, "g_proj": 20, "o_proj": 24}
MLA = {"q_a_proj": 14, "q_b_proj": 10, "kv_a_proj_with_mqa": 16, "kv_b_proj": 11, "g_proj": 10, "o_proj": 24}
DENSE = {"gate_proj": 40, "up_proj": 40, "down_proj": 24}
MOE = {"routed_expert_down_proj": 16, "routed_expert_up_proj": 24, "experts.w1": 18, "experts.w3": 18, "experts.w2": 16,
       "shared_experts.gate_proj": 36, "shared_experts.up_proj": 36, "shared_experts.down_proj": 24}


def wanted_blocks():
    """{parameter name: rows of one block} as the specification says, for nano: three KDA layers and one MLA."""
    wanted = {}
    for i in range(4):
        attention = MLA if i == 3 else KDA
        wanted |= {f"layers.{i}.self_attn.{name}.weight": rows for name, rows in attention.items()}
        for name, rows in (DENSE if i == 0 else MOE).items():
            part = f"layers.{i}.mlp.{name}" if i == 0 else f"layers.{i}.block_sparse_moe.{name}"
            wanted[part if ".experts." in part else part + ".weight"] = rows
    return wanted


def orthogonalised(matrix):
    """Newton-Schulz on one matrix, written from the specification."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (np.sqrt((matrix ** 2).sum()) + 1e-7)
    for _ in range(5):
        x = a * x + b * (x @ x.T) @ x + c * (x @ x.T) @ (x @ x.T) @ x
    return x


class PlainMuon:
    """One matrix, block by block, in NumPy: momentum .95 with Nesterov's look-ahead, decoupled weight decay."""

    def __init__(self, matrix, rows, lr, decay=0.1):
        self.p, self.rows, self.lr, self.decay, self.m = matrix.copy(), rows, lr, decay, np.zeros_like(matrix)

    def step(self, gradient):
        self.m = 0.95 * self.m + gradient
        ahead = gradient + 0.95 * self.m
        matrices = ahead if ahead.ndim == 3 else ahead[None]              # [experts or 1, rows, columns]
        update = np.empty_like(matrices)
        for e, matrix in enumerate(matrices):
            for start in range(0, len(matrix), self.rows):
                block = matrix[start:start + self.rows]
                update[e, start:start + self.rows] = 0.2 * np.sqrt(max(block.shape)) * orthogonalised(block)
        self.p = self.p * (1 - self.lr * self.decay) - self.lr * update.reshape(self.p.shape)


@pytest.mark.parametrize("shape", [(40, 8), (8, 40), (24, 24), (1, 5), (5, 1)])
def test_newton_schulz_pushes_singular_values_towards_one(shape):
    rng = np.random.default_rng(0)
    small = min(shape)
    u, _ = np.linalg.qr(rng.normal(size=(shape[0], small)))
    v, _ = np.linalg.qr(rng.normal(size=(shape[1], small)))
    spread = np.linspace(0.2, 1.0, small) if small > 1 else np.ones(1)    # singular values before: a factor of 5 apart
    given = torch.from_numpy(np.stack([3.0 * (u * spread) @ v.T, 1e-3 * (u * spread) @ v.T]))
    out = newton_schulz(given)
    assert out.shape == given.shape
    for matrix in out.numpy():
        inside = u.T @ matrix @ v                                         # the same singular vectors ...
        values = np.diag(inside)
        np.testing.assert_allclose(inside, np.diag(values), atol=1e-9)
        np.testing.assert_allclose(matrix, (u * values) @ v.T, atol=1e-9)
        assert values.min() > 0.65 and values.max() < 1.25                # ... with other values
    torch.testing.assert_close(out[0], out[1], rtol=1e-3, atol=1e-3)      # the size of the gradient says nothing


def test_newton_schulz_of_nothing_is_nothing():
    assert torch.equal(newton_schulz(torch.zeros(2, 3, 5)), torch.zeros(2, 3, 5))


def test_head_blocks_are_the_matrices_of_the_specification():
    model = K3(NANO)
    assert head_blocks(model) == wanted_blocks()


def test_the_rest_is_left_to_adamw():
    model = K3(NANO)
    muon, adamw = make_optimizers(model, 1e-2)
    names = {id(p): name for name, p in model.named_parameters()}
    moved = [names[id(p)] for p in muon.param_groups[0]["params"]]
    decayed, plain = ([names[id(p)] for p in group["params"]] for group in adamw.param_groups)
    assert sorted([*moved, *decayed, *plain]) == sorted(names.values())   # each parameter once
    assert set(moved) == set(wanted_blocks())
    routers = [f"layers.{i}.block_sparse_moe.gate.weight" for i in (1, 2, 3)]
    assert sorted(decayed) == sorted(["embed_tokens.weight", "lm_head.weight", *routers])
    ends = ("conv1d.weight", "norm.weight", "layernorm.weight", "_res.query", "_res.weight", "A_log", "dt_bias")
    assert all(name.endswith(ends) for name in plain)
    assert sum("conv1d" in name for name in plain) == 9 and sum(name.endswith("_res.query") for name in plain) == 9
    assert adamw.param_groups[0]["weight_decay"] == 0.1 and adamw.param_groups[1]["weight_decay"] == 0.0
    assert all(group["betas"] == (0.9, 0.95) for group in adamw.param_groups)


def test_adamw_for_everything_on_request():
    model = K3(NANO)
    (adamw,) = make_optimizers(model, 1e-2, kind="adamw")
    assert sum(len(group["params"]) for group in adamw.param_groups) == len(list(model.parameters()))
    assert all(p.dim() >= 2 for p in adamw.param_groups[0]["params"])


def test_kimi_linear_queries_are_cut_into_heads_too():
    """Without a query latent MLA's W_q has a name that KDA also uses, and other rows: 6 + 4, not 8."""
    model = K3(NANO.replace(q_lora_rank=None, use_full_rank_gate=False, moe_latent_size=None))
    blocks = head_blocks(model)
    assert blocks["layers.3.self_attn.q_proj.weight"] == 10
    assert blocks["layers.0.self_attn.q_proj.weight"] == 8
    assert blocks["layers.0.self_attn.g_b_proj.weight"] == 20


def gradients(model, seed):
    rng = np.random.default_rng(seed)
    for parameter in model.parameters():
        parameter.grad = torch.from_numpy(rng.normal(size=tuple(parameter.shape)))


def test_step_is_the_plain_loop_over_heads_and_experts():
    model, lr = K3(NANO, seed=1).double(), 3e-2
    wanted = wanted_blocks()
    parameters = dict(model.named_parameters())
    plain = {name: PlainMuon(parameters[name].detach().numpy(), rows, lr) for name, rows in wanted.items()}
    others = {name: p.detach().clone() for name, p in parameters.items() if name not in wanted}
    shapes = {(rows > parameters[name].shape[-1]) for name, rows in wanted.items()}
    assert shapes == {True, False}                                        # tall blocks and wide ones
    muon = make_optimizers(model, lr)[0]
    for seed in (0, 1, 2):
        gradients(model, seed)
        muon.step()
        for name, alone in plain.items():
            alone.step(parameters[name].grad.numpy())
    for name, alone in plain.items():
        np.testing.assert_allclose(parameters[name].detach().numpy(), alone.p, rtol=0, atol=1e-10, err_msg=name)
    assert all(torch.equal(parameters[name], before) for name, before in others.items())


@pytest.mark.parametrize("name", ["layers.0.self_attn.q_proj.weight", "layers.0.self_attn.k_proj.weight",
                                  "layers.0.self_attn.v_proj.weight", "layers.3.self_attn.q_b_proj.weight",
                                  "layers.3.self_attn.kv_b_proj.weight", "layers.1.block_sparse_moe.experts.w1"])
def test_one_head_does_not_feel_the_others(name):
    """The later blocks' gradients grow a hundredfold: the first block moves as before. A whole matrix would not."""
    model, moves = K3(NANO, seed=1).double(), {}
    gradients(model, 0)
    parameter, rows = dict(model.named_parameters())[name], head_blocks(model)[name]
    matrix, gradient = (x.detach().flatten(0, -2) for x in (parameter, parameter.grad))
    for cut in ("per head", "whole"):
        for factor in (1.0, 100.0):
            flat = torch.nn.Parameter(matrix.clone())
            flat.grad = gradient * torch.where(torch.arange(len(flat)) < rows, 1.0, factor).unsqueeze(-1)
            Muon({flat: rows if cut == "per head" else len(flat)}, 1e-2).step()
            moves[cut, factor] = (flat.detach() - matrix)[:rows]
    torch.testing.assert_close(moves["per head", 1.0], moves["per head", 100.0], rtol=0, atol=1e-12)
    assert (moves["whole", 1.0] - moves["whole", 100.0]).abs().max() > 0.1 * moves["whole", 1.0].abs().max()
    assert (moves["whole", 1.0] - moves["per head", 1.0]).abs().max() > 0.1 * moves["whole", 1.0].abs().max()


def test_parameters_without_a_gradient_stay():
    model = K3(NANO)
    before = copy.deepcopy(model.state_dict())
    for optimizer in make_optimizers(model, 1e-2):
        optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_state_goes_through_state_dict(tmp_path):
    """Two steps, saved and loaded in between, end where two steps end."""
    ends = []
    for interrupted in (False, True):
        model = K3(NANO, seed=1).double()
        optimizers = make_optimizers(model, 1e-2)
        for seed in (0, 1):
            gradients(model, seed)
            for optimizer in optimizers:
                optimizer.step()
            if interrupted and seed == 0:
                torch.save([optimizer.state_dict() for optimizer in optimizers], tmp_path / "state.pt")
                optimizers = make_optimizers(model, 5.0)                  # everything is taken from the file
                for optimizer, state in zip(optimizers, torch.load(tmp_path / "state.pt"), strict=True):
                    optimizer.load_state_dict(state)
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
