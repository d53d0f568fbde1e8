"""The commands: what they print and write, how they end, and that bad input costs one line and nothing else."""

import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import k3_scratch.commands.train as train_command
import k3_scratch.pretrained as pretrained_package
from k3_scratch import __version__
from k3_scratch.__main__ import main
from k3_scratch.config import preset
from k3_scratch.generate import generate
from k3_scratch.tasks.corpus import FAMILIES
from k3_scratch.tasks.vocabulary import decode, encode
from k3_scratch.training.options import TrainOptions
from k3_scratch.training.run_folder import load_model

ROOT = Path(__file__).resolve().parents[1]
STEPS = 30
PICTURES = ["accuracy.png", "decay_spectrum.png", "depth_attention.png", "expert_load.png", "loss.png",
            "magnitudes.png"]
WEIGHTS = ["config.json", "metrics.jsonl", "model.safetensors", "options.json", "summary.json"]


@dataclasses.dataclass(frozen=True)
class SmallTests(TrainOptions):
    """The options of a run with the smallest validation and final test; the commands have no flags for these."""

    validation_rows: int = 1
    test_rows: int = 1
    exact_examples: int = 1


@pytest.fixture
def small_tests(monkeypatch):
    monkeypatch.setattr(train_command, "TrainOptions", SmallTests)


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "fox.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 40, encoding="utf-8")
    return path


def train_arguments(folder, text, *more):
    """A run of a few seconds, with a checkpoint at every seventh step."""
    return ["train", "--preset", "nano", "--out", str(folder), "--text", str(text), "--length", "16", "--batch-size",
            "4", "--steps", str(STEPS), "--learning-rate", "0.01", "--checkpoint-every", "7", "--validate-every", "20",
            "--device", "cpu", "--quiet", *more]


def k3(*arguments, **settings):
    """`python -m k3_scratch` in a process of its own, with as many threads as here."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(torch.get_num_threads())}
    return subprocess.Popen([sys.executable, "-m", "k3_scratch", *map(str, arguments)], env=environment, text=True,
                            encoding="utf-8", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **settings)


@pytest.fixture(scope="module")
def finished(text_file, tmp_path_factory):
    """The folder of a finished run, and what the command printed."""
    folder, printed = tmp_path_factory.mktemp("runs") / "nano", io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", printed)
        assert main(train_arguments(folder, text_file)) == 0
    return folder, printed.getvalue()


def files(folder):
    """Every file below `folder` with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
            for path in sorted(folder.rglob("*"))}


# ---- count

