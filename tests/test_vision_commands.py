"""`k3 train --preset vision`, its pictures and samples; `k3 sample` about a picture; `k3 count`."""

import json
from dataclasses import replace

import pytest

from k3_scratch.__main__ import main
from k3_scratch.config import VisionConfig, preset
from k3_scratch.training import options
from k3_scratch.training.run_folder import read_json

EYES = VisionConfig(num_layers=1, hidden_size=12, num_heads=2, qkv_size=16, intermediate_size=14, patch_size=2,
                    position_table=6)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of three steps of a small model with eyes, and what the command printed."""
    folder = tmp_path_factory.mktemp("eyes")
    config = preset("nano").replace(num_layers=2, attn_res_block_size=1, vision=EYES)
    (folder / "eyes.json").write_text(config.to_json(), encoding="utf-8")
    small = {"validation_rows": 1, "test_rows": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(options, "PICTURES", options.PICTURES | small)
        assert main(["train", "--config", str(folder / "eyes.json"), "--out", str(folder / "run"), "--steps", "3",
                     "--batch-size", "2", "--validate-every", "2", "--device", "cpu", "--quiet"]) == 0
    return folder / "run"


def test_train_writes_a_run_with_its_pictures(run, capsys):
    told = read_json(run / "options.json")
    assert (told["steps"], told["batch_size"], told["length"]) == (3, 2, options.PICTURES["length"])
    assert {"blanked", "swapped", "text_only"} == set(read_json(run / "summary.json")["controls"])
    assert len(list(run.glob("*.png"))) >= 4
    assert main(["train", "--config", str(run.parent / "eyes.json"), "--out", str(run)]) == 0
    out = capsys.readouterr().out
    assert "holds a finished run" in out and "whole answers, blanked" in out and "text only" in out


def test_samples_show_the_question_after_its_picture(run):
    from k3_scratch.commands.train import samples
    from k3_scratch.tasks.pictures import Pictures
    from k3_scratch.training.run_folder import load_model
    lines = [line for line in samples(load_model(run), Pictures()).split("\n") if "->" in line][1:]
    assert [line.split()[0] for line in lines] == ["shape", "colour", "count", "relation"]
    assert all("@" in line and "<image>" not in line and ("right" in line or "wrong" in line) for line in lines)


def test_sample_asks_about_a_picture(run, capsys):
    arguments = ["sample", str(run), "--picture", "3", "--prompt", "things?", "--prompt", "red?",
                 "--max-new-tokens", "4"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert first.startswith("picture of a ") and "\nthings? " in first and "\nred? " in first
    assert main(arguments) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(("flags", "fragment"), [
    ((), "this run answers about pictures; name one with --picture N"),
    (("--picture", "-1"), "a whole number from 0 on, but -1 came"),
])
def test_sample_wants_a_picture(flags, fragment, run, capsys):
    assert main(["sample", str(run), "--prompt", "red?", *flags]) == 2
    assert fragment in capsys.readouterr().err


def test_sample_of_a_text_model_has_no_eyes(capsys):
    assert main(["sample", "--picture", "1", "--prompt", "8+3="]) == 2
    assert "--picture needs a run with a picture encoder" in capsys.readouterr().err


def test_count_names_the_encoder_apart(capsys):
    assert main(["count", "--preset", "vision"]) == 0
    out = capsys.readouterr().out
    assert "vision encoder" in out and "vision projector" in out and "total with vision" in out
    assert main(["count", "--preset", "vision", "--json"]) == 0
    count = json.loads(capsys.readouterr().out)
    assert main(["count", "--preset", "mini", "--json"]) == 0
    mini = json.loads(capsys.readouterr().out)
    assert (count["total"], count["active"]) == (mini["total"], mini["active"])
    assert count["total_with_vision"] == count["total"] + count["vision"] and count["vision"] > 50_000


def test_pictures_and_text_take_their_own_defaults():
    assert options.defaults(preset("vision")).length == options.PICTURES["length"]
    assert replace(options.defaults(preset("mini")), steps=1) == options.TrainOptions(steps=1)
