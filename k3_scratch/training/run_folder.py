"""A run is a folder: configuration, options, metrics, the last checkpoint, and at the end weights and summary.

    config.json  options.json     what was asked for
    metrics.jsonl                 one JSON object a line, in order of "step"
    checkpoint.pt                 to resume from; removed when the run is finished
    model.safetensors             the trained weights
    summary.json                  results; its presence means: finished
"""

import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from k3_scratch.config import ConfigError, K3Config
from k3_scratch.model import K3
from k3_scratch.training.checkpoint import CheckpointError, write_atomically, write_text


class RunError(ValueError):
    """A run folder is not what the command needs; the message names the folder or file."""


class RunFolder:
    """The files of one run under `path`."""

    def __init__(self, path):
        self.path = Path(path)
        self.checkpoint = self.path / "checkpoint.pt"
        self.metrics = self.path / "metrics.jsonl"
        self.weights = self.path / "model.safetensors"
        self.summary = self.path / "summary.json"

    @property
    def finished(self):
        """Is the run complete? Weights and summary are written last."""
        return self.summary.exists() and self.weights.exists()

    def start(self, config, options):
        """Make the folder, or check that it belongs to the same run."""
        asked = {"config.json": config.to_dict(), "options.json": options.to_dict()}
        self.path.mkdir(parents=True, exist_ok=True)
        for name, wanted in asked.items():
            file = self.path / name
            if self.checkpoint.exists() and file.exists():
                given = read_json(file)
                different = sorted(key for key in {*wanted, *given} if wanted.get(key) != given.get(key))
                if different:
                    key = different[0]
                    raise RunError(f"{self.path} holds an unfinished run with other settings: {key} is "
                                   f"{given.get(key)!r} there and {wanted.get(key)!r} now. Finish it with its own "
                                   "settings, choose another folder, or start anew with --force")
            write_text(file, json.dumps(wanted, indent=2) + "\n")

    def clear(self):
        """Forget an earlier run in this folder, its own files only."""
        for file in (self.summary, self.weights, self.checkpoint, self.metrics):
            file.unlink(missing_ok=True)

    def keep_metrics_until(self, step):
        """Drop the lines a resumed run is going to write again."""
        if self.metrics.exists():
            lines = [line for line in self.metrics.read_text(encoding="utf-8").splitlines(keepends=True)
                     if line.endswith("\n") and json.loads(line)["step"] <= step]
            write_text(self.metrics, "".join(lines))

    def log(self, **entry):
        """Add a line to metrics.jsonl."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def read_metrics(self):
        """The lines of metrics.jsonl, a dict each."""
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]


def read_json(path):
    """The fields in a JSON file. Raises RunError when `path` is not readable JSON or holds something else."""
    try:
        fields = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: not readable JSON ({error})") from error
    if not isinstance(fields, dict):
        raise RunError(f"{path}: wanted an object of fields, but it holds a {type(fields).__name__}")
    return fields


def save_weights(model, path):
    """All parameters and selection biases, as safetensors, atomically."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(path, lambda temporary: temporary.write_bytes(save(tensors)))


def load_model(folder, device="cpu"):
    """The trained model of a finished run (or of `k3_scratch/pretrained/NAME`), in evaluation mode.

    Raises RunError or CheckpointError naming the file when something is missing, truncated or of another model.
    """
    folder = Path(folder)
    if not (folder / "config.json").exists():
        raise RunError(f"{folder}: not a run folder (it has no config.json)")
    try:
        config = K3Config.from_json(folder / "config.json")
    except ConfigError as error:
        raise RunError(str(error)) from error
    weights = folder / "model.safetensors"
    if not weights.exists():
        raise RunError(f"{folder}: the run is not finished (it has no model.safetensors)")
    try:
        tensors = load_file(weights, device=str(device))
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{weights}: not readable safetensors ({error})") from error
    model = K3(config)
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    wrong = sorted(name for name in {*wanted, *given} if wanted.get(name) != given.get(name))
    if wrong:
        name = wrong[0]
        raise CheckpointError(f"{weights}: {len(wrong)} tensors do not fit config.json, first {name}: wanted "
                              f"{wanted.get(name, 'none')}, got {given.get(name, 'none')}")
    model.load_state_dict(tensors)
    return model.to(device).eval()