@pytest.mark.parametrize(("name", "wanted"), [
    ("kimi_k3", {"total": 2_779_484_476_000, "active": 104_189_612_640, "routed_experts": 2_722_740_830_208,
                 "checkpoint_bytes": 1_560_860_324_864, "total_with_vision": 2_779_931_834_976}),
    ("kimi_linear_48b", {"total": 49_122_681_728}),
])
def test_count_as_json(name, wanted, capsys):
    assert main(["count", "--preset", name, "--json"]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert {key: counted[key] for key in wanted} == wanted


def test_count_as_a_table(capsys):
    assert main(["count", "--preset", "kimi_k3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "kimi_k3"
    for fact in ("2,779,484,476,000", "104,189,612,640", "2,722,740,830,208", "1,560,860,324,864", "13,824"):
        assert any(fact in line for line in lines), fact
    assert any("443,740,384" in line and "69" in line for line in lines)  # KDA: each, instances
    assert any("232,196,096" in line and "24" in line for line in lines)  # MLA
    assert max(map(len, lines)) <= 120


def test_count_reads_a_configuration_file_and_defaults_to_mini(tmp_path, capsys):
    file = tmp_path / "mine.json"
    file.write_text(preset("nano").replace(num_layers=2).to_json(), encoding="utf-8")
    assert main(["count", "--config", str(file), "--json"]) == 0
    total = json.loads(capsys.readouterr().out)["total"]
    assert main(["count", "--preset", "nano", "--json"]) == 0
    assert 0 < total < json.loads(capsys.readouterr().out)["total"]
    assert main(["count"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "mini"


# ---- train

def test_train_writes_the_run_and_its_pictures(finished):
    folder, printed = finished
    assert sorted(path.name for path in folder.iterdir()) == sorted([*WEIGHTS, *PICTURES])
    for name in PICTURES:
        assert (folder / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert f"text        {summary['accuracy']['text']:10.3f}" in printed
    assert "seed 0" in printed and "held-out examples" in printed and "6 pictures are in" in printed
    assert "Traceback" not in printed


def test_a_finished_run_is_left_alone_and_said_so(finished, text_file, capsys):
    folder, _ = finished
    before = files(folder)
    assert main(train_arguments(folder, text_file)) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{folder} holds a finished run; nothing to do (--force trains it anew).\n")
    assert "mean " in out and err == ""
    assert files(folder) == before


def test_ctrl_c_saves_and_the_same_command_resumes_to_the_same_bits(finished, text_file, tmp_path, capsys):
    """A real SIGINT to a real process: exit status 130, and then the run that was never interrupted."""
    folder = tmp_path / "nano"
    process = k3(*train_arguments(folder, text_file))
    metrics, until = folder / "metrics.jsonl", time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= 3:
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "updates; the same command resumes" in out and err == ""
    step = torch.load(folder / "checkpoint.pt")["step"]
    assert 3 <= step < STEPS and not (folder / "summary.json").exists()

    assert main(train_arguments(folder, text_file)) == 0
    out, err = capsys.readouterr()
    assert err == "" and f"resuming after {step} of {STEPS} updates" in out
    whole, _ = finished
    ours, others = load_file(folder / "model.safetensors"), load_file(whole / "model.safetensors")
    assert [name for name in others if not torch.equal(ours[name], others[name])] == []

    def lines(run):
        text = (run / "metrics.jsonl").read_text(encoding="utf-8")
        return [{**json.loads(line), "tokens_per_second": 0} for line in text.splitlines()]

    assert lines(folder) == lines(whole) and len(lines(folder)) == STEPS
    assert sorted(files(folder)) == sorted(files(whole))


def test_an_unfinished_run_with_other_settings_is_refused(text_file, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        original = train_command.Trainer.train_step

        def train_step(self, *arguments):
            signal.raise_signal(signal.SIGINT)
            return original(self, *arguments)

        patch.setattr(train_command.Trainer, "train_step", train_step)
        assert main(train_arguments(folder, text_file)) == 130
    assert "saved after 1 updates" in capsys.readouterr().out
    before = files(folder)
    one_line(train_arguments(folder, text_file, "--seed", "3"), "seed is 0 there and 3 now", capsys)
    one_line(train_arguments(folder, text_file, "--optimizer", "adamw"), "optimizer is 'muon' there", capsys)
    assert files(folder) == before


def test_a_kimi_linear_style_configuration_trains_and_is_drawn(small_tests, tmp_path, capsys):
    """No attention over depth, no latent: its picture of depth is left out, and every other is there."""
    config = preset("nano").replace(
        attn_res_block_size=None, gate_lower_bound=None, use_full_rank_gate=False, q_lora_rank=None,
        mla_output_gate=False, moe_latent_size=None, moe_latent_norm=False, num_shared_experts=1,
        routed_scaling_factor=2.446, activation="swiglu")
    file, folder = tmp_path / "linear.json", tmp_path / "run"
    file.write_text(config.to_json(), encoding="utf-8")
    assert main(["train", "--config", str(file), "--out", str(folder), "--steps", "3", "--batch-size", "2", "--device",
                 "cpu", "--quiet", "--no-balance", "--recompute"]) == 0
    out = capsys.readouterr().out
    drawn = sorted(path.name for path in folder.glob("*.png"))
    assert drawn == [name for name in PICTURES if name != "depth_attention.png"]
    assert load_model(folder).config == config
    for family in FAMILIES:                                               # table and samples
        assert sum(line.split()[:1] == [family] for line in out.splitlines()) == 2
    options = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    assert options["balance"] is False and options["recompute"] is True and options["text"] is None


def test_one_step_and_a_dense_model_are_drawn(small_tests, text_file, tmp_path, capsys):
    """No MoE layer, no KDA layer, one point in each curve; the folder is runs/NAME of the configuration file."""
    config = preset("nano").replace(num_layers=1, attn_res_block_size=1)
    file = tmp_path / "tiny.json"
    file.write_text(config.to_json(), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert main(["train", "--config", str(file), "--steps", "1", "--batch-size", "1", "--length", "16", "--text",
                     str(text_file), "--device", "cpu", "--quiet"]) == 0
    drawn = sorted(path.name for path in (tmp_path / "runs" / "tiny").glob("*.png"))
    assert drawn == ["accuracy.png", "depth_attention.png", "loss.png", "magnitudes.png"]


def test_a_larger_vocabulary_than_the_text_needs_trains_to_the_end(small_tests, text_file, tmp_path, capsys):
    """A model may have tokens that the data does not use, and an untrained one writes them."""
    file = tmp_path / "wide.json"
    file.write_text(preset("nano").replace(num_layers=1, vocab_size=2000).to_json(), encoding="utf-8")
    assert main(["train", "--config", str(file), "--steps", "1", "--batch-size", "1", "--length", "16", "--text",
                 str(text_file), "--device", "cpu", "--quiet", "--out", str(tmp_path / "run")]) == 0, \
        capsys.readouterr().err


# ---- sample

def test_sample_continues_prompts(finished, capsys):
    folder, _ = finished
    assert main(["sample", str(folder), "--prompt", "the quick", "--prompt", "lazy", "--max-new-tokens", "9"]) == 0
    out = capsys.readouterr().out
    model = load_model(folder)
    written = [prompt + decode(generate(model, encode(prompt), 9, stop_tokens=(10,))).rstrip("\n")
               for prompt in ("the quick", "lazy")]
    assert out == "".join(line + "\n" for line in written)


def test_sample_reads_standard_input(finished, capsys, monkeypatch):
    folder, _ = finished
    monkeypatch.setattr(sys, "stdin", io.StringIO("the quick\n"))
    assert main(["sample", str(folder), "--max-new-tokens", "4"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("the quick") and "\n" not in out[:-1] and len(out) > len("the quick\n")


def test_sample_passes_its_flags_on(finished, capsys, monkeypatch):
    seen = {}

    def spy(model, prompts, max_new_tokens, **settings):
        seen.update(settings, prompts=prompts, max_new_tokens=max_new_tokens)
        return [[65]] * len(prompts)

    monkeypatch.setattr("k3_scratch.commands.sample.generate", spy)
    assert main(["sample", str(finished[0]), "--prompt", "é", "--temperature", "0.5", "--top-k", "3", "--top-p", "0.9",
                 "--seed", "8", "--no-stop", "--max-new-tokens", "5"]) == 0
    assert seen == {"prompts": [[195, 169]], "max_new_tokens": 5, "temperature": 0.5, "top_k": 3, "top_p": 0.9,
                    "seed": 8, "stop_tokens": ()}
    assert capsys.readouterr().out == "éA\n"


@pytest.mark.parametrize("flags", [("--top-k", "3"), ("--top-p", "0.9"), ("--top-k", "5", "--top-p", "0.5")])
def test_sample_draws_and_the_seed_decides(flags, finished, capsys):
    def drawn(seed):
        assert main(["sample", str(finished[0]), "--prompt", "the ", "--temperature", "2", "--seed", seed, "--no-stop",
                     "--max-new-tokens", "16", *flags]) == 0
        return capsys.readouterr().out

    assert drawn("1") == drawn("1") and len({drawn(seed) for seed in "123"}) > 1


# ---- publish

def test_publish_and_load_by_name(finished, text_file, tmp_path, capsys, monkeypatch):
    package = tmp_path / "pretrained"
    monkeypatch.setattr(train_command, "FOLDER", package)
    monkeypatch.setattr(pretrained_package, "FOLDER", package)
    folder, _ = finished
    assert main(train_arguments(folder, text_file, "--publish", "fox")) == 0
    assert capsys.readouterr().out.endswith("published as pretrained('fox')\n")
    published = ["config.json", "model.safetensors", "options.json", "summary.json"]
    assert sorted(path.name for path in (package / "fox").iterdir()) == published
    assert all((package / "fox" / name).read_bytes() == (folder / name).read_bytes() for name in published)
    model = pretrained_package.pretrained("fox")
    assert not model.training and model.config == preset("nano")
    trained = load_model(folder).state_dict()
    assert all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())
    assert main(train_arguments(folder, text_file, "--publish")) == 0     # without a name: that of the preset
    assert (package / "nano" / "model.safetensors").exists()
    one_line(["sample", "--prompt", "x"], "name must be one of fox, nano, but 'mini' came", capsys)


def test_publish_takes_a_name_and_no_path(finished, text_file, tmp_path, capsys, monkeypatch):
    """Weights go into a folder of the package and nowhere else; `pretrained` could not find them there anyway."""
    monkeypatch.setattr(train_command, "FOLDER", tmp_path / "package" / "pretrained")
    before = files(tmp_path)
    for name in ("../outside", str(tmp_path / "outside"), "a/b", ".."):
        one_line(train_arguments(finished[0], text_file, "--publish", name), name, capsys)
        assert files(tmp_path) == before


# ---- bad input

def one_line(arguments, fragment, capsys):
    """Exit status 2, and one line on standard error that contains `fragment`."""
    capsys.readouterr()
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("k3: ") and len(err.splitlines()) == 1, err
    assert fragment in err


BAD_TRAIN = [
    (["--preset", "huge"], "preset must be one of nano, mini, vision, kimi_linear_48b, kimi_k3, but 'huge' came"),
    (["--config", "nowhere.json"], "nowhere.json: not a readable JSON configuration"),
    (["--config", "broken.json"], "broken.json: not a readable JSON configuration"),
    (["--config", "wrong.json"], "wrong.json: num_heads must be a whole number, at least 1, but 0 came"),
    (["--config", "unknown.json"], "unknown.json: heads: no such field"),
    (["--config", "small.json"], "vocab_size must be at least the 260 tokens of the data, but 99 came"),
    (["--config", "folder"], "folder: not a readable JSON configuration"),
    (["--text", "nowhere.txt"], "path must be a readable file, but 'nowhere.txt' came"),
    (["--text", "folder"], "path must be a readable file, but 'folder' came"),
    (["--text", "short.txt"], "path must be a file of at least 810 bytes"),
    (["--steps", "0"], "steps must be a whole number, at least 1, but 0 came"),
    (["--batch-size", "-2"], "batch_size must be a whole number, at least 1, but -2 came"),
    (["--length", "3"], "length must be a whole number, at least"),
    (["--learning-rate", "0"], "learning_rate must be a number above 0 and at most 1000, but 0.0 came"),
    (["--learning-rate", "nan"], "learning_rate must be a number above 0 and at most 1000, but nan came"),
    (["--weight-decay", "2"], "weight_decay must be a number from 0 to 1, but 2.0 came"),
    (["--seed", "-1"], "seed must be a whole number from 0 on, but -1 came"),
    (["--validate-every", "0"], "validate_every must be a whole number, at least 1, but 0 came"),
    (["--checkpoint-every", "0"], "checkpoint_every must be a whole number, at least 1, but 0 came"),
    (["--out", "file.txt"], "file.txt"),
    (["--out", "file.txt/run"], "file.txt/run"),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with bad files of every kind."""
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (tmp_path / "wrong.json").write_text('{"num_heads": 0}', encoding="utf-8")
    (tmp_path / "unknown.json").write_text('{"heads": 4}', encoding="utf-8")
    (tmp_path / "small.json").write_text('{"vocab_size": 99}', encoding="utf-8")
    (tmp_path / "short.txt").write_text("too short", encoding="utf-8")
    (tmp_path / "file.txt").write_text("a file", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("flags", "fragment"), BAD_TRAIN, ids=[" ".join(flags) for flags, _ in BAD_TRAIN])
def test_train_refuses_in_one_line_and_writes_nothing(flags, fragment, here, capsys):
    before = files(here)
    model = [] if flags[0] in ("--preset", "--config") else ["--preset", "nano"]
    one_line(["train", *model, "--device", "cpu", *flags], fragment, capsys)
    assert files(here) == before


def test_a_device_that_is_not_here(here, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = files(here)
    one_line(["train", "--preset", "nano", "--device", "cuda"], "device must be auto or one that is here", capsys)
    assert files(here) == before


def test_bad_input_with_force_clears_nothing(here, finished, text_file, capsys):
    """--force forgets the earlier run, but not before everything else about the new one is known to be right."""
    shutil.copytree(finished[0], here / "run")
    before = files(here)
    for flags in (["--steps", "0"], ["--text", "nowhere.txt"], ["--seed", "-1"]):
        one_line(train_arguments(here / "run", text_file, "--force", *flags), flags[0][2:] if flags[0] != "--text"
                 else "nowhere.txt", capsys)
    assert files(here) == before


@pytest.mark.parametrize(("flags", "fragment"), [
    (["nowhere", "--prompt", "x"], "nowhere: not a run folder (it has no config.json)"),
    (["folder", "--prompt", "x"], "folder: not a run folder"),
    (["RUN", "--prompt", ""], "prompt_ids must be one prompt or a list of prompts, none of them empty"),
    (["RUN", "--prompt", "x", "--max-new-tokens", "0"], "max_new_tokens must be at least 1, but 0 came"),
    (["RUN", "--prompt", "x", "--temperature", "-1"], "temperature must be 0 (greedy) or above, but -1.0 came"),
    (["RUN", "--prompt", "x", "--temperature", "nan"], "temperature must be"),
    (["RUN", "--prompt", "x", "--top-k", "0"], "top_k must be None or at least 1, but 0 came"),
    (["RUN", "--prompt", "x", "--top-p", "1.5"], "top_p must be None or above 0 and at most 1, but 1.5 came"),
    (["RUN", "--prompt", "\udcff"], "utf-8"),
])
def test_sample_refuses_in_one_line(flags, fragment, here, finished, capsys):
    before = files(here)
    one_line(["sample", *(str(finished[0]) if flag == "RUN" else flag for flag in flags)], fragment, capsys)
    assert files(here) == before


def test_sample_refuses_a_seed_that_is_too_large(finished, capsys):
    for seed in (2 ** 64, 10 ** 30, -2 ** 63 - 1):
        one_line(["sample", str(finished[0]), "--prompt", "x", "--temperature", "1", "--seed", str(seed)], "", capsys)


def test_sample_refuses_an_unfinished_or_damaged_run(here, finished, capsys):
    shutil.copytree(finished[0], here / "run")
    weights = here / "run" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:500])
    one_line(["sample", str(here / "run"), "--prompt", "x"], "not readable safetensors", capsys)
    weights.unlink()
    one_line(["sample", str(here / "run"), "--prompt", "x"], "the run is not finished", capsys)
    one_line(["count", "--config", "broken.json"], "broken.json: not a readable JSON configuration", capsys)
    one_line(["count", "--preset", "huge", "--json"], "preset must be one of", capsys)


@pytest.mark.parametrize(("arguments", "fragment"), [
    ([], "COMMAND"), (["fly"], "fly"), (["train", "--steps", "many"], "--steps"), (["train", "--wings"], "--wings"),
    (["train", "--preset", "nano", "--config", "x.json"], "--config"), (["train", "--device", "abacus"], "--device"),
    (["train", "--optimizer", "sgd"], "--optimizer"), (["sample", "--top-k", "1.5"], "--top-k"),
])
def test_flags_that_cannot_be_read(arguments, fragment, here, capsys):
    """argparse's own refusals: usage, and in the last line what was wrong."""
    before = files(here)
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    err = capsys.readouterr().err
    assert fragment in err.splitlines()[-1] and "Traceback" not in err
    assert files(here) == before


def test_a_fault_of_our_own_is_shown_whole(monkeypatch):
    """What the user cannot mend is not dressed up as bad input."""
    def broken(arguments):
        raise RuntimeError("shapes of a matrix product")

    monkeypatch.setattr("k3_scratch.commands.count.chosen_config", broken)
    with pytest.raises(RuntimeError, match="matrix product"):
        main(["count"])


def test_python_m_ends_with_the_exit_status(tmp_path):
    process = k3("train", "--preset", "nano", "--steps", "0", cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err == "k3: steps must be a whole number, at least 1, but 0 came\n"
    assert list(tmp_path.iterdir()) == []


def test_version_and_help(capsys):
    for arguments, fragment in ((["--version"], __version__), (["--help"], "train"), (["train", "-h"], "--publish")):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0 and fragment in capsys.readouterr().out


def test_figures_writes_where_it_is_told(tmp_path, capsys, monkeypatch):
    asked = []

    def write(folder):
        asked.append(folder)
        return {"architecture.png": tmp_path / "architecture.png"}

    monkeypatch.setattr("k3_scratch.commands.figures.write_architecture_figures", write)
    assert main(["figures", "--out", str(tmp_path)]) == 0 and main(["figures"]) == 0
    assert asked == [str(tmp_path), "figures"]
    assert capsys.readouterr().out == f"{tmp_path / 'architecture.png'}\n" * 2
