"""`k3 train`: train a model, draw its pictures, show what it can do."""

import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import torch

from k3_scratch.accounting import count_parameters
from k3_scratch.analysis.decay import mean_decay
from k3_scratch.analysis.depth_attention import depth_attention
from k3_scratch.analysis.magnitudes import magnitudes
from k3_scratch.analysis.picture_attention import with_images
from k3_scratch.commands.count import add_config_arguments, chosen_config
from k3_scratch.generate import generate
from k3_scratch.plots.run_pictures import run_pictures
from k3_scratch.pretrained import FOLDER
from k3_scratch.tasks.corpus import FAMILIES
from k3_scratch.tasks.pictures import MARKERS, Pictures
from k3_scratch.tasks.text import TextFile
from k3_scratch.tasks.vocabulary import IMAGE, NEWLINE, PAD, decode, encode
from k3_scratch.training.answers import answers
from k3_scratch.training.data import training_data
from k3_scratch.training.loop import Interrupted, Trainer
from k3_scratch.training.options import PICTURES, TrainOptions, defaults
from k3_scratch.training.ranks import ranks_of_this_process
from k3_scratch.training.run_folder import RunError, RunFolder, load_model, read_json

LARGEST = 200_000_000                              # parameters; beyond that memory runs out before anything is learnt
_FLAGS = ("steps", "batch_size", "length", "learning_rate", "weight_decay", "seed", "validate_every",
          "checkpoint_every")


