"""Training a model with eyes: the same loop, exact resume, controls against numbers counted by hand."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from k3_scratch.config import VisionConfig, preset
from k3_scratch.model import K3
from k3_scratch.tasks.corpus import Corpus
from k3_scratch.tasks.example import Example
from k3_scratch.tasks.pictures import Pictures
from k3_scratch.tasks.text import TextFile
from k3_scratch.training.answers import answers, picture_scores, text_only, whole_answers
from k3_scratch.training.data import training_data
from k3_scratch.training.evaluate import batch_loss
from k3_scratch.training.loop import Interrupted, Trainer
from k3_scratch.training.muon import head_blocks
from k3_scratch.training.options import PICTURES, TrainOptions, defaults
from k3_scratch.training.run_folder import load_model, read_json

EYES = VisionConfig(num_layers=1, hidden_size=12, num_heads=2, qkv_size=16, intermediate_size=14, patch_size=2,
                    position_table=6)
SMALL = preset("nano").replace(num_layers=2, attn_res_block_size=1, vision=EYES)
FEW = {"steps": 3, "batch_size": 2, "length": 109, "text": None, "test_rows": 2, "validate_every": 2,
       "checkpoint_every": 2, "shards": 2}


class Knows(nn.Module):
    """Writes the true next character of `batch`, but at the given places, or when the pictures are not the batch's."""

    def __init__(self, data, wrong=()):
        super().__init__()
        self.data, self.wrong, self.lm_head, self.row = data, set(wrong), nn.Identity(), 0

    def hidden(self, tokens, *, images):
        windows = {row.tobytes(): i for i, row in enumerate(self.data.tokens)}
        at = [windows[row.numpy().tobytes()] for row in tokens]
        targets = torch.from_numpy(self.data.targets[at]).clamp_min(0)
        for row, place in self.wrong:
            targets[at.index(row), place] += 1
        seen = images.unflatten(0, (len(at), -1)).numpy()
        same = [(picture == self.data.images[i]).all() for picture, i in zip(seen, at, strict=True)]
        targets[~torch.tensor(same)] = 7
        return nn.functional.one_hot(targets, 260).float()


class Fixed:
    """Data of one family that always gives the same rows."""

    families = ("shape",)

    def __init__(self, rows):
        self.rows = Pictures().batch(np.random.default_rng(1), rows, "test", "shape")

    def batch(self, rng, batch_size, split="train", family=None):
        return self.rows

    def page(self, rng, split, family=None):
        return Pictures().page(rng, split, family)


def test_a_whole_answer_is_right_from_first_to_last_character():
    data = Fixed(5)
    places = answers(data.rows)
    assert len(places) > 10 and all(data.rows.scored[row, start:stop].all() for row, start, stop in places)
    assert sum(stop - start for _, start, stop in places) == data.rows.scored.sum()
    assert whole_answers(Knows(data.rows), data, "test", 5) == {"shape": 1.0}
    (row, start, stop), (row2, _, stop2) = places[0], places[-1]
    wrong = [(row, start), (row, stop - 1), (row2, stop2 - 1)]           # two answers, one of them twice
    assert whole_answers(Knows(data.rows, wrong), data, "test", 5) == {"shape": 1 - 2 / len(places)}


def test_controls_show_other_pictures():
    """A model that needs its own pictures knows nothing when they are blank or another row's."""
    data = Fixed(4)
    scores = picture_scores(Knows(data.rows), data, "test", 4)
    assert scores["exact_match"] == {"shape": 1.0}
    assert scores["controls"]["blanked"] == scores["controls"]["swapped"] == {"shape": 0.0}
    assert 0 < scores["controls"]["text_only"]["shape"] < 0.5


def test_text_only_counts_the_commonest_answer():
    class Talk:
        families = ("shape",)

        def page(self, rng, split, family):
            turns = (("red? ", "ring"), (" red? ", "tee"), (" red? ", "ring"))
            if split == "test":
                turns = (("red? ", "ring"), (" red? ", "ell"), (" blue? ", "ring"), ("reds? ", "ring"))
            return [((), Example(turns), ("shape", "shape", "shape", "count")[:len(turns)])]

    assert text_only(Talk(), "test", 3) == {"shape": 2 / 3}              # "blue?" is new: the commonest of all


