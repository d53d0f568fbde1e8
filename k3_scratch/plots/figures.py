"""The pictures that are drawn from configurations alone, written to a folder."""

from pathlib import Path

from k3_scratch.config import preset
from k3_scratch.plots.architecture import architecture
from k3_scratch.plots.style import save

# file name without ending, preset, headline
ARCHITECTURES = (
    ("architecture", "mini", "A miniature K3, complete"),
    ("architecture_k3", "kimi_k3", "Kimi K3, the real one: 2.78 trillion parameters"),
)


def write_architecture_figures(folder):
    """Draw the miniature and the real K3; returns {name: path}, e.g. {"architecture.png": …}.     -> dict"""
    return {f"{name}.png": save(architecture(preset(model), title), Path(folder) / f"{name}.png")
            for name, model, title in ARCHITECTURES}