def add_to(subparsers):
    parser = subparsers.add_parser(
        "train", help="train a model; an unfinished run is resumed",
        epilog="On several processes or GPUs: torchrun --nproc-per-node N -m k3_scratch train ... with the same flags "
               "divides the rows of each batch among N processes. The same command resumes, also with another N.")
    add_config_arguments(parser)
    parser.add_argument("--out", metavar="RUN", help="the run's folder (default runs/PRESET)")
    types = {field.name: field for field in fields(TrainOptions)}
    for name in _FLAGS:
        default = types[name].default
        seeing = f"; with pictures {PICTURES[name]}" if PICTURES.get(name, default) != default else ""
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=type(default), help=f"(default {default}{seeing})")
    parser.add_argument("--optimizer", choices=("muon", "adamw"), default="muon", help="(default %(default)s)")
    parser.add_argument("--text", metavar="FILE", help="train on this text in place of the toy corpus")
    parser.add_argument("--no-balance", dest="balance", action="store_false", help="leave the selection biases at 0")
    parser.add_argument("--recompute", action="store_true", help="less memory, more time")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--force", action="store_true", help="train anew over a finished or unfinished run")
    parser.add_argument("--publish", metavar="NAME", nargs="?", const="",
                        help="also copy weights and summary into the package as pretrained(NAME)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(run=run)


def run(arguments):
    config = chosen_config(arguments)
    name = Path(arguments.config).stem if arguments.config else arguments.preset
    published = None if arguments.publish is None else arguments.publish or name
    if published is not None and not re.fullmatch(r"[A-Za-z0-9_-]+", published):
        raise RunError(f"--publish must be letters, digits, - and _, but {published!r} came")
    folder = Path(arguments.out or Path("runs") / name)
    with ranks_of_this_process(arguments.device) as ranks:
        if RunFolder(folder).finished and not arguments.force:
            if ranks.first:
                print(f"{folder} holds a finished run; nothing to do (--force trains it anew).")
                print(report(read_json(folder / "summary.json")))
        else:
            trainer = ranks.first_then_all(lambda: _trainer(arguments, config, name, folder, ranks))
            if trainer.step and ranks.first:
                print(f"{folder}: resuming after {trainer.step} of {trainer.options.steps} updates")
            try:
                summary = trainer.run()
            except Interrupted as stop:
                if ranks.first:
                    print(f"\n{folder}: {stop}")
                return 130
            if ranks.first:
                pictures = draw(folder)
                print(report(summary))
                print(samples(trainer.model, trainer.data))
                print(f"weights, metrics and {len(pictures)} pictures are in {folder}")
        if published is not None and ranks.first:
            publish(folder, published)
    return 0


def _trainer(arguments, config, name, folder, ranks):
    """The Trainer of a run that has not been finished."""
    total = count_parameters(config).total_with_vision
    if total > LARGEST:
        raise RunError(f"{name} has {total:,} parameters; more than {LARGEST:,} are not trained here")
    told = {flag: getattr(arguments, flag) for flag in (*_FLAGS, "optimizer", "text", "balance", "recompute")}
    told = {flag: value for flag, value in told.items() if value is not None}
    options = replace(defaults(config, arguments.text), **told)
    return Trainer(config, options, folder, device=arguments.device, force=arguments.force, quiet=arguments.quiet,
                   ranks=ranks)


def report(summary):
    """Accuracy per family as a small table."""
    lines = [f"{'family':<10}  characters  whole answers"]
    for family, value in summary["accuracy"].items():
        exact = summary["exact_match"].get(family)
        lines.append(f"{family:<10}  {value:10.3f}  {'' if exact is None else f'{exact:13.3f}'}")
    lines.append(f"{'mean':<10}  {summary['mean_accuracy']:10.3f}")
    for name, scores in summary.get("controls", {}).items():
        lines.append(f"whole answers, {name.replace('_', ' '):<9}  "
                     + "  ".join(f"{family} {value:.3f}" for family, value in scores.items()))
    lines.append(f"{summary['train_seconds']:.0f} s of training, {summary['tokens_per_second']:,.0f} tokens/s, "
                 f"peak memory {summary['peak_memory_bytes'] / 2 ** 20:,.0f} MiB, seed {summary['seed']}")
    return "\n".join(lines)


def samples(model, data):
    """One held-out example per family with the model's answers, or a continuation of the user's text."""
    lines, rng = ["", "held-out examples (prompt -> the model's answer):"], np.random.default_rng(7)
    if isinstance(data, TextFile):
        prompt = data.batch(rng, 1, "test").tokens[0, :data.length // 2].tolist()
        return "\n".join([*lines, f"{decode(prompt)!r} -> {decode(generate(model, prompt, 80))!r}"])
    if isinstance(data, Pictures):
        return "\n".join([*lines, *_picture_samples(model, data, rng), ""])
    for name, family in FAMILIES.items():
        prompt, answer = family.example(rng, "test").turns[0]
        written = decode(generate(model, encode(prompt), len(answer), stop_tokens=(NEWLINE,))).strip("\n")
        mark = "right" if written == answer else f"wrong, it is {answer}"
        lines.append(f"  {name:<9} {prompt} -> {written}   ({mark})")
    return "\n".join([*lines, ""])


def _picture_samples(model, data, rng):
    """A line for each of a few held-out questions; "@" stands for a picture."""
    for family in data.families:
        batch = data.batch(rng, 1, "test", family)
        row, start, stop = answers(batch)[-1]
        prompt, answer = batch.tokens[row, :start + 1].tolist(), decode(batch.targets[row, start:stop])
        images = torch.from_numpy(batch.images[row][:prompt.count(IMAGE) // MARKERS])
        written = decode(generate(model, prompt, len(answer), stop_tokens=(NEWLINE,), images=images)).strip("\n")
        shown = decode(prompt).replace("<image>" * MARKERS, "@").replace("\n", " ").strip()
        yield f"  {family:<9} {shown} -> {written}   ({'right' if written == answer else f'wrong, it is {answer}'})"


def draw(folder):
    """Measure the finished run and draw its pictures into its folder; returns {name: path}."""
    folder = RunFolder(folder)
    model, options = load_model(folder.path), read_json(folder.path / "options.json")
    data = training_data(model.config, options["text"], options["length"])
    metrics = folder.read_metrics()
    validations = [entry for entry in metrics if "validation_loss" in entry]
    batch = data.batch(np.random.default_rng([1, 1]), 64, "validation")
    tokens = torch.from_numpy(batch.tokens)
    images = None if batch.images is None else torch.from_numpy(batch.images).flatten(0, 1)
    mask, config = tokens != PAD, model.config
    arrays = {
        "train_steps": np.array([entry["step"] for entry in metrics]),
        "train_loss": np.array([entry["loss"] for entry in metrics]),
        "learning_rate": np.array([entry["learning_rate"] for entry in metrics]),
        "validation_steps": np.array([entry["step"] for entry in validations]),
        "validation_loss": np.array([entry["validation_loss"] for entry in validations]),
        "accuracy": {name: np.array([entry["validation_accuracy"][name] for entry in validations])
                     for name in validations[0]["validation_accuracy"]},
    }
    layers = list(validations[0]["load"])
    if layers:
        arrays |= {"load_steps": arrays["validation_steps"], "load_layers": [f"layer {layer}" for layer in layers],
                   "load": np.array([[entry["load"][layer] for layer in layers] for entry in validations])}
    with with_images(model, images):
        if config.attn_res_block_size is not None:
            names = ("depth_weights", "depth_queries", "depth_sources")
            arrays |= dict(zip(names, depth_attention(model, tokens, mask), strict=True))
        if config.kda_layers:
            arrays["decay"] = mean_decay(model, tokens, mask)
        names = ("magnitude_names", "magnitude_input", "magnitude_output")
        arrays |= dict(zip(names, magnitudes(model, tokens, mask), strict=True))
    return run_pictures(arrays, folder.path)


def publish(folder, name):
    """Copy configuration, weights and summary of a finished run into the package, each file in one move."""
    source, target = RunFolder(folder), FOLDER / name
    if not source.finished:
        raise RunError(f"{folder}: only a finished run can be published")
    target.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "options.json", "model.safetensors", "summary.json"):
        temporary = target / f".{file}.tmp"
        shutil.copyfile(source.path / file, temporary)
        temporary.replace(target / file)
    print(f"published as pretrained({name!r})")
