"""The pictures of a training in one place, for those who show many: chapter 09. Each lives in the file of its name."""

from k3_scratch.plots.clinic_chart import clinic_chart
from k3_scratch.plots.decay_spectrum import half_life
from k3_scratch.plots.depth_weights import depth_weights
from k3_scratch.plots.expert_load import expert_load
from k3_scratch.plots.lab_curves import lab_curves
from k3_scratch.plots.loss_curve import loss_curve
from k3_scratch.plots.magnitudes import magnitudes
from k3_scratch.plots.run_overlay import run_overlay
from k3_scratch.plots.seed_curves import seed_curves
from k3_scratch.plots.singular_values import singular_values
from k3_scratch.plots.task_rows import task_rows

__all__ = ["clinic_chart", "depth_weights", "expert_load", "half_life", "lab_curves", "loss_curve", "magnitudes",
           "run_overlay", "seed_curves", "singular_values", "task_rows"]
