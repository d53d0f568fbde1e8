"""Trained weights that come with the package, written by `k3 train ... --publish`."""

from pathlib import Path

from k3_scratch.training.run_folder import RunError, load_model

FOLDER = Path(__file__).parent


def pretrained(name="mini"):
    """The trained model called `name`, in evaluation mode on the CPU. An unknown name raises RunError."""
    known = published()
    if name not in known:
        raise RunError(f"pretrained: name must be one of {', '.join(known) or '(none yet)'}, but {name!r} came")
    return load_model(FOLDER / name)


def published():
    """The names that `pretrained` knows."""
    return sorted(path.parent.name for path in FOLDER.glob("*/model.safetensors"))


def run_or_pretrained(run=None):
    """The model of the finished run in folder `run`, or the published one of that name; None: the mini."""
    if run is None or (run in published() and not Path(run).exists()):
        return pretrained(run or "mini")
    return load_model(run)
