"""Trained weights that come with the package, written by `k3 train ... --publish`."""

from pathlib import Path

from k3_scratch.training.run_folder import RunError, load_model

FOLDER = Path(__file__).parent


def pretrained(name="mini"):
    """The trained model called `name`, in evaluation mode on the CPU. An unknown name raises RunError."""
    known = sorted(path.parent.name for path in FOLDER.glob("*/model.safetensors"))
    if name not in known:
        raise RunError(f"pretrained: name must be one of {', '.join(known) or '(none yet)'}, but {name!r} came")
    return load_model(FOLDER / name)
