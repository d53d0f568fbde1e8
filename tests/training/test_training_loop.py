"""The loop: it learns, it writes what it says, balancing follows the rule, and what is not finite is named."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from k3_scratch.config import preset
from k3_scratch.tasks.corpus import FAMILIES
from k3_scratch.training.checkpoint import load_checkpoint
from k3_scratch.training.loop import Trainer
from k3_scratch.training.run_folder import RunError, load_model
from k3_scratch.training.trouble import NotFinite

KIMI_LINEAR_STYLE = preset("nano").replace(
    attn_res_block_size=None, gate_lower_bound=None, use_full_rank_gate=False, q_lora_rank=None, mla_output_gate=False,
    moe_latent_size=None, moe_latent_norm=False, num_shared_experts=1, routed_scaling_factor=2.446, activation="swiglu")


def test_the_loss_falls_on_the_corpus(trainer, tmp_path):
    """From log(260) = 5.56, a guess among all tokens, to the handful of characters that can be an answer."""
    run = trainer(corpus=True, steps=60, batch_size=2, learning_rate=1e-2, validate_every=100)
    summary = run.run()
    losses = [line["loss"] for line in run.folder.read_metrics()]
    assert len(losses) == 60
    assert losses[0] == pytest.approx(math.log(260), abs=0.05)
    assert np.mean(losses[-10:]) < 3.8 < 4.5 < np.mean(losses[:5])
    assert summary["test_loss"] < 4.0
    assert set(summary["accuracy"]) == set(summary["exact_match"]) == set(FAMILIES)


def test_a_text_is_learnt(trainer):
    """45 characters again and again: most of the next ones are known after 40 steps."""
    summary = trainer(steps=40, batch_size=4, learning_rate=1e-2, test_rows=8, validate_every=100).run()
    assert summary["accuracy"]["text"] > 0.6 and summary["test_loss"] < 1.5
    assert list(summary["accuracy"]) == ["text"] and summary["exact_match"] == {}


def test_adamw_alone_learns_too(trainer):
    run = trainer(steps=25, batch_size=2, learning_rate=1e-2, optimizer="adamw", validate_every=100)
    run.run()
    losses = [line["loss"] for line in run.folder.read_metrics()]
    assert losses[-1] < 3.5 < losses[0]


def test_files_of_a_finished_run(trainer, tmp_path):
    run = trainer(corpus=True, steps=3, validate_every=2, seed=5)
    returned = run.run()
    folder = tmp_path / "run"
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json", "metrics.jsonl", "model.safetensors", "options.json", "summary.json"]
    assert json.loads((folder / "config.json").read_text(encoding="utf-8")) == preset("nano").to_dict()
    assert json.loads((folder / "options.json").read_text(encoding="utf-8")) == run.options.to_dict()

    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary == returned
    assert list(summary["accuracy"]) == list(summary["exact_match"]) == list(FAMILIES)
    assert all(0 <= value <= 1 for part in ("accuracy", "exact_match") for value in summary[part].values())
    assert summary["mean_accuracy"] == pytest.approx(np.mean(list(summary["accuracy"].values())))
    assert summary["seed"] == 5 and summary["steps"] == 3 and summary["device"] == "cpu"
    assert summary["train_seconds"] > 0
    assert summary["tokens_per_second"] == pytest.approx(3 * 2 * 80 / summary["train_seconds"])
    assert 50e6 < summary["peak_memory_bytes"] < 50e9                     # bytes, not KiB: torch alone takes 100 MB
    assert summary["parameters"] == sum(p.numel() for p in run.model.parameters())
    assert set(summary["versions"]) == {"k3_scratch", "python", "torch", "numpy", "platform", "machine"}
    assert summary["versions"]["torch"] == torch.__version__

    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["step"] for entry in entries] == [1, 2, 3]
    assert all({"loss", "learning_rate", "gradient_norm", "tokens_per_second"} <= set(entry) for entry in entries)
    assert ["validation_loss" in entry for entry in entries] == [False, True, True]        # every second, and the last
    assert set(entries[1]["validation_accuracy"]) == set(FAMILIES)

    saved = load_file(folder / "model.safetensors")
    assert saved.keys() == run.model.state_dict().keys()
    loaded = load_model(folder)
    assert not loaded.training
    tokens = torch.arange(20).unsqueeze(0)
    run.model.eval()
    assert torch.equal(loaded(tokens), run.model(tokens))


def test_the_learning_rate_follows_the_schedule(trainer, step):
    run = trainer(steps=5, learning_rate=0.5, warmup=0.4, final_rate=0.1)
    rates = []
    for _ in range(5):
        entry = step(run)
        rates.append(entry["learning_rate"])
        assert all(group["lr"] == rates[-1] for optimizer in run.optimizers for group in optimizer.param_groups)
    half = [0.5 * (0.1 + 0.9 * (1 + math.cos(math.pi * done / 3)) / 2) for done in range(3)]
    assert rates == pytest.approx([0.25, 0.5, *half])


def test_gradients_are_clipped_to_the_norm(trainer, monkeypatch, step):
    """With a clip of .01 AdamW's first moment, .1 times the clipped gradient, has norm .001 at most."""
    run = trainer(clip=0.01, optimizer="adamw")
    entry = step(run)
    assert entry["gradient_norm"] > 0.1                                   # logged before clipping
    moments = [state["exp_avg"] for state in run.optimizers[0].state.values()]
    norm = torch.stack([m.norm() for m in moments]).norm().item()
    assert norm == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_the_load_counts_all_tokens_since_the_last_validation(trainer, step):
    """Each token goes to 2 of 6 experts; the load is relative to the fair share, so it has mean 1."""
    run = trainer(steps=5, validate_every=3)
    for _ in range(3):
        step(run)
    assert {layer: int(n.sum()) for layer, n in run.counts.items()} == {1: 3 * 2 * 16 * 2, 2: 192, 3: 192}
    counts = {layer: n.clone() for layer, n in run.counts.items()}
    load = run.validate()["load"]
    assert list(load) == ["1", "2", "3"]
    for layer, shares in load.items():
        assert shares == pytest.approx((counts[int(layer)] / 32).tolist())                # 192 / 6 = 32
    assert all(int(n.sum()) == 0 for n in run.counts.values())            # validation itself is not counted


