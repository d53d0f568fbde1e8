"""A model with eyes: its text part is written, the note says so, and both files are verified against the run."""

import pytest
import torch
from torch_helpers import live_model, variant, write_run

from k3_scratch.__main__ import main
from k3_scratch.config import VisionConfig
from k3_scratch.export.gguf import read_gguf, to_gguf
from k3_scratch.export.huggingface import from_huggingface, to_huggingface
from k3_scratch.export.text_part import text_part
from k3_scratch.export.verify import verify

EYES = VisionConfig(num_layers=1, hidden_size=12, num_heads=2, qkv_size=16, intermediate_size=14, patch_size=2,
                    position_table=8, image_token=22)


@pytest.fixture
def seeing():
    return live_model(variant("k3").replace(kda_value_dim=8, vision=EYES), 4, torch.float32)


def test_the_text_part_computes_the_same_and_shares_its_weights(seeing):
    text, (remark,) = text_part(seeing)
    tokens = torch.arange(20).reshape(2, 10)
    assert torch.equal(text(tokens), seeing(tokens))
    assert text.config == seeing.config.replace(vision=None) and not hasattr(text, "vision")
    assert text.lm_head.weight.data_ptr() == seeing.lm_head.weight.data_ptr()
    eyes = sum(p.numel() for p in seeing.vision.parameters())
    assert f"({eyes:,} parameters) are left out" in remark
    assert text_part(text) == (text, [])


def test_hugging_face(seeing, tmp_path):
    [remark] = to_huggingface(seeing, tmp_path / "out")
    assert "only the text part is written" in remark
    tokens = torch.arange(20).reshape(2, 10)
    again = from_huggingface(tmp_path / "out")
    assert again.config.vision is None
    assert torch.equal(again(tokens), seeing(tokens))
    report = verify(tmp_path / "out", seeing)
    assert report.ok and report.with_run
    with torch.no_grad():
        seeing.lm_head.weight[0, 0] += 1
    assert verify(tmp_path / "out", seeing).problems == ("not the run's: language_model.lm_head.weight "
                                                         "(1 of 552 values)",)
    assert to_huggingface(text_part(seeing)[0], tmp_path / "text") == []


def test_gguf(seeing, tmp_path):
    remarks = to_gguf(seeing, tmp_path / "out.gguf")
    assert "only the text part is written" in remarks[0]
    assert remarks[1:] == to_gguf(text_part(seeing)[0], tmp_path / "text.gguf")
    assert verify(tmp_path / "out.gguf", seeing).ok
    assert not [name for name in read_gguf(tmp_path / "out.gguf")[1] if "vision" in name]


def test_the_command_says_so(seeing, tmp_path, capsys):
    run = write_run(tmp_path / "run", seeing)
    for form in ("hf", "gguf"):
        assert main(["export", str(run), str(tmp_path / form), "--format", form]) == 0
        assert "note: only the text part is written" in capsys.readouterr().out