def test_the_loss_sees_the_pictures():
    rows = Pictures().batch(np.random.default_rng(0), 3)
    model = K3(SMALL)
    loss, _ = batch_loss(model, rows)
    blank = dataclasses.replace(rows, images=np.zeros_like(rows.images))
    assert loss.item() != batch_loss(model, blank)[0].item()
    loss.backward()
    assert all(p.grad is not None for p in model.vision.parameters())


def test_a_run_has_results_and_controls(trainer, tmp_path):
    run = trainer(config=SMALL, **FEW)
    assert isinstance(run.data, Pictures)
    before = {name: p.clone() for name, p in run.model.named_parameters()}
    summary = run.run()
    assert read_json(tmp_path / "run" / "summary.json") == summary
    families = {"shape", "colour", "count", "relation"}
    assert set(summary["accuracy"]) == set(summary["exact_match"]) == families
    assert {name: set(scores) for name, scores in summary["controls"].items()} == dict.fromkeys(
        ("blanked", "swapped", "text_only"), families)
    assert summary["parameters"] == sum(p.numel() for p in run.model.parameters())
    for name, p in load_model(tmp_path / "run").named_parameters():
        assert not torch.equal(p, before[name]) or name.startswith("layers.0.self_attention_res."), name
    assert any(moe.gate.e_score_correction_bias.any() for moe in run.model.moe_layers().values())      # balanced too


def test_resumed_ends_with_the_bits_of_an_uninterrupted_run(trainer, tmp_path, monkeypatch):
    trainer("whole", config=SMALL, **FEW).run()
    original = Trainer.train_step

    def stop_after(self, *arguments):
        entry = original(self, *arguments)
        if self.step == 2:
            self.save(0.0)
            raise Interrupted(self.step)
        return entry

    monkeypatch.setattr(Trainer, "train_step", stop_after)
    with pytest.raises(Interrupted):
        trainer("parts", config=SMALL, **FEW).run()
    monkeypatch.setattr(Trainer, "train_step", original)
    again = trainer("parts", config=SMALL, **FEW)
    assert again.step == 2
    again.run()
    one, other = (load_model(tmp_path / name).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    summaries = [read_json(tmp_path / name / "summary.json") for name in ("whole", "parts")]
    for name in ("accuracy", "exact_match", "controls", "test_loss"):
        assert summaries[0][name] == summaries[1][name]


def test_muon_takes_the_encoder_head_by_head():
    blocks = head_blocks(K3(SMALL))
    assert blocks["vision.layers.0.attention.qkv"] == 8                  # one head's rows
    assert blocks["vision.layers.0.attention.output.weight"] == 12       # a matrix of its own
    assert not any(name.startswith("vision") and name.endswith("norm.weight") for name in blocks)
    assert "vision.position_table" not in blocks                         # a table of vectors, as the embedding is


def test_which_data_a_run_takes(text_file):
    assert isinstance(training_data(preset("mini"), None, 80), Corpus)
    assert isinstance(training_data(preset("vision"), None, 109), Pictures)
    assert isinstance(training_data(preset("vision"), str(text_file), 16), TextFile)
    assert defaults(preset("mini")) == defaults(preset("vision"), "file") == TrainOptions()
    assert defaults(preset("vision")) == dataclasses.replace(TrainOptions(), **PICTURES)
    for wrong in ({"patch_size": 6}, {"patch_size": 4}, {"num_channels": 1}, {"image_token": 258}, {"merge": 1}):
        vision = dataclasses.replace(preset("vision").vision, **wrong)
        with pytest.raises(ValueError, match="pictures of 12 x 12 x 3 as 9 tokens 259 each|multiples of 8"):
            training_data(preset("vision").replace(vision=vision), None, 109)


def test_a_model_with_eyes_can_be_trained_on_text(trainer):
    summary = trainer(config=SMALL, steps=2).run()
    assert set(summary["accuracy"]) == {"text"} and "controls" not in summary