# ---- balancing

def biases(model):
    return {layer: moe.gate.e_score_correction_bias.clone() for layer, moe in model.moe_layers().items()}


def plain_quantile_bias(scores, bias, k):
    """The rule in NumPy by sorting: minus the (q + 1)-th largest margin over the best score that was not chosen."""
    m, n = scores.shape
    best_refused = np.sort(scores + bias, axis=1)[:, ::-1][:, k]
    margins = np.sort(scores - best_refused[:, None], axis=0)[::-1]
    new = -margins[m * k // n]
    return new - new.mean()


def test_balancing_follows_the_rule_after_each_update(trainer, step):
    run = trainer(steps=3)
    for _ in range(3):
        before = biases(run.model)
        step(run)
        for layer, moe in run.model.moe_layers().items():
            wanted = plain_quantile_bias(moe.observed_scores.double().numpy(), before[layer].double().numpy(), 2)
            assert moe.observed_scores.shape == (2 * 16, 6)
            new = moe.gate.e_score_correction_bias
            np.testing.assert_allclose(new.numpy(), wanted, atol=1e-6)
            assert not torch.equal(new, before[layer])


def test_the_bias_is_frozen_outside_training(trainer, step):
    run = trainer(steps=3)
    step(run)
    before, scores = biases(run.model), [moe.observed_scores for moe in run.model.moe_layers().values()]
    run.validate()
    run.model.eval()
    run.model(torch.arange(30).unsqueeze(0))
    assert all(torch.equal(before[layer], bias) for layer, bias in biases(run.model).items())
    after = [moe.observed_scores for moe in run.model.moe_layers().values()]
    assert all(torch.equal(a, b) for a, b in zip(scores, after, strict=True))         # nothing was observed either


def test_without_balancing_the_bias_stays_zero(trainer, tmp_path):
    trainer(balance=False).run()
    weights = load_file(tmp_path / "run" / "model.safetensors")
    found = [value for name, value in weights.items() if name.endswith("e_score_correction_bias")]
    assert len(found) == 3 and not any(value.any() for value in found)


# ---- other models

def test_a_model_in_the_style_of_kimi_linear_trains(trainer, tmp_path):
    run = trainer(config=KIMI_LINEAR_STYLE, steps=20, batch_size=2, learning_rate=1e-2)
    summary = run.run()
    losses = [line["loss"] for line in run.folder.read_metrics()]
    assert losses[-1] < 4.0 < losses[0] and summary["test_loss"] < 4.0
    names = load_file(tmp_path / "run" / "model.safetensors")
    assert not any("_res" in name or "routed_expert" in name for name in names)


def test_models_of_one_kind_of_layer_train(trainer):
    nano = preset("nano")
    kinds = {"all KDA": nano.replace(mla_layers=()), "all MLA": nano.replace(mla_layers=(0, 1, 2, 3)),
             "all dense": nano.replace(first_k_dense=4), "one layer": nano.replace(num_layers=1)}
    for name, config in kinds.items():
        assert trainer(name, config=config, steps=2).run()["steps"] == 2


def test_a_vocabulary_too_small_for_the_data_is_refused(trainer, tmp_path):
    with pytest.raises(RunError, match="vocab_size must be at least the 260 tokens of the data, but 100 came"):
        trainer(config=preset("nano").replace(vocab_size=100))
    assert not (tmp_path / "run").exists()


# ---- what is not finite

def test_a_weight_that_is_no_number_is_named_and_the_checkpoint_kept(trainer, tmp_path):
    run = trainer()
    original = run.train_step

    def train_step(*arguments):
        if run.step == 6:
            with torch.no_grad():
                run.model.layers[2].self_attn.k_proj.weight[1, 2] = float("nan")
        return original(*arguments)

    run.train_step = train_step
    with pytest.raises(NotFinite, match=r"step 6: the parameter layers\.2\.self_attn\.k_proj\.weight is not finite"):
        run.run()
    kept = load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    assert kept["step"] == 4
    assert all(torch.isfinite(value).all() for value in kept["model"].values() if value.is_floating_point())
    assert len(run.folder.read_metrics()) == 6
    resumed = trainer()
    assert resumed.step == 4 and resumed.run()["steps"] == 9


@pytest.mark.parametrize("name", ["layers.1.self_attn.o_proj", "layers.2.block_sparse_moe.routed_expert_norm",
                                  "layers.0.mlp.up_proj", "norm"])
def test_a_module_whose_output_overflows_is_named(name, trainer, step):
    run = trainer()
    module = run.model.get_submodule(name)
    module.register_forward_hook(lambda module, inputs, output: output * float("inf"))
    kind = type(module).__name__
    with pytest.raises(NotFinite, match=rf"step 0: .*comes from {name.replace('.', '[.]')} \({kind}\)") as caught:
        step(run)
    assert "\n" not in str(caught.value)
    assert all(torch.isfinite(p).all() for p in run.model.parameters())   # no update was made


@pytest.mark.parametrize("factor", [float("inf"), float("nan")])
def test_a_gradient_that_is_not_finite_is_named(factor, trainer, step):
    run = trainer()
    run.model.layers[1].self_attn.v_proj.weight.register_hook(lambda gradient: gradient * factor)
    with pytest.raises(NotFinite, match="forward pass is finite, the gradient of layers.1.self_attn.v_proj.weight"):
        step(run)


def test_trainer_takes_a_device_by_name(trainer, tmp_path, options):
    assert trainer().device == torch.device("cpu")
    with pytest.raises(RunError, match="'tpu' came"):
        Trainer(preset("nano"), options(), tmp_path / "other", device="tpu")
    assert not (tmp_path / "other").exists()
