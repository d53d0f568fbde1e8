"""The pictures of chapter 10 in one place. Each lives in the file of its name."""

from k3_scratch.plots.control_bars import control_bars
from k3_scratch.plots.picture_answers import picture_answers
from k3_scratch.plots.picture_looks import picture_looks
from k3_scratch.plots.picture_sequence import picture_sequence
from k3_scratch.plots.vision_curves import vision_curves

__all__ = ["control_bars", "picture_answers", "picture_looks", "picture_sequence", "vision_curves"]
